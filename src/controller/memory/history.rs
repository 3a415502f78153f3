//! Recent events of a ReplicaSet, for metrics, `explain`, and what is reported once. Plain data; no
//! decision depends on it.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::api::ReplicaSet;
use crate::controller::SyncError;
use crate::writes::pod_body::generate_name;

pub use crate::telemetry::metrics::controller::SyncEnd;

/// Error messages are cut to this many bytes, so that a record stays small.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Failures in a row that stay unreported because the API server asks for another try: client-go
/// retries as often (client-go `rest/request.go:NewRequest`, maxRetries).
const POSTPONED_MAX: u32 = 10;

/// The period in which pod failures are counted together, and the minimum time between two
/// warnings.
const FAILURES_PERIOD: Duration = Duration::from_mins(1);

/// Within [`FAILURES_PERIOD`], fewer failures than the first cause no warning, and neither do up to
/// as many as there are replicas: a node may have taken all of them down. The second always do.
const FAILURES_REPORTED_FROM: usize = 10;
const FAILURES_REPORTED_FROM_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastSync {
    pub at: Timestamp,
    pub took: Duration,
    pub end: SyncEnd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    pub at: Timestamp,
    pub message: Box<str>,
    /// True if no later sync can repair it.
    is_for_good: bool,
    /// Errors in a row, without progress, after which the API server asks for another try.
    n_postponed: u32,
}

/// What is reported once, for each generation and text.
#[derive(Clone, Copy, Debug)]
pub enum Mistake {
    Selector,
    Annotations,
    Marks,
}

#[derive(Debug, Default)]
pub struct History {
    /// The latest sync. It alone does not keep the record.
    pub last_sync: Option<LastSync>,
    pub last_error: Option<Box<LastError>>,
    pub n_backed_off: usize,
    /// The generation at which a Workload that asks for gang scheduling was last searched for, and
    /// the one found. A search without a result does not keep the record.
    pub gang_workload: Option<Box<(i64, Option<Box<str>>)>>,
    change: Option<Box<Change>>,
    failures: Option<(Instant, usize)>,
    reported: Option<Box<Reported>>,
}

/// The generation and the text of each [`Mistake`] that was reported.
type Reported = [Option<(i64, u64)>; 3];

#[derive(Debug)]
struct Change {
    generation: i64,
    since: Instant,
    is_requested: bool,
}

impl History {
    /// Records how a sync of the ReplicaSet `name` ended. A success clears the error unless it is
    /// permanent. Returns true if it failed for another reason than the last one, or if a
    /// postponed failure is reported from now on.
    pub fn note_sync(&mut self, name: &str, sync: LastSync, error: Option<&SyncError>) -> bool {
        let (at, is_success) = (sync.at, sync.end == SyncEnd::Synced);
        self.last_sync = Some(sync);
        let Some(error) = error else {
            self.last_error
                .take_if(|error| is_success && !error.is_for_good);
            return false;
        };
        let before = self.last_error.take();
        let last = self.fail(error.to_string(), at, false);
        if error.retry_after().is_some() {
            let has_progress = error.batch().is_some_and(|(_, done)| done > 0);
            let before = before.filter(|_| !has_progress);
            last.n_postponed = before.map_or(0, |it| it.n_postponed).saturating_add(1);
            return last.n_postponed == POSTPONED_MAX;
        }
        before.is_none_or(|before| !is_alike(name, &before.message, &last.message))
    }

    /// True while failures stay unreported after which the API server asks for another try.
    pub fn is_postponed(&self) -> bool {
        let last = self.last_error.as_ref();
        last.is_none_or(|it| it.n_postponed < POSTPONED_MAX)
    }

    /// Records an error that no sync retries, because the daemon cannot repair it.
    pub fn note_permanent_error(&mut self, message: String, at: Timestamp) {
        self.fail(message, at, true);
    }

    /// True if the last error was recorded by [`note_permanent_error`](Self::note_permanent_error).
    pub fn fails_for_good(&self) -> bool {
        self.last_error.as_ref().is_some_and(|it| it.is_for_good)
    }

