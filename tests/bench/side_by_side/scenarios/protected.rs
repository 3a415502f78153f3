//! Scale-downs of a ReplicaSet that opts in to protection: the price of deletes on condition of a
//! version, and what becomes of pods marked `never`. kube-controller-manager ignores both
//! annotations.

use std::collections::HashSet;
use std::time::Instant;

use replicaset_controller::api::policy::SCALE_DOWN;
use replicaset_controller::client::Request;
use serde_json::{Value, json};

use super::{PATIENCE, SETTLE, Stage};
use crate::contestant::Process;
use crate::load::{in_parallel, pause};
use crate::report::OURS;
use crate::statistics::number;
use crate::watch::State;
use crate::workloads::{collection, create, delete_all, pods, scale};

const NAME: &str = "guarded";

/// Pods before and after the first scale-down, and after a second one that protected pods block.
const BEFORE: usize = 1000;
const AFTER: usize = 500;
const BLOCKED: usize = 100;

/// Pods that are marked.
const MARKED: usize = 250;

/// Runs the scale-down without protection, with it, and with marked pods.
pub(super) fn all(stage: &mut Stage<'_>, process: &Process) -> Result<(), String> {
    for (what, protects, n_marked) in [
        ("protection off", false, 0),
        ("protection on, no marks", true, 0),
        ("protected", true, MARKED),
    ] {
        stage.enter()?;
        let marked = prepare(stage, protects, n_marked)?;
        let began = Instant::now();
        let mut line = vec![(0.0, number(BEFORE))];
        measure(stage, process, what, (AFTER, AFTER), (began, &mut line))?;
        if n_marked > 0 {
            stage.add("protected, marked pods deleted", lost(stage, &marked));
            let is_ours = stage.contestant.name == OURS;
            let kept = if is_ours { MARKED } else { BLOCKED };
            let what = "protected, blocked";
            measure(stage, process, what, (BLOCKED, kept), (began, &mut line))?;
            stage.add(
                "protected, blocked, marked pods deleted",
                lost(stage, &marked),
            );
            let title = "1,000 pods, 250 of them marked never, scaled to 500 and to 100: pods";
            let name = stage.contestant.name;
            stage.report.add_line(name, "protect.svg", title, line);
        }
        delete_all(stage.cluster, &stage.namespace)?;
    }
    Ok(())
}

/// Creates the pods, and marks some. Returns the names of these.
fn prepare(stage: &Stage<'_>, protects: bool, n_marked: usize) -> Result<HashSet<String>, String> {
    let (cluster, namespace) = (stage.cluster, &*stage.namespace);
    create(cluster, namespace, NAME, 0)?;
    if protects {
        let on = json!({"replicaset-controller/scale-down-protection": "on"});
        annotate(stage, format!("{}/{NAME}", collection(namespace)), &on)?;
    }
    scale(cluster, namespace, NAME, BEFORE)?;
    let is_up = |state: &State| state.sums().replicas == BEFORE && state.pods.len() == BEFORE;
    stage.observer.wait("scaled up", PATIENCE, is_up)?;
    let names: Vec<String> = {
        let state = stage.observer.lock();
        let pods = state.pods.values().take(n_marked);
        pods.map(|pod| pod.name.clone()).collect()
    };
    let path = pods(namespace);
    let never = json!({SCALE_DOWN: "never"});
    in_parallel(names.len(), |n| {
        annotate(stage, format!("{path}/{}", names[n]), &never)
    })?;
    pause(SETTLE);
    Ok(names.into_iter().collect())
}

fn annotate(stage: &Stage<'_>, path: String, annotations: &Value) -> Result<(), String> {
    let patch = json!({"metadata": {"annotations": annotations}});
    let request = Request::patch(path).body("application/merge-patch+json", patch.to_string());
    stage.cluster.send(&request).map(drop)
}

/// Scales down to `wanted` pods, and measures until there are `expected`. Continues a printed line.
fn measure(
    stage: &mut Stage<'_>,
    process: &Process,
    what: &str,
    (wanted, expected): (usize, usize),
    (epoch, line): (Instant, &mut Vec<(f64, f64)>),
) -> Result<(), String> {
    let (before, requests) = (process.usage()?, requests(stage)?);
    let n_before = stage.observer.lock().pods.len();
    let began = Instant::now();
    scale(stage.cluster, &stage.namespace, NAME, wanted)?;
    let is_down = |state: &State| {
        let n_pods = state.pods.len();
        line.push((epoch.elapsed().as_secs_f64(), number(n_pods)));
        n_pods == expected && state.sums().replicas == expected
    };
    let ended = stage.observer.wait("scaled down", PATIENCE, is_down)?;
    line.dedup_by_key(|point| point.1.to_bits());
    pause(SETTLE);
    line.push((epoch.elapsed().as_secs_f64(), number(expected)));
    let spent = process.usage()?.cpu - before.cpu;
    let n_deleted = number(n_before - expected);
    stage.add(&format!("{what}, seconds"), (ended - began).as_secs_f64());
    stage.add(
        &format!("{what}, CPU ms a deleted pod"),
        spent * 1000.0 / n_deleted,
    );
    let sent = self::requests(stage)? - requests;
    stage.add(&format!("{what}, requests for pods"), sent);
    Ok(())
}

/// Requests that delete, list or patch pods so far, by the API server's own count.
fn requests(stage: &Stage<'_>) -> Result<f64, String> {
    let response = stage.cluster.send(&Request::get("/metrics"))?;
    let text = String::from_utf8_lossy(&response.body);
    let is_counted = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && line.contains("resource=\"pods\"")
            && ["DELETE", "LIST", "GET", "PATCH"]
                .iter()
                .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
    };
    let values = text.lines().filter(is_counted);
    let values = values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum())
}

/// How many of the marked pods are gone.
fn lost(stage: &Stage<'_>, marked: &HashSet<String>) -> f64 {
    let state = stage.observer.lock();
    let is_marked = |name: &&String| marked.contains(*name);
    let left = state.pods.values().map(|pod| &pod.name).filter(is_marked);
    number(marked.len() - left.count())
}
