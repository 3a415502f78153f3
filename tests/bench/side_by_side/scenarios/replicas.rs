//! Scale-up, Ready, idle, restart, churn and scale-down.

use std::time::Instant;

use jiff::Timestamp;
use replicaset_controller::client::Request;

use super::{PATIENCE, SETTLE, Stage};
use crate::contestant::Process;
use crate::load::{in_parallel, pause};
use crate::options::Scenario;
use crate::pods::ready_status;
use crate::statistics::number;
use crate::watch::State;
use crate::workloads::{create, delete_all, pods, scale};

/// Restarts per round: each is a short measurement, and the machine may stall.
pub(super) const RESTARTS: usize = 3;

/// Pods that the benchmark deletes in a churn.
const CHURN: usize = 300;

/// The cost of starting a controller with pending work.
pub(super) struct Start {
    /// Time until the first pod, in seconds.
    pub(super) seconds: f64,
    /// CPU time until the first pod, in seconds.
    pub(super) cpu: f64,
    /// Resident memory once settled, in MiB.
    pub(super) resident: f64,
    /// Peak resident memory until then, in MiB.
    pub(super) peak: f64,
}

/// Measures the memory of a controller without pods.
pub(super) fn empty(stage: &mut Stage<'_>, process: &Process) -> Result<(), String> {
    pause(SETTLE);
    stage.add("memory without pods, MiB", process.usage()?.resident);
    Ok(())
}

/// Runs all scenarios with many ReplicaSets. Returns the last process, which still runs.
pub(super) fn many(stage: &mut Stage<'_>, mut process: Process) -> Result<Process, String> {
    let sets = stage.options.replicasets.max(1);
    let each = stage.options.pods_of_each();
    let total = stage.options.pods_of_many();
    let names: Vec<String> = (0..sets).map(|n| format!("web-{n}")).collect();
    for name in &names {
        create(stage.cluster, &stage.namespace, name, 0)?;
    }
    up(stage, &process, &names, each, "scale-up of many")?;
    if stage.includes(Scenario::Ready) {
        ready(stage, &process, total, "Ready")?;
    }
    if stage.includes(Scenario::Idle) {
        idle(stage, &process)?;
    }
    if stage.includes(Scenario::Restart) {
        for n in 1..=RESTARTS {
            process = restart(stage, process, &names[0], each + n)?;
        }
    }
    if stage.includes(Scenario::Churn) {
        churn(stage, &process)?;
    }
    if stage.includes(Scenario::Soak) {
        super::soak::soak(stage, &process)?;
    }
    down(stage, &process, &names)?;
    delete_all(stage.cluster, &stage.namespace)?;
    Ok(process)
}

/// Scales one ReplicaSet up to all pods.
pub(super) fn one(stage: &mut Stage<'_>, process: &Process) -> Result<(), String> {
    let names = ["large".to_owned()];
    create(stage.cluster, &stage.namespace, "large", 0)?;
    up(
        stage,
        process,
        &names,
        stage.options.pods,
        "scale-up of one",
    )?;
    stage.scale_to_zero(&names)?;
    delete_all(stage.cluster, &stage.namespace)
}

/// Scales each of these ReplicaSets from 0 to `each` and measures it.
pub(super) fn up(
    stage: &mut Stage<'_>,
    process: &Process,
    names: &[String],
    each: usize,
    what: &str,
) -> Result<(), String> {
    let total = each * names.len();
    for name in names {
        stage.observer.expect_pods(name, each);
    }
    let (before, server) = (process.usage()?, stage.cluster.cpu()?);
    let began = Instant::now();
    let (cluster, namespace) = (stage.cluster, &*stage.namespace);
    in_parallel(names.len(), |n| scale(cluster, namespace, &names[n], each))?;
    let is_up = |state: &State| state.sums().replicas == total;
    let ended = stage.observer.wait("scaled up", PATIENCE, is_up)?;
    let (after, server) = (process.usage()?, stage.cluster.cpu()? - server);
    let seconds = (ended - began).as_secs_f64();
    stage.add(&format!("{what}, pods a second"), number(total) / seconds);
    stage.add(
        &format!("{what}, CPU ms a pod"),
        (after.cpu - before.cpu) * 1000.0 / number(total),
    );
    stage.add(
        &format!("{what}, API server's CPU ms a pod"),
        server * 1000.0 / number(total),
    );
    stage.add_overshoot(what)
}

