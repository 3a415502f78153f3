//! Labels decide ownership: the ReplicaSet adopts an orphan and releases a relabelled pod.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;

use super::{PATIENCE, collection, pod_path, pod_spec, replica_set, until_complete};
use crate::run::stand_in::demo::stage::{ChapterResult, Stage, check};

const SET: &str = "front";

const REPLICAS: usize = 3;

/// A pod created by hand.
const ORPHAN: &str = "made-by-hand";

pub(super) fn play(stage: &mut Stage<'_>) -> ChapterResult<String> {
    stage.command(format!(
        "kubectl run {ORPHAN} --image=pause --labels=app={SET}"
    ));
    let orphan = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": ORPHAN, "labels": {"app": SET}},
        "spec": pod_spec(),
    });
    stage.create("/api/v1/namespaces/default/pods", &orphan)?;
    stage.note(format!("{ORPHAN} has no owner"));
    stage.until("the orphan is ready", PATIENCE, |_, world| {
        world.pod(ORPHAN).is_some_and(|pod| pod.is_ready)
    })?;
    stage.pause(0.3)?;

    let n_before = stage.requests("create", "pods").len();
    stage.command(format!(
        "kubectl create -f {SET}.yaml   # wants {REPLICAS} pods with app={SET}"
    ));
    stage.create(&collection("default"), &replica_set(SET, REPLICAS))?;
    until_complete(stage, SET)?;
    let world = stage.look()?;
    let owner = world
        .set(SET)
        .map(|set| set.uid.clone())
        .unwrap_or_default();
    let is_adopted = world.pod(ORPHAN).is_some_and(|pod| pod.owner == owner);
    check(is_adopted, || format!("{ORPHAN} was not adopted"))?;
    let n_created = stage.requests("create", "pods").len() - n_before;
    check(n_created == REPLICAS - 1, || {
        format!("{n_created} pods were created besides the adopted pod")
    })?;
    stage.note(format!(
        "{SET} adopted {ORPHAN} and created {n_created} more pods"
    ));
    stage.pause(0.7)?;

    let known: HashSet<String> = world.pods.iter().map(|pod| pod.uid.clone()).collect();
    stage.command(format!("kubectl label pod {ORPHAN} app=debug --overwrite"));
    stage.patch(
        &pod_path(ORPHAN),
        &json!({"metadata": {"labels": {"app": "debug"}}}),
    )?;
    stage.until("the pod is released", PATIENCE, |_, world| {
        world.pod(ORPHAN).is_some_and(|pod| pod.owner.is_empty())
    })?;
    stage.note(format!("{ORPHAN} was released and keeps running"));
    until_complete(stage, SET)?;
    let world = stage.look()?;
    let pods = world.pods_of_name(SET);
    let new: Vec<&str> = pods
        .iter()
        .filter(|pod| !known.contains(&pod.uid))
        .map(|pod| pod.name.as_str())
        .collect();
    check(new.len() == 1, || {
        format!("{} pods replace the released pod", new.len())
    })?;
    stage.note(format!("{} replaces it", new[0]));
    let is_left_alone = |world: &crate::run::stand_in::world::World| {
        world
            .pod(ORPHAN)
            .is_some_and(|pod| pod.is_ready && !pod.is_deleting && pod.owner.is_empty())
    };
    let while_watched = Duration::from_millis(300).as_secs_f64();
    stage.hold(
        "the released pod is left alone",
        while_watched,
        is_left_alone,
    )?;
    stage.pause(0.4)?;
    Ok(format!(
        "{ORPHAN} was adopted and {n_created} pods created; once released, {} replaced it",
        new[0]
    ))
}
