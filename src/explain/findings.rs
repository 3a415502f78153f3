//! Derives from a report why a ReplicaSet makes no progress, and the remedy. Pure.

use jiff::Timestamp;

use super::model::{Finding, Report, Sources};
use super::pods::{backing_off, failing, unavailable};
use super::refusals;
use crate::api::conditions::{Condition, REPLICA_FAILURE, get_condition};
use crate::api::{CompactTimestamp, Policy, ReplicaSet};
use crate::controller::decide::Step;
use crate::controller::decide::optional::failed_pods::FAILED_POD_BACKOFF;
use crate::controller::decide::optional::protection::Block;
use crate::controller::inspect::{Memory, ReplicaSetFacts};
use crate::controller::memory::own_writes::EXPECTATIONS_TIMEOUT;
use crate::controller::other_writers;

/// The problems of the report's ReplicaSet with this decision, most important first; `None` if its
/// selector cannot be used.
pub fn findings(
    report: &Report,
    decision: Option<&Step>,
    facts: &ReplicaSetFacts,
    sources: &Sources,
    now: Timestamp,
) -> Vec<Finding> {
    let rs = &*facts.replica_set;
    let active = decision.map_or(&[][..], |decision| &decision.active);
    let back_off = decision.and_then(|decision| decision.opt_ins.back_off.as_ref());
    let mut found = Vec::new();
    let mut add = |what: String, way_out: Option<String>| found.push(Finding { what, way_out });
    let memory = facts.memory.as_ref();
    if let Some(other) = memory.and_then(|memory| memory.other_writer.as_ref()) {
        add(other.clone(), Some(other_writers::way_out(facts.kind)));
    }
    if let Err(error) = &rs.selector {
        add(
            format!("the selector cannot be used: {error}"),
            Some("spec.selector is immutable: delete and recreate the ReplicaSet".to_owned()),
        );
    }
    if let Some(since) = rs.deletion {
        add(
            format!(
                "the ReplicaSet has been terminating since {since}: no sync creates or deletes pods"
            ),
            Some("check its finalizers: their owners have yet to remove them".to_owned()),
        );
    }
    if let Some(block) = decision.and_then(|decision| decision.opt_ins.block.as_ref()) {
        add(blocked(block, rs), Some(way_out_of_block(block, report)));
    }
    let last_error = memory.and_then(|memory| memory.last_error.as_ref());
    let last_error = last_error.map(|error| error.message.to_string());
    let condition = get_condition(&rs.status.conditions, REPLICA_FAILURE);
    // A back-off is no error, and has a finding of its own.
    let is_error = |it: &&Condition| it.reason.as_deref() != Some(FAILED_POD_BACKOFF);
    let condition = condition.filter(is_error);
    let error_message = last_error
        .or_else(|| condition.and_then(|condition| condition.message.clone()))
        .or_else(|| failed_create(report));
    let is_wanting = report.next.action != "nothing";
    let is_namespace = sources.namespace_is_terminating == Some(true)
        || error_message
            .as_deref()
            .is_some_and(is_namespace_terminating);
    // A terminating namespace explains every failed create, so it replaces the error.
    if is_namespace {
        add(
            format!(
                "the namespace {} is being terminated: the API server accepts no new objects in it",
                rs.key.namespace
            ),
            Some("use another namespace, or wait for its deletion and recreate it".to_owned()),
        );
    } else if let Some(message) = error_message
        && (is_wanting || memory.is_some())
    {
        let way_out = way_out_of(&message, &rs.key.namespace);
        add(format!("the last attempt failed: {message}"), way_out);
    }
    if let Some(memory) = memory {
        if let Some(held_back) = &memory.held_back {
            let finding =
                refusals::finding(held_back, &rs.key.namespace, memory.quotas_are_watched);
            add(finding.what, finding.way_out);
        }
        memory_findings(memory, report, &mut add);
    }
    if rs.generation != rs.status.observed_generation && memory.is_none() {
        add(
            format!(
                "generation {} has not been synced yet, the status is of generation {}",
                rs.generation, rs.status.observed_generation
            ),
            Some("check that the controller is running and is the leader".to_owned()),
        );
    }
    let storm = match back_off {
        Some(back_off) => Some(backing_off(back_off, facts, now)),
        None if facts.rules.policy.failed_pod_backoff.is_some() => None,
        // With a record, the policy has the daemon's flags.
        None if memory.is_some() => failing(facts, sources, now),
        None => backing_off_by_flag(rs).or_else(|| failing(facts, sources, now)),
    };
    // The API alone does not show why the controller waits.
    if storm.is_none() && is_wanting && memory.is_none() && found.is_empty() {
        found.push(Finding {
            what: "a sync has work to do, and the API shows nothing that blocks it".to_owned(),
            way_out: Some(
                "check again in a moment; if nothing changes, check that the controller is \
                 running, or get its own report with --server"
                    .to_owned(),
            ),
        });
    }
    found.extend(overlap(facts));
    found.extend(storm);
    found.extend(unavailable(active, report, facts, sources, now));
    stuck_pods(report, facts, now, &mut found);
    let mistakes = Policy::mistakes(&rs.opt_ins).into_iter();
    found.extend(mistakes.map(|what| Finding {
        what,
        way_out: Some("correct or remove the annotation; until then it is as if absent".to_owned()),
    }));
    found
}

