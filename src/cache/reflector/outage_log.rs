//! The log level of failed lists and watches: one warning at the start of an outage, then one per
//! minute, and one whenever the kind of failure changes.

use std::time::{Duration, Instant};

use crate::cache::list_watch::Failure;

/// Minimum time between two warnings of the same failure.
const PERIOD: Duration = Duration::from_mins(1);

/// The current outage, as far as it was logged.
#[derive(Debug, Default)]
pub(super) struct OutageLog {
    /// When the outage began, and failure and time of the last warning.
    outage: Option<(Instant, Failure, Instant)>,
}

impl OutageLog {
    /// Returns the level to log a failure at.
    pub(super) fn level(&mut self, failure: Failure, now: Instant) -> log::Level {
        let is_logged = |(_, logged, at): &(Instant, Failure, Instant)| {
            *logged == failure && now.saturating_duration_since(*at) < PERIOD
        };
        if self.outage.as_ref().is_some_and(is_logged) {
            return log::Level::Debug;
        }
        let began = self.outage.map_or(now, |(began, _, _)| began);
        self.outage = Some((began, failure, now));
        log::Level::Warn
    }

    /// Records that the server accepted a list or a watch of `resource`.
    pub(super) fn opened(&mut self, resource: &str, now: Instant) {
        if let Some(outage) = self.end_outage(now) {
            let seconds = outage.as_secs_f64();
            log::info!("{resource} can be listed and watched again after {seconds:.1} s");
        }
    }

    /// Ends the outage, if there is one, and returns its duration.
    fn end_outage(&mut self, now: Instant) -> Option<Duration> {
        let (began, _, _) = self.outage.take()?;
        Some(now.saturating_duration_since(began))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Failure, OutageLog};

    #[test]
    fn an_outage_is_logged_at_once_and_then_every_minute() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        let mut warned_at = |failure, seconds: &mut dyn Iterator<Item = u64>| {
            let is_warned = |second: &u64| {
                let now = start + Duration::from_secs(*second);
                log.level(failure, now) == log::Level::Warn
            };
            seconds.filter(is_warned).collect::<Vec<u64>>()
        };
        let refused = Failure::ConnectionRefused;
        assert_eq!(warned_at(refused, &mut (0..150).step_by(4)), [0, 60, 120]);
        assert_eq!(warned_at(Failure::Other, &mut (150..160)), [150]);
        let lasted = log.end_outage(start + Duration::from_secs(160));
        assert_eq!(lasted, Some(Duration::from_secs(160)));
        assert_eq!(log.end_outage(start + Duration::from_secs(161)), None);
        let again = log.level(refused, start + Duration::from_secs(162));
        assert_eq!(again, log::Level::Warn, "another outage");
        log.opened("pods", start + Duration::from_secs(163));
        assert_eq!(log.end_outage(start + Duration::from_secs(164)), None);
    }
}
