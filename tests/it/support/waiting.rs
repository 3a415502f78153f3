//! Waits until a condition holds, or checks that it keeps holding. If a thread of the test's
//! servers fails, every pause ends early and the test fails.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use replicaset_controller::stdx::stop::Stop;

/// How long a condition may take to hold: only a hang takes longer, on however slow a machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// How long a condition must keep holding by default. The daemon reacts within milliseconds, so a
/// defect shows within this time.
pub(crate) const HOLD_TIME: Duration = Duration::from_millis(1500);

/// Pauses between two checks: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));

/// Waits on behalf of one test. The test fails at once when `stop` trips, as it does when a thread
/// of the test's servers panics.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    stop: Stop,
}

impl Waiting {
    pub(crate) fn new(stop: &Stop) -> Self {
        Self { stop: stop.clone() }
    }

    /// Polls until `predicate` is true. The test fails after [`PATIENCE`].
    #[track_caller]
    pub(crate) fn eventually(&self, what: &str, predicate: impl Fn() -> bool) {
        self.eventually_eq(what, &true, predicate);
    }

    /// Polls until `actual` returns `expected`. The test fails after [`PATIENCE`].
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

    /// Polls until `predicate` is true, and returns whether it was within [`PATIENCE`].
    #[track_caller]
    pub(crate) fn within(&self, predicate: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while !predicate() {
            if Instant::now() >= deadline {
                return false;
            }
            self.pause(PAUSES.0);
        }
        true
    }

    /// Polls for `duration`. The test fails as soon as `predicate` is false.
    #[track_caller]
    pub(crate) fn holds_for(&self, duration: Duration, what: &str, predicate: impl Fn() -> bool) {
        let began = Instant::now();
        loop {
            let is_last = began.elapsed() >= duration;
            assert!(predicate(), "false after {:?}: {what}", began.elapsed());
            if is_last {
                return;
            }
            self.pause(PAUSES.1);
        }
    }

    /// [`holds_for`](Self::holds_for) [`HOLD_TIME`].
    #[track_caller]
    pub(crate) fn holds(&self, what: &str, predicate: impl Fn() -> bool) {
        self.holds_for(HOLD_TIME, what, predicate);
    }

    /// Waits for `duration`, for tests about time itself. The test fails if `stop` trips.
    #[track_caller]
    pub(crate) fn pause(&self, duration: Duration) {
        let stopped = self.stop.wait_timeout(duration);
        assert!(!stopped, "the server failed: {:?}", self.stop.cause());
    }
}