    fn fail(&mut self, mut message: String, at: Timestamp, is_for_good: bool) -> &mut LastError {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        self.last_error.insert(Box::new(LastError {
            at,
            message: message.into(),
            is_for_good,
            n_postponed: 0,
        }))
    }

    /// Records that the watch updated `old` to `rs`. This counts as a change if no controller has
    /// observed its generation yet, so a start finds no change in an unchanged ReplicaSet.
    pub fn observe_change(&mut self, old: Option<&ReplicaSet>, rs: &ReplicaSet, now: Instant) {
        let is_new = old.is_none_or(|old| old.uid != rs.uid || old.generation != rs.generation);
        if is_new && rs.status.observed_generation < rs.generation && !rs.is_terminating() {
            self.change = Some(Box::new(Change {
                generation: rs.generation,
                since: now,
                is_requested: false,
            }));
        }
    }

    /// Records that a sync creates or deletes pods of `rs`. Returns the time since the last change,
    /// if this is the first action after it.
    pub fn note_request(&mut self, rs: &ReplicaSet, now: Instant) -> Option<Duration> {
        let change = self.change.as_mut();
        let change = change.filter(|it| it.generation == rs.generation && !it.is_requested)?;
        change.is_requested = true;
        Some(now.saturating_duration_since(change.since))
    }

    /// Records that `rs` has as many pods as its spec asks for. Returns the time since the change,
    /// if there was one.
    pub fn note_converged(&mut self, rs: &ReplicaSet, now: Instant) -> Option<Duration> {
        let is_its = |change: &mut Box<Change>| change.generation == rs.generation;
        let change = self.change.take_if(is_its)?;
        Some(now.saturating_duration_since(change.since))
    }

    /// Counts a failed pod of `rs`. Returns the number of failures and their period if this one
    /// causes a warning.
    pub fn count_failure(&mut self, rs: &ReplicaSet, now: Instant) -> Option<(usize, Duration)> {
        let age = |since: Instant| now.saturating_duration_since(since);
        self.failures
            .take_if(|(since, _)| age(*since) >= FAILURES_PERIOD);
        let (since, count) = self.failures.get_or_insert((now, 0));
        *count += 1;
        let replicas = usize::try_from(rs.replicas).unwrap_or(0);
        let threshold = (replicas + 1).clamp(FAILURES_REPORTED_FROM, FAILURES_REPORTED_FROM_MAX);
        (*count == threshold).then(|| (threshold, age(*since)))
    }

    /// Records a mistake with this hash of its text. Returns true the first time.
    pub fn note_mistake(&mut self, what: Mistake, generation: i64, text: u64) -> bool {
        let reported = Some((generation, text));
        let all = self.reported.get_or_insert_default();
        std::mem::replace(&mut all[what as usize], reported) != reported
    }

    pub fn is_over(&self, now: Instant) -> bool {
        let is_old = |(since, _): &_| now.saturating_duration_since(*since) >= FAILURES_PERIOD;
        self.last_error.is_none()
            && self.change.is_none()
            && self.n_backed_off == 0
            && self.reported.is_none()
            && self.gang_workload.as_ref().is_none_or(|it| it.1.is_none())
            && self.failures.as_ref().is_none_or(is_old)
    }
}

/// The length to which the API server cuts `generateName`: 63 bytes for the name of a pod, minus
/// the five random characters.
const GENERATED_PREFIX_MAX: usize = 58;

