//! From a new ReplicaSet to its pod.

use std::time::Instant;

use super::{PATIENCE, Stage};
use crate::probe::latency;
use crate::workloads::{create, delete_all, scale};

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
    let latency = latency(&stage.observer, PATIENCE, |name| {
        create(stage.cluster, &stage.namespace, name, 1)?;
        Ok(Instant::now())
    })?;
    stage.add(&format!("{what}, p50 ms"), latency.p50);
    stage.add(&format!("{what}, p99 ms"), latency.p99);
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
