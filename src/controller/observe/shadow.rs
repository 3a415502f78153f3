//! Logs the decisions of a dry run, each once, and compares them with the actions of another
//! writer.
//!
//! A decision opens an *episode* of its ReplicaSet. The episode ends when there is nothing left to
//! do, and then the pods that appeared and vanished since are compared with the opening decision.
//! So neither side's batches nor the delivery order of two watches matter. Cases without a fair
//! comparison are counted as such:
//!
//! - the spec changed in between, so both sides aimed at something else in the end;
//! - pods finished by themselves meanwhile, or wait for a back-off or did until just now, or more
//!   pods are surplus than one sync deletes;
//! - the API server refuses the other writer's creates (condition `ReplicaFailure`), although both
//!   sides want the same pods;
//! - actions that finished before the shadow synced the ReplicaSet open no episode.
//!
//! A status counts as agreement when the stored status equals the calculated one. Intermediate
//! statuses are not compared, and neither is the condition `ReplicaFailure`, which only the writer
//! can know.

mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::work::{Work, names};
use crate::api::conditions::{REPLICA_FAILURE, get_condition};
use crate::api::workload_kind::WorkloadKind;
use crate::api::{ObjectKey, Pod, ReplicaSet, ReplicaSetStatus, Uid};
use crate::controller::decide::Decision;
use crate::stdx::clock::Clock;
use crate::telemetry::metrics::controller::OtherWriterMetrics;

/// Time that another writer has for the next part of the same action, before the comparison counts
/// as disagreement.
pub const WINDOW: Duration = Duration::from_secs(30);

/// Why nothing tells whether the other writer would do the same.
const OTHER_WORK: &str = "other work came first";

/// The decision of one sync, with the extra input of a comparison.
#[derive(Clone, Debug)]
pub struct Intent {
    /// The decision.
    pub decision: Decision,
    /// Pods that no rule distinguishes from the last one to delete: any of them is as right.
    pub ties: Vec<Arc<Pod>>,
    /// Pods that finished by themselves.
    pub ended: Vec<Arc<Pod>>,
    /// The status to write; `None` if the stored one is right.
    pub status: Option<ReplicaSetStatus>,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Comparison {
    /// The other writer did the same.
    Agree,
    /// The other writer did something else, or nothing.
    Disagree,
    /// No fair comparison is possible.
    NotCompared,
}

/// Tracks the decisions of one controller. Shared by the workers; no thread logs under its one
/// lock.
#[derive(Debug)]
pub struct Shadow {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    episodes: HashMap<ObjectKey, Episode>,
    statuses: HashMap<ObjectKey, PendingStatus>,
    counts: BTreeMap<(&'static str, Comparison), u64>,
    metrics: OtherWriterMetrics,
}

#[derive(Debug)]
struct Episode {
    owner: Uid,
    generation: i64,
    /// The fewest pods that were left to do.
    n_left: usize,
    /// When it began, or fewer were left than ever before.
    progressed: Instant,
    work: Work,
    /// The missing pods that waited for a back-off at its start, besides those of `work`.
    n_held_back: usize,
    /// The active pods at its start.
    known: HashMap<Uid, Arc<str>>,
    /// True if it was judged already, because it exceeded [`WINDOW`].
    is_judged: bool,
    /// The decision of the last sync; `work` is the decision of the first.
    latest: Work,
    /// Pods that the last sync decided to adopt.
    adopts: HashSet<Uid>,
}

#[derive(Debug)]
struct PendingStatus {
    computed: ReplicaSetStatus,
    since: Instant,
    is_judged: bool,
}

/// A log line, written after the lock is released.
struct Line {
    level: log::Level,
    text: String,
}

impl Comparison {
    /// The value of the metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agree => "agree",
            Self::Disagree => "disagree",
            Self::NotCompared => "not_compared",
        }
    }
}

impl Shadow {
    /// Creates a shadow without decisions. It counts the results of comparisons in `metrics`.
    pub fn new(clock: Arc<dyn Clock>, metrics: OtherWriterMetrics) -> Self {
        let state = State {
            episodes: HashMap::new(),
            statuses: HashMap::new(),
            counts: BTreeMap::new(),
            metrics,
        };
        Self {
            clock,
            state: Mutex::new(state),
        }
    }

