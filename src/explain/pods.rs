//! Explains why pods are unavailable, grouped by state, and detects pods that fail as fast as the
//! controller replaces them. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, Unit};

use super::model::{Finding, Report, Sources};
use crate::api::{Pod, PodPhase};
use crate::controller::decide::optional::failed_pods::BackOff;
use crate::controller::decide::pods::is_available;
use crate::controller::inspect::ReplicaSetFacts;
use crate::controller::warnings::back_off_command;

/// Failures older than this are not part of a failure loop.
const RECENT: Duration = Duration::from_mins(10);

/// Minimum recent failures for a finding. There must also be more failures than replicas.
const FAILED_FROM: usize = 5;

/// The states of the unavailable active pods, and the remedy. `None` if all are available.
pub(super) fn unavailable(
    active: &[std::sync::Arc<Pod>],
    report: &Report,
    facts: &ReplicaSetFacts,
    sources: &Sources,
    now: Timestamp,
) -> Option<Finding> {
    let seconds = facts.replica_set.min_ready_seconds;
    let mut groups: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
    let unavailable = active.iter().filter(|pod| !is_available(pod, seconds, now));
    for pod in unavailable {
        groups
            .entry(state_of(pod, sources, seconds))
            .or_default()
            .push(pod);
    }
    let mut groups: Vec<(String, Vec<&Pod>)> = groups.into_iter().collect();
    // The largest group comes first, and its first pod is the example.
    groups.sort_by_key(|(_, pods)| std::cmp::Reverse(pods.len()));
    let example = groups.first()?.1.first()?;
    let states = groups.iter();
    let states = states.map(|(state, pods)| format!("{} {state}", pods.len()));
    let states: Vec<String> = states.collect();
    let of = match report.next.action {
        "nothing" => "it owns as many pods as it wants; ",
        _ => "",
    };
    let count = match report.available {
        0 => "none is available".to_owned(),
        count => format!("{count} of {} are available", active.len()),
    };
    Some(Finding {
        what: format!("{of}{count}: {}", states.join("; ")),
        way_out: Some(describe(example)),
    })
}

/// The state of an unavailable pod.
fn state_of(pod: &Pod, sources: &Sources, min_ready_seconds: i32) -> String {
    let reason = sources.reason_of(pod);
    let in_brackets = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    if pod.is_ready {
        return format!("Ready for less than minReadySeconds ({min_ready_seconds} s)");
    }
    match (&pod.node, pod.phase) {
        (None, _) => format!("Pending, no node{in_brackets}"),
        (Some(_), PodPhase::Running) => format!("Running, not Ready{in_brackets}"),
        (Some(_), phase) => format!("{phase:?}, not Running yet{in_brackets}"),
    }
}

/// Reports pods that fail as fast as they are replaced, and the remedy. `None` if they do not.
pub(super) fn failing(
    facts: &ReplicaSetFacts,
    sources: &Sources,
    now: Timestamp,
) -> Option<Finding> {
    let created = |pod: &Pod| pod.creation.map(|creation| creation.age(now));
    let is_recent = |pod: &&Pod| {
        let age = created(pod).map(SignedDuration::unsigned_abs);
        pod.phase == PodPhase::Failed && age.is_some_and(|age| age < RECENT)
    };
    let pods = facts.owned.iter().map(|pod| &**pod);
    let mut failed: Vec<&Pod> = pods.filter(is_recent).collect();
    let replicas = usize::try_from(facts.replica_set.replicas).unwrap_or(0);
    if failed.len() < FAILED_FROM.max(replicas + 1) {
        return None;
    }
    failed.sort_by_key(|pod| std::cmp::Reverse(created(pod)));
    let (oldest, newest) = (failed.first()?, failed.last()?);
    let within = created(oldest)?.as_secs() - created(newest)?.as_secs();
    let reason = sources.reason_of(newest);
    let reason = reason.map_or_else(String::new, |reason| format!(", reason {reason}"));
    let node = newest.node.as_ref();
    let node = node.map_or_else(String::new, |node| format!(", on {node}"));
    Some(Finding {
        what: format!(
            "{} pods Failed that were created within {} s{reason}{node}: each is replaced at once",
            failed.len(),
            within.max(1)
        ),
        way_out: Some(format!(
            "{}; to slow the replacements down: {}",
            describe(newest),
            back_off_command(&facts.replica_set, facts.kind.singular)
        )),
    })
}

/// Reports how pods that fail hold back their replacements, and the remedy.
pub(super) fn backing_off(back_off: &BackOff, facts: &ReplicaSetFacts, now: Timestamp) -> Finding {
    let n_held_back = back_off.n_held_back;
    let next = match (n_held_back, now.checked_add(back_off.remaining)) {
        (0, _) => "their replacements are not Ready yet".to_owned(),
        (_, Ok(at)) if at > now => format!(
            "{n_held_back} missing pods must wait, the next one is due at {}",
            at.round(Unit::Second).unwrap_or(at)
        ),
        _ => format!("{n_held_back} missing pods must wait, one is due now"),
    };
    let rs = &facts.replica_set;
    let namespace = &rs.key.namespace;
    let selector = rs.selector.as_ref().map(ToString::to_string);
    let selector = selector.unwrap_or_default();
    Finding {
        what: format!(
            "{}, the last step since {}; {next}, one every {:.0} s",
            back_off.history(),
            back_off.step_began,
            back_off.wait.as_secs_f64().max(1.0)
        ),
        way_out: Some(format!(
            "{}; one Ready pod ends the wait, and so does deleting the Failed pods: kubectl -n \
             {namespace} delete pods -l '{selector}' --field-selector status.phase=Failed",
            describe(&back_off.last)
        )),
    }
}

fn describe(pod: &Pod) -> String {
    let (namespace, name) = (&pod.key.namespace, &pod.key.name);
    format!("kubectl -n {namespace} describe pod {name}")
}
