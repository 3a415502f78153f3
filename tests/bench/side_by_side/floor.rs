//! The API server's own limits: creates from a load generator without a controller.

use std::time::{Duration, Instant};

use replicaset_controller::api::protobuf::{
    Envelope, Fields, MEDIA_TYPE, ObjectMeta, Parts, ProtobufError, put_bytes,
};
use replicaset_controller::client::Request;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::figures::RAW_RATE;
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
    for (rate, name, n_observers) in [
        ("raw creates a second, JSON", "JSON", None),
        ("raw creates a second, protobuf", "protobuf", Some(0)),
        // Two observers: the benchmark's, and one in place of a controller's watches.
        (RAW_RATE, "protobuf, two watching", Some(2)),
    ] {
        let cost = match n_observers {
            None => create_json(cluster, count)?,
            Some(n_observers) => create_protobuf(cluster, count, n_observers)?,
        };
        report.add(FLOOR, rate, cost.rate);
        let figure = format!("raw creates, API server's CPU ms a pod, {name}");
        report.add(FLOOR, &figure, cost.server_cpu);
    }
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

fn create_json(cluster: &Cluster, count: usize) -> Result<Cost, String> {
    let namespace = cluster.new_namespace()?;
    cost(cluster, &namespace, count, |n| {
        let body = pod(&format!("raw-{n}"), "raw").to_string();
        Ok(Request::post(pods(&namespace)).body("application/json", body))
    })
}

/// Creates the same pods in protobuf. Their bytes come from a sample that the API server returns.
fn create_protobuf(cluster: &Cluster, count: usize, n_observers: usize) -> Result<Cost, String> {
    let namespace = cluster.new_namespace()?;
    let observers = (0..n_observers).map(|_| Observer::start(cluster, &namespace));
    let observers: Vec<_> = observers.collect();
    cluster.post(&pods(&namespace), &pod("sample", "raw"))?;
    let sample = Request::get(format!("{}/sample", pods(&namespace))).accept(MEDIA_TYPE);
    let sample = cluster.send(&sample)?.body;
    let sample = Envelope::open(&sample).map_err(|error| error.to_string())?;
    let sample = Parts::of(sample.raw).map_err(|error| error.to_string())?;
    let metadata = metadata_to_create(sample.metadata).map_err(|error| error.to_string())?;
    if sample.spec.is_empty() || metadata.is_empty() {
        return Err("the sample has no spec or no labels".to_owned());
    }
    let cost = cost(cluster, &namespace, count, |n| {
        let mut metadata = metadata.clone();
        put_bytes(ObjectMeta::NAME, format!("raw-{n}"), &mut metadata);
        put_bytes(ObjectMeta::NAMESPACE, &namespace, &mut metadata);
        let fields = [(Parts::METADATA, &metadata[..]), (Parts::SPEC, sample.spec)];
        let body = Envelope::seal("v1", "Pod", &fields);
        Ok(Request::post(pods(&namespace))
            .body(MEDIA_TYPE, body)
            .accept(MEDIA_TYPE))
    });
    drop(observers);
    cost
}

/// The fields of a pod's metadata that a create request contains, except for the name.
fn metadata_to_create(metadata: &[u8]) -> Result<Vec<u8>, ProtobufError> {
    let mut kept = Vec::new();
    for field in Fields::of(metadata) {
        let field = field?;
        if let ObjectMeta::LABELS | ObjectMeta::ANNOTATIONS | ObjectMeta::OWNER_REFERENCES =
            field.tag
        {
            kept.extend_from_slice(field.whole);
        }
    }
    Ok(kept)
}

fn cost(
    cluster: &Cluster,
    namespace: &str,
    count: usize,
    request: impl Fn(usize) -> Result<Request, String> + Sync,
) -> Result<Cost, String> {
    let (began, cpu) = (Instant::now(), cluster.cpu()?);
    in_parallel(count, |n| cluster.send(&request(n)?).map(drop))?;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cluster.cpu()? - cpu);
    delete_pods(cluster, namespace)?;
    Ok(Cost {
        rate: number(count) / seconds,
        server_cpu: cpu * 1000.0 / number(count),
    })
}

fn delete_pods(cluster: &Cluster, namespace: &str) -> Result<(), String> {
    cluster.delete_collection(&Request::delete(pods(namespace)))
}
