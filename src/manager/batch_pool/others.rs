//! Who has few pods to create or delete, and therefore waits for those who have many.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Tells whether somebody with few pods was there a short time ago.
#[derive(Debug)]
pub(super) struct Others {
    /// How long they count.
    stay: Duration,
    began: Instant,
    /// Until when they count, in milliseconds since then.
    until: AtomicU64,
}

impl Others {
    /// Nobody was there yet; whoever comes counts for `stay`.
    pub(super) fn new(stay: Duration) -> Self {
        Self {
            stay,
            began: Instant::now(),
            until: AtomicU64::new(0),
        }
    }

    /// Somebody is there.
    pub(super) fn come(&self) {
        let until = self.began.elapsed() + self.stay;
        self.until.store(millis(until), Ordering::Relaxed);
    }

    /// Whether somebody was there within the last `stay`.
    pub(super) fn are_there(&self) -> bool {
        millis(self.began.elapsed()) < self.until.load(Ordering::Relaxed)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Others;

    #[test]
    fn they_count_for_a_while() {
        let others = Others::new(Duration::from_millis(20));
        assert!(!others.are_there(), "nobody came");
        others.come();
        while others.are_there() {
            std::thread::yield_now();
        }
        assert!(others.began.elapsed() >= Duration::from_millis(20));
        let others = Others::new(Duration::from_hours(1));
        others.come();
        assert!(others.are_there());
    }
}