/// True if two messages about the ReplicaSet `name` differ at most in words with digits or with the
/// name of one of its pods.
pub fn is_alike(name: &str, one: &str, other: &str) -> bool {
    let prefix = generate_name(name);
    let prefix: String = prefix.chars().take(GENERATED_PREFIX_MAX).collect();
    let is_stable =
        |word: &&str| !word.contains(|c: char| c.is_ascii_digit()) && !word.contains(&*prefix);
    let stable = |message| str::split_whitespace(message).filter(is_stable);
    stable(one).eq(stable(other))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use jiff::Timestamp;

    use super::{
        FAILURES_PERIOD, FAILURES_REPORTED_FROM, FAILURES_REPORTED_FROM_MAX, History, LastSync,
        Mistake, SyncEnd,
    };
    use crate::controller::testing::replica_set;
    use crate::writes::WriteError;

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
        let error = WriteError::Local("no".repeat(600)).into();
        history.note_sync("web", sync(1, SyncEnd::Failed), Some(&error));
        let length = history.last_error.as_ref().map(|error| error.message.len());
        assert_eq!(length, Some(1024));
        history.note_sync("web", sync(2, SyncEnd::TooEarly), None);
        assert!(history.last_error.is_some());
        history.note_sync("web", sync(3, SyncEnd::Synced), None);
        assert_eq!(history.last_error, None);
        assert_eq!(history.last_sync.as_ref(), Some(&sync(3, SyncEnd::Synced)));
        history.note_permanent_error("gone".to_owned(), Timestamp::UNIX_EPOCH);
        history.note_sync("web", sync(4, SyncEnd::Synced), None);
        assert!(history.last_error.is_some());
    }

    #[test]
    fn unreported_history_keeps_the_record() {
        let now = Instant::now();
        let mut history = History::default();
        history.note_sync("web", sync(1, SyncEnd::Synced), None);
        assert!(history.is_over(now));
        let mut changed = replica_set("web", 2);
        changed.generation = 2;
        let keep: [&dyn Fn(&mut History); 8] = [
            &|it| it.note_permanent_error("gone".to_owned(), Timestamp::UNIX_EPOCH),
            &|it| it.observe_change(None, &changed, now),
            &|it| assert!(it.note_mistake(Mistake::Selector, 1, 0)),
            &|it| assert!(it.note_mistake(Mistake::Annotations, 1, 2)),
            &|it| it.n_backed_off = 1,
            &|it| assert!(it.note_mistake(Mistake::Marks, 1, 0)),
            &|it| it.gang_workload = Some(Box::new((1, Some("all".into())))),
            &|it| assert!(it.count_failure(&changed, now).is_none()),
        ];
        for (number, keep) in keep.into_iter().enumerate() {
            let mut history = History::default();
            keep(&mut history);
            assert!(!history.is_over(now), "{number}");
        }
    }

    #[test]
    fn a_search_without_a_gang_keeps_no_record() {
        let history = History {
            gang_workload: Some(Box::new((1, None))),
            ..History::default()
        };
        assert!(history.is_over(Instant::now()));
    }

    #[test]
    fn pod_failures_are_reported_once_a_minute() {
        let (mut history, mut now) = (History::default(), Instant::now());
        let n_warnings = |history: &mut History, now, replicas: i32, n: usize| {
            let rs = replica_set("web", replicas);
            let count = |_: &usize| history.count_failure(&rs, now).is_some();
            (0..n).filter(count).count()
        };
        assert_eq!(
            n_warnings(&mut history, now, 2, FAILURES_REPORTED_FROM - 1),
            0
        );
        assert_eq!(n_warnings(&mut history, now, 2, 1_000), 1);
        now += FAILURES_PERIOD;
        assert_eq!(
            n_warnings(&mut history, now, 2, 1_000),
            1,
            "the storm continues"
        );
        now += FAILURES_PERIOD;
        assert_eq!(
            n_warnings(&mut history, now, 50, 50),
            0,
            "as many as replicas"
        );
        assert_eq!(n_warnings(&mut history, now, 50, 1), 1);
        now += FAILURES_PERIOD;
        assert_eq!(
            n_warnings(&mut history, now, 5_000, FAILURES_REPORTED_FROM_MAX),
            1
        );
        now += Duration::from_secs(59);
        assert_eq!(
            n_warnings(&mut history, now, 5_000, FAILURES_REPORTED_FROM_MAX),
            0
        );
    }
}
