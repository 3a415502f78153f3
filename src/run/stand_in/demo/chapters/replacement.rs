//! A pod is deleted, and the controller replaces it.

use std::collections::HashSet;
use std::time::Instant;

use super::{PATIENCE, pod_path, until_complete};
use crate::run::stand_in::demo::stage::{ChapterError, ChapterResult, Stage, check};

const SET: &str = "web";

pub(super) fn play(stage: &mut Stage<'_>) -> ChapterResult<String> {
    until_complete(stage, SET)?;
    let world = stage.pause(0.2)?;
    let pods = world.pods_of_name(SET);
    let known: HashSet<String> = pods.iter().map(|pod| pod.uid.clone()).collect();
    let victim = pods.first().map(|pod| pod.name.clone());
    let victim = victim.ok_or_else(|| ChapterError::Missed(format!("{SET} has no pods")))?;
    let n_before = stage.requests("create", "pods").len();

    stage.command(format!("kubectl delete pod {victim}"));
    let deleted = Instant::now();
    stage.delete(&pod_path(&victim))?;
    let mut newcomer = None;
    stage.until("a new pod", PATIENCE, |_, world| {
        let pods = world.pods_of_name(SET);
        let mut new = pods.iter().filter(|pod| !known.contains(&pod.uid));
        newcomer = new.next().map(|pod| pod.name.clone());
        newcomer.is_some()
    })?;
    let newcomer = newcomer.unwrap_or_default();
    let creates = stage.requests("create", "pods");
    let more = &creates[n_before.min(creates.len())..];
    check(more.len() == 1, || {
        format!("{} pods were created, not 1", more.len())
    })?;
    let delay = more[0].started.saturating_duration_since(deleted);
    stage.note(format!("{victim} was deleted"));
    stage.note(format!(
        "the controller sent the create of {newcomer} {} ms later",
        delay.as_millis()
    ));
    until_complete(stage, SET)?;
    let gone = stage.until("the old pod is gone", PATIENCE, |_, world| {
        world.pod(&victim).is_none()
    })?;
    let n_pods = gone.pods_of_name(SET).len();
    check(n_pods == known.len(), || {
        format!("{SET} has {n_pods} pods, not {}", known.len())
    })?;
    stage.pause(0.6)?;
    Ok(format!(
        "{victim} was deleted; the controller sent the create of {newcomer} {} ms later",
        delay.as_millis()
    ))
}
