//! Waiting for something to become true, or watching that it stays so. Nothing here sleeps blindly:
//! every pause ends early when a thread of the test's servers has failed.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use replicaset_controller::stdx::stop::Stop;

/// How long anything may take to become true.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// How long something must stay true where a test says no other time. The daemon decides within
/// milliseconds, so what is to go wrong goes wrong soon.
pub(crate) const HOLD_TIME: Duration = Duration::from_millis(1500);

/// Pauses between two looks: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));

/// The waiting of one test. It fails at once when `stop` is given, which the test's servers do when
/// one of their threads panics.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    stop: Stop,
}

impl Waiting {
    pub(crate) fn new(stop: &Stop) -> Self {
        Self { stop: stop.clone() }
    }

    /// Looks again and again until `predicate` is true; the test fails after [`PATIENCE`].
    #[track_caller]
    pub(crate) fn eventually(&self, what: &str, predicate: impl Fn() -> bool) {
        self.eventually_eq(what, &true, predicate);
    }

    /// Looks again and again until `actual` answers `expected`; the test fails after [`PATIENCE`].
    #[track_caller]
    pub(crate) fn eventually_eq<T: PartialEq + Debug>(
        &self,
        what: &str,
        expected: &T,
        actual: impl Fn() -> T,
    ) {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = PAUSES.0;
        loop {
            let found = actual();
            if found == *expected {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "not within {PATIENCE:?}: {what}\n expected: {expected:?}\n    found: {found:?}"
            );
            self.pause(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Looks for `duration` whether `predicate` stays true; the test fails when it is not.
    #[track_caller]
    pub(crate) fn holds_for(&self, duration: Duration, what: &str, predicate: impl Fn() -> bool) {
        let began = Instant::now();
        loop {
            let is_last = began.elapsed() >= duration;
            assert!(predicate(), "after {:?} no more: {what}", began.elapsed());
            if is_last {
                return;
            }
            self.pause(PAUSES.1);
        }
    }

    /// [`holds_for`](Self::holds_for) the usual time.
    #[track_caller]
    pub(crate) fn holds(&self, what: &str, predicate: impl Fn() -> bool) {
        self.holds_for(HOLD_TIME, what, predicate);
    }

    /// Lets time pass where time itself is what the test needs.
    #[track_caller]
    pub(crate) fn pause(&self, duration: Duration) {
        let stopped = self.stop.wait_timeout(duration);
        assert!(!stopped, "the server failed: {:?}", self.stop.cause());
    }
}
