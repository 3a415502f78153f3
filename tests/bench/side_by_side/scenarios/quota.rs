//! Thousands of ReplicaSets in front of one ResourceQuota: what they cost, and how soon a freed
//! place is taken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use replicaset_controller::client::Request;
use serde_json::json;

use super::{PATIENCE, Stage, wait_until_ready};
use crate::cluster::Cluster;
use crate::contestant::{Contestant, Process};
use crate::load::{in_parallel, pause, pause_until};
use crate::probe::add_latencies;
use crate::statistics::number;
use crate::watch::{Observer, State};
use crate::workloads::{create, delete_all, scale};

/// Pods that the quota allows, one for each of the oldest ReplicaSets.
const PLACES: usize = 10;

/// How long requests and CPU are measured, from the creation of the first ReplicaSet on.
const MEASURED: Duration = Duration::from_mins(3);

/// When the last minute of that time begins.
const LAST_MINUTE: Duration = Duration::from_mins(2);

/// Interval at which the quota's usage is read while a place is free.
const LOOK_EVERY: Duration = Duration::from_millis(5);

const QUOTA: &str = "few";

/// The ReplicaSet that gives up its pod, and the one that waits for it, in a namespace of their
/// own.
const HOLDER: &str = "holder";
const WAITING: &str = "waiting";

/// Writes of the contestant so far: creates of pods, events, and statuses.
#[derive(Clone, Copy, Default)]
struct Writes {
    pod_creates: f64,
    all: f64,
}

/// Runs the scenario with a new process, so that its back-offs start from zero.
pub(super) fn all(stage: &mut Stage<'_>) -> Result<(), String> {
    let quotas = Contestant::resource_quotas(stage.cluster)?.start()?;
    let process = stage.contestant.start()?;
    wait_until_ready(stage.cluster, &process)?;
    let lonely = stage.cluster.new_namespace()?;
    let lonely_observer = Observer::start(stage.cluster, &lonely);
    create_quota(stage.cluster, &lonely, 1)?;
    create(stage.cluster, &lonely, HOLDER, 1)?;
    let has_pod = |state: &State| state.sums().replicas == 1;
    lonely_observer.wait("the holder's pod", PATIENCE, has_pod)?;
    create(stage.cluster, &lonely, WAITING, 1)?;
    let raised = stage.cluster.new_namespace()?;
    let raised_observer = Observer::start(stage.cluster, &raised);
    create_quota(stage.cluster, &raised, 0)?;
    create(stage.cluster, &raised, WAITING, 1)?;
    stage.enter()?;
    create_quota(stage.cluster, &stage.namespace, PLACES)?;
    let names = create_holders(stage)?;
    cost(stage, &process)?;
    take(stage, &names)?;
    take_lonely(
        stage,
        (&lonely, &lonely_observer),
        (&raised, &raised_observer),
    )?;
    process.stop()?;
    quotas.stop()?;
    stage.tear_down()?;
    delete_all(stage.cluster, &lonely)?;
    delete_all(stage.cluster, &raised)
}

fn create_quota(cluster: &Cluster, namespace: &str, pods: usize) -> Result<(), String> {
    let path = format!("/api/v1/namespaces/{namespace}/resourcequotas");
    let quota = json!({"metadata": {"name": QUOTA}, "spec": {"hard": {"pods": pods.to_string()}}});
    cluster.post(&path, &quota)?;
    let deadline = Instant::now() + PATIENCE;
    while free_quota(cluster, namespace)?.is_none() {
        if Instant::now() > deadline {
            return Err("no controller fills in the quota".to_owned());
        }
        pause(LOOK_EVERY);
    }
    // Admission reads quotas from a cache of its own.
    pause(Duration::from_secs(2));
    Ok(())
}

/// The places that the quota's status shows as free; `None` before it has a status.
fn free_quota(cluster: &Cluster, namespace: &str) -> Result<Option<usize>, String> {
    let path = format!("/api/v1/namespaces/{namespace}/resourcequotas/{QUOTA}");
    let quota = cluster.json(&Request::get(path))?;
    let number = |pointer: &str| quota.pointer(pointer)?.as_str()?.parse::<usize>().ok();
    let (hard, used) = (number("/status/hard/pods"), number("/status/used/pods"));
    Ok(hard.zip(used).map(|(hard, used)| hard.saturating_sub(used)))
}

/// Creates the ReplicaSets that take all places.
fn create_holders(stage: &Stage<'_>) -> Result<Vec<String>, String> {
    let names: Vec<String> = (0..PLACES).map(|n| format!("{HOLDER}-{n}")).collect();
    for name in &names {
        create(stage.cluster, &stage.namespace, name, 1)?;
    }
    let is_full = |state: &State| state.sums().replicas == PLACES;
    stage.observer.wait("a full quota", PATIENCE, is_full)?;
    Ok(names)
}

/// Creates the ReplicaSets that wait, and measures writes and CPU.
fn cost(stage: &mut Stage<'_>, process: &Process) -> Result<(), String> {
    let n_waiting = stage.options.quota_replicasets.max(1);
    let (cluster, namespace) = (stage.cluster, &*stage.namespace);
    let (before, cpu_before) = (writes(cluster)?, process.usage()?.cpu);
    let start = Instant::now();
    let (then, cpu_then, at) = std::thread::scope(|scope| {
        let creates = scope.spawn(|| {
            in_parallel(n_waiting, |n| {
                create(cluster, namespace, &format!("{WAITING}-{n:05}"), 1)
            })
        });
        pause_until(start + LAST_MINUTE);
        let then = (writes(cluster)?, process.usage()?.cpu, Instant::now());
        pause_until(start + MEASURED);
        let created = creates.join();
        let created = created.unwrap_or_else(|_| Err("the creating thread panicked".to_owned()));
        created.map(|()| then)
    })?;
    let (after, cpu_after) = (writes(cluster)?, process.usage()?.cpu);
    stage.add("quota, ReplicaSets that wait", number(n_waiting));
    stage.add(
        "quota, creates sent in 3 minutes",
        after.pod_creates - before.pod_creates,
    );
    stage.add("quota, all writes in 3 minutes", after.all - before.all);
    stage.add("quota, CPU s in 3 minutes", cpu_after - cpu_before);
    let seconds = at.elapsed().as_secs_f64();
    stage.add(
        "quota, creates in the last minute",
        (after.pod_creates - then.pod_creates) / seconds * 60.0,
    );
    let part = (cpu_after - cpu_then) / seconds * 100.0;
    stage.add("quota, per cent of a core in the last minute", part);
    Ok(())
}

