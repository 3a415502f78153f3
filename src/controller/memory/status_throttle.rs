//! How often a status may be written while pods come, turn Ready or finish going away. Plain data without
//! lock, clock or I/O.
//!
//! The first status is written at once, and so is one that says anything but that counts have come
//! nearer to what is wanted ([`Counts::can_wait`](crate::controller::decide::counts::Counts::can_wait)): a loss, a
//! count that has reached what is wanted, a condition, a generation. In between, one status must do
//! for many pods. A status that could only tell of a generation, or of some of the pods that were just
//! created, waits until the watch has shown them, for [`SETTLE_MAX`] at most.
//!
//! DIFFERS: upstream writes a status in every sync in which a number has changed.

use std::time::{Duration, Instant};

use super::positions::SETTLE_MAX;
use crate::controller::decide::status::News;

/// The pause that a status earns for each of its pods. So whoever has few pods never notices, and the
/// writes grow with the time that pods take, not with their number.
const PAUSE_PER_POD: Duration = Duration::from_millis(1);

/// When the status of one ReplicaSet may be written next.
#[derive(Debug, Default)]
pub struct StatusThrottle {
    next: Option<Instant>,
    /// Since when a status is due that waits for pods that were created.
    settling: Option<Instant>,
}

impl StatusThrottle {
    /// The status was written, and has so many pods. It pauses for `longest` at most.
    pub fn wrote(&mut self, n_pods: i32, longest: Duration, now: Instant) {
        let pause = PAUSE_PER_POD.saturating_mul(n_pods.max(0).unsigned_abs());
        self.next = Some(now + pause.min(longest));
        self.settling = None;
    }

    /// How long a status with this `news` need not be written; `None` if it is written now. What is no
    /// loss and no condition waits for pods that were just created and are not seen yet
    /// (`awaits_pods`), for [`SETTLE_MAX`] in all, however many syncs ask. Then, what is only progress
    /// waits until the last status is long enough ago.
    pub fn defer_status(
        &mut self,
        news: News,
        awaits_pods: bool,
        now: Instant,
    ) -> Option<Duration> {
        match news {
            News::Urgent => None,
            News::Nothing => {
                self.settling = None;
                None
            }
            News::Generation | News::Progress => {
                let settles = awaits_pods.then(|| *self.settling.get_or_insert(now));
                let settle = settles.and_then(|since| left_until(since + SETTLE_MAX, now));
                let pause = self.remaining(now).filter(|_| news == News::Progress);
                settle.max(pause)
            }
        }
    }

    /// True if a status has waited for pods that were created for as long as it may.
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.settling
            .is_some_and(|since| left_until(since + SETTLE_MAX, now).is_none())
    }

    /// How long until counts that only get better may be written; `None` if they may be now.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        let settled = self.settling.map(|since| since + SETTLE_MAX);
        let at = self.next.max(settled)?;
        left_until(at, now)
    }
}

fn left_until(at: Instant, now: Instant) -> Option<Duration> {
    let left = at.saturating_duration_since(now);
    (!left.is_zero()).then_some(left)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{News, StatusThrottle};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn who_has_more_pods_waits_longer_up_to_a_limit() {
        let now = Instant::now();
        for (n_pods, left) in [(5, 5), (100, 100), (9000, 250)] {
            let mut throttle = StatusThrottle::default();
            assert_eq!(
                throttle.remaining(now),
                None,
                "{n_pods} have written nothing"
            );
            throttle.wrote(n_pods, 250 * MS, now);
            assert_eq!(throttle.remaining(now), Some(left * MS), "{n_pods}");
            let later = now + 100 * MS;
            let left_later = left.checked_sub(100).filter(|left| *left > 0);
            assert_eq!(throttle.remaining(later), left_later.map(|left| left * MS));
        }
    }

    #[test]
    fn created_pods_are_waited_for_once_and_25_ms_at_most() {
        let now = Instant::now();
        let mut throttle = StatusThrottle::default();
        let mut generation = |now| throttle.defer_status(News::Generation, true, now);
        assert_eq!(generation(now), Some(25 * MS));
        let later = now + 20 * MS;
        assert_eq!(generation(later), Some(5 * MS), "of the first");
        assert_eq!(generation(now + 25 * MS), None);
        assert!(!throttle.is_overdue(now + 24 * MS));
        assert!(throttle.is_overdue(now + 25 * MS));
        throttle.wrote(1, 250 * MS, later);
        let left = throttle.defer_status(News::Generation, true, later);
        assert_eq!(left, Some(25 * MS), "a new one");
    }

    #[test]
    fn only_progress_and_a_generation_with_pods_to_come_wait() {
        let now = Instant::now();
        let check = |news, awaits_pods: bool, expected| {
            let mut throttle = StatusThrottle::default();
            throttle.wrote(100, 250 * MS, now);
            let left = throttle.defer_status(news, awaits_pods, now);
            assert_eq!(left, expected, "{news:?}, pods to come: {awaits_pods}");
        };
        for awaits_pods in [false, true] {
            check(News::Nothing, awaits_pods, None);
            check(News::Urgent, awaits_pods, None);
            check(News::Progress, awaits_pods, Some(100 * MS));
        }
        check(News::Generation, false, None);
        check(News::Generation, true, Some(25 * MS));
    }

    #[test]
    fn who_has_nothing_to_say_waits_for_no_pods() {
        let now = Instant::now();
        let mut throttle = StatusThrottle::default();
        throttle.defer_status(News::Generation, true, now);
        throttle.defer_status(News::Nothing, false, now);
        assert!(!throttle.is_overdue(now + 25 * MS));
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let now = Instant::now();
        let mut throttle = StatusThrottle::default();
        throttle.wrote(9000, Duration::ZERO, now);
        assert_eq!(throttle.remaining(now), None);
    }
}
