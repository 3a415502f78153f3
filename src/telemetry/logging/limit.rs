//! How much one place in the code may log: a burst, then so much a second. What exceeds it is counted, and
//! the number told with the next line from there. So the log of a daemon is bounded by its number of
//! places, however many ReplicaSets want something at once. No *error* is left out, and nothing that only
//! who has raised the level sees: *debug* and *trace*.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use log::{Level, Record};

/// Lines of one place that may come at once after a quiet time.
const BURST: u32 = 100;

/// After this long a place may log one line more.
const REFILL: Duration = Duration::from_secs(1);

/// Places that are known at most. There are fewer in this program; others share one.
const PLACES_MAX: usize = 1000;

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RateDecision {
    /// It is written, and so many of the same place were not, before it.
    Write { left_out: u64 },
    /// It is counted.
    LeaveOut,
}

/// All places. The lock is held for a look into a map.
#[derive(Debug, Default)]
pub(super) struct Limit {
    places: Mutex<HashMap<(String, u32), Place>>,
}

#[derive(Debug)]
struct Place {
    left: u32,
    since: Instant,
    left_out: u64,
}

impl Limit {
    pub(super) fn ask(&self, record: &Record<'_>) -> RateDecision {
        if matches!(record.level(), Level::Error | Level::Debug | Level::Trace) {
            return RateDecision::Write { left_out: 0 };
        }
        let file = record.file().unwrap_or_default();
        self.ask_at(file, record.line().unwrap_or_default(), Instant::now())
    }

    fn ask_at(&self, file: &str, line: u32, now: Instant) -> RateDecision {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (file.to_owned(), line);
        if places.len() >= PLACES_MAX && !places.contains_key(&key) {
            key = (String::new(), 0);
        }
        let place = places.entry(key).or_insert(Place {
            left: BURST,
            since: now,
            left_out: 0,
        });
        let periods = now.saturating_duration_since(place.since).as_secs() / REFILL.as_secs();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        if periods > 0 {
            place.left = place.left.saturating_add(periods).min(BURST);
            place.since += REFILL * periods;
        }
        if place.left == 0 {
            place.left_out += 1;
            return RateDecision::LeaveOut;
        }
        place.left -= 1;
        let left_out = std::mem::take(&mut place.left_out);
        RateDecision::Write { left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::{BURST, Duration, Instant, Limit, RateDecision};

    #[test]
    fn a_place_is_bounded_and_tells_what_was_left_out() {
        let limit = Limit::default();
        let now = Instant::now();
        for _ in 0..BURST {
            assert_eq!(
                limit.ask_at("a", 1, now),
                RateDecision::Write { left_out: 0 }
            );
        }
        assert_eq!(limit.ask_at("a", 1, now), RateDecision::LeaveOut);
        assert_eq!(limit.ask_at("a", 1, now), RateDecision::LeaveOut);
        assert_eq!(
            limit.ask_at("a", 2, now),
            RateDecision::Write { left_out: 0 }
        );
        let later = now + Duration::from_millis(1500);
        assert_eq!(
            limit.ask_at("a", 1, later),
            RateDecision::Write { left_out: 2 }
        );
        assert_eq!(limit.ask_at("a", 1, later), RateDecision::LeaveOut);
        let much_later = now + Duration::from_hours(1);
        assert_eq!(
            limit.ask_at("a", 1, much_later),
            RateDecision::Write { left_out: 1 }
        );
    }
}
