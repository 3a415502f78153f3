//! How loudly a watch says that it cannot list or watch: once at the beginning of an outage, then
//! once a minute, and as often as the kind of failure changes.

use std::time::{Duration, Instant};

use crate::cache::list_watch::Failure;

/// Least time between two warnings of the same failure.
const PERIOD: Duration = Duration::from_mins(1);

/// What was said of the outage that lasts.
#[derive(Debug, Default)]
pub(super) struct OutageLog {
    /// When it began, what failed when it was last warned of, and when that was.
    outage: Option<(Instant, Failure, Instant)>,
}

impl OutageLog {
    /// How loudly to say that something failed.
    pub(super) fn level(&mut self, failure: Failure, now: Instant) -> log::Level {
        let is_told = |(_, told, at): &(Instant, Failure, Instant)| {
            *told == failure && now.saturating_duration_since(*at) < PERIOD
        };
        if self.outage.as_ref().is_some_and(is_told) {
            return log::Level::Debug;
        }
        let began = self.outage.map_or(now, |(began, _, _)| began);
        self.outage = Some((began, failure, now));
        log::Level::Warn
    }

    /// A list or a watch of `resource` was answered.
    pub(super) fn opened(&mut self, resource: &str, now: Instant) {
        if let Some(outage) = self.is_over(now) {
            let seconds = outage.as_secs_f64();
            log::info!("{resource} can be listed and watched again after {seconds:.1} s");
        }
    }

    /// How long the outage has lasted that ends, if there is one.
    fn is_over(&mut self, now: Instant) -> Option<Duration> {
        let (began, _, _) = self.outage.take()?;
        Some(now.saturating_duration_since(began))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Failure, OutageLog};

    #[test]
    fn an_outage_is_one_warning_then_one_a_minute() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        let mut warned_at = |failure, seconds: &mut dyn Iterator<Item = u64>| {
            let is_loud = |second: &u64| {
                let now = start + Duration::from_secs(*second);
                log.level(failure, now) == log::Level::Warn
            };
            seconds.filter(is_loud).collect::<Vec<u64>>()
        };
        let refused = Failure::ConnectionRefused;
        assert_eq!(warned_at(refused, &mut (0..150).step_by(4)), [0, 60, 120]);
        assert_eq!(warned_at(Failure::Other, &mut (150..160)), [150]);
        let lasted = log.is_over(start + Duration::from_secs(160));
        assert_eq!(lasted, Some(Duration::from_secs(160)));
        assert_eq!(log.is_over(start + Duration::from_secs(161)), None);
        let again = log.level(refused, start + Duration::from_secs(162));
        assert_eq!(again, log::Level::Warn, "another outage");
    }
}