    /// Takes a decision about `rs` of this kind. Returns true if the caller should sync it again
    /// after [`WINDOW`].
    pub fn decided(&self, kind: &WorkloadKind, rs: &ReplicaSet, intent: &Intent) -> bool {
        let now = self.clock.now();
        let mut lines = Vec::new();
        let mut state = self.lock();
        state.judge_pods(rs, intent, now, &mut lines);
        state.judge_status(rs, intent, now, &mut lines);
        let episode = state.episodes.get(&rs.key).map(|it| it.is_judged);
        let status = state.statuses.get(&rs.key).map(|it| it.is_judged);
        drop(state);
        for line in lines {
            let object = kind.named(&rs.key);
            log::log!(line.level, object:% = object; "{}", line.text);
        }
        episode == Some(false) || status == Some(false)
    }

    /// Forgets a deleted ReplicaSet.
    pub fn forget(&self, key: &ObjectKey) {
        let mut state = self.lock();
        if state.episodes.remove(key).is_some_and(|it| !it.is_judged) {
            state.count("pods", Comparison::NotCompared);
        }
        state.statuses.remove(key);
    }

    /// Returns the number of comparisons by kind and result.
    pub fn counts(&self) -> BTreeMap<(&'static str, Comparison), u64> {
        self.lock().counts.clone()
    }

    /// Returns the number of decisions about pods that are not over.
    pub fn n_open(&self) -> usize {
        self.lock().episodes.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The final summary: `create: 3 agree, 1 disagree; …`.
impl fmt::Display for Shadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (counts, n_open) = {
            let state = self.lock();
            (state.counts.clone(), state.episodes.len())
        };
        let of = |what, verdict| counts.get(&(what, verdict)).copied().unwrap_or(0);
        let kinds: BTreeSet<&str> = counts.keys().map(|(what, _)| *what).collect();
        if kinds.is_empty() {
            f.write_str("nothing was compared; ")?;
        }
        for what in kinds {
            write!(
                f,
                "{what}: {} agree, {} disagree, {} not compared; ",
                of(what, Comparison::Agree),
                of(what, Comparison::Disagree),
                of(what, Comparison::NotCompared)
            )?;
        }
        match n_open {
            1 => f.write_str("1 decision is still open"),
            _ => write!(f, "{n_open} decisions are still open"),
        }
    }
}

impl State {
    fn judge_pods(
        &mut self,
        rs: &ReplicaSet,
        intent: &Intent,
        now: Instant,
        lines: &mut Vec<Line>,
    ) {
        let work = Work::of(rs, intent);
        let adopts: HashSet<Uid> = intent
            .decision
            .adopt
            .iter()
            .map(|it| it.uid.clone())
            .collect();
        if let Some(mut episode) = self.episodes.remove(&rs.key) {
            let n_left = work.as_ref().map_or(0, Work::n_pods);
            if n_left < episode.n_left {
                (episode.n_left, episode.progressed) = (n_left, now);
            }
            let judged = episode.verdict(rs, intent, work.as_ref(), now);
            let is_over = judged.is_some();
            if let Some((verdict, text)) = judged
                && !episode.is_judged
            {
                self.count(episode.work.name(), verdict);
                lines.push(Line::of(verdict, text));
            }
            if let Some(work) = work
                .as_ref()
                .filter(|work| episode.is_continued_by(rs, work))
            {
                if episode.is_exceeded_by(work, &adopts) {
                    lines.push(Line::decision(&work.render(rs, intent)));
                }
                let episode = Episode {
                    is_judged: episode.is_judged || is_over,
                    latest: work.clone(),
                    adopts,
                    ..episode
                };
                self.episodes.insert(rs.key.clone(), episode);
                return;
            }
        }
        if let Some(work) = work {
            lines.push(Line::decision(&work.render(rs, intent)));
            let named = |pod: &Arc<Pod>| (pod.uid.clone(), Arc::clone(&pod.key.name));
            let episode = Episode {
                owner: rs.uid.clone(),
                generation: rs.generation,
                n_left: work.n_pods(),
                progressed: now,
                latest: work.clone(),
                adopts,
                work,
                n_held_back: intent.decision.n_held_back(),
                known: intent.decision.active.iter().map(named).collect(),
                is_judged: false,
            };
            self.episodes.insert(rs.key.clone(), episode);
        }
    }

