//! Limits status writes while pods start, become Ready or terminate. Plain data without lock, clock
//! or I/O.
//!
//! The sync writes the first status at once, and likewise each status with more than progress
//! ([`Counts::can_wait`](crate::controller::decide::counts::Counts::can_wait)): a loss, a count
//! that reaches its target, a condition, a generation. In between, one status covers many pods. A
//! status with only a generation, or with only some of the pods just created, waits until the watch
//! has shown those pods, for at most [`SETTLE_MAX`].
//!
//! DIFFERS: upstream writes a status in every sync in which a number has changed.

use std::time::{Duration, Instant};

use super::positions::SETTLE_MAX;
use crate::controller::decide::status::News;

/// Pause per pod after a status write, before a status with mere progress. So small ReplicaSets are
/// never delayed noticeably, and the number of writes follows the time that pods take, not the
/// number of pods.
const PAUSE_PER_POD: Duration = Duration::from_millis(1);

/// The earliest time of the next status write of one ReplicaSet.
#[derive(Debug, Default)]
pub struct StatusThrottle {
    next: Option<Instant>,
    /// Since when a due status has waited for created pods.
    settling: Option<Instant>,
}

impl StatusThrottle {
    /// Records a status write with `n_pods` pods. Mere progress then waits for at most `longest`.
    pub fn wrote(&mut self, n_pods: i32, longest: Duration, now: Instant) {
        let pause = PAUSE_PER_POD.saturating_mul(n_pods.max(0).unsigned_abs());
        self.next = Some(now + pause.min(longest));
        self.settling = None;
    }

    /// Returns how long a status with this `news` waits; `None` if the sync writes it at once. A
    /// status without a loss or a condition waits for pods that were just created and not shown yet
    /// (`awaits_pods`), for [`SETTLE_MAX`] in all, however many syncs ask. Mere progress then also
    /// waits for the pause after the last status.
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
                let settle = settles.and_then(|since| remaining_until(since + SETTLE_MAX, now));
                let pause = self.remaining(now).filter(|_| news == News::Progress);
                settle.max(pause)
            }
        }
    }

    /// True if a status has waited for created pods for as long as it may.
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.settling
            .is_some_and(|since| remaining_until(since + SETTLE_MAX, now).is_none())
    }

    /// Returns how long a status with mere progress waits; `None` if it does not.
    pub fn remaining(&self, now: Instant) -> Option<Duration> {
        let settled = self.settling.map(|since| since + SETTLE_MAX);
        let at = self.next.max(settled)?;
        remaining_until(at, now)
    }
}

fn remaining_until(at: Instant, now: Instant) -> Option<Duration> {
    let remaining = at.saturating_duration_since(now);
    (!remaining.is_zero()).then_some(remaining)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{News, StatusThrottle};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_pause_grows_with_the_pods_up_to_a_limit() {
        let now = Instant::now();
        for (n_pods, expected) in [(5, 5), (100, 100), (9000, 250)] {
            let mut throttle = StatusThrottle::default();
            assert_eq!(
                throttle.remaining(now),
                None,
                "{n_pods} have written nothing"
            );
            throttle.wrote(n_pods, 250 * MS, now);
            assert_eq!(throttle.remaining(now), Some(expected * MS), "{n_pods}");
            let later = now + 100 * MS;
            let expected_later = expected.checked_sub(100).filter(|expected| *expected > 0);
            assert_eq!(
                throttle.remaining(later),
                expected_later.map(|expected| expected * MS)
            );
        }
    }

    #[test]
    fn a_status_waits_for_created_pods_for_at_most_25_ms() {
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
        let remaining = throttle.defer_status(News::Generation, true, later);
        assert_eq!(remaining, Some(25 * MS), "a new one");
    }

    #[test]
    fn only_progress_and_a_generation_with_open_creates_wait() {
        let now = Instant::now();
        let check = |news, awaits_pods: bool, expected| {
            let mut throttle = StatusThrottle::default();
            throttle.wrote(100, 250 * MS, now);
            let remaining = throttle.defer_status(news, awaits_pods, now);
            assert_eq!(remaining, expected, "{news:?}, pods to come: {awaits_pods}");
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
    fn a_status_without_news_waits_for_no_pods() {
        let now = Instant::now();
        let mut throttle = StatusThrottle::default();
        throttle.defer_status(News::Generation, true, now);
        throttle.defer_status(News::Nothing, false, now);
        assert!(!throttle.is_overdue(now + 25 * MS));
    }

    #[test]
    fn a_zero_interval_disables_the_pause() {
        let now = Instant::now();
        let mut throttle = StatusThrottle::default();
        throttle.wrote(9000, Duration::ZERO, now);
        assert_eq!(throttle.remaining(now), None);
    }
}
