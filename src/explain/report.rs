//! Builds the report from the facts. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::findings::findings;
use super::model::{Deletion, MemoryReport, NextStep, NotCounted, Report, Sibling, Sources};
use crate::api::{CompactTimestamp, Pod, PodPhase, ScaleDownMark, Selector, Uid};
use crate::controller::decide;
use crate::controller::decide::deletion_order::{
    DeletionContext, DeletionOrder, NodeCounts, RankedPod, RelatedPods, Rule, deletion_ranking,
    first_difference, pods_to_delete,
};
use crate::controller::decide::optional::order::{
    Because, NodePods, PreferredPod, Topology, is_one_class, prefer,
};
use crate::controller::decide::plan::{Plan, plan};
use crate::controller::decide::{Claim, Pods, Step, claim_of};
use crate::controller::memory::RecordView;
use crate::explain::inspect::{RecordFacts, ReplicaSetFacts};
use crate::stdx::HashMap;

/// Maximum pods in a list; the counts cover all pods.
const NAMED_MAX: usize = 100;

/// The related pods and the pods per node, read in advance.
#[derive(Debug)]
struct ReadInAdvance<'a>(&'a ReplicaSetFacts);

impl RelatedPods for ReadInAdvance<'_> {
    fn related_pods(&self) -> Vec<Arc<Pod>> {
        self.0.related.clone()
    }

    fn active_pods_per_node(&self) -> NodeCounts {
        self.0.per_node.clone()
    }
}

pub fn report(facts: &ReplicaSetFacts, sources: &Sources, now: Timestamp) -> Report {
    let rs = &*facts.replica_set;
    // The controller does not touch a ReplicaSet with an invalid selector.
    let selector = rs.selector.as_ref().ok();
    let known = selector.map(|selector| known(facts, selector, now));
    let decision = known.as_ref().map(decide::View::decide);
    let not_counted = selector.map(|selector| not_counted(facts, selector, sources));
    let not_counted = not_counted.unwrap_or_default();
    let no_pods = Vec::new();
    let active = decision.as_ref().map_or(&no_pods, |it| &it.active);
    let effects = decision.as_ref().map(|it| it.effects.clone());
    let effects = effects.unwrap_or_default();
    let context = known.as_ref().map(|it| it.deletion_context(&effects));
    let order = context
        .as_ref()
        .map(|context| deletion_ranking(active, context));
    let order = order.unwrap_or_default();
    let next = next_step(facts, sources, decision.as_ref(), &order, context.as_ref());
    let count = |is_counted: &dyn Fn(&Pod) -> bool| active.iter().filter(|p| is_counted(p)).count();
    let mut report = Report {
        kind: facts.kind.kind,
        namespace: rs.key.namespace.to_string(),
        name: rs.key.name.to_string(),
        uid: rs.uid.to_string(),
        owner: rs
            .controller
            .as_ref()
            .map(|owner| format!("{}/{}", owner.kind, owner.name)),
        siblings: siblings(facts),
        rollout: sources.rollout.clone().and_then(Result::ok),
        source: if facts.memory.is_some() {
            "daemon"
        } else {
            "api"
        },
        desired: rs.replicas,
        owned: facts.owned.len(),
        active: active.len(),
        ready: count(&|pod| pod.is_ready),
        available: count(&|pod| pod.is_available(rs.min_ready_seconds, now)),
        generation: rs.generation,
        observed_generation: rs.status.observed_generation,
        findings: Vec::new(),
        since: since(facts, active, now),
        next,
        deletion_order_total: order.len(),
        deletion_order: context.map_or_else(Vec::new, |context| {
            let preferred = prefer(&order, None, (active, &[]), &context);
            let topology = Topology::of(active, &context);
            deletions(&preferred, &topology, context.order)
        }),
        not_counted_total: not_counted.len(),
        not_counted,
        memory: facts
            .memory
            .as_ref()
            .map(|memory| memory_report(memory, facts)),
        conditions: rs.status.conditions.clone(),
        events: sources.events.clone(),
    };
    report.not_counted.truncate(NAMED_MAX);
    report.findings = findings(&report, decision.as_ref(), facts, sources, now);
    report
}

