//! A node rejects every pod of a ReplicaSet that opts in to a back-off, then recovers.

use serde_json::{Value, json};

use super::{PATIENCE, collection, replica_set, set_path};
use crate::run::stand_in::demo::stage::{ChapterResult, Stage, check};

pub(super) const SET: &str = "fragile";

const REPLICAS: usize = 5;

const BACK_OFF: &str = "failed-pod-backoff=1s..10s";

/// Probes before the node recovers: after one second, and on a slow machine after three and seven.
const PROBES_MAX: usize = 3;

pub(super) fn play(stage: &mut Stage<'_>) -> ChapterResult<String> {
    let before = stage.version();
    stage.command(format!(
        "kubectl annotate rs {SET} replicaset-controller/{BACK_OFF}"
    ));
    let mut set = replica_set(SET, REPLICAS);
    let (name, value) = BACK_OFF.split_once('=').unwrap_or_default();
    set["metadata"]["annotations"] = json!({format!("replicaset-controller/{name}"): value});
    set["spec"]["template"]["metadata"]["annotations"] = fate("rejected");
    stage.create(&collection("default"), &set)?;
    let n_created = |stage: &Stage<'_>| stage.pods_since(before, "default").added;
    let world = stage.until("a probe, and a condition", PATIENCE, |stage, world| {
        let is_told = world.set(SET).is_some_and(|set| set.failure.is_some());
        is_told && n_created(stage) > REPLICAS
    })?;
    let set = world.set(SET);
    let message = set.and_then(|set| set.failure.clone()).unwrap_or_default();
    check(message.contains("OutOfpods"), || {
        format!("the condition says {message:?}")
    })?;
    stage.note(format!("condition ReplicaFailure: {message}"));
    let n_rejected = n_created(stage);
    check(n_rejected <= REPLICAS + PROBES_MAX, || {
        format!("{n_rejected} pods were created for a node that rejects them")
    })?;

    // The next pods are made from the changed template.
    let template = json!({"metadata": {"annotations": fate("")}});
    let patch = json!({"spec": {"template": template}});
    stage.patch(&set_path("default", SET), &patch)?;
    // The Failed pods stay.
    stage.until("all replicas are available", PATIENCE, |_, world| {
        let set = world.set(SET);
        set.is_some_and(|set| set.available == REPLICAS && set.failure.is_none())
    })?;
    let n_more = n_created(stage) - n_rejected;
    check(n_more <= REPLICAS + PROBES_MAX, || {
        format!("{n_more} pods were created after the recovery")
    })?;
    stage.note("the node has recovered: one probe became Ready, and the others followed at once");
    stage.pause(0.5)?;
    Ok(format!(
        "{n_rejected} pods were created while the node rejected them; all {REPLICAS} run once one \
         was Ready"
    ))
}

/// The annotations that decide how the simulated node treats a pod.
fn fate(fate: &str) -> Value {
    json!({"dev.replicaset-controller/fate": fate})
}
