//! The judge of a round: pure functions of what the chronicle and the audit log have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::audit::Line;
use super::chronicle::Seen;
use super::opt_ins::{FIRST_WAIT, Mark, N_KEPT, OptIns};
use crate::support::{Kind, controller_uid, is_terminating, name, number_at, text_at, uid};

/// Requests of a round, of each start of a daemon in it, and (three) of each change of an object. A
/// loop that does not wait sends thousands.
const REQUESTS_MAX: usize = 200;
const REQUESTS_MAX_PER_START: usize = 20;

/// The requests after each other of a sync that creates or deletes the most pods of a round: its
/// batches of 1, 2, 4 to 64.
const N_BATCHES_MAX: u32 = 7;

/// What a round may do, by its fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// How old the newest state may be that a daemon has read, where requests take no time.
    pub(super) lag: Duration,
    /// Whether the daemon was the only writer. If not, only its end is judged.
    pub(super) is_alone: bool,
    /// Whether the writers had to hold the lease.
    pub(super) has_lease: bool,
    /// Whole lists of a resource for which there was a cause.
    pub(super) n_lists_max: usize,
    /// Starts of daemons, each of which asks for a few things besides.
    pub(super) n_starts: usize,
}

/// What a round came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict {
    pub(super) violations: Vec<String>,
    pub(super) n_created: usize,
    pub(super) n_deleted: usize,
    /// Pods above the newest spec, at most.
    pub(super) overshoot_max: i64,
    pub(super) n_requests: usize,
    pub(super) n_lists: usize,
    /// Writes that were compared with the lease.
    pub(super) n_leased: usize,
}

/// A pod's state as the order of deletion reads it: a smaller one is deleted first. Pods of one
/// state are alike: the harness binds no pod to a node, and their times are no matter here.
type Rank = (Mark, bool, bool, i64);

#[derive(Clone, Debug, Default)]
struct Pod {
    name: String,
    owner: String,
    is_active: bool,
    /// When it failed.
    failed: Option<Duration>,
    created: Duration,
    ranks: Vec<(Duration, Rank)>,
}

impl Pod {
    /// The ranks that the pod had after `since`.
    fn ranks_since(&self, since: Duration) -> impl Iterator<Item = Rank> {
        let last_before = self.ranks.iter().rposition(|(at, _)| *at <= since);
        let ranks = &self.ranks[last_before.unwrap_or(0)..];
        ranks.iter().map(|(_, rank)| *rank)
    }

    /// True if the pod is active to whom has read everything until `since`, and perhaps no more.
    fn may_count(&self, since: Duration) -> bool {
        self.is_active || self.failed.is_some_and(|failed| failed > since)
    }

    /// True if this pod is known to whom has read everything until `since`, and came before `other`
    /// in every state since then.
    fn surely_before(&self, other: &Self, since: Duration) -> bool {
        let last = self.ranks_since(since).max();
        self.created < since && last < other.ranks_since(since).min()
    }
}

fn rank(pod: &Value) -> Rank {
    let cost = "/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost";
    let cost = text_at(pod, cost).parse().unwrap_or(0);
    let is_running = pod["status"]["phase"] == "Running";
    (Mark::of(pod), is_running, is_ready(pod), cost)
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

pub(super) fn is_active(pod: &Value) -> bool {
    let phase = text_at(pod, "/status/phase");
    !is_terminating(pod) && !matches!(phase.as_str(), "Succeeded" | "Failed")
}

pub(super) fn has_failed(pod: &Value) -> bool {
    !is_terminating(pod) && pod["status"]["phase"] == "Failed"
}

/// Judges the history of a round.
pub(super) fn judge(seen: &[Seen], lines: &[Line], terms: &Terms) -> Verdict {
    let mut verdict = Verdict::default();
    if terms.is_alone {
        Walk::new(lines, terms, &mut verdict).run(seen);
    }
    if terms.has_lease {
        judge_lease(seen, lines, &mut verdict);
    }
    count(seen, lines, terms, &mut verdict);
    verdict
}

/// How long a daemon waited for its slowest write: a machine's own speed.
fn slowest(lines: &[Line]) -> Duration {
    let writes = lines.iter().filter(|line| line.is_ours());
    let writes = writes.filter(|line| matches!(&*line.verb, "create" | "update" | "delete"));
    writes.filter_map(Line::took).max().unwrap_or_default()
}

/// Walks through the states in their order.
struct Walk<'a> {
    lag: Duration,
    /// Names of the pods that a daemon, and nobody else, asked to delete.
    deleted: BTreeSet<&'a str>,
    pods: BTreeMap<String, Pod>,
    /// The values of `spec.replicas` and since when they hold, by the UID of the ReplicaSet.
    specs: BTreeMap<String, Vec<(Duration, i64)>>,
    opt_ins: BTreeMap<String, OptIns>,
    verdict: &'a mut Verdict,
}

