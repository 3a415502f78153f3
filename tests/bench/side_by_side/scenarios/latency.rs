//! Latency: the time from a new ReplicaSet to its pod.

use std::time::{Duration, Instant};

use super::{PATIENCE, SETTLE, Stage};
use crate::load::pause;
use crate::probe::{INTERVAL_MIN, PROBES_MAX, add_latencies, latencies};
use crate::statistics::number;
use crate::watch::State;
use crate::workloads::{create, delete_all, scale};

/// Minimum number of probes for a meaningful p99.
const BUSY_PROBES_MIN: usize = 20;

/// Pods per second. At this assumed rate, the other ReplicaSet's scale-up ends with the last probe.
/// No API server on such a machine is as fast, so all probes start during the scale-up.
const SCALE_UP_RATE: f64 = 1000.0;

/// Measures on an idle controller that has finished all earlier work.
pub(super) fn idle(stage: &mut Stage<'_>) -> Result<(), String> {
    stage.cluster.collect_garbage()?;
    pause(SETTLE);
    let found = probe(stage, INTERVAL_MIN, |_| true)?;
    finish(stage, "latency idle", found)
}

/// Measures while another ReplicaSet scales by thousands.
pub(super) fn busy(stage: &mut Stage<'_>) -> Result<(), String> {
    let wanted = stage.options.pods;
    create(stage.cluster, &stage.namespace, "large", 0)?;
    stage.observer.expect_pods("large", wanted);
    let began = Instant::now();
    scale(stage.cluster, &stage.namespace, "large", wanted)?;
    stage
        .observer
        .wait("the first of many pods", PATIENCE, |state| {
            !state.pods.is_empty()
        })?;
    let all = Duration::from_secs_f64(number(wanted) / SCALE_UP_RATE);
    let every = (all / PROBES_MAX).max(INTERVAL_MIN);
    let found = probe(stage, every, |state| state.n_pods_of("large") < wanted)?;
    let n_probes = found.len();
    stage.add("latency busy, probes", number(n_probes));
    if n_probes < BUSY_PROBES_MIN {
        return Err(format!(
            "latency-busy: all {wanted} pods existed after {n_probes} probes, fewer than \
             {BUSY_PROBES_MIN}: raise --pods, or leave the scenario out of --scenarios"
        ));
    }
    // Waits for all pods before the overshoot is read, as the last pod may be a surplus.
    let all_up = |state: &State| state.sums().replicas == wanted + n_probes;
    let ended = stage.observer.wait("all scaled up", PATIENCE, all_up)?;
    stage.add(
        "latency busy, pods a second of the other one",
        number(wanted) / (ended - began).as_secs_f64(),
    );
    finish(stage, "latency busy", found)
}

fn probe(
    stage: &Stage<'_>,
    every: Duration,
    goes_on: impl Fn(&State) -> bool,
) -> Result<Vec<f64>, String> {
    latencies(&stage.observer, every, PATIENCE, goes_on, |name| {
        stage.observer.expect_pods(name, 1);
        create(stage.cluster, &stage.namespace, name, 1)?;
        Ok(Instant::now())
    })
}

fn finish(stage: &mut Stage<'_>, what: &str, found: Vec<f64>) -> Result<(), String> {
    add_latencies(stage.report, stage.contestant.name, what, found);
    stage.add_overshoot(what)?;
    let names: Vec<String> = stage.observer.lock().replica_sets.keys().cloned().collect();
    stage.scale_to_zero(&names)?;
    delete_all(stage.cluster, &stage.namespace)
}