/// The earliest time at which something began that keeps the ReplicaSet from converging: a
/// condition, its deletion, a rejected create, an error, or the wait for one of its `active` pods.
fn since(facts: &ReplicaSetFacts, active: &[Arc<Pod>], now: Timestamp) -> Option<Timestamp> {
    let rs = &*facts.replica_set;
    let conditions = rs.status.conditions.iter();
    let conditions = conditions.filter(|condition| condition.status == "True");
    let conditions = conditions.filter_map(|condition| condition.last_transition_time);
    let pods = active.iter();
    let pods = pods.filter(|pod| !pod.is_available(rs.min_ready_seconds, now));
    let pods = pods.filter_map(|pod| pod.creation.max(pod.ready_transition));
    let objects = pods.chain(rs.deletion).map(CompactTimestamp::timestamp);
    let memory = facts.memory.as_ref();
    let error = memory.and_then(|memory| memory.last_error.as_ref());
    let backed_off = memory.and_then(|memory| memory.backed_off.as_ref());
    let rejected = backed_off.and_then(|backed_off| now.checked_sub(backed_off.since).ok());
    let record = error.map(|error| error.at).into_iter().chain(rejected);
    conditions.chain(objects).chain(record).min()
}

fn siblings(facts: &ReplicaSetFacts) -> Vec<Sibling> {
    let Some(owner) = &facts.replica_set.controller else {
        return Vec::new();
    };
    let sets = facts.neighbours.iter();
    let siblings = sets.filter(|rs| rs.controller.as_ref() == Some(owner));
    let mut siblings: Vec<Sibling> = siblings
        .map(|rs| Sibling {
            name: rs.key.name.to_string(),
            desired: rs.replicas,
            replicas: rs.status.replicas,
        })
        .collect();
    siblings.sort_by(|a, b| a.name.cmp(&b.name));
    siblings
}

/// The facts in the form that the controller's own decision takes.
fn known<'a>(
    facts: &'a ReplicaSetFacts,
    selector: &'a Selector,
    now: Timestamp,
) -> decide::View<'a> {
    let unresolved = facts
        .memory
        .as_ref()
        .map(|m| m.unresolved_deletions.clone());
    // A cache and the API server list pods in different orders, which decide between equal ones.
    let sorted = |pods: &[Arc<Pod>]| {
        let mut pods = pods.to_vec();
        pods.sort_by(|a, b| a.key.cmp(&b.key));
        pods
    };
    decide::View {
        rs: &facts.replica_set,
        selector,
        pods: Pods::Listed {
            owned: sorted(&facts.owned),
            orphans: sorted(&facts.orphans),
        },
        related_pods: Box::new(ReadInAdvance(facts)),
        record: RecordView {
            unknown_deletions: unresolved.unwrap_or_default(),
            ..RecordView::default()
        },
        rules: facts.rules,
        now,
    }
}

/// The pods that match or are owned, and still do not count as replicas.
fn not_counted(facts: &ReplicaSetFacts, selector: &Selector, sources: &Sources) -> Vec<NotCounted> {
    let rs = &*facts.replica_set;
    let mut found = Vec::new();
    for pod in facts.owned.iter().chain(&facts.orphans) {
        if !pod.is_controlled_by(&rs.uid) && !selector.matches(&pod.labels) {
            continue;
        }
        let because = match claim_of(rs, selector, pod) {
            _ if !pod.is_active() => {
                found.push(inactive(pod, sources));
                continue;
            }
            Claim::Keep | Claim::Adopt => continue,
            Claim::Release => "its labels do not match the selector, so it is released",
            Claim::Ignore => "the ReplicaSet is terminating and adopts no pods",
        };
        found.push(NotCounted::new(pod, "does-not-match", because));
    }
    // Pods that match but have another owner are a common mistake. Without a list of the namespace,
    // only those of sibling ReplicaSets are known.
    let mut seen = HashSet::new();
    for pod in &facts.related {
        let Some(owner) = &pod.controller else {
            continue;
        };
        let has_other_owner = owner.uid != rs.uid && selector.matches(&pod.labels);
        if has_other_owner && seen.insert(&pod.uid) {
            let because = format!("it belongs to {} {}", owner.kind, owner.name);
            found.push(NotCounted::new(pod, "other-owner", because));
        }
    }
    found
}

fn names(pods: &[Arc<Pod>]) -> Vec<String> {
    pods.iter().map(|pod| pod.key.name.to_string()).collect()
}

fn inactive(pod: &Pod, sources: &Sources) -> NotCounted {
    let Some(since) = pod.deletion else {
        let phase = match pod.phase {
            PodPhase::Succeeded => "Succeeded",
            _ => "Failed",
        };
        let because = format!("phase {phase}: finished pods do not count");
        return NotCounted::new(pod, "finished", because);
    };
    let because = match sources.finalizers.get(&pod.uid) {
        Some(names) if !names.is_empty() => format!(
            "terminating, grace period until {since}; finalizer {} is present",
            names.join(", ")
        ),
        _ => format!("terminating, grace period until {since}"),
    };
    NotCounted::new(pod, "terminating", because)
}

