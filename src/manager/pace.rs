//! How the workers of one queue get on: since when each has its key, and how long keys have waited.
//! Written by the threads `sync-*`, read by the checks of `progress`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the number of adds is remembered at most, which is how exact the age of a key is.
const SAMPLE_PERIOD: Duration = Duration::from_secs(5);

/// Samples that are kept: more than an hour, which is above every threshold.
const SAMPLES_MAX: usize = 1000;

/// What the workers of one queue are at.
#[derive(Debug)]
pub(super) struct Pace {
    created: Instant,
    /// Of each worker, milliseconds from `created` to when it took its key, and one; 0 if it has none.
    taken_ms: Vec<AtomicU64>,
    n_taken: AtomicU64,
}

impl Pace {
    pub(super) fn new(n_workers: u16) -> Self {
        Self {
            created: Instant::now(),
            taken_ms: (0..n_workers).map(|_| AtomicU64::new(0)).collect(),
            n_taken: AtomicU64::new(0),
        }
    }

    /// Notes that a worker has taken a key.
    pub(super) fn begin(&self, worker: u16) {
        let ms = u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.taken_ms[usize::from(worker)].store(ms + 1, Ordering::Relaxed);
        self.n_taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that it is done with it.
    pub(super) fn end(&self, worker: u16) {
        self.taken_ms[usize::from(worker)].store(0, Ordering::Relaxed);
    }

    /// Keys taken so far.
    pub(super) fn n_taken(&self) -> u64 {
        self.n_taken.load(Ordering::Relaxed)
    }

    /// How long the sync that takes longest has been under way.
    pub(super) fn longest(&self) -> Duration {
        let taken = self.taken_ms.iter().map(|ms| ms.load(Ordering::Relaxed));
        let oldest = taken.filter(|ms| *ms > 0).min();
        let since = oldest.map(|ms| Duration::from_millis(ms - 1));
        since.map_or(Duration::ZERO, |since| {
            self.created.elapsed().saturating_sub(since)
        })
    }
}

/// Finds out how long the oldest key of a queue has waited, from how many were added and taken: keys
/// are taken in the order in which they were added, but for those of high priority, which make the rest
/// older than it seems.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// How many keys had been added when, oldest first.
    samples: VecDeque<(Instant, u64)>,
}

impl Backlog {
    /// How long the oldest key has waited, if so many have been added and taken until now. Too short by
    /// the time between two questions at most.
    pub(super) fn oldest(&mut self, now: Instant, n_added: u64, n_taken: u64) -> Duration {
        // The next key to be taken had been added when a sample counts more than were taken.
        while self
            .samples
            .front()
            .is_some_and(|(_, added)| *added <= n_taken)
        {
            self.samples.pop_front();
        }
        let is_due = |(at, _): &(Instant, u64)| now.saturating_duration_since(*at) >= SAMPLE_PERIOD;
        if n_added > n_taken
            && self.samples.len() < SAMPLES_MAX
            && self.samples.back().is_none_or(is_due)
        {
            self.samples.push_back((now, n_added));
        }
        let oldest = self.samples.front();
        oldest.map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(*at))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Backlog, Pace};

    #[test]
    fn the_age_of_the_oldest_key_follows_from_how_many_came_and_went() {
        let start = Instant::now();
        let mut backlog = Backlog::default();
        let mut oldest = |seconds, n_added, n_taken| {
            let now = start + Duration::from_secs(seconds);
            backlog.oldest(now, n_added, n_taken).as_secs()
        };
        assert_eq!(oldest(0, 0, 0), 0);
        assert_eq!(oldest(10, 3, 0), 0);
        assert_eq!(oldest(20, 5, 0), 10);
        // Two of the first three are gone, one has waited since 10 at the latest.
        assert_eq!(oldest(30, 5, 2), 20);
        // Now the oldest is the fourth, seen first at 20.
        assert_eq!(oldest(40, 5, 3), 20);
        assert_eq!(oldest(50, 5, 5), 0);
        assert_eq!(oldest(1000, 6, 5), 0);
        assert_eq!(oldest(1060, 6, 5), 60);
    }

    #[test]
    fn a_worker_without_a_key_takes_no_time() {
        let pace = Pace::new(2);
        assert_eq!(pace.longest(), Duration::ZERO);
        pace.begin(1);
        assert_eq!(pace.n_taken(), 1);
        pace.end(1);
        assert_eq!(pace.longest(), Duration::ZERO);
    }
}