/// Reports that the selector also matches the pods of another ReplicaSet.
fn overlap(facts: &ReplicaSetFacts) -> Option<Finding> {
    let selector = facts.replica_set.selector.as_ref().ok()?;
    let is_selected = |it: &&std::sync::Arc<ReplicaSet>| selector.matches(&it.template_labels);
    let mut others: Vec<_> = facts.neighbours.iter().filter(is_selected).collect();
    others.sort_by(|a, b| a.key.cmp(&b.key));
    let (first, more) = others.split_first()?;
    let and_more = match more.len() {
        0 => String::new(),
        n => format!(" and of {n} more"),
    };
    let (short, name) = (facts.kind.short_name, &first.key.name);
    Some(Finding {
        what: format!("its selector also matches pods of {short}/{name}{and_more}"),
        way_out: Some(
            "give each a selector and pod labels of its own: either may adopt an orphan of the other"
                .to_owned(),
        ),
    })
}

/// Reports a back-off that only the condition shows: a flag of the daemon switches it on.
fn backing_off_by_flag(rs: &ReplicaSet) -> Option<Finding> {
    let condition = get_condition(&rs.status.conditions, REPLICA_FAILURE)?;
    let is_back_off = condition.reason.as_deref() == Some(FAILED_POD_BACKOFF);
    is_back_off.then(|| Finding {
        what: format!(
            "by a flag of the daemon, replacements of Failed pods wait: {}",
            condition.message.as_deref().unwrap_or_default()
        ),
        way_out: Some("get the daemon's own report with --server: it knows its flags".to_owned()),
    })
}

fn blocked(block: &Block, rs: &ReplicaSet) -> String {
    let (_, message) = block.reason_and_message(rs.replicas);
    let since = block.since;
    format!("protected pods have blocked the scale-down since {since}: {message}")
}

fn way_out_of_block(block: &Block, report: &Report) -> String {
    let Report {
        namespace, name, ..
    } = report;
    let kind = report.kind.to_lowercase();
    let pod = block.names.first().map_or("POD", |name| name);
    let timeout = match block.until {
        Some(_) => String::new(),
        None => format!(
            ", or limit the block: kubectl -n {namespace} annotate {kind} {name} \
             replicaset-controller/protected-timeout=30m"
        ),
    };
    format!(
        "when the pod may go: kubectl -n {namespace} annotate pod {pod} \
         replicaset-controller/scale-down-{timeout}"
    )
}

fn memory_findings(memory: &Memory, report: &Report, add: &mut impl FnMut(String, Option<String>)) {
    if let Some(open) = &memory.expectations {
        let memory_report = report.memory.as_ref();
        let names = |names: &[String]| match names {
            [] => String::new(),
            [one] => format!(" ({one})"),
            [one, ..] => format!(" ({one}, …)"),
        };
        let remaining = EXPECTATIONS_TIMEOUT.saturating_sub(open.age);
        add(
            format!(
                "it waits for its own writes in the watch: {} creations{} and {} deletions{}, \
                 asked for {:.1} s ago",
                open.creations.len(),
                names(memory_report.map_or(&[], |it| &it.expected_creations)),
                open.deletions.len(),
                names(memory_report.map_or(&[], |it| &it.expected_deletions)),
                open.age.as_secs_f64(),
            ),
            Some(format!(
                "if they do not arrive, the controller asks the API server in {:.0} s; check \
                 the thread watch-pods in /debug/threads for a watch that lags",
                remaining.as_secs_f64()
            )),
        );
    }
    if memory.waits_for.is_some() {
        add(
            "the cache does not have the last write yet: its watch event enqueues \
             the ReplicaSet"
                .to_owned(),
            None,
        );
    }
    if memory.queue.n_failures > 0
        && let Some(due) = memory.queue.due_in
    {
        add(
            format!(
                "it waits in back-off after {} failures: the next try is in {:.1} s",
                memory.queue.n_failures,
                due.as_secs_f64()
            ),
            Some(
                "any change of the ReplicaSet or its pods starts a sync at once, such as \
                 kubectl annotate"
                    .to_owned(),
            ),
        );
    }
    if memory.queue.is_waiting && !memory.queue.is_processing {
        add(
            "it waits in the queue for a worker".to_owned(),
            Some(
                "if that lasts, see the threads sync-* in /debug/threads; \
                 --concurrent-replicaset-syncs adds workers"
                    .to_owned(),
            ),
        );
    }
}

