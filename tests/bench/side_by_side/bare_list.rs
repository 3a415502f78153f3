//! Measures how long the API server takes to send all pods to a client that does not decode them.

use std::io::{BufReader, Read};
use std::time::Instant;

use replicaset_controller::api::protobuf::MEDIA_TYPE;
use replicaset_controller::cache::decode::INITIAL_EVENTS_END;
use replicaset_controller::client::{BodyStream, Request};

use crate::cluster::Cluster;
use crate::figures::{BARE_LIST, BARE_STREAMED_LIST};
use crate::report::{FLOOR, Report};

/// In bytes: longer than any bookmark, and shorter than any pod of the benchmark.
const BOOKMARK_MAX: usize = 1024;

const BUFFER: usize = 64 << 10;

const PODS: &str = "/api/v1/pods";

/// Reads all pods with a plain list and with a streaming list.
pub(crate) fn measure(cluster: &Cluster, report: &mut Report) -> Result<(), String> {
    report.add(FLOOR, BARE_LIST, timed(|| list(cluster))?);
    report.add(FLOOR, BARE_STREAMED_LIST, timed(|| streamed_list(cluster))?);
    Ok(())
}

/// The duration of `read`, in seconds.
fn timed(read: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    let began = Instant::now();
    read()?;
    Ok(began.elapsed().as_secs_f64())
}

fn list(cluster: &Cluster) -> Result<(), String> {
    let request = Request::get(PODS)
        .query("resourceVersion", "0")
        .accept(MEDIA_TYPE);
    let client = cluster.client.stream_client();
    let body = client.open_list(&request);
    let mut body = body.map_err(|error| format!("{request}: {error}"))?;
    let mut buffer = vec![0; BUFFER];
    while read(&mut body, &mut buffer)? > 0 {}
    Ok(())
}

/// The same streaming list as both controllers request.
fn streamed_list(cluster: &Cluster) -> Result<(), String> {
    let request = Request::get(PODS)
        .query("watch", "true")
        .query("sendInitialEvents", "true")
        .query("resourceVersionMatch", "NotOlderThan")
        .query("allowWatchBookmarks", "true")
        .accept(MEDIA_TYPE);
    let client = cluster.client.stream_client();
    let body = client.open_watch(&request);
    let body = body.map_err(|error| format!("{request}: {error}"))?;
    let mut body = BufReader::with_capacity(BUFFER, body);
    let mut event = Vec::new();
    loop {
        let mut length = [0; 4];
        fill(&mut body, &mut length)?;
        let length = u32::from_be_bytes(length);
        event.resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
        fill(&mut body, &mut event)?;
        let mut parts = event.windows(INITIAL_EVENTS_END.len());
        if event.len() <= BOOKMARK_MAX && parts.any(|part| part == INITIAL_EVENTS_END.as_bytes()) {
            return Ok(());
        }
    }
}

fn read(body: &mut BodyStream, buffer: &mut [u8]) -> Result<usize, String> {
    body.read(buffer)
        .map_err(|error| format!("the bare list failed: {error}"))
}

fn fill(body: &mut impl Read, bytes: &mut [u8]) -> Result<(), String> {
    body.read_exact(bytes).map_err(|error| {
        format!("the bare streaming list failed before its last bookmark: {error}")
    })
}
