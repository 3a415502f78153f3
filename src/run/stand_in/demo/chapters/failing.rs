//! A node rejects every pod of a ReplicaSet that opts in to a back-off, then recovers. Then the
//! ReplicaSet opts in to the deletion of Failed pods.

use std::time::Instant;

use serde_json::{Value, json};

use super::{PATIENCE, annotate, annotations, collection, replica_set, set_path};
use crate::run::stand_in::demo::stage::{ChapterResult, Stage, check};
use crate::run::stand_in::world::World;

const SET: &str = "fragile";

const REPLICAS: usize = 5;

const BACK_OFF: (&str, &str) = ("replicaset-controller/failed-pod-backoff", "1s..1s");

/// Failed pods that stay at the end. While there is a back-off, it reads all of them.
const N_KEPT: usize = 2;

pub(super) fn play(stage: &mut Stage<'_>) -> ChapterResult<String> {
    let before = stage.version();
    let begun = Instant::now();
    let (name, value) = BACK_OFF;
    stage.command(format!("kubectl annotate rs {SET} {name}={value}"));
    let mut set = replica_set(SET, REPLICAS);
    set["metadata"]["annotations"] = annotations(&[BACK_OFF]);
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
    // The API's timestamps have no fractions, so a probe may be early by a second.
    let n_probes_max = usize::try_from(begun.elapsed().as_secs()).unwrap_or(usize::MAX) + 2;
    check(n_rejected <= REPLICAS + n_probes_max, || {
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
    // A probe may have been on its way when the template changed.
    check(n_more <= REPLICAS + 1, || {
        format!("{n_more} pods were created after the recovery")
    })?;
    stage.note("the node has recovered: one probe became Ready, and the others followed at once");
    stage.pause(0.3)?;
    let n_deleted = tidy_up(stage, before)?;
    stage.pause(0.3)?;
    Ok(format!(
        "{n_rejected} pods were rejected; all {REPLICAS} run once one was Ready; then {n_deleted} \
         Failed pods were deleted"
    ))
}

/// Lets the ReplicaSet keep few Failed pods. Returns how many are deleted.
fn tidy_up(stage: &mut Stage<'_>, before: u64) -> ChapterResult<usize> {
    let n_kept = N_KEPT.to_string();
    let opt_in = [
        (BACK_OFF.0, None),
        (
            "replicaset-controller/failed-pods-kept",
            Some(n_kept.as_str()),
        ),
        ("replicaset-controller/failed-pods-min-age", Some("0s")),
    ];
    for (annotation, value) in opt_in {
        annotate(stage, ("rs", SET), annotation, value)?;
        stage.pause(0.2)?;
    }
    let is_tidy =
        |_: &mut Stage<'_>, world: &World| world.pods_of_name(SET).len() == REPLICAS + N_KEPT;
    stage.until("Failed pods are deleted", PATIENCE, is_tidy)?;
    let n_created = stage.pods_since(before, "default").added;
    let n_deleted = n_created - REPLICAS - N_KEPT;
    stage.note(format!(
        "{n_deleted} Failed pods were deleted, the newest {N_KEPT} stay"
    ));
    Ok(n_deleted)
}

/// The annotations that decide how the simulated node treats a pod.
fn fate(fate: &str) -> Value {
    json!({"dev.replicaset-controller/fate": fate})
}
