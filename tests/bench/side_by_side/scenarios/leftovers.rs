//! Pods that are evicted, one after the other for two minutes: how many Failed pods each controller
//! leaves behind. Both contestants have kube-controller-manager's default rate limit. This daemon
//! gets the annotation `failed-pods-kept`, which the other one ignores.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use replicaset_controller::api::Uid;
use replicaset_controller::client::Request;
use serde_json::json;

use super::{PATIENCE, Stage, wait_until_ready};
use crate::cluster::Cluster;
use crate::load::{in_parallel, pause_until};
use crate::pods::ready_status;
use crate::statistics::number;
use crate::watch::{Observer, State};
use crate::workloads::{collection, create, patch_new_pods, patch_pod_status};

const N_SETS: usize = 20;
const REPLICAS: usize = 10;

/// Pods that are evicted each second.
const EVICTED: usize = 2;

const MEASURED: Duration = Duration::from_mins(2);

/// The least age of a Failed pod that this daemon deletes.
const MIN_AGE: &str = "10s";

/// Time after the last eviction until what remains is counted.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);

/// Runs the scenario with a new process.
pub(super) fn all(stage: &mut Stage<'_>) -> Result<(), String> {
    let process = stage.contestant.limited("20", "30").start()?;
    wait_until_ready(stage.cluster, &process)?;
    stage.enter()?;
    let is_over = AtomicBool::new(false);
    let (cluster, observer, namespace) = (stage.cluster, &stage.observer, &*stage.namespace);
    let measured = std::thread::scope(|scope| {
        let kubelet = scope.spawn(|| run_pods(cluster, observer, namespace, &is_over));
        let measured = measure(stage);
        is_over.store(true, Ordering::Relaxed);
        let kubelet = kubelet
            .join()
            .unwrap_or_else(|_| Err("the kubelet thread panicked".to_owned()));
        kubelet.and(measured)
    });
    let measured = measured?;
    process.stop()?;
    stage.tear_down()?;
    stage.add("leftovers, pods evicted", number(measured.n_evicted));
    let most = measured.failed.iter().map(|(_, n)| *n);
    stage.add("leftovers, Failed pods at most", most.fold(0.0, f64::max));
    stage.add("leftovers, Failed pods in the end", number(measured.n_left));
    stage.add(
        "leftovers, pods missing at most",
        number(measured.n_missing_max),
    );
    let title = format!("Failed pods while {EVICTED} pods a second are evicted");
    let name = stage.contestant.name;
    stage
        .report
        .add_line(name, "leftovers.svg", &title, measured.failed);
    Ok(())
}

struct Measured {
    n_evicted: usize,
    n_left: usize,
    n_missing_max: usize,
    /// Seconds, and Failed pods at that time.
    failed: Vec<(f64, f64)>,
}

fn measure(stage: &Stage<'_>) -> Result<Measured, String> {
    let (cluster, namespace) = (stage.cluster, &*stage.namespace);
    for n in 0..N_SETS {
        create_set(cluster, namespace, &format!("web-{n:02}"))?;
    }
    let wanted = N_SETS * REPLICAS;
    let all_run = |state: &State| state.pods.values().filter(|pod| pod.is_ready).count() == wanted;
    stage.observer.wait("all pods Ready", PATIENCE, all_run)?;
    let mut evicted: HashSet<Uid> = HashSet::new();
    let mut failed = vec![(0.0, 0.0)];
    let mut n_missing_max = 0;
    let began = Instant::now();
    let mut next = began;
    while next < began + MEASURED + SETTLES_WITHIN {
        if next < began + MEASURED {
            evict(stage, &mut evicted)?;
        }
        next += Duration::from_secs(1);
        pause_until(next);
        let state = stage.observer.lock();
        let n_failed = state
            .pods
            .keys()
            .filter(|uid| evicted.contains(uid))
            .count();
        let n_active = state.pods.len() - n_failed;
        n_missing_max = n_missing_max.max(wanted.saturating_sub(n_active));
        failed.push((began.elapsed().as_secs_f64(), number(n_failed)));
    }
    let state = stage.observer.lock();
    Ok(Measured {
        n_evicted: evicted.len(),
        n_left: state
            .pods
            .keys()
            .filter(|uid| evicted.contains(uid))
            .count(),
        n_missing_max,
        failed,
    })
}

/// Creates a ReplicaSet that keeps three Failed pods.
fn create_set(cluster: &Cluster, namespace: &str, name: &str) -> Result<(), String> {
    create(cluster, namespace, name, 0)?;
    let annotations = json!({
        "replicaset-controller/failed-pods-kept": "3",
        "replicaset-controller/failed-pods-min-age": MIN_AGE,
    });
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": REPLICAS}});
    let path = format!("{}/{name}", collection(namespace));
    let request = Request::patch(path).body("application/merge-patch+json", patch.to_string());
    cluster.send(&request).map(drop)
}

/// Makes some pods that run Failed, as a kubelet under memory pressure.
fn evict(stage: &Stage<'_>, evicted: &mut HashSet<Uid>) -> Result<(), String> {
    let state = stage.observer.lock();
    let running = state.pods.iter().filter(|(_, pod)| pod.is_ready);
    let running = running.filter(|(uid, _)| !evicted.contains(*uid));
    let chosen: Vec<(Uid, String)> = running
        .take(EVICTED)
        .map(|(uid, pod)| (uid.clone(), pod.name.clone()))
        .collect();
    drop(state);
    let now = Timestamp::now().strftime("%FT%TZ").to_string();
    let status = json!({"status": {
        "phase": "Failed", "reason": "Evicted",
        "message": "The node was low on resource: memory.",
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": now}],
    }});
    let status = status.to_string();
    in_parallel(chosen.len(), |n| {
        patch_pod_status(stage.cluster, &stage.namespace, &chosen[n].1, &status)
    })?;
    evicted.extend(chosen.into_iter().map(|(uid, _)| uid));
    Ok(())
}

/// Makes each new pod Ready.
fn run_pods(
    cluster: &Cluster,
    observer: &Observer,
    namespace: &str,
    is_over: &AtomicBool,
) -> Result<(), String> {
    let mut seen: HashSet<Uid> = HashSet::new();
    while !is_over.load(Ordering::Relaxed) {
        pause_until(Instant::now() + Duration::from_millis(10));
        let status = ready_status(&Timestamp::now().strftime("%FT%TZ").to_string()).to_string();
        patch_new_pods(cluster, observer, namespace, &mut seen, &status)?;
    }
    Ok(())
}
