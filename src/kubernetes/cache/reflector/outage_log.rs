//! The log of failed lists and watches: each kind of failure at once and then once a minute, and
//! the end of the outage. Each undecodable object is logged once.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use log::Level;

use crate::api::ObjectKey;
use crate::cache::decode::Unread;
use crate::cache::list_watch::Failure;

/// Minimum time between two lines at the default level about the same failure.
const PERIOD: Duration = Duration::from_mins(1);

/// An API server that starts rejects requests before it has its roles, so a missing permission is
/// logged again, as an error, if it lasts this long.
const FORBIDDEN_PERIOD: Duration = Duration::from_secs(5);

/// Whether to log a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    No,
    /// The first one of its kind in the outage.
    First,
    Again,
}

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
    /// The kinds of failure and the time from which their next line is due.
    logged: Vec<(Failure, Instant)>,
    /// A watch has been opened since the last failure.
    is_reopened: bool,
    /// A watch cannot be read, so that no list ends the outage.
    lasts_until_message: bool,
}

impl OutageLog {
    /// Records a failure, which lasts since `since`. Returns when the outage began, and whether to
    /// log the failure.
    pub(super) fn failed(
        &mut self,
        failure: Failure,
        since: Instant,
        now: Instant,
    ) -> (Instant, Due) {
        let outage = self.outage.get_or_insert_with(|| Outage {
            began: since,
            logged: Vec::new(),
            is_reopened: false,
            lasts_until_message: false,
        });
        outage.is_reopened = false;
        let mut logged = outage.logged.iter_mut();
        let due = match logged.find(|(logged, _)| *logged == failure) {
            Some((_, at)) if now < *at => Due::No,
            Some((_, at)) => {
                *at = now + PERIOD;
                Due::Again
            }
            None => {
                let is_forbidden = failure == Failure::Forbidden;
                let period = [PERIOD, FORBIDDEN_PERIOD][usize::from(is_forbidden)];
                outage.logged.push((failure, now + period));
                Due::First
            }
        };
        (outage.began, due)
    }

    /// Records that a watch is what cannot be read.
    pub(super) fn await_message(&mut self) {
        if let Some(outage) = &mut self.outage {
            outage.lasts_until_message = true;
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.outage.is_some()
    }

    /// Records that a watch was opened. Returns true if this is new in the current outage.
    pub(super) fn reopened(&mut self) -> bool {
        let outage = self.outage.as_mut();
        outage.is_some_and(|outage| !std::mem::replace(&mut outage.is_reopened, true))
    }

    /// Ends the outage, if there is one, by a complete list or the message of a watch. Returns its
    /// duration, and whether a watch was opened before.
    pub(super) fn end(&mut self, by_message: bool, now: Instant) -> Option<(Duration, bool)> {
        let ends = |outage: &mut Outage| by_message || !outage.lasts_until_message;
        let outage = self.outage.take_if(ends)?;
        let duration = now.saturating_duration_since(outage.began);
        Some((duration, outage.is_reopened))
    }
}

/// Maximum objects remembered. A collection with more undecodable objects is broken, and has been
/// logged enough by then.
const KEYS_MAX: usize = 1000;

/// The objects that were logged.
#[derive(Debug, Default)]
pub(super) struct UnreadLog {
    keys: HashSet<ObjectKey>,
    is_nameless_logged: bool,
    is_foreign_logged: bool,
}

impl UnreadLog {
    /// Logs an object unless it was logged before.
    pub(super) fn log(&mut self, kind: &str, unread: &Unread) {
        if let Some(line) = self.line(kind, unread) {
            log::warn!("{line}");
        }
    }

    /// Logs a message that the request does not allow; only the first one at the default level.
    pub(super) fn log_foreign(&mut self, resource: &str, description: &str) {
        let is_logged = std::mem::replace(&mut self.is_foreign_logged, true);
        let level = if is_logged { Level::Debug } else { Level::Warn };
        log::log!(level, "watch of {resource}: skipped {description}");
    }

