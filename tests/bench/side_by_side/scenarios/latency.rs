//! From a new ReplicaSet to its pod.

use std::time::{Duration, Instant};

use super::{PATIENCE, Stage};
use crate::load::pause;
use crate::report::quantile;
use crate::workloads::{create, delete_all, scale};

/// ReplicaSets that are made one after the other.
const PROBES: usize = 100;

/// Between two of them.
const INTERVAL: Duration = Duration::from_millis(20);

/// Nothing else is happening.
pub(super) fn idle(stage: &mut Stage<'_>) -> Result<(), String> {
    probe(stage, "latency idle")?;
    clean_up(stage)
}

/// Another ReplicaSet scales by thousands.
pub(super) fn busy(stage: &mut Stage<'_>) -> Result<(), String> {
    create(stage.cluster, &stage.namespace, "giant", 0)?;
    scale(stage.cluster, &stage.namespace, "giant", stage.options.pods)?;
    stage
        .observer
        .wait("the first of many pods", PATIENCE, |state| {
            !state.pods.is_empty()
        })?;
    probe(stage, "latency busy")?;
    clean_up(stage)
}

fn probe(stage: &mut Stage<'_>, what: &str) -> Result<(), String> {
    let mut created = Vec::new();
    for n in 0..PROBES {
        let name = format!("probe-{n}");
        create(stage.cluster, &stage.namespace, &name, 1)?;
        created.push((name, Instant::now()));
        pause(INTERVAL);
    }
    let all = |state: &crate::watch::State| {
        created
            .iter()
            .all(|(name, _)| state.first_pod.contains_key(name))
    };
    stage.observer.wait("a pod of each probe", PATIENCE, all)?;
    let latencies: Vec<f64> = {
        let state = stage.observer.lock();
        let of = |(name, created): &(String, Instant)| {
            state.first_pod[name]
                .saturating_duration_since(*created)
                .as_secs_f64()
                * 1000.0
        };
        created.iter().map(of).collect()
    };
    stage.add(&format!("{what}, p50 ms"), quantile(&latencies, 0.5));
    stage.add(&format!("{what}, p99 ms"), quantile(&latencies, 0.99));
    Ok(())
}

fn clean_up(stage: &mut Stage<'_>) -> Result<(), String> {
    let names: Vec<String> = stage.observer.lock().replica_sets.keys().cloned().collect();
    for name in &names {
        scale(stage.cluster, &stage.namespace, name, 0)?;
    }
    let is_empty =
        |state: &crate::watch::State| state.pods.is_empty() && state.sums().replicas == 0;
    stage.observer.wait("no pods", PATIENCE, is_empty)?;
    delete_all(stage.cluster, &stage.namespace)
}