impl<'a> Walk<'a> {
    fn new(lines: &'a [Line], terms: &Terms, verdict: &'a mut Verdict) -> Self {
        let deletes = |is_ours: bool| {
            let deletes = lines.iter().filter(move |line| {
                line.verb == "delete" && line.resource == "pods" && line.is_ours() == is_ours
            });
            deletes.map(|line| line.name.as_str())
        };
        let others: BTreeSet<&str> = deletes(false).collect();
        Self {
            lag: terms.lag.saturating_add(N_BATCHES_MAX * slowest(lines)),
            deleted: deletes(true)
                .filter(|name| !others.contains(name))
                .collect(),
            pods: BTreeMap::new(),
            specs: BTreeMap::new(),
            opt_ins: BTreeMap::new(),
            verdict,
        }
    }

    fn run(&mut self, seen: &[Seen]) {
        for seen in seen {
            match seen.kind {
                Kind::ReplicaSets => self.set_changed(seen),
                Kind::Pods => self.pod_changed(seen),
                _ => {}
            }
        }
    }

    fn set_changed(&mut self, seen: &Seen) {
        self.opt_ins
            .insert(uid(&seen.object), OptIns::of(&seen.object));
        let specs = self.specs.entry(uid(&seen.object)).or_default();
        let replicas = number_at(&seen.object, "/spec/replicas");
        if seen.is_gone {
            specs.push((seen.at, 0));
        } else if specs.last().is_none_or(|(_, last)| *last != replicas) {
            specs.push((seen.at, replicas));
        }
    }

    fn pod_changed(&mut self, seen: &Seen) {
        let uid = uid(&seen.object);
        let old = self.pods.get(&uid).cloned();
        let mut pod = old.clone().unwrap_or_else(|| Pod {
            name: name(&seen.object),
            created: seen.at,
            ..Pod::default()
        });
        pod.owner = controller_uid(&seen.object).unwrap_or_default();
        pod.is_active = !seen.is_gone && is_active(&seen.object);
        let is_failed = !seen.is_gone && has_failed(&seen.object);
        let was_failed = pod.failed.is_some();
        pod.failed = is_failed.then(|| pod.failed.unwrap_or(seen.at));
        pod.ranks.push((seen.at, rank(&seen.object)));
        let was_active = old.as_ref().is_some_and(|old| old.is_active);
        self.pods.insert(uid, pod.clone());
        if old.is_none() && pod.is_active {
            self.check_create(&pod, seen);
        } else if was_active
            && !pod.is_active
            && !is_failed
            && self.deleted.contains(pod.name.as_str())
        {
            self.check_delete(old.as_ref().unwrap_or(&pod), seen);
        } else if was_failed && !is_failed && self.deleted.contains(pod.name.as_str()) {
            let old = old.as_ref().unwrap_or(&pod);
            if old.may_count(seen.at.saturating_sub(self.lag)) {
                self.check_delete(old, seen);
            } else {
                self.check_leftover(old, seen);
            }
        }
    }

    /// The values of `spec.replicas` that a daemon can have read at `at`.
    fn readable(&self, owner: &str, at: Duration) -> Vec<i64> {
        let specs = self.specs.get(owner).map_or(&[][..], Vec::as_slice);
        let since = at.saturating_sub(self.lag);
        let ends = specs.iter().skip(1).map(|(from, _)| *from);
        let ends = ends.chain([Duration::MAX]);
        let readable = specs.iter().zip(ends).filter(|(_, end)| *end >= since);
        readable.map(|((_, replicas), _)| *replicas).collect()
    }

    fn active(&self, owner: &str) -> impl Iterator<Item = &Pod> {
        self.owned(owner).filter(|pod| pod.is_active)
    }

    fn owned(&self, owner: &str) -> impl Iterator<Item = &Pod> {
        let pods = self.pods.values();
        pods.filter(move |pod| pod.owner == owner)
    }

    /// PROPERTY P24: No pod appears that makes the active pods of its ReplicaSet more than the
    /// largest `spec.replicas` that the daemon can have read.
    fn check_create(&mut self, pod: &Pod, seen: &Seen) {
        // Pods of users have no owner, or one that does not exist.
        if !self.specs.contains_key(&pod.owner) {
            return;
        }
        self.verdict.n_created += 1;
        let n_active = length(self.active(&pod.owner).count());
        let readable = self.readable(&pod.owner, seen.at);
        let newest = readable.last().copied().unwrap_or(0);
        let overshoot = &mut self.verdict.overshoot_max;
        *overshoot = (n_active - newest).max(*overshoot);
        if n_active > readable.iter().copied().max().unwrap_or(0) {
            self.accuse(format!(
                "created {} as number {n_active}, but replicas were {readable:?}",
                described(pod, seen)
            ));
        }
        self.check_probe(pod, &readable, seen);
    }