fn next_step(
    facts: &ReplicaSetFacts,
    sources: &Sources,
    decision: Option<&Step>,
    order: &[RankedPod],
    context: Option<&DeletionContext<'_>>,
) -> NextStep {
    let rs = &*facts.replica_set;
    let n_active = decision.map_or(0, |decision| decision.active.len());
    let wanted = match plan(n_active, rs.replicas, facts.rules.burst_replicas) {
        // Protected pods are not due for deletion, while missing pods are due and wait.
        Plan::Delete(_) if !rs.is_terminating() => {
            decision.map_or(Plan::Nothing, |decision| decision.plan)
        }
        wanted => wanted,
    };
    let (action, count) = match wanted {
        Plan::Nothing => ("nothing", 0),
        Plan::Create(count) => ("create", count),
        Plan::Delete(count) => ("delete", count),
    };
    let (pods, pods_total) = decision
        .zip(context)
        .map(|(decision, context)| {
            // A terminating ReplicaSet deletes no pods, but the report still names the candidates.
            let chosen = match wanted {
                Plan::Delete(count) if rs.is_terminating() => {
                    pods_to_delete(&decision.active, count, context)
                }
                _ => decision.delete.clone(),
            };
            let pods = chosen_deletions(&chosen, &decision.active, order, context);
            (pods, chosen.len())
        })
        .unwrap_or_default();
    let backed_off = match (&rs.selector, wanted) {
        (Err(error), _) => Some(format!("the selector cannot be used: {error}")),
        (Ok(_), Plan::Nothing) => None,
        (Ok(_), _) if rs.is_terminating() => {
            Some("the ReplicaSet is terminating; the garbage collector deletes its pods".to_owned())
        }
        (Ok(_), Plan::Create(_)) if sources.namespace_is_terminating == Some(true) => {
            Some("the namespace is being terminated".to_owned())
        }
        (Ok(_), _) => facts.memory.as_ref().and_then(backed_off).or_else(|| {
            let n_pods = decision
                .map(|decision| decision.effects.n_backed_off())
                .filter(|n_pods| *n_pods > 0);
            n_pods.map(|n_pods| format!("{n_pods} of them are delayed because earlier pods failed"))
        }),
    };
    NextStep {
        action,
        count,
        pods,
        pods_total,
        adopts: decision.map_or_else(Vec::new, |decision| names(&decision.adopt)),
        releases: decision.map_or_else(Vec::new, |decision| names(&decision.release)),
        old_failed_pods: decision.map_or(0, |decision| decision.effects.extra_deletes().len()),
        backed_off,
    }
}

fn backed_off(memory: &RecordFacts) -> Option<String> {
    if let Some(open) = &memory.expectations {
        let (creations, deletions) = (open.creations.len(), open.deletions.len());
        return Some(format!(
            "the watch has not confirmed {creations} creates and {deletions} deletes yet"
        ));
    }
    if memory.waits_for.is_some() {
        return Some("the cache does not show the last write yet".to_owned());
    }
    // The problems say why, so this says when.
    if let Some(backed_off) = &memory.backed_off {
        return Some(super::findings::next_try(backed_off));
    }
    let next = memory
        .queue
        .due_in
        .filter(|_| memory.queue.n_failures > 0)?;
    Some(format!("next attempt in {:.1} s", next.as_secs_f64()))
}

/// The chosen pods, each with the rule that ranks it before the first remaining pod.
fn chosen_deletions(
    chosen: &[Arc<Pod>],
    active: &[Arc<Pod>],
    order: &[RankedPod],
    context: &DeletionContext<'_>,
) -> Vec<Deletion> {
    let preferred = preferred(chosen, active, order, context);
    let topology = Topology::of(active, context);
    let uids: HashSet<&Uid> = chosen.iter().map(|pod| &pod.uid).collect();
    let first_kept = order.iter().find(|ranked| !uids.contains(&ranked.pod.uid));
    let one = |pod: &Arc<Pod>| {
        if context.unresolved.contains(&pod.uid) {
            let because = "its deletion was requested already, with an unknown outcome";
            return Deletion::new(pod, Some("unresolved"), because);
        }
        let ranked = order.iter().find(|ranked| ranked.pod.uid == pod.uid);
        if let Some(because) = preferred.get(&pod.uid) {
            return by_preference(pod, because, &topology);
        }
        match (ranked, first_kept) {
            (Some(ranked), Some(kept)) => deletion(ranked, Some(kept), context.order),
            _ => Deletion::new(pod, None, "all pods are deleted"),
        }
    };
    chosen.iter().take(NAMED_MAX).map(one).collect()
}