    fn judge_status(
        &mut self,
        rs: &ReplicaSet,
        intent: &Intent,
        now: Instant,
        lines: &mut Vec<Line>,
    ) {
        let Some(computed) = &intent.status else {
            if let Some(pending) = self.statuses.remove(&rs.key)
                && !pending.is_judged
            {
                self.count("status", Comparison::Agree);
            }
            return;
        };
        let pending = self.statuses.get_mut(&rs.key);
        let pending = pending.filter(|pending| pending.computed == *computed);
        let Some(pending) = pending else {
            let pending = PendingStatus {
                computed: computed.clone(),
                since: now,
                is_judged: false,
            };
            self.statuses.insert(rs.key.clone(), pending);
            return;
        };
        if pending.is_judged || now.saturating_duration_since(pending.since) < WINDOW {
            return;
        }
        pending.is_judged = true;
        self.count("status", Comparison::Disagree);
        let render = |status: &ReplicaSetStatus| serde_json::to_string(status).unwrap_or_default();
        let text = format!(
            "disagreement on the status for {} s: here {}, stored {}",
            WINDOW.as_secs(),
            render(computed),
            render(&rs.status)
        );
        lines.push(Line::of(Comparison::Disagree, text));
    }

    fn count(&mut self, what: &'static str, verdict: Comparison) {
        *self.counts.entry((what, verdict)).or_default() += 1;
        self.metrics.shadow(what, verdict.as_str());
    }
}

impl Episode {
    fn is_of(&self, rs: &ReplicaSet) -> bool {
        self.owner == rs.uid && self.generation == rs.generation
    }

    /// True if `work` continues this episode.
    fn is_continued_by(&self, rs: &ReplicaSet, work: &Work) -> bool {
        self.is_of(rs) && self.work.is_like(work)
    }

    /// True if there is more to do than in the previous decision. If there is less, another writer
    /// acted, and that is no new decision.
    fn is_exceeded_by(&self, work: &Work, adopts: &HashSet<Uid>) -> bool {
        work.exceeds(&self.latest) || !adopts.is_subset(&self.adopts)
    }

    /// Returns the result; `None` if the episode continues.
    fn verdict(
        &self,
        rs: &ReplicaSet,
        intent: &Intent,
        work: Option<&Work>,
        now: Instant,
    ) -> Option<(Comparison, String)> {
        let what = self.work.name();
        if !self.is_of(rs) {
            let text = format!("not compared ({what}): the spec changed meanwhile");
            return Some((Comparison::NotCompared, text));
        }
        if let Some(work) = work.filter(|work| self.work.is_like(work)) {
            if now.saturating_duration_since(self.progressed) < WINDOW {
                return None;
            }
            return Some(
                if get_condition(&rs.status.conditions, REPLICA_FAILURE).is_some() {
                    let text = "not compared: the API server refuses the other writer".to_owned();
                    (Comparison::NotCompared, text)
                } else {
                    let (secs, action) = (WINDOW.as_secs(), work.render(rs, intent));
                    let text =
                        format!("disagreement: here {action}, the other not within {secs} s");
                    (Comparison::Disagree, text)
                },
            );
        }
        Some(self.compare(intent))
    }

