//! How often a status may be written while pods come, turn Ready or finish going away. Plain data without
//! lock, clock or I/O.
//!
//! The first status is written at once, and so is one that says anything but that counts have come
//! nearer to what is wanted ([`Counts::can_wait`](crate::controller::decide::counts::Counts::can_wait)): a loss, a
//! count that has reached what is wanted, a condition, a generation. In between, one status must do
//! for many pods.
//!
//! DIFFERS: upstream writes a status in every sync in which a number has changed.

use std::time::{Duration, Instant};

/// The pause that a status earns for each of its pods. So whoever has few pods never notices, and the
/// writes grow with the time that pods take, not with their number.
const PAUSE_PER_POD: Duration = Duration::from_millis(1);

/// When the status of one ReplicaSet may be written next.
#[derive(Debug, Default)]
pub struct StatusPace {
    next: Option<Instant>,
}

impl StatusPace {
    /// The status was written, and has so many pods. It pauses for `longest` at most.
    pub fn wrote(&mut self, n_pods: i32, longest: Duration, now: Instant) {
        let pause = PAUSE_PER_POD.saturating_mul(n_pods.max(0).unsigned_abs());
        self.next = Some(now + pause.min(longest));
    }

    /// How long until counts that only get better may be written; `None` if they may be now.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.next?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::StatusPace;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn who_has_more_pods_waits_longer_up_to_a_limit() {
        let now = Instant::now();
        for (n_pods, left) in [(5, 5), (100, 100), (9000, 250)] {
            let mut pace = StatusPace::default();
            assert_eq!(pace.left(now), None, "{n_pods} have written nothing");
            pace.wrote(n_pods, 250 * MS, now);
            assert_eq!(pace.left(now), Some(left * MS), "{n_pods}");
            let later = now + 100 * MS;
            let left_later = left.checked_sub(100).filter(|left| *left > 0);
            assert_eq!(pace.left(later), left_later.map(|left| left * MS));
        }
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let now = Instant::now();
        let mut pace = StatusPace::default();
        pace.wrote(9000, Duration::ZERO, now);
        assert_eq!(pace.left(now), None);
    }
}
