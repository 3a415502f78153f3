//! A quota refuses pods: the ReplicaSet reports it and continues once the quota is raised.

use serde_json::json;

use super::{PATIENCE, collection, replica_set, set_path, until_complete};
use crate::run::stand_in::demo::stage::{ChapterResult, Stage, check};
use crate::run::stand_in::world::World;

const NAMESPACE: &str = "tight";

const SET: &str = "greedy";

const REPLICAS: usize = 8;

/// Number of pods that the quota allows.
const LIMIT: usize = 5;

/// Creates that the quota refuses. The pauses between them begin at 50 ms and double, so this many
/// take a minute.
const REFUSED_MAX: usize = 12;

pub(super) fn play(stage: &mut Stage<'_>) -> ChapterResult<String> {
    stage.command(format!(
        "kubectl create quota small --hard=pods={LIMIT} -n {NAMESPACE}"
    ));
    stage.create(
        "/api/v1/namespaces",
        &json!({"metadata": {"name": NAMESPACE}}),
    )?;
    let quotas = format!("/api/v1/namespaces/{NAMESPACE}/resourcequotas");
    let quota = json!({
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": LIMIT.to_string()}},
    });
    stage.create(&quotas, &quota)?;
    stage.pause(0.2)?;

    // Create the pods within the quota first: each of their events would trigger another failed
    // sync, and failed syncs back off.
    stage.create(&collection(NAMESPACE), &replica_set(SET, LIMIT))?;
    until_complete(stage, SET)?;
    stage.command(format!(
        "kubectl scale rs {SET} -n {NAMESPACE} --replicas={REPLICAS}"
    ));
    let n_before = stage.requests("create", "pods").len();
    let patch = json!({"spec": {"replicas": REPLICAS}});
    stage.patch(&set_path(NAMESPACE, SET), &patch)?;
    let world = stage.until("the quota refuses pods", PATIENCE, is_blocked)?;
    let set = world.set(SET);
    let message = set.and_then(|set| set.failure.clone()).unwrap_or_default();
    check(message.contains("exceeded quota: small"), || {
        format!("the condition says {message:?}")
    })?;
    let event = set.and_then(|set| {
        let mut events = world.events.iter();
        events.find(|event| event.name == set.name && event.reason == "FailedCreate")
    });
    let event = event.map(|event| event.message.clone()).unwrap_or_default();
    check(event.contains("exceeded quota: small"), || {
        format!("the event FailedCreate says {event:?}")
    })?;
    stage.note(format!("condition ReplicaFailure: {message}"));
    stage.note(format!("event FailedCreate: {event}"));
    stage.hold("the quota limits the pods", 0.3, |world| {
        world.pods_of_name(SET).len() == LIMIT
    })?;
    let n_refused = stage.requests("create", "pods").len() - n_before;
    check(n_refused <= REFUSED_MAX, || {
        format!("{n_refused} creates were sent to a full quota")
    })?;
    stage.note(format!(
        "{n_refused} creates were refused so far; the pause between them doubles, up to 30 s"
    ));
    stage.pause(0.5)?;

    let limit = LIMIT * 2;
    stage.command(format!(
        "kubectl patch quota small -n {NAMESPACE} -p '{{\"spec\":{{\"hard\":{{\"pods\":\"{limit}\"}}}}}}'"
    ));
    let patch = json!({"spec": {"hard": {"pods": limit.to_string()}}});
    stage.patch(&format!("{quotas}/small"), &patch)?;
    stage.until(
        "all pods after the quota was raised",
        PATIENCE,
        |_, world| {
            let has_failed = world.set(SET).is_none_or(|set| set.failure.is_some());
            world.is_complete(SET) && !has_failed
        },
    )?;
    let n_more = REPLICAS - LIMIT;
    stage.note(format!(
        "quota raised: {n_more} more pods were created and the condition was removed"
    ));
    stage.pause(0.5)?;
    Ok(format!(
        "{LIMIT} of {REPLICAS} pods, a condition and an event; all {REPLICAS} once the quota was \
         raised"
    ))
}

fn is_blocked(_: &mut Stage<'_>, world: &World) -> bool {
    let Some(set) = world.set(SET) else {
        return false;
    };
    let has_event = world
        .events
        .iter()
        .any(|event| event.name == SET && event.is_warning && event.reason == "FailedCreate");
    set.failure.is_some() && has_event
}