fn deletions(sorted: &[PreferredPod], topology: &Topology, order: DeletionOrder) -> Vec<Deletion> {
    let one = |pair: (&PreferredPod, Option<&PreferredPod>)| {
        let (pod, next) = pair;
        let is_alike = next.is_some_and(|next| is_one_class(&pod.ranked, &next.ranked, order));
        match &pod.because {
            Some(because) if is_alike && !order.marks.spare(&pod.ranked.pod) => {
                by_preference(&pod.ranked.pod, because, topology)
            }
            _ => deletion(&pod.ranked, next.map(|next| &next.ranked), order),
        }
    };
    let nexts = sorted.iter().skip(1).map(Some).chain([None]);
    sorted.iter().zip(nexts).take(NAMED_MAX).map(one).collect()
}

fn deletion(ranked: &RankedPod, other: Option<&RankedPod>, order: DeletionOrder) -> Deletion {
    let pod = &ranked.pod;
    if order.marks.spare(pod) {
        let because = "annotated scale-down=never: no scale-down deletes it";
        return Deletion {
            is_spared: true,
            ..Deletion::new(pod, Some(Rule::Mark.name()), because)
        };
    }
    let Some(other) = other else {
        return Deletion::new(pod, None, "deleted last");
    };
    match first_difference(ranked, other, order) {
        Some((rule, _)) => Deletion::new(pod, Some(rule.name()), because(rule, ranked, other)),
        None => Deletion {
            ties_with: Some(other.pod.key.name.to_string()),
            ..Deletion::new(pod, None, format!("ties with {}", other.pod.key.name))
        },
    }
}

fn because(rule: Rule, a: &RankedPod, b: &RankedPod) -> String {
    let (rank_a, rank_b) = (a.rank, b.rank);
    let (a, b) = (&*a.pod, &*b.pod);
    let time = |at: Option<CompactTimestamp>| at.map_or("never".to_owned(), |at| at.to_string());
    let (what, mine, theirs) = match rule {
        Rule::Mark if a.scale_down == ScaleDownMark::First => (
            "annotated scale-down=first, unlike",
            String::new(),
            String::new(),
        ),
        Rule::Mark => (
            "not annotated scale-down=never, unlike",
            String::new(),
            String::new(),
        ),
        Rule::Unassigned => ("no node, unlike", String::new(), String::new()),
        Rule::NotReady => ("not Ready, unlike", String::new(), String::new()),
        Rule::Phase => ("phase", format!("{:?}", a.phase), format!("{:?}", b.phase)),
        Rule::DeletionCost => (
            "deletion cost",
            a.deletion_cost.to_string(),
            b.deletion_cost.to_string(),
        ),
        Rule::CrowdedNode => ("pods on its node", rank_a.to_string(), rank_b.to_string()),
        Rule::ReadyTime => (
            "ready since",
            time(a.ready_transition),
            time(b.ready_transition),
        ),
        Rule::Restarts => ("restarts", a.restarts.to_string(), b.restarts.to_string()),
        Rule::SidecarRestarts => (
            "restarts of sidecars",
            a.sidecar_restarts.to_string(),
            b.sidecar_restarts.to_string(),
        ),
        Rule::Age => ("created", time(a.creation), time(b.creation)),
    };
    let other = &b.key.name;
    if mine.is_empty() {
        format!("{what} {other}")
    } else if mine == theirs {
        format!("{what} {mine}, as {other}, so the UIDs decide")
    } else {
        format!("{what} {mine}, {other} {theirs}")
    }
}