    fn compare(&self, intent: &Intent) -> (Comparison, String) {
        let what = self.work.name();
        let not_compared = |why: &str| {
            let text = format!("not compared ({what}): {why}");
            (Comparison::NotCompared, text)
        };
        if intent
            .ended
            .iter()
            .any(|pod| self.known.contains_key(&pod.uid))
        {
            return not_compared("pods ended by themselves meanwhile");
        }
        let active: HashSet<&Uid> = intent.decision.active.iter().map(|pod| &pod.uid).collect();
        let n_created = active
            .iter()
            .filter(|uid| !self.known.contains_key(**uid))
            .count();
        let gone: HashSet<Uid> = {
            let gone = self.known.keys().filter(|uid| !active.contains(*uid));
            gone.cloned().collect()
        };
        let Decision {
            adopt,
            release,
            leftovers,
            ..
        } = &intent.decision;
        let is_left =
            |pods: &HashSet<Uid>, left: &[Arc<Pod>]| left.iter().any(|pod| pods.contains(&pod.uid));
        let agree = |done: String| (Comparison::Agree, format!("agreement: the other {done}"));
        match &self.work {
            Work::Create(_) if !gone.is_empty() => not_compared("pods went meanwhile"),
            Work::Create(count) if *count == n_created => agree(format!("created {n_created}")),
            Work::Create(count) if n_created < *count && intent.decision.n_held_back() > 0 => {
                not_compared("pods wait for a back-off")
            }
            Work::Create(count)
                if n_created > *count
                    && n_created <= *count + self.n_held_back
                    && may_have_probed(intent) =>
            {
                not_compared("a back-off ended meanwhile")
            }
            Work::Create(count) => {
                let text = format!("disagreement: here create {count}, the other {n_created}");
                (Comparison::Disagree, text)
            }
            Work::Delete {
                surplus, chosen, ..
            } if *surplus > chosen.len() => not_compared("more pods than one sync deletes"),
            Work::Delete { .. } if n_created > 0 => not_compared("pods came meanwhile"),
            Work::Delete { chosen, ties, .. } if is_as_right(&gone, chosen, ties) => {
                agree(format!("deleted {}", self.names(&gone)))
            }
            Work::Delete { chosen, .. } => {
                let (ours, theirs) = (self.names(chosen), self.names(&gone));
                let text = format!("disagreement: here delete {ours}, the other {theirs}");
                (Comparison::Disagree, text)
            }
            Work::Adopt(pods) if is_left(pods, adopt) => not_compared(OTHER_WORK),
            Work::Adopt(pods) if pods.iter().any(|uid| gone.contains(uid)) => {
                let text = format!("disagreement: here adopt {}, not there", self.names(pods));
                (Comparison::Disagree, text)
            }
            Work::Adopt(pods) => agree(format!("adopted {}", self.names(pods))),
            Work::Release(pods) if is_left(pods, release) => not_compared(OTHER_WORK),
            Work::Release(_) => agree("released them".to_owned()),
            Work::Discard(pods) if is_left(pods, &leftovers.delete) => not_compared(OTHER_WORK),
            Work::Discard(_) => agree("deleted them".to_owned()),
        }
    }

    fn names(&self, uids: &HashSet<Uid>) -> String {
        let name = |uid: &Uid| {
            self.known
                .get(uid)
                .map_or_else(|| uid.to_string(), ToString::to_string)
        };
        names(uids.iter().map(name).collect())
    }
}

impl Line {
    fn decision(action: &str) -> Self {
        Self {
            level: log::Level::Info,
            text: format!("would {action}"),
        }
    }

    fn of(verdict: Comparison, text: String) -> Self {
        let level = match verdict {
            Comparison::Disagree => log::Level::Warn,
            Comparison::Agree | Comparison::NotCompared => log::Level::Info,
        };
        Self { level, text }
    }
}

/// True if no back-off is left, or if its wait is over but for pods that were created during it.
fn may_have_probed(intent: &Intent) -> bool {
    let back_off = intent.decision.back_off.as_ref();
    back_off.is_none_or(|it| it.failed_ago >= it.wait)
}

/// True if `gone` equals `chosen`, except for pods that no rule distinguishes.
fn is_as_right(gone: &HashSet<Uid>, chosen: &HashSet<Uid>, ties: &HashSet<Uid>) -> bool {
    gone.len() == chosen.len()
        && chosen.difference(gone).all(|uid| ties.contains(uid))
        && gone.difference(chosen).all(|uid| ties.contains(uid))
}

#[cfg(test)]
mod tests;
