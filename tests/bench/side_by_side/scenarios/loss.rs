//! Measures how soon a ReplicaSet's status shows pods that are lost in the middle of a rollout. The
//! Deployment controller depends on it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use replicaset_controller::api::{Status, Uid};
use replicaset_controller::client::Request;
use serde_json::{Value, json};

use super::{PATIENCE, Stage};
use crate::cluster::Cluster;
use crate::contestant::Contestant;
use crate::load::{in_parallel, pause};
use crate::pods::{ready_status, template};
use crate::probe::add_latencies;
use crate::statistics::number;
use crate::watch::{Observer, State};
use crate::workloads::{delete_all, patch_pod_status, pods};

/// Replicas of the Deployment.
const REPLICAS: usize = 100;

/// Number of Ready pods to delete.
const KILLS: usize = 300;

/// Interval between two deletions.
const KILL_EVERY: Duration = Duration::from_millis(50);

/// Time from a pod's first observation until it becomes Ready.
const READY_AFTER: Duration = Duration::from_millis(200);

/// Rolls out a Deployment with `maxUnavailable: 0` repeatedly, and deletes Ready pods during each
/// roll-out.
pub(super) fn loss(stage: &mut Stage<'_>) -> Result<(), String> {
    let deployments = Contestant::deployments(stage.cluster)?.start()?;
    let (cluster, observer, namespace) = (stage.cluster, &stage.observer, &*stage.namespace);
    observer.keep_journal();
    let rollouts = Rollouts {
        cluster,
        observer,
        namespace,
        path: collection(namespace),
    };
    let is_over = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let kubelet = scope.spawn(|| kubelet(cluster, observer, namespace, &is_over));
        let done = rollouts.run();
        is_over.store(true, Ordering::Relaxed);
        let kubelet = kubelet
            .join()
            .unwrap_or_else(|_| Err("the kubelet thread panicked".to_owned()));
        done.and(kubelet)
    });
    deployments.stop()?;
    done?;
    let latencies = observer.lock().journal().map(|journal| journal.latencies());
    let latencies = latencies.unwrap_or_default();
    let shown: Vec<f64> = latencies.iter().copied().flatten().collect();
    let n_never = latencies.len() - shown.len();
    let name = stage.contestant.name;
    stage.add("loss, Ready pods deleted", number(latencies.len()));
    stage.add("loss, never in a status", number(n_never));
    add_latencies(stage.report, name, "loss until its status", shown);
    let deployments = collection(&stage.namespace);
    tear_down(stage, &deployments)
}

/// Deletes all objects. No controller manages the Deployment any more, and the next round must not
/// start with it.
fn tear_down(stage: &Stage<'_>, deployments: &str) -> Result<(), String> {
    let deployments = Request::delete(deployments);
    stage.cluster.delete_collection(&deployments)?;
    let names: Vec<String> = stage.observer.lock().replica_sets.keys().cloned().collect();
    stage.scale_to_zero(&names)?;
    delete_all(stage.cluster, &stage.namespace)
}

/// The path of a namespace's Deployments.
fn collection(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/deployments")
}

struct Rollouts<'a> {
    cluster: &'a Cluster,
    observer: &'a Observer,
    namespace: &'a str,
    /// The path of the namespace's Deployments.
    path: String,
}