fn memory_report(memory: &RecordFacts, facts: &ReplicaSetFacts) -> MemoryReport {
    use crate::controller::memory::history::SyncEnd;
    let name_of = |uid: &Uid| {
        let known = facts.owned.iter().find(|pod| pod.uid == *uid);
        known.map_or_else(|| uid.to_string(), |pod| pod.key.name.to_string())
    };
    let expectations = memory.expectations.as_ref();
    let mut expected_creations: Vec<String> = expectations
        .map(|open| open.creations.iter().map(ToString::to_string).collect())
        .unwrap_or_default();
    let mut expected_deletions: Vec<String> = expectations
        .map(|open| open.deletions.iter().map(name_of).collect())
        .unwrap_or_default();
    let (creations_total, deletions_total) = (expected_creations.len(), expected_deletions.len());
    expected_creations.sort();
    expected_deletions.sort();
    expected_creations.truncate(NAMED_MAX);
    expected_deletions.truncate(NAMED_MAX);
    let names = memory.unresolved_creations.iter().map(ToString::to_string);
    let unresolved = names.chain(memory.unresolved_deletions.iter().map(name_of));
    let waits_for = memory.waits_for.as_ref();
    let version =
        |version: &crate::api::ResourceVersion| (!version.is_empty()).then(|| version.to_string());
    let last_sync = memory.last_sync.as_ref();
    MemoryReport {
        expected_creations,
        expected_creations_total: creations_total,
        expected_deletions,
        expected_deletions_total: deletions_total,
        expectations_age_seconds: expectations.map(|open| open.age.as_secs_f64()),
        unresolved: unresolved.take(NAMED_MAX).collect(),
        unresolved_total: memory.unresolved_creations.len() + memory.unresolved_deletions.len(),
        waits_for_pods_version: waits_for.and_then(|v| version(&v.pods)),
        waits_for_replica_sets_version: waits_for.and_then(|v| version(&v.replica_sets)),
        cached_pods_version: memory.cached.pods.to_string(),
        cached_replica_sets_version: memory.cached.replica_sets.to_string(),
        last_sync_at: last_sync.map(|sync| sync.at),
        last_sync_seconds: last_sync.map(|sync| sync.took.as_secs_f64()),
        last_sync_end: last_sync.map(|sync| match sync.end {
            SyncEnd::Synced => "synced",
            SyncEnd::TooEarly => "tooEarly",
            SyncEnd::BackedOff => "backedOff",
            SyncEnd::Failed => "failed",
            SyncEnd::Panicked => "panicked",
        }),
        last_error: memory.last_error.as_ref().map(|e| e.message.to_string()),
        last_error_at: memory.last_error.as_ref().map(|error| error.at),
        failures: memory.queue.n_failures,
        next_try_seconds: memory.queue.due_in.map(|due| due.as_secs_f64()),
        is_queued: memory.queue.is_waiting,
        is_syncing: memory.queue.is_processing,
    }
}

/// Why preferences chose pods among `chosen`. `order` is upstream's order of the `active` pods.
pub(super) fn preferred(
    chosen: &[Arc<Pod>],
    active: &[Arc<Pod>],
    order: &[RankedPod],
    context: &DeletionContext<'_>,
) -> HashMap<Uid, Because> {
    let is_unresolved = |pod: &Pod| context.unresolved.contains(&pod.uid);
    let gone: Vec<_> = {
        let gone = chosen.iter().filter(|pod| is_unresolved(pod));
        gone.cloned().collect()
    };
    let rest = order.iter().filter(|it| !is_unresolved(&it.pod)).cloned();
    let rest: Vec<RankedPod> = rest.collect();
    let more = chosen.len() - gone.len();
    let preferred = prefer(&rest, Some(more), (active, &gone), context);
    let because = preferred.into_iter().take(more);
    because
        .filter_map(|it| Some((it.ranked.pod.uid.clone(), it.because?)))
        .collect()
}

/// The line about a pod that a preference chose.
pub(super) fn by_preference(pod: &Pod, because: &Because, topology: &Topology) -> Deletion {
    let node = pod.node.as_deref().unwrap_or_default();
    let on_node = because.on_node.map(|on_node| match on_node {
        NodePods::Emptied(1) => format!("the last pod on {node}"),
        NodePods::Emptied(n) => {
            format!("one of the last {n} pods on {node}, all of which are deleted")
        }
        NodePods::Active(n) => {
            format!("{node} has {n} active pods; nodes with fewer pods are emptied first")
        }
    });
    let in_domain = because.in_domain.map(|n| {
        let domain = match topology.label.as_deref() {
            Some(key) => match pod.labels.get(key) {
                Some(value) => format!("{key}={value}"),
                None => format!("no {key}"),
            },
            None => format!("node {node}"),
        };
        let pods_are = if n == 1 { "pod is" } else { "pods are" };
        format!("{n} {pods_are} in {domain}, and no other domain has more pods to delete")
    });
    let both = [in_domain, on_node].into_iter().flatten();
    let both: Vec<_> = both.collect();
    Deletion::new(pod, Some(because.preference.name()), both.join("; "))
}
