//! New ReplicaSets with one pod beside many with thousands, with the default rate limit and without
//! a limit. Only this daemon runs it: with kube-controller-manager the small ReplicaSets wait for
//! minutes.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::{PATIENCE, Stage, wait_until_ready};
use crate::load::in_parallel;
use crate::probe::{add_latencies, latencies};
use crate::statistics::number;
use crate::watch::State;
use crate::workloads::create;

/// Replicas of each large ReplicaSet.
const REPLICAS: usize = 2000;

/// Number of new ReplicaSets with one pod.
const PROBES: u32 = 50;

/// Interval between two probes, so that all start within the first minute.
const INTERVAL: Duration = Duration::from_millis(1100);

/// Pods per second. At this assumed rate, the scale-up ends with the last probe.
const SCALE_UP_RATE: f64 = 1000.0;

/// Pods per sync of a large ReplicaSet.
const BURST: f64 = 500.0;

/// Runs the scenario with new processes.
pub(super) fn all(stage: &mut Stage<'_>) -> Result<(), String> {
    for (limit, qps, burst) in [("20 qps", "20", "30"), ("no limit", "0", "1")] {
        let contestant = stage.contestant.limited(qps, burst);
        for n_large in stage.options.large_sets.clone() {
            let what = format!("{n_large} large ReplicaSets, {limit}");
            let process = contestant.start()?;
            wait_until_ready(stage.cluster, &process)?;
            stage.enter()?;
            let every = if qps == "0" {
                let all_up = number(n_large * REPLICAS) / SCALE_UP_RATE;
                INTERVAL.min(Duration::from_secs_f64(all_up) / PROBES)
            } else {
                INTERVAL
            };
            measure(stage, &what, n_large, every)?;
            process.stop()?;
            stage.tear_down()?;
        }
    }
    Ok(())
}

fn measure(
    stage: &mut Stage<'_>,
    what: &str,
    n_large: usize,
    every: Duration,
) -> Result<(), String> {
    let (cluster, namespace) = (stage.cluster, &stage.namespace);
    stage.cluster.collect_garbage()?;
    let large = |n: usize| format!("large-{n}");
    for n in 0..n_large {
        stage.observer.expect_pods(&large(n), REPLICAS);
    }
    let began = Instant::now();
    in_parallel(n_large, |n| create(cluster, namespace, &large(n), REPLICAS))?;
    let n_remaining = Cell::new(PROBES);
    let goes_on = |_: &State| n_remaining.replace(n_remaining.get().saturating_sub(1)) > 0;
    let found = latencies(&stage.observer, every, PATIENCE, goes_on, |name| {
        stage.observer.expect_pods(name, 1);
        create(cluster, namespace, name, 1)?;
        Ok(Instant::now())
    })?;
    let took = began.elapsed().as_secs_f64();
    let state = stage.observer.lock();
    let n_pods: usize = (0..n_large).map(|n| state.n_pods_of(&large(n))).sum();
    let n_writes = state.n_status_writes(|name| name.starts_with("large-"));
    drop(state);
    add_latencies(stage.report, stage.contestant.name, what, found);
    stage.add(&format!("{what}, pods a second"), number(n_pods) / took);
    stage.add(
        &format!("{what}, status writes for 500 pods"),
        number(n_writes) * BURST / number(n_pods.max(1)),
    );
    let overshoot = stage.observer.take_overshoot();
    stage.add(&format!("{what}, overshoot"), number(overshoot));
    Ok(())
}
