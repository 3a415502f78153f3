//! Why a ReplicaSet is not moving, and the way out: what stands out of a report. Pure.

use std::sync::Arc;

use jiff::Timestamp;

use super::model::{Finding, Report, Sources};
use super::pods::{failing, unavailable};
use crate::api::conditions::{REPLICA_FAILURE, get_condition};
use crate::api::{CompactTimestamp, Pod};
use crate::controller::memory::own_writes::EXPECTATIONS_TIMEOUT;
use crate::controller::observe::inspect::{Facts, Memory};

/// What stands in the way of the ReplicaSet of `report` with these pods that count, most important
/// first.
pub fn findings(
    report: &Report,
    active: &[Arc<Pod>],
    facts: &Facts,
    sources: &Sources,
    now: Timestamp,
) -> Vec<Finding> {
    let rs = &*facts.replica_set;
    let mut found = Vec::new();
    let mut add = |what: String, way_out: Option<String>| found.push(Finding { what, way_out });
    if let Err(error) = &rs.selector {
        add(
            format!("the selector cannot be used: {error}"),
            Some("a selector cannot be changed: create the ReplicaSet anew".to_owned()),
        );
    }
    if let Some(since) = rs.deletion {
        add(
            format!("the ReplicaSet is going away since {since}: no pods are made or deleted"),
            Some("see its finalizers: something has yet to remove them".to_owned()),
        );
    }
    let memory = facts.memory.as_ref();
    let last_error = memory.and_then(|memory| memory.last_error.as_ref());
    let last_error = last_error.map(|error| error.message.to_string());
    let condition = get_condition(&rs.status.conditions, REPLICA_FAILURE);
    let refusal = last_error
        .or_else(|| condition.and_then(|condition| condition.message.clone()))
        .or_else(|| refusal_of_events(report));
    let is_wanting = report.next.action != "nothing";
    let is_namespace = sources.namespace_is_terminating == Some(true)
        || refusal.as_deref().is_some_and(is_namespace_terminating);
    if is_namespace {
        add(
            format!(
                "the namespace {} is being terminated: nothing can be created in it any more",
                rs.key.namespace
            ),
            Some("use another namespace, or wait until it is gone and make it anew".to_owned()),
        );
    } else if let Some(message) = refusal
        && (is_wanting || memory.is_some())
    {
        let way_out = way_out_of(&message, &rs.key.namespace);
        add(format!("the last attempt failed: {message}"), way_out);
    }
    if let Some(memory) = memory {
        remembered(memory, report, &mut add);
    }
    if rs.generation != rs.status.observed_generation && memory.is_none() {
        add(
            format!(
                "generation {} was not looked at yet, the status is of generation {}",
                rs.generation, rs.status.observed_generation
            ),
            Some("is the controller running, and is it the leader?".to_owned()),
        );
    }
    let storm = failing(facts, sources, now);
    if storm.is_none() && is_wanting && memory.is_none() && found.is_empty() {
        found.push(Finding {
            what: "there is work to do and nothing in its way that the API shows".to_owned(),
            way_out: Some(
                "look again in a moment; if nothing moves, is the controller running? With \
                 --server its own report tells more"
                    .to_owned(),
            ),
        });
    }
    found.extend(storm);
    found.extend(unavailable(active, report, facts, sources, now));
    stuck_pods(report, facts, now, &mut found);
    found
}

fn remembered(memory: &Memory, report: &Report, add: &mut impl FnMut(String, Option<String>)) {
    if let Some(open) = &memory.expectations {
        let told = report.memory.as_ref();
        let names = |names: &[String]| match names {
            [] => String::new(),
            [one] => format!(" ({one})"),
            [one, ..] => format!(" ({one}, …)"),
        };
        let left = EXPECTATIONS_TIMEOUT.saturating_sub(open.age);
        add(
            format!(
                "it waits to see its own doings in the watch: {} creations{} and {} deletions{}, \
                 asked for {:.1} s ago",
                open.creations.len(),
                names(told.map_or(&[], |told| &told.expected_creations)),
                open.deletions.len(),
                names(told.map_or(&[], |told| &told.expected_deletions)),
                open.age.as_secs_f64(),
            ),
            Some(format!(
                "if they do not come, the API server is asked in {:.0} s; is the watch of pods \
                 behind? See the thread watch-pods in /debug/threads",
                left.as_secs_f64()
            )),
        );
    }
    if memory.waits_for.is_some() {
        add(
            "the cache does not show yet what was written last: the event that brings it wakes \
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
                "any change of the ReplicaSet or its pods leads to a try at once, such as \
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

/// Pods that are going away for longer than they were given keep their node's and their quota's share.
fn stuck_pods(report: &Report, facts: &Facts, now: Timestamp, found: &mut Vec<Finding>) {
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
        format!(", and {more} more like it")
    };
    found.push(Finding {
        what: format!("pod {first} does not go: {because}{others}; it does not count any more"),
        way_out: Some(format!(
            "whoever set its finalizer has to remove it, or its node has to answer: kubectl -n {} \
             get pod {first} -o jsonpath='{{.metadata.finalizers}} {{.spec.nodeName}}'",
            report.namespace
        )),
    });
}

/// Of a ReplicaSet that wants more: the newest warning about a create.
fn refusal_of_events(report: &Report) -> Option<String> {
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

/// What to do about a refusal, by what it says.
fn way_out_of(message: &str, namespace: &str) -> Option<String> {
    let way_out = if message.contains("exceeded quota") || message.contains("failed quota") {
        format!(
            "raise the quota, free some of it, or ask for less: kubectl -n {namespace} describe \
             quota"
        )
    } else if message.contains("error looking up service account") {
        format!(
            "create the service account that the template names: kubectl -n {namespace} get \
             serviceaccounts"
        )
    } else if message.contains("violates PodSecurity") {
        "make the template meet the namespace's Pod Security level, or change that level".to_owned()
    } else if message.contains("admission webhook") || message.contains("failed calling webhook") {
        "see the webhook that is named, its log and whether it answers".to_owned()
    } else if message.contains("no PriorityClass") {
        "create the PriorityClass that the template names, or name another".to_owned()
    } else if message.contains("is invalid") {
        "mend the template: what is named here is not valid".to_owned()
    } else if message.contains("cannot create resource") || message.contains("cannot delete") {
        "the daemon lacks rights: bind the ClusterRole system:controller:replicaset-controller to \
         its account"
            .to_owned()
    } else if message.contains("no answer from the API server") {
        "the API server could not be reached: see its own health, and the daemon's log".to_owned()
    } else {
        return None;
    };
    Some(way_out)
}
