//! The log of failed lists and watches: each kind of failure at once and then once a minute, and
//! the end of the outage.

use std::time::{Duration, Instant};

use crate::cache::list_watch::Failure;

/// Minimum time between two lines at the default level about the same failure.
const PERIOD: Duration = Duration::from_mins(1);

/// The current outage, as far as it was logged.
#[derive(Debug, Default)]
pub(super) struct OutageLog {
    outage: Option<Outage>,
}

/// The time from a failure until a list is complete, or a message of a watch arrives. A response's
/// head ends no outage: a proxy may cut what follows, or send its own page.
#[derive(Debug)]
struct Outage {
    began: Instant,
    /// The kinds of failure and the time of their last line.
    logged: Vec<(Failure, Instant)>,
    /// A watch has been opened since the last failure.
    is_reopened: bool,
}

impl OutageLog {
    /// Records a failure. Returns when the outage began, and whether to log the failure.
    pub(super) fn failed(&mut self, failure: Failure, now: Instant) -> (Instant, bool) {
        let outage = self.outage.get_or_insert_with(|| Outage {
            began: now,
            logged: Vec::new(),
            is_reopened: false,
        });
        outage.is_reopened = false;
        let mut logged = outage.logged.iter_mut();
        let is_due = match logged.find(|(logged, _)| *logged == failure) {
            Some((_, at)) if now.saturating_duration_since(*at) < PERIOD => false,
            Some((_, at)) => {
                *at = now;
                true
            }
            None => {
                outage.logged.push((failure, now));
                true
            }
        };
        (outage.began, is_due)
    }

    /// True during an outage.
    pub(super) fn is_on(&self) -> bool {
        self.outage.is_some()
    }

    /// Records that a watch was opened. Returns true if this is new in the current outage.
    pub(super) fn reopened(&mut self) -> bool {
        let outage = self.outage.as_mut();
        outage.is_some_and(|outage| !std::mem::replace(&mut outage.is_reopened, true))
    }

    /// Ends the outage, if there is one. Returns its duration, and whether a watch was opened
    /// before.
    pub(super) fn end(&mut self, now: Instant) -> Option<(Duration, bool)> {
        let outage = self.outage.take()?;
        let duration = now.saturating_duration_since(outage.began);
        Some((duration, outage.is_reopened))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Failure, OutageLog};

    #[test]
    fn failures_are_logged_at_once_and_then_every_minute() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        let mut logged_at = |failure, seconds: &mut dyn Iterator<Item = u64>| {
            let is_logged =
                |second: &u64| log.failed(failure, start + Duration::from_secs(*second)).1;
            seconds.filter(is_logged).collect::<Vec<u64>>()
        };
        let refused = Failure::ConnectionRefused;
        assert_eq!(logged_at(refused, &mut (0..150).step_by(4)), [0, 60, 120]);
        assert_eq!(logged_at(Failure::Other, &mut (150..160)), [150]);
        assert_eq!(logged_at(refused, &mut (160..170)), [] as [u64; 0]);
        let ended = log.end(start + Duration::from_secs(170));
        assert_eq!(ended, Some((Duration::from_secs(170), false)));
        assert_eq!(log.end(start), None);
        assert!(log.failed(refused, start).1, "another outage");
    }

    #[test]
    fn an_open_watch_ends_no_outage() {
        let (mut log, now) = (OutageLog::default(), Instant::now());
        assert!(!log.reopened());
        for _ in 0..2 {
            log.failed(Failure::Other, now);
            assert_eq!([log.reopened(), log.reopened()], [true, false]);
            assert!(log.is_on());
        }
        assert_eq!(log.end(now), Some((Duration::ZERO, true)));
    }
}