    fn line(&mut self, kind: &str, unread: &Unread) -> Option<String> {
        let error = &unread.error;
        let Some(identity) = &unread.key else {
            let is_logged = std::mem::replace(&mut self.is_nameless_logged, true);
            let line = format!("skipping a {kind}: cannot decode it or its name: {error}");
            return (!is_logged).then_some(line);
        };
        if self.keys.len() >= KEYS_MAX || !self.keys.insert(identity.key.clone()) {
            return None;
        }
        let key = &identity.key;
        let more = if self.keys.len() == KEYS_MAX {
            "; no further ones are logged"
        } else {
            ""
        };
        Some(format!(
            "skipping {kind} {key}: cannot decode it: {error}{more}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Due, Failure, KEYS_MAX, OutageLog, UnreadLog};
    use crate::api::{ObjectKey, ResourceVersion, Uid};
    use crate::cache::decode::Unread;
    use crate::cache::store::UnreadKey;

    #[test]
    fn failures_are_logged_at_once_and_then_every_minute() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        let mut logged_at = |failure, seconds: &mut dyn Iterator<Item = u64>| {
            let is_logged = |second: &u64| {
                let now = start + Duration::from_secs(*second);
                log.failed(failure, now, now).1 != Due::No
            };
            seconds.filter(is_logged).collect::<Vec<u64>>()
        };
        let refused = Failure::ConnectionRefused;
        assert_eq!(logged_at(refused, &mut (0..150).step_by(4)), [0, 60, 120]);
        assert_eq!(logged_at(Failure::Other, &mut (150..160)), [150]);
        assert_eq!(logged_at(refused, &mut (160..170)), [] as [u64; 0]);
        let ended = log.end(false, start + Duration::from_secs(170));
        assert_eq!(ended, Some((Duration::from_secs(170), false)));
        assert_eq!(log.end(true, start), None);
        let now = start + Duration::from_secs(9);
        assert_eq!(
            log.failed(refused, start, now),
            (start, Due::First),
            "another outage"
        );
    }

    #[test]
    fn a_missing_permission_that_lasts_is_logged_again_soon() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        let mut at = |failure, seconds| {
            let now = start + Duration::from_secs(seconds);
            log.failed(failure, now, now).1
        };
        assert_eq!(at(Failure::ConnectionRefused, 0), Due::First);
        let seconds = [10, 14, 15, 74, 75];
        let found = seconds.map(|second| at(Failure::Forbidden, second));
        assert_eq!(
            found,
            [Due::First, Due::No, Due::Again, Due::No, Due::Again]
        );
    }

    #[test]
    fn an_open_watch_ends_no_outage() {
        let (mut log, now) = (OutageLog::default(), Instant::now());
        assert!(!log.reopened());
        for _ in 0..2 {
            log.failed(Failure::Other, now, now);
            assert_eq!([log.reopened(), log.reopened()], [true, false]);
            assert!(log.is_on());
        }
        assert_eq!(log.end(false, now), Some((Duration::ZERO, true)));
    }

    fn unread(name: Option<&str>) -> Unread {
        Unread {
            key: name.map(|name| UnreadKey {
                key: ObjectKey::new("n", name),
                uid: Uid::default(),
            }),
            resource_version: ResourceVersion::default(),
            error: "bad".to_owned(),
        }
    }

    #[test]
    fn each_object_is_logged_once_up_to_a_limit() {
        let mut log = UnreadLog::default();
        let line = log.line("Pod", &unread(Some("a")));
        assert_eq!(
            line.as_deref(),
            Some("skipping Pod n/a: cannot decode it: bad")
        );
        assert_eq!(log.line("Pod", &unread(Some("a"))), None);
        assert!(log.line("Pod", &unread(None)).is_some());
        assert_eq!(log.line("Pod", &unread(None)), None);
        let lines =
            (0..2 * KEYS_MAX).filter_map(|n| log.line("Pod", &unread(Some(&n.to_string()))));
        let lines: Vec<String> = lines.collect();
        assert_eq!(lines.len(), KEYS_MAX - 1);
        assert!(lines[KEYS_MAX - 2].ends_with("no further ones are logged"));
    }
}
