//! What happened to a ReplicaSet lately, for metrics and for whoever asks why it does not move. Plain data
//! without lock, clock or I/O; nothing is decided by it.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::api::ReplicaSet;
pub use crate::telemetry::metrics::controller::SyncEnd;

/// A message is cut after this many bytes.
const MESSAGE_BYTES_MAX: usize = 1024;

/// How long failures of pods are counted together, and the least time between two warnings.
pub const FAILURES_PERIOD: Duration = Duration::from_mins(1);

/// Fewer failures than this within [`FAILURES_PERIOD`] are not warned of, and neither are up to as many as
/// there are replicas: a node may have taken all of them along. As many as the second number are,
/// however many replicas.
pub const FAILURES_TOLD_FROM: usize = 10;
/// See [`FAILURES_TOLD_FROM`].
pub const FAILURES_TOLD_FROM_MAX: usize = 100;

/// One sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastSync {
    /// When it began.
    pub at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// How it ended.
    pub end: SyncEnd,
}

/// What went wrong last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// When.
    pub at: Timestamp,
    /// What.
    pub message: Box<str>,
    /// True if no later sync can put it right.
    is_for_good: bool,
}

/// What happened to one ReplicaSet.
#[derive(Debug, Default)]
pub struct History {
    last_sync: Option<LastSync>,
    last_error: Option<LastError>,
    change: Option<Change>,
    failures: Option<Failures>,
    /// The generation for which an unusable selector was logged.
    unusable_selector: Option<i64>,
}

/// A ReplicaSet on its way to what its spec asks for.
#[derive(Debug)]
struct Change {
    /// What the spec's change made of it.
    generation: i64,
    since: Instant,
    is_requested: bool,
}

#[derive(Debug)]
struct Failures {
    since: Instant,
    count: usize,
}

impl History {
    /// Notes how a sync ended. A success takes the error away.
    pub fn note_sync(&mut self, sync: LastSync, error: Option<String>) {
        let (at, is_success) = (sync.at, sync.end == SyncEnd::Synced);
        self.last_sync = Some(sync);
        if let Some(message) = error {
            self.fail(message, at, false);
        } else if is_success {
            self.last_error.take_if(|error| !error.is_for_good);
        }
    }

    /// Notes an error that no sync repeats, since nothing that the daemon can do would help.
    pub fn note_error_for_good(&mut self, message: String, at: Timestamp) {
        self.fail(message, at, true);
    }

    /// The latest sync; `None` if it was too long ago to be remembered.
    pub fn last_sync(&self) -> Option<&LastSync> {
        self.last_sync.as_ref()
    }

    /// What went wrong and has not been put right since.
    pub fn last_error(&self) -> Option<&LastError> {
        self.last_error.as_ref()
    }

    /// Notes that the watch brought `rs`, which was `old` before. It counts as a change if no controller
    /// has seen its generation yet: so the ReplicaSets that a start finds in order do not.
    pub fn saw_change(&mut self, old: Option<&ReplicaSet>, rs: &ReplicaSet, now: Instant) {
        let is_new = old.is_none_or(|old| old.uid != rs.uid || old.generation != rs.generation);
        if is_new && rs.status.observed_generation < rs.generation && !rs.is_terminating() {
            self.change = Some(Change {
                generation: rs.generation,
                since: now,
                is_requested: false,
            });
        }
    }

    /// Notes that a pod of `rs` is going to be created or deleted; how long that took, if it is the
    /// first one since the last change.
    pub fn note_request(&mut self, rs: &ReplicaSet, now: Instant) -> Option<Duration> {
        let change = self.change.as_mut();
        let change = change.filter(|it| it.generation == rs.generation && !it.is_requested)?;
        change.is_requested = true;
        Some(now.saturating_duration_since(change.since))
    }

    /// Notes that `rs` has as many pods as it wants; how long that took, if it was on its way.
    pub fn note_converged(&mut self, rs: &ReplicaSet, now: Instant) -> Option<Duration> {
        let is_its = |change: &mut Change| change.generation == rs.generation;
        let change = self.change.take_if(is_its)?;
        Some(now.saturating_duration_since(change.since))
    }

