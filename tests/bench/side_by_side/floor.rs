//! The API server's own limits: creates from a load generator without a controller.

use std::time::{Duration, Instant};

use replicaset_controller::client::Request;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::load::in_parallel;
use crate::options::Options;
use crate::pods::template;
use crate::probe::{INTERVAL_MIN, add_latencies, latencies};
use crate::report::{FLOOR, Report};
use crate::statistics::number;
use crate::watch::{Observer, State};
use crate::workloads::pods;

/// Maximum number of pods that the load generator creates.
const PODS_MAX: usize = 2000;

/// The cost of creating pods.
struct Cost {
    /// Pods per second.
    rate: f64,
    /// CPU time of the API server and etcd, in milliseconds per pod.
    server_cpu: f64,
}

/// Measures the rates and latencies that bound any controller.
pub(crate) fn measure(
    cluster: &Cluster,
    options: &Options,
    report: &mut Report,
) -> Result<(), String> {
    let count = options.pods.min(PODS_MAX);
    let cost = create_json(cluster, count)?;
    report.add(FLOOR, "raw creates a second", cost.rate);
    report.add(
        FLOOR,
        "raw creates, API server's CPU ms a pod",
        cost.server_cpu,
    );
    cluster.collect_garbage()?;
    let latencies = create_and_see(cluster)?;
    add_latencies(report, FLOOR, "raw create until it is seen", latencies);
    Ok(())
}

/// The time from a pod's create request until a watch shows the pod: a lower bound of any
/// controller's latency.
fn create_and_see(cluster: &Cluster) -> Result<Vec<f64>, String> {
    let namespace = cluster.new_namespace()?;
    let observer = Observer::start(cluster, &namespace);
    let all = |_: &State| true;
    let latencies = latencies(
        &observer,
        INTERVAL_MIN,
        Duration::from_mins(1),
        all,
        |owner| {
            let sent = Instant::now();
            cluster.post(&pods(&namespace), &pod(owner, owner))?;
            Ok(sent)
        },
    )?;
    // A starting controller lists all pods, so none may remain.
    delete_pods(cluster, &namespace)?;
    observer.wait("no raw pods", Duration::from_mins(1), State::is_empty)?;
    Ok(latencies)
}

fn pod(name: &str, owner: &str) -> Value {
    let mut pod = template("raw");
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "controller": true,
        "uid": "5f2b3c4d-0000-4000-8000-000000000001", "blockOwnerDeletion": true,
    }]);
    pod
}

/// Creates pods while two observers watch: the benchmark's, and one in place of a controller's.
fn create_json(cluster: &Cluster, count: usize) -> Result<Cost, String> {
    let namespace = cluster.new_namespace()?;
    let _observers = [(); 2].map(|()| Observer::start(cluster, &namespace));
    let (began, cpu) = (Instant::now(), cluster.cpu()?);
    in_parallel(count, |n| {
        let pod = pod(&format!("raw-{n}"), "raw");
        cluster.post(&pods(&namespace), &pod).map(drop)
    })?;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cluster.cpu()? - cpu);
    delete_pods(cluster, &namespace)?;
    Ok(Cost {
        rate: number(count) / seconds,
        server_cpu: cpu * 1000.0 / number(count),
    })
}

fn delete_pods(cluster: &Cluster, namespace: &str) -> Result<(), String> {
    cluster.delete_collection(&Request::delete(pods(namespace)))
}