    /// PROPERTY P38: For a ReplicaSet with a back-off, no pod appears within the first wait after a
    /// failure that the daemon must have read, unless it is one of the first pods, or a pod of the
    /// ReplicaSet is Ready.
    fn check_probe(&mut self, pod: &Pod, readable: &[i64], seen: &Seen) {
        let owned = || self.pods.values().filter(|other| other.owner == pod.owner);
        let n_tried = owned().filter(|it| it.is_active || it.failed.is_some());
        let is_first = length(n_tried.count()) <= readable.iter().copied().max().unwrap_or(0);
        let since = seen.at.saturating_sub(self.lag);
        let has_ready =
            owned().any(|other| other.ranks_since(since).any(|(_, _, is_ready, _)| is_ready));
        let opt_ins = self.opt_ins.get(&pod.owner).copied().unwrap_or_default();
        if !opt_ins.backs_off || is_first || has_ready {
            return;
        }
        // A pod's status names the second in which it failed.
        let wait = FIRST_WAIT.saturating_sub(Duration::from_secs(1));
        let failed = owned().find(|other| {
            let at = other.failed.filter(|at| *at <= since);
            at.is_some_and(|at| seen.at < at + wait)
        });
        if let Some(failed) = failed {
            let accusation = format!(
                "created {} though {} failed at {:?}",
                described(pod, seen),
                failed.name,
                failed.failed
            );
            self.accuse(accusation);
        }
    }

    /// PROPERTY P39: No Failed pod is deleted by a daemon unless its ReplicaSet opts in to that,
    /// and as many as it keeps remain.
    fn check_leftover(&mut self, pod: &Pod, seen: &Seen) {
        let failed = self.pods.values();
        let failed = failed.filter(|it| it.failed.is_some() && it.owner == pod.owner);
        let n_left = failed.count();
        let opt_ins = self.opt_ins.get(&pod.owner).copied().unwrap_or_default();
        if !opt_ins.keeps_few || n_left < N_KEPT {
            self.accuse(format!(
                "deleted {}, which had failed, and {n_left} are left",
                described(pod, seen)
            ));
        }
    }

    /// PROPERTY P25: No pod is deleted by a daemon unless a ReplicaSet controls it.
    ///
    /// PROPERTY P26: No daemon's delete leaves fewer active pods, by what the daemon can have read,
    /// than the smallest `spec.replicas` that it can have read.
    ///
    /// PROPERTY P27: No pod is deleted by a daemon while more pods than remain surplus come before
    /// it by phase, readiness and deletion cost in every state that the daemon can have read.
    ///
    /// PROPERTY P37: For a ReplicaSet with protection, no daemon deletes a pod that is marked
    /// `never` at that moment.
    fn check_delete(&mut self, pod: &Pod, seen: &Seen) {
        self.verdict.n_deleted += 1;
        let opt_ins = self.opt_ins.get(&pod.owner).copied().unwrap_or_default();
        let is_marked = pod
            .ranks
            .last()
            .is_some_and(|(_, (mark, ..))| *mark == Mark::Never);
        if opt_ins.protects && is_marked {
            self.accuse(format!("deleted {}, marked never", described(pod, seen)));
            return;
        }
        let Some(wanted) = self.readable(&pod.owner, seen.at).into_iter().min() else {
            self.accuse(format!(
                "deleted {}, which no ReplicaSet owns",
                described(pod, seen)
            ));
            return;
        };
        let since = seen.at.saturating_sub(self.lag);
        let left = self.owned(&pod.owner).filter(|it| it.may_count(since));
        let n_left = length(left.count());
        if n_left < wanted {
            self.accuse(format!(
                "deleted {}: {n_left} left, but replicas were {wanted}",
                described(pod, seen)
            ));
            return;
        }
        let before = self.active(&pod.owner);
        let before: Vec<&str> = before
            .filter(|other| other.surely_before(pod, since))
            .map(|other| other.name.as_str())
            .collect();
        if length(before.len()) > n_left - wanted {
            let accusation = format!(
                "deleted {} ({:?}), but {before:?} come first and {n_left} are left for {wanted}",
                described(pod, seen),
                pod.ranks.last()
            );
            self.accuse(accusation);
        }
    }