/// Reports pods that exceed their deletion grace period. They still hold resources of their nodes
/// and quota.
fn stuck_pods(report: &Report, facts: &ReplicaSetFacts, now: Timestamp, found: &mut Vec<Finding>) {
    let is_overdue = |due: CompactTimestamp| due.age(now).as_secs() > 5;
    let overdue = facts
        .owned
        .iter()
        .filter(|pod| pod.deletion.is_some_and(is_overdue));
    let mut names = overdue.map(|pod| &*pod.key.name);
    let Some(first) = names.next() else { return };
    let more = names.count();
    let of = report.not_counted.iter().find(|pod| pod.pod == first);
    let because = of.map_or("it is going away", |pod| &pod.because);
    let others = if more == 0 {
        String::new()
    } else {
        format!(", and {more} more pods")
    };
    found.push(Finding {
        what: format!("pod {first} is stuck: {because}{others}; it does not count as a replica"),
        way_out: Some(format!(
            "its finalizer's owner must remove it, or its node must respond: kubectl -n {} \
             get pod {first} -o jsonpath='{{.metadata.finalizers}} {{.spec.nodeName}}'",
            report.namespace
        )),
    });
}

/// The newest failed create, from the events.
fn failed_create(report: &Report) -> Option<String> {
    let events = report.events.as_deref()?;
    let newest = events
        .iter()
        .rev()
        .find(|event| event.reason.contains("Create"))?;
    (newest.type_ == "Warning").then(|| newest.message.clone())
}

fn is_namespace_terminating(message: &str) -> bool {
    message.contains("because it is being terminated")
}

/// The remedy for an API error, from its message.
fn way_out_of(message: &str, namespace: &str) -> Option<String> {
    let way_out = if message.contains("failed quota") {
        format!(
            "set in the template what the quota asks for, or add a LimitRange with defaults: \
             kubectl -n {namespace} describe quota"
        )
    } else if message.contains("exceeded quota") {
        format!(
            "raise the quota, free some of it, or ask for less: kubectl -n {namespace} describe \
             quota"
        )
    } else if message.contains("error looking up service account") {
        let name = message.rsplit_once("error looking up service account ");
        let name = name.and_then(|(_, rest)| rest.split_once('/')?.1.split(':').next());
        let name = name.unwrap_or("NAME");
        format!(
            "create the service account that the error names: kubectl -n {namespace} create \
             serviceaccount {name}"
        )
    } else if message.contains("violates PodSecurity") {
        "make the template meet the namespace's Pod Security level, or change that level".to_owned()
    } else if message.contains("admission webhook") || message.contains("failed calling webhook") {
        "check the named webhook: its log, and that it responds".to_owned()
    } else if message.contains("denied request") {
        "make the template meet the named policy, or repair the policy: the next try comes by \
         itself, within 5 minutes"
            .to_owned()
    } else if message.contains("no PriorityClass") {
        "create the PriorityClass that the template names, or name another".to_owned()
    } else if message.contains("is invalid") {
        "correct the template: the named field is invalid".to_owned()
    } else if message.contains("cannot create resource") || message.contains("cannot delete") {
        "the daemon lacks rights: bind the ClusterRole system:controller:replicaset-controller to \
         its account"
            .to_owned()
    } else if message.contains("no answer from the API server") {
        "the API server did not respond: check its health, and the daemon's log".to_owned()
    } else {
        return None;
    };
    Some(way_out)
}