/// Makes all `total` pods Ready and measures the status updates.
pub(super) fn ready(
    stage: &mut Stage<'_>,
    process: &Process,
    total: usize,
    what: &str,
) -> Result<(), String> {
    let names: Vec<String> = {
        let state = stage.observer.lock();
        state.pods.values().map(|pod| pod.name.clone()).collect()
    };
    let status = ready_status(&Timestamp::now().strftime("%FT%TZ").to_string()).to_string();
    let (before, writes_before) = (process.usage()?, stage.observer.lock().sums());
    let server = stage.cluster.cpu()?;
    let (cluster, path) = (stage.cluster, pods(&stage.namespace));
    in_parallel(names.len(), |n| {
        let path = format!("{path}/{}/status", names[n]);
        let request = Request::patch(path)
            .body("application/strategic-merge-patch+json", status.clone())
            .accept("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        cluster.send(&request).map(drop)
    })?;
    let last = Instant::now();
    let is_ready = |state: &State| state.sums().ready == total;
    let ended = stage.observer.wait("all Ready", PATIENCE, is_ready)?;
    let (after, writes) = (process.usage()?, stage.observer.lock().sums());
    let n_writes = writes.n_status_writes - writes_before.n_status_writes;
    let spent = after.cpu - before.cpu;
    stage.add(
        &format!("{what}, CPU µs a pod"),
        spent * 1e6 / number(total),
    );
    let server = stage.cluster.cpu()? - server;
    stage.add(
        &format!("{what}, API server's CPU µs a pod"),
        server * 1e6 / number(total),
    );
    stage.add(&format!("{what}, status writes"), number(n_writes));
    stage.add(
        &format!("{what}, seconds from the last pod to the last status"),
        ended.saturating_duration_since(last).as_secs_f64(),
    );
    stage.add_overshoot(what)
}

fn idle(stage: &mut Stage<'_>, process: &Process) -> Result<(), String> {
    pause(SETTLE);
    let before = process.usage()?.cpu;
    let began = Instant::now();
    pause(std::time::Duration::from_secs(stage.options.idle_seconds));
    let usage = process.usage()?;
    let (spent, seconds) = (usage.cpu - before, began.elapsed().as_secs_f64());
    stage.add("idle, CPU ms a second", spent * 1000.0 / seconds);
    stage.add("memory with all pods, MiB", usage.resident);
    stage.add("peak memory so far, MiB", usage.peak);
    Ok(())
}

/// Restarts the controller with pending work and all pods present, and measures the start.
fn restart(
    stage: &mut Stage<'_>,
    process: Process,
    name: &str,
    replicas: usize,
) -> Result<Process, String> {
    process.stop()?;
    let (process, start) = start_behind(stage, name, replicas)?;
    stage.add("restart, seconds to the first pod", start.seconds);
    stage.add("restart, CPU s to the first pod", start.cpu);
    stage.add("restart, memory after it, MiB", start.resident);
    stage.add("restart, peak memory, MiB", start.peak);
    stage.add_overshoot("restart")?;
    Ok(process)
}

/// Scales a ReplicaSet up to `replicas` while no controller runs, then starts one.
pub(super) fn start_behind(
    stage: &Stage<'_>,
    name: &str,
    replicas: usize,
) -> Result<(Process, Start), String> {
    stage.observer.expect_pods(name, replicas);
    scale(stage.cluster, &stage.namespace, name, replicas)?;
    let process = stage.contestant.start()?;
    let has_acted = |state: &State| state.first_pod.contains_key(name);
    let acted = stage
        .observer
        .wait("a pod after the start", PATIENCE, has_acted)?;
    let cpu = process.usage()?.cpu;
    pause(SETTLE);
    let usage = process.usage()?;
    let start = Start {
        seconds: (acted - process.started).as_secs_f64(),
        cpu,
        resident: usage.resident,
        peak: usage.peak,
    };
    Ok((process, start))
}

/// Deletes pods and measures their replacement.
fn churn(stage: &mut Stage<'_>, process: &Process) -> Result<(), String> {
    let before = process.usage()?;
    let began = Instant::now();
    let (n_killed, ended) = kill_some(stage)?;
    let spent = process.usage()?.cpu - before.cpu;
    stage.add(
        "churn, seconds until all are replaced",
        (ended - began).as_secs_f64(),
    );
    stage.add("churn, CPU ms a pod", spent * 1000.0 / number(n_killed));
    stage.add_overshoot("churn")
}

/// Deletes some arbitrary pods, and waits until all are replaced. Returns their number and when the
/// last was replaced.
pub(super) fn kill_some(stage: &Stage<'_>) -> Result<(usize, Instant), String> {
    let (total, chosen) = {
        let state = stage.observer.lock();
        let chosen = state.pods.iter().take(CHURN);
        let chosen = chosen.map(|(uid, pod)| (uid.clone(), pod.name.clone()));
        (state.pods.len(), chosen.collect::<Vec<_>>())
    };
    let (cluster, path) = (stage.cluster, pods(&stage.namespace));
    in_parallel(chosen.len(), |n| {
        let request = Request::delete(format!("{path}/{}", chosen[n].1));
        cluster.send(&request).map(drop)
    })?;
    let is_replaced = |state: &State| {
        state.pods.len() == total
            && state.sums().replicas == total
            && chosen.iter().all(|(uid, _)| !state.pods.contains_key(uid))
    };
    let ended = stage
        .observer
        .wait("all pods replaced", PATIENCE, is_replaced)?;
    Ok((chosen.len(), ended))
}

fn down(stage: &mut Stage<'_>, process: &Process, names: &[String]) -> Result<(), String> {
    let total = stage.observer.lock().pods.len();
    let writes_before = stage.observer.lock().sums().n_status_writes;
    let (before, server) = (process.usage()?, stage.cluster.cpu()?);
    let began = Instant::now();
    let ended = stage.scale_to_zero(names)?;
    let after = process.usage()?;
    if stage.includes(Scenario::ScaleDown) {
        let spent = after.cpu - before.cpu;
        stage.add("scale-down, seconds", (ended - began).as_secs_f64());
        stage.add("scale-down, CPU ms a pod", spent * 1000.0 / number(total));
        let server = stage.cluster.cpu()? - server;
        stage.add(
            "scale-down, API server's CPU ms a pod",
            server * 1000.0 / number(total),
        );
        stage.add("scale-down, peak memory so far, MiB", after.peak);
        pause(SETTLE);
        let n_writes = stage.observer.lock().sums().n_status_writes - writes_before;
        stage.add("scale-down, status writes", number(n_writes));
        stage.add(
            "scale-down, memory after it, MiB",
            process.usage()?.resident,
        );
        stage.add_overshoot("scale-down")?;
    }
    Ok(())
}