    fn accuse(&mut self, violation: String) {
        self.verdict.violations.push(violation);
    }
}

fn described(pod: &Pod, seen: &Seen) -> String {
    format!(
        "pod {} at {:?}, version {}",
        pod.name, seen.at, seen.version
    )
}

pub(super) fn length(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// PROPERTY P28: Every write of a pod or of a ReplicaSet's status is by the program that holds the
/// lease at the version of the write.
fn judge_lease(seen: &[Seen], lines: &[Line], verdict: &mut Verdict) {
    let holders: BTreeMap<&str, &str> = lines
        .iter()
        .filter(|line| line.resource == "leases" && !line.holder.is_empty())
        .map(|line| (line.holder.as_str(), line.who.as_str()))
        .collect();
    let mut terms: Vec<(u64, String)> = Vec::new();
    let is_theirs = |seen: &&Seen| {
        seen.kind == Kind::Leases && name(&seen.object).starts_with("replicaset-controller")
    };
    for lease in seen.iter().filter(is_theirs) {
        let holder = text_at(&lease.object, "/spec/holderIdentity");
        terms.push((lease.version, holder));
    }
    let gone = seen
        .iter()
        .filter(|seen| seen.kind == Kind::Pods && seen.is_gone);
    let gone: BTreeMap<String, u64> = gone
        .map(|seen| (name(&seen.object), seen.version))
        .collect();
    let is_write = |line: &&Line| {
        let is_judged = match line.resource.as_str() {
            "pods" => matches!(line.verb.as_str(), "create" | "delete" | "patch"),
            "replicasets/status" => line.verb == "update",
            _ => false,
        };
        let is_candidate = line.is_ours() || line.who.ends_with("/replicaset-controller");
        is_judged && is_candidate && matches!(line.code, 200 | 201)
    };
    for line in lines.iter().filter(is_write) {
        let version = match line.verb.as_str() {
            "delete" => gone.get(&line.name).copied().unwrap_or(0),
            _ => line.version,
        };
        if version == 0 {
            continue;
        }
        verdict.n_leased += 1;
        let before = terms.iter().rfind(|(from, _)| *from < version);
        let holder = before.map_or("", |(_, holder)| holder.as_str());
        // A lease of kube-controller-manager is written by another of its clients than the pods.
        let of = holders.get(holder).copied().unwrap_or("nobody");
        if program(of) != program(&line.who) {
            verdict.violations.push(format!(
                "{} wrote {} {} at version {version} while {of} held the lease as {holder:?}",
                line.who, line.resource, line.name
            ));
        }
    }
}

fn program(who: &str) -> &str {
    who.split('/').next().unwrap_or_default()
}

/// Counts requests, and bounds them.
///
/// PROPERTY P29: A round has at most 200 requests, 20 more for each start of a daemon and three
/// more for each change of an object.
///
/// PROPERTY P30: No resource is listed more often than there was cause for by the round's faults,
/// and the pods once more for each changed spec of a ReplicaSet with protection.
fn count(seen: &[Seen], lines: &[Line], terms: &Terms, verdict: &mut Verdict) {
    let ours = lines.iter().filter(|line| line.is_ours());
    verdict.n_requests = ours.clone().count();
    let n_requests_max = REQUESTS_MAX + REQUESTS_MAX_PER_START * terms.n_starts + 3 * seen.len();
    if verdict.n_requests > n_requests_max {
        verdict.violations.push(format!(
            "{} requests, with cause for {n_requests_max}",
            verdict.n_requests
        ));
    }
    let n_pod_lists_max = terms.n_lists_max.saturating_add(n_orders(seen));
    for (resource, n_lists_max) in [
        ("pods", n_pod_lists_max),
        ("replicasets", terms.n_lists_max),
    ] {
        let lists = ours
            .clone()
            .filter(|line| line.resource == resource && line.is_list() && line.code < 300);
        let n_lists = lists.count();
        verdict.n_lists += n_lists;
        if n_lists > n_lists_max {
            verdict.violations.push(format!(
                "{n_lists} lists of {resource}, with cause for {n_lists_max}"
            ));
        }
    }
}

/// The changed specs of ReplicaSets with protection. A scale-down by one may need the versions that
/// the pods had then.
fn n_orders(seen: &[Seen]) -> usize {
    let sets = seen.iter().filter(|seen| seen.kind == Kind::ReplicaSets);
    let orders = sets
        .map(|seen| &seen.object)
        .filter(|set| OptIns::of(set).protects)
        .map(|set| (uid(set), number_at(set, "/metadata/generation")))
        .filter(|(_, generation)| *generation > 1);
    orders.collect::<BTreeSet<_>>().len()
}