/// Frees one place after the other, and measures the time until each is taken.
fn take(stage: &mut Stage<'_>, holders: &[String]) -> Result<(), String> {
    let (mut after_room, mut after_scale) = (Vec::new(), Vec::new());
    for holder in holders {
        let (of_room, of_scale) = free_one(
            stage.cluster,
            &stage.observer,
            &stage.namespace,
            holder,
            PLACES,
        )?;
        after_room.push(of_room);
        after_scale.push(of_scale);
        pause(Duration::from_secs(5));
    }
    let name = stage.contestant.name;
    add_latencies(
        stage.report,
        name,
        "quota, a place taken after the status shows it",
        after_room,
    );
    add_latencies(
        stage.report,
        name,
        "quota, a place taken after the scale-down",
        after_scale,
    );
    Ok(())
}

/// Frees the place that the only waiting ReplicaSet of a namespace waits for, and at the same time
/// raises the quota that the only ReplicaSet of another namespace waits for.
fn take_lonely(
    stage: &mut Stage<'_>,
    (namespace, observer): (&str, &Observer),
    (raised, raised_observer): (&str, &Observer),
) -> Result<(), String> {
    let cluster = stage.cluster;
    let (freed, raised) = std::thread::scope(|scope| {
        let raised = scope.spawn(|| raise(cluster, raised_observer, raised));
        let freed = free_one(cluster, observer, namespace, HOLDER, 1);
        let raised = raised.join();
        (
            freed,
            raised.unwrap_or_else(|_| Err("the thread panicked".to_owned())),
        )
    });
    let (_, after_scale) = freed?;
    stage.add(
        "quota, one waiting, seconds until it has the place",
        after_scale / 1000.0,
    );
    stage.add("quota, one waiting, seconds after it is raised", raised?);
    Ok(())
}

/// Raises the quota by one pod. Returns the seconds until a ReplicaSet has it.
fn raise(cluster: &Cluster, observer: &Observer, namespace: &str) -> Result<f64, String> {
    let path = format!("/api/v1/namespaces/{namespace}/resourcequotas/{QUOTA}");
    let patch = json!({"spec": {"hard": {"pods": "1"}}}).to_string();
    let request = Request::patch(path).body("application/merge-patch+json", patch);
    let began = Instant::now();
    cluster.send(&request)?;
    let has_pod = |state: &State| state.sums().replicas == 1;
    let taken = observer.wait("the raised quota is used", PATIENCE, has_pod)?;
    Ok(taken.saturating_duration_since(began).as_secs_f64())
}

/// Scales `holder` to zero. Returns the milliseconds until another ReplicaSet has a pod, from the
/// moment at which the quota's status shows free capacity (0 if it is taken before anyone sees
/// that), and from the scale-down.
fn free_one(
    cluster: &Cluster,
    observer: &Observer,
    namespace: &str,
    holder: &str,
    places: usize,
) -> Result<(f64, f64), String> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let began = Instant::now();
        let looks = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if free_quota(cluster, namespace)?.is_some_and(|free| free > 0) {
                    return Ok(Some(Instant::now()));
                }
                pause(LOOK_EVERY);
            }
            Ok::<_, String>(None)
        });
        let taken = scale(cluster, namespace, holder, 0).and_then(|()| {
            let is_taken =
                |state: &State| state.pods.len() == places && state.n_pods_of(holder) == 0;
            observer.wait("a place is taken", PATIENCE, is_taken)
        });
        is_over.store(true, Ordering::Relaxed);
        let room = looks
            .join()
            .unwrap_or_else(|_| Err("the thread panicked".to_owned()))?;
        let taken = taken?;
        let since = |at: Instant| taken.saturating_duration_since(at).as_secs_f64() * 1000.0;
        Ok((room.map_or(0.0, since), since(began)))
    })
}

/// What the API server has counted. Besides the contestant, only the quota controller writes, and
/// none of these.
fn writes(cluster: &Cluster) -> Result<Writes, String> {
    let response = cluster.send(&Request::get("/metrics"))?;
    let text = String::from_utf8_lossy(&response.body);
    let mut writes = Writes::default();
    let counters = text
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"));
    for line in counters {
        let has = |label: &str| line.contains(label);
        let value = line
            .rsplit(' ')
            .next()
            .and_then(|value| value.parse::<f64>().ok());
        let value = value.unwrap_or(0.0);
        let is_create = has("resource=\"pods\"") && has("verb=\"POST\"");
        let is_event =
            has("resource=\"events\"") && (has("verb=\"POST\"") || has("verb=\"PATCH\""));
        let is_status = has("resource=\"replicasets\"") && has("subresource=\"status\"");
        if is_create {
            writes.pod_creates += value;
        }
        if is_create || is_event || (is_status && has("verb=\"PUT\"")) {
            writes.all += value;
        }
    }
    Ok(writes)
}
