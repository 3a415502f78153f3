//! A node that rejects every pod for minutes: how many pods each controller creates, and how soon
//! all run after the node has recovered. Both contestants have kube-controller-manager's default
//! rate limit. This daemon gets the annotation `failed-pod-backoff`, which the other one ignores.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use replicaset_controller::api::Uid;
use replicaset_controller::client::Request;
use serde_json::json;

use super::{PATIENCE, Stage, wait_until_ready};
use crate::cluster::Cluster;
use crate::load::pause;
use crate::pods::ready_status;
use crate::statistics::number;
use crate::watch::{Observer, State};
use crate::workloads::{collection, create, patch_new_pods};

const REPLICAS: usize = 10;

/// The waits of this daemon.
const BACKOFF: &str = "10s..5m";

const NAME: &str = "web";

/// Runs the scenario with a new process.
pub(super) fn all(stage: &mut Stage<'_>) -> Result<(), String> {
    let process = stage.contestant.limited("20", "30").start()?;
    wait_until_ready(stage.cluster, &process)?;
    stage.enter()?;
    let minutes = stage.options.failing_minutes;
    let node = Node::default();
    let is_over = AtomicBool::new(false);
    let (cpu, server_cpu) = (process.usage()?.cpu, stage.cluster.cpu()?);
    let (cluster, observer, namespace) = (stage.cluster, &stage.observer, &*stage.namespace);
    let measured = std::thread::scope(|scope| {
        let kubelet = scope.spawn(|| node.run(cluster, observer, namespace, &is_over));
        let measured = measure(stage, &node, minutes);
        is_over.store(true, Ordering::Relaxed);
        let kubelet = kubelet
            .join()
            .unwrap_or_else(|_| Err("the kubelet thread panicked".to_owned()));
        kubelet.and(measured)
    });
    let measured = measured?;
    let (cpu, server_cpu) = (
        process.usage()?.cpu - cpu,
        stage.cluster.cpu()? - server_cpu,
    );
    process.stop()?;
    stage.tear_down()?;
    let what = format!("node rejects for {minutes} min");
    stage.add(&format!("{what}, pods created"), number(measured.n_created));
    stage.add(
        &format!("{what}, status writes"),
        number(measured.n_status_writes),
    );
    stage.add(&format!("{what}, CPU s until all run"), cpu);
    stage.add(&format!("{what}, CPU s of API server and etcd"), server_cpu);
    stage.add(
        &format!("{what}, s from recovery until all run"),
        measured.recovery.as_secs_f64(),
    );
    Ok(())
}

struct Measured {
    n_created: usize,
    n_status_writes: usize,
    recovery: Duration,
}

fn measure(stage: &Stage<'_>, node: &Node, minutes: u64) -> Result<Measured, String> {
    let (cluster, namespace) = (stage.cluster, &stage.namespace);
    create(cluster, namespace, NAME, 0)?;
    let annotations = json!({"replicaset-controller/failed-pod-backoff": BACKOFF});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"replicas": REPLICAS}});
    let path = format!("{}/{NAME}", collection(namespace));
    let request = Request::patch(path).body("application/merge-patch+json", patch.to_string());
    cluster.send(&request)?;
    pause(Duration::from_mins(minutes));
    let n_created = node.n_seen.load(Ordering::Relaxed);
    let n_status_writes = stage.observer.lock().n_status_writes(|_| true);
    node.has_recovered.store(true, Ordering::Relaxed);
    let recovered = Instant::now();
    let all_run = |state: &State| {
        let ready = state.pods.values().filter(|pod| pod.is_ready);
        ready.count() == REPLICAS
    };
    let at = stage.observer.wait("all pods Ready", PATIENCE, all_run)?;
    Ok(Measured {
        n_created,
        n_status_writes,
        recovery: at.saturating_duration_since(recovered),
    })
}

/// The only node.
#[derive(Default)]
struct Node {
    has_recovered: AtomicBool,
    /// Pods that it has admitted or rejected.
    n_seen: AtomicUsize,
}

impl Node {
    /// Rejects each new pod, or makes it Ready once the node has recovered.
    fn run(
        &self,
        cluster: &Cluster,
        observer: &Observer,
        namespace: &str,
        is_over: &AtomicBool,
    ) -> Result<(), String> {
        let mut seen: HashSet<Uid> = HashSet::new();
        while !is_over.load(Ordering::Relaxed) {
            pause(Duration::from_millis(10));
            let now = Timestamp::now().strftime("%FT%TZ").to_string();
            let status = if self.has_recovered.load(Ordering::Relaxed) {
                ready_status(&now)
            } else {
                json!({"status": {
                    "phase": "Failed", "reason": "OutOfcpu", "startTime": now,
                    "message": "Pod was rejected: Node didn't have enough resource: cpu",
                }})
            };
            let status = status.to_string();
            let count = patch_new_pods(cluster, observer, namespace, &mut seen, &status)?;
            self.n_seen.fetch_add(count, Ordering::Relaxed);
        }
        Ok(())
    }
}
