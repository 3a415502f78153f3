//! A typical cluster: thousands of ReplicaSets with one pod, each beside the old revisions that its
//! Deployment has scaled to zero.

use std::time::Instant;

use serde_json::{Value, json};

use super::replicas::{RESTARTS, ready, start_behind, up};
use super::{PATIENCE, SETTLE, Stage, wait_until_ready};
use crate::contestant::Process;
use crate::load::{in_parallel, pause};
use crate::pods::template;
use crate::statistics::number;
use crate::workloads::{collection, create};

/// Old revisions beside each current ReplicaSet. That makes ten, one less than a Deployment keeps
/// by default.
const OLD_REVISIONS: usize = 9;

/// Name prefix of the ReplicaSets that get a pod.
const CURRENT: &str = "current-";

/// The ReplicaSet that is scaled at each start. The others stay at zero.
const PROBE: &str = "probe";

/// Runs the scenario with new processes, so that memory starts from zero.
pub(super) fn all(stage: &mut Stage<'_>) -> Result<(), String> {
    let n_small = stage.options.small_replicasets.max(1);
    let names: Vec<String> = (0..n_small).map(|n| format!("{CURRENT}{n}")).collect();
    let process = stage.contestant.start()?;
    wait_until_ready(stage.cluster, &process)?;
    stage.enter()?;
    at_zero(stage, &process, &names)?;
    process.stop()?;
    for replicas in 1..RESTARTS {
        start(stage, replicas)?.stop()?;
    }
    let process = start(stage, RESTARTS)?;
    stage.scale_to_zero(&[PROBE.to_owned()])?;
    scale_and_ready(stage, &process, &names)?;
    process.stop()?;
    stage.tear_down()
}

/// Creates all ReplicaSets, and measures their memory without pods.
fn at_zero(stage: &mut Stage<'_>, process: &Process, names: &[String]) -> Result<(), String> {
    pause(SETTLE);
    let empty = process.usage()?.resident;
    stage.add("small, memory without ReplicaSets, MiB", empty);
    let (cluster, namespace) = (stage.cluster, &*stage.namespace);
    create(cluster, namespace, PROBE, 0)?;
    let n_all = names.len() * (OLD_REVISIONS + 1);
    in_parallel(n_all, |n| {
        let (deployment, revision) = (n / (OLD_REVISIONS + 1), n % (OLD_REVISIONS + 1));
        let name = match revision {
            OLD_REVISIONS => names[deployment].clone(),
            _ => format!("old-{deployment}-{revision}"),
        };
        let object = of_deployment(&name, deployment, revision);
        cluster.post(&collection(namespace), &object).map(drop)
    })?;
    wait_until_quiet(stage)?;
    let full = process.usage()?.resident;
    let grown = (full - empty) * 1024.0 * 1024.0;
    stage.add("small, memory with all at zero, MiB", full);
    stage.add("small, bytes a ReplicaSet at zero", grown / number(n_all));
    Ok(())
}

/// A ReplicaSet at zero, as the Deployment with this number would create it.
fn of_deployment(name: &str, deployment: usize, revision: usize) -> Value {
    let app = format!("app-{deployment}");
    let mut template = template(&app);
    let labels = &mut template["metadata"]["labels"];
    labels["pod-template-hash"] = json!(format!("5d59d6756{revision}"));
    let labels = labels.clone();
    json!({
        "metadata": {
            "name": name, "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": (revision + 1).to_string()},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": app, "controller": true,
                "uid": format!("5f2b3c4d-0000-4000-8000-{deployment:012x}"),
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    })
}

/// Starts the controller with all ReplicaSets present. One of them lacks pods.
fn start(stage: &mut Stage<'_>, replicas: usize) -> Result<Process, String> {
    let (process, start) = start_behind(stage, PROBE, replicas)?;
    stage.add("small, start, seconds to the first pod", start.seconds);
    stage.add("small, start, CPU s to the first pod", start.cpu);
    stage.add("small, start, memory after it, MiB", start.resident);
    stage.add("small, start, peak memory, MiB", start.peak);
    stage.add_overshoot("small, start")?;
    Ok(process)
}

/// Scales all current ReplicaSets to one pod. Once the controller is quiet, makes all pods Ready.
fn scale_and_ready(
    stage: &mut Stage<'_>,
    process: &Process,
    names: &[String],
) -> Result<(), String> {
    let n_writes_before = n_status_writes(stage);
    let of_each = |stage: &Stage<'_>| {
        let n_writes = n_status_writes(stage) - n_writes_before;
        number(n_writes) / number(names.len())
    };
    up(stage, process, names, 1, "small, scale-up")?;
    wait_until_quiet(stage)?;
    let writes = of_each(stage);
    stage.add("small, scale-up, status writes a ReplicaSet", writes);
    ready(stage, process, names.len(), "small, Ready")?;
    wait_until_quiet(stage)?;
    let writes = of_each(stage);
    let what = "small, scale-up and Ready, status writes a ReplicaSet";
    stage.add(what, writes);
    let usage = process.usage()?;
    stage.add("small, memory with all Ready, MiB", usage.resident);
    stage.add("small, peak memory, MiB", usage.peak);
    Ok(())
}

/// Number of status changes of the current ReplicaSets.
fn n_status_writes(stage: &Stage<'_>) -> usize {
    let state = stage.observer.lock();
    state.n_status_writes(|name| name.starts_with(CURRENT))
}

/// Waits until no status has changed for [`SETTLE`], as a controller may defer status updates.
fn wait_until_quiet(stage: &Stage<'_>) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let mut before = stage.observer.lock().sums();
    loop {
        pause(SETTLE);
        let now = stage.observer.lock().sums();
        if now == before {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err("the controller keeps updating statuses".to_owned());
        }
        before = now;
    }
}
