//! Rate limit per place in the code: a burst, then one line per second. The next line from there
//! reports the number of suppressed records. So the number of places bounds the log volume, however
//! many ReplicaSets are busy. The limit never suppresses *error* records, nor *debug* and *trace*
//! records and lists of threads, which an operator requests explicitly.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use log::{Level, Record};

/// Records that one place may log at once after a quiet time.
const BURST: u32 = 100;

/// A place regains one record per period.
const REFILL: Duration = Duration::from_secs(1);

/// Logs the lists of threads, which an operator requests, too.
const REQUESTED: &str = concat!(env!("CARGO_CRATE_NAME"), "::telemetry::threads");

/// Maximum number of tracked places. This program has fewer; any excess shares one entry.
const PLACES_MAX: usize = 1000;

/// The decision for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RateDecision {
    /// Write the record, after this number of suppressed records from the same place.
    Write { suppressed: u64 },
    /// Count the record without writing it.
    Suppress,
}

/// All places. The lock is held for one map access.
#[derive(Debug, Default)]
pub(super) struct Limit {
    places: Mutex<HashMap<(String, u32), Place>>,
}

#[derive(Debug)]
struct Place {
    remaining: u32,
    since: Instant,
    suppressed: u64,
}

impl Limit {
    pub(super) fn decide(&self, record: &Record<'_>) -> RateDecision {
        let is_requested = record.module_path() == Some(REQUESTED);
        if is_requested || matches!(record.level(), Level::Error | Level::Debug | Level::Trace) {
            return RateDecision::Write { suppressed: 0 };
        }
        let file = record.file().unwrap_or_default();
        self.decide_at(file, record.line().unwrap_or_default(), Instant::now())
    }

    fn decide_at(&self, file: &str, line: u32, now: Instant) -> RateDecision {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (file.to_owned(), line);
        if places.len() >= PLACES_MAX && !places.contains_key(&key) {
            key = (String::new(), 0);
        }
        let place = places.entry(key).or_insert(Place {
            remaining: BURST,
            since: now,
            suppressed: 0,
        });
        let periods = now.saturating_duration_since(place.since).as_secs() / REFILL.as_secs();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        if periods > 0 {
            place.remaining = place.remaining.saturating_add(periods).min(BURST);
            // Keeps the fraction of the current period.
            place.since += REFILL * periods;
        }
        if place.remaining == 0 {
            place.suppressed += 1;
            return RateDecision::Suppress;
        }
        place.remaining -= 1;
        let suppressed = std::mem::take(&mut place.suppressed);
        RateDecision::Write { suppressed }
    }
}

#[cfg(test)]
mod tests {
    use super::{BURST, Duration, Instant, Level, Limit, REQUESTED, RateDecision, Record};

    #[test]
    fn a_list_of_many_threads_is_complete() {
        let limit = Limit::default();
        let mut record = Record::builder();
        record.level(Level::Info).line(Some(1));
        let mut decide = |module: &'static str| {
            let record = record.module_path(Some(module)).build();
            let decisions = (0..=BURST).map(|_| limit.decide(&record));
            decisions.last().expect("there are some")
        };
        let written = RateDecision::Write { suppressed: 0 };
        assert_eq!(decide(REQUESTED), written);
        assert_eq!(
            decide("replicaset_controller::other"),
            RateDecision::Suppress
        );
        let lists = std::any::type_name::<crate::telemetry::threads::ThreadReport>();
        assert!(lists.starts_with(REQUESTED), "{lists}");
    }

    #[test]
    fn a_place_is_limited_and_reports_the_suppressed_count() {
        let limit = Limit::default();
        let now = Instant::now();
        for _ in 0..BURST {
            assert_eq!(
                limit.decide_at("a", 1, now),
                RateDecision::Write { suppressed: 0 }
            );
        }
        assert_eq!(limit.decide_at("a", 1, now), RateDecision::Suppress);
        assert_eq!(limit.decide_at("a", 1, now), RateDecision::Suppress);
        assert_eq!(
            limit.decide_at("a", 2, now),
            RateDecision::Write { suppressed: 0 }
        );
        let later = now + Duration::from_millis(1500);
        assert_eq!(
            limit.decide_at("a", 1, later),
            RateDecision::Write { suppressed: 2 }
        );
        assert_eq!(limit.decide_at("a", 1, later), RateDecision::Suppress);
        let much_later = now + Duration::from_hours(1);
        assert_eq!(
            limit.decide_at("a", 1, much_later),
            RateDecision::Write { suppressed: 1 }
        );
    }
}