impl Rollouts<'_> {
    fn run(&self) -> Result<(), String> {
        let labels = json!({"app": "web"});
        let deployment = json!({
            "metadata": {"name": "web"},
            "spec": {
                "replicas": REPLICAS, "revisionHistoryLimit": 2,
                "selector": {"matchLabels": labels}, "template": template("web"),
                "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}},
            },
        });
        self.cluster.post(&self.path, &deployment)?;
        self.settle()?;
        let mut n_rollouts = 0;
        while self.n_losses() < KILLS {
            n_rollouts += 1;
            self.roll_out(n_rollouts)?;
            let deadline = Instant::now() + PATIENCE;
            while !self.is_rolled_out()? {
                if self.n_losses() < KILLS {
                    self.kill()?;
                }
                pause(KILL_EVERY);
                if Instant::now() > deadline {
                    return Err("a rollout did not finish".to_owned());
                }
            }
        }
        self.settle()
    }

    fn n_losses(&self) -> usize {
        let mut state = self.observer.lock();
        state.journal().map_or(0, |journal| journal.n_losses())
    }

    /// Waits until all pods exist and are Ready, and the statuses show it.
    fn settle(&self) -> Result<(), String> {
        let is_settled = |state: &State| {
            let sums = state.sums();
            state.pods.len() == REPLICAS && sums.replicas == REPLICAS && sums.ready == REPLICAS
        };
        let settled = self.observer.wait("the Deployment", PATIENCE, is_settled);
        settled.map(drop)
    }

    fn roll_out(&self, n: usize) -> Result<(), String> {
        let annotations = json!({"bench/roll-out": n.to_string()});
        let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
        let request = Request::patch(format!("{}/web", self.path))
            .body("application/merge-patch+json", patch.to_string());
        self.cluster.send(&request).map(drop)
    }

    /// True if no pod of an older template remains.
    fn is_rolled_out(&self) -> Result<bool, String> {
        let request = Request::get(format!("{}/web", self.path));
        let deployment: Value = self.cluster.json(&request)?;
        let status = &deployment["status"];
        Ok(
            status["observedGeneration"] == deployment["metadata"]["generation"]
                && status["updatedReplicas"] == status["replicas"],
        )
    }

    fn kill(&self) -> Result<(), String> {
        let chosen = {
            let mut state = self.observer.lock();
            let ready: Vec<_> = state.pods.iter().filter(|(_, pod)| pod.is_ready).collect();
            let chosen = fastrand::choice(ready);
            let chosen = chosen.map(|(uid, pod)| (uid.clone(), pod.name.clone()));
            if let (Some((uid, _)), Some(journal)) = (&chosen, state.journal()) {
                journal.add_victim(uid.clone());
            }
            chosen
        };
        let Some((uid, name)) = chosen else {
            return Ok(());
        };
        let options = json!({"preconditions": {"uid": uid.to_string()}});
        let request = Request::delete(format!("{}/{name}", pods(self.namespace)))
            .body("application/json", options.to_string());
        match self.cluster.client.send(&request) {
            // The roll-out has deleted the pod already.
            Err(error) if error.status().is_some_and(Status::is_not_found) => Ok(()),
            result => result
                .map(drop)
                .map_err(|error| format!("{request}: {error}")),
        }
    }
}

/// Makes each pod Ready once [`READY_AFTER`] has passed since its first observation.
fn kubelet(
    cluster: &Cluster,
    observer: &Observer,
    namespace: &str,
    is_over: &AtomicBool,
) -> Result<(), String> {
    let mut seen: HashMap<Uid, Instant> = HashMap::new();
    while !is_over.load(Ordering::Relaxed) {
        pause(Duration::from_millis(10));
        let due: Vec<String> = {
            let state = observer.lock();
            seen.retain(|uid, _| state.pods.contains_key(uid));
            let mut is_due = |uid: &Uid| {
                let since = seen.entry(uid.clone()).or_insert_with(Instant::now);
                since.elapsed() >= READY_AFTER
            };
            let pods = state.pods.iter().filter(|(_, pod)| !pod.is_ready);
            let due = pods.filter(|(uid, _)| is_due(uid));
            due.map(|(_, pod)| pod.name.clone()).collect()
        };
        let status = ready_status(&Timestamp::now().strftime("%FT%TZ").to_string()).to_string();
        in_parallel(due.len(), |n| {
            patch_pod_status(cluster, namespace, &due[n], &status)
        })?;
    }
    Ok(())
}
