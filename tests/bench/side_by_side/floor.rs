//! What the API server can do by itself: creates from a raw load generator, and a bare list.

use std::io::Read;
use std::time::Instant;

use replicaset_controller::api::protobuf::wire::Fields;
use replicaset_controller::api::protobuf::{Envelope, MEDIA_TYPE};
use replicaset_controller::client::Request;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::load::in_parallel;
use crate::options::Options;
use crate::pods::template;
use crate::report::{FLOOR, Report};
use crate::workloads::pods;

/// Pods of the load generator, at most.
const PODS_MAX: usize = 3000;

/// Measures what no controller can beat.
pub(crate) fn measure(
    cluster: &Cluster,
    options: &Options,
    report: &mut Report,
) -> Result<(), String> {
    let count = options.pods.min(PODS_MAX);
    let mut rates = Vec::new();
    for _ in 0..options.rounds.min(3) {
        rates.push((
            create_json(cluster, count)?,
            create_protobuf(cluster, count)?,
        ));
    }
    for (json, protobuf) in rates {
        report.add(FLOOR, "raw creates a second, JSON", json);
        report.add(FLOOR, "raw creates a second, protobuf", protobuf);
    }
    Ok(())
}

/// How long a bare protobuf list of all pods takes, in seconds.
pub(crate) fn bare_list(cluster: &Cluster) -> Result<f64, String> {
    let began = Instant::now();
    let request = Request::get("/api/v1/pods")
        .query("resourceVersion", "0")
        .accept(MEDIA_TYPE);
    let client = cluster.client.stream_client();
    let mut body = client
        .open_list(&request)
        .map_err(|error| error.to_string())?;
    let mut buffer = vec![0; 64 << 10];
    while body.read(&mut buffer).map_err(|error| error.to_string())? > 0 {}
    Ok(began.elapsed().as_secs_f64())
}

fn pod(name: &str) -> Value {
    let mut pod = template("raw");
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "raw", "controller": true,
        "uid": "5f2b3c4d-0000-4000-8000-000000000001", "blockOwnerDeletion": true,
    }]);
    pod
}

fn create_json(cluster: &Cluster, count: usize) -> Result<f64, String> {
    let namespace = cluster.new_namespace()?;
    rate(cluster, &namespace, count, |n| {
        let body = pod(&format!("raw-{n}")).to_string();
        Ok(Request::post(pods(&namespace)).body("application/json", body))
    })
}

/// The same pods in protobuf: the spec is the bytes of one that the server has shown.
fn create_protobuf(cluster: &Cluster, count: usize) -> Result<f64, String> {
    let namespace = cluster.new_namespace()?;
    cluster.post(&pods(&namespace), &pod("sample"))?;
    let sample = Request::get(format!("{}/sample", pods(&namespace))).accept(MEDIA_TYPE);
    let sample = cluster
        .send(&sample)
        .map_err(|error| error.to_string())?
        .body;
    let sample = Envelope::open(&sample).map_err(|error| error.to_string())?;
    let spec = Fields::of(sample.raw)
        .filter_map(Result::ok)
        .find(|field| field.tag == 2)
        .ok_or("the sample has no spec")?;
    rate(cluster, &namespace, count, |n| {
        let mut metadata = Vec::new();
        text_field(1, format!("raw-{n}").as_bytes(), &mut metadata);
        text_field(3, namespace.as_bytes(), &mut metadata);
        let mut message = Vec::new();
        text_field(1, &metadata, &mut message);
        text_field(2, spec.bytes, &mut message);
        let body = Envelope::seal("v1", "Pod", &message);
        Ok(Request::post(pods(&namespace))
            .body(MEDIA_TYPE, body)
            .accept(MEDIA_TYPE))
    })
}

fn text_field(tag: u32, bytes: &[u8], message: &mut Vec<u8>) {
    use prost::encoding::{WireType, encode_key, encode_varint};
    encode_key(tag, WireType::LengthDelimited, message);
    encode_varint(bytes.len() as u64, message);
    message.extend_from_slice(bytes);
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand")]
fn rate(
    cluster: &Cluster,
    namespace: &str,
    count: usize,
    request: impl Fn(usize) -> Result<Request, String> + Sync,
) -> Result<f64, String> {
    let began = Instant::now();
    in_parallel(count, |n| {
        let sent = cluster.send(&request(n)?);
        sent.map(drop).map_err(|error| error.to_string())
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let all = Request::delete(pods(namespace));
    cluster.send(&all).map_err(|error| error.to_string())?;
    Ok(count as f64 / seconds)
}