    /// Counts a pod of `rs` that has failed; how many have within which time, if this one calls for a
    /// warning.
    pub fn count_failure(&mut self, rs: &ReplicaSet, now: Instant) -> Option<(usize, Duration)> {
        let is_over =
            |it: &mut Failures| now.saturating_duration_since(it.since) >= FAILURES_PERIOD;
        self.failures.take_if(is_over);
        let failures = self.failures.get_or_insert(Failures {
            since: now,
            count: 0,
        });
        failures.count += 1;
        let replicas = usize::try_from(rs.replicas).unwrap_or(0);
        let told_at = (replicas + 1).clamp(FAILURES_TOLD_FROM, FAILURES_TOLD_FROM_MAX);
        let within = now.saturating_duration_since(failures.since);
        (failures.count == told_at).then_some((told_at, within))
    }

    /// Notes that the selector of this generation cannot be used; true if that is news.
    pub fn note_unusable_selector(&mut self, generation: i64) -> bool {
        self.unusable_selector.replace(generation) != Some(generation)
    }

    /// True if nothing has to be remembered; the last sync is, as long as there is room.
    pub fn is_over(&self, now: Instant) -> bool {
        let failures = self.failures.as_ref();
        self.last_error.is_none()
            && self.change.is_none()
            && self.unusable_selector.is_none()
            && failures.is_none_or(|it| now.saturating_duration_since(it.since) >= FAILURES_PERIOD)
    }

    fn fail(&mut self, mut message: String, at: Timestamp, is_for_good: bool) {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        self.last_error = Some(LastError {
            at,
            message: message.into(),
            is_for_good,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use jiff::Timestamp;

    use super::{
        FAILURES_PERIOD, FAILURES_TOLD_FROM, FAILURES_TOLD_FROM_MAX, History, LastSync, SyncEnd,
    };
    use crate::controller::testing::replica_set;

    fn sync(second: i64, end: SyncEnd) -> LastSync {
        LastSync {
            at: Timestamp::constant(second, 0),
            took: Duration::from_millis(3),
            end,
        }
    }

    #[test]
    fn an_error_stays_until_a_sync_succeeds() {
        let mut history = History::default();
        history.note_sync(sync(1, SyncEnd::Failed), Some("no".repeat(600)));
        let length = history.last_error().map(|error| error.message.len());
        assert_eq!(length, Some(1024));
        history.note_sync(sync(2, SyncEnd::TooEarly), None);
        assert!(history.last_error().is_some());
        history.note_sync(sync(3, SyncEnd::Synced), None);
        assert_eq!(history.last_error(), None);
        assert_eq!(history.last_sync(), Some(&sync(3, SyncEnd::Synced)));
        history.note_error_for_good("gone".to_owned(), Timestamp::UNIX_EPOCH);
        history.note_sync(sync(4, SyncEnd::Synced), None);
        assert!(history.last_error().is_some());
    }

    #[test]
    fn pods_that_fail_at_once_are_told_of_once_a_minute() {
        let (mut history, mut now) = (History::default(), Instant::now());
        let told = |history: &mut History, now, replicas: i32, n: usize| {
            let rs = replica_set("web", replicas);
            let count = |_: &usize| history.count_failure(&rs, now).is_some();
            (0..n).filter(count).count()
        };
        assert_eq!(told(&mut history, now, 2, FAILURES_TOLD_FROM - 1), 0);
        assert_eq!(told(&mut history, now, 2, 1_000), 1);
        now += FAILURES_PERIOD;
        assert_eq!(told(&mut history, now, 2, 1_000), 1, "the storm goes on");
        now += FAILURES_PERIOD;
        assert_eq!(told(&mut history, now, 50, 50), 0, "as many as replicas");
        assert_eq!(told(&mut history, now, 50, 1), 1);
        now += FAILURES_PERIOD;
        assert_eq!(told(&mut history, now, 5_000, FAILURES_TOLD_FROM_MAX), 1);
        now += Duration::from_secs(59);
        assert_eq!(told(&mut history, now, 5_000, FAILURES_TOLD_FROM_MAX), 0);
    }
}
