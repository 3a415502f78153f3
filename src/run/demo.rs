//! `demo`: the controller at work on sample ReplicaSets, told line by line.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::dev::start_server;
use super::{RunError, finish};
use crate::api::interner::Interner;
use crate::api::workload_kind::REPLICA_SET;
use crate::api::{ObjectKey, ReplicaSet};
use crate::cli::DemoArgs;
use crate::client::{Client, ClientConfig, ClientError, ClientOptions, Request};
use crate::devserver::DevServer;
use crate::manager::{Manager, ManagerOptions};
use crate::stdx::stop::{Cause, Stop};

/// What is shown if nothing else is asked for.
const SAMPLE: &str = include_str!("../../config/replicasets.yaml");

/// After this long a demo that has not converged has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// How often is looked for something to tell.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a simulated pod takes to become Ready.
const POD_READY_AFTER: Duration = Duration::from_millis(700);

/// Applies the sample, tells what happens, and stops once all ReplicaSets have converged. Blocks for at
/// most a minute and the time to stop.
///
/// # Errors
/// If the manifest cannot be used, if `stop` was given early, or if something did not converge.
pub fn demo(args: &DemoArgs, stop: &Stop) -> Result<(), RunError> {
    let manifest = read_manifest(args)?;
    let server_stop = Stop::new();
    let mut server = start_server("127.0.0.1:0".to_owned(), POD_READY_AFTER, &server_stop)?;
    let config = ClientConfig::plain(&server.url());
    let unlimited = ManagerOptions {
        kube_api_qps: 0.0,
        ..ManagerOptions::default()
    };
    let manager = Manager::start(&config, &unlimited, stop).map_err(RunError::Client)?;
    tell(&format!(
        "a dev server listens on {}, the controller is connected to it",
        server.url()
    ));
    let shown = show(&config, &server, &manifest, stop);
    stop.stop(Cause::Requested("the demo is over".to_owned()));
    let stopped = finish(manager);
    server.stop();
    shown.and(stopped)
}

fn read_manifest(args: &DemoArgs) -> Result<Vec<Value>, RunError> {
    let (path, text) = match &args.file {
        None => ("config/replicasets.yaml".to_owned(), SAMPLE.to_owned()),
        Some(file) => {
            let path = file.display().to_string();
            match std::fs::read_to_string(file) {
                Ok(text) => (path, text),
                Err(source) => return Err(RunError::File { path, source }),
            }
        }
    };
    serde_saphyr::from_multiple(&text).map_err(|error| RunError::File {
        path,
        source: std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string()),
    })
}

fn show(
    config: &ClientConfig,
    server: &DevServer,
    manifest: &[Value],
    stop: &Stop,
) -> Result<(), RunError> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: ClientError| RunError::Demo(format!("cannot {what}: {error}"))
    };
    let client = Client::new(config, &ClientOptions::default(), stop).map_err(RunError::Client)?;
    let start = Instant::now();
    for object in manifest {
        let namespace = object["metadata"]["namespace"]
            .as_str()
            .unwrap_or("default");
        let path = REPLICA_SET.collection_path(Some(namespace));
        let body = object.to_string();
        client
            .send(&Request::post(path).body("application/json", body))
            .map_err(failed("create a ReplicaSet of the manifest"))?;
    }
    let mut told: BTreeMap<ObjectKey, String> = BTreeMap::new();
    while start.elapsed() < PATIENCE {
        let all = server.objects("replicasets", "");
        let all: Vec<ReplicaSet> = all.iter().filter_map(read).collect();
        for rs in &all {
            let line = describe(rs);
            if told.get(&rs.key) != Some(&line) {
                tell(&format!("{:5.1} s  {line}", start.elapsed().as_secs_f64()));
                told.insert(rs.key.clone(), line);
            }
        }
        if all.len() == manifest.len() && all.iter().all(has_converged) {
            let n_pods = server.objects("pods", "").len();
            let seconds = start.elapsed().as_secs_f64();
            tell(&format!(
                "all {} ReplicaSets have their {n_pods} pods after {seconds:.1} s",
                all.len()
            ));
            return Ok(());
        }
        if stop.wait_timeout(LOOK_EVERY) {
            return Err(RunError::Demo(
                "stopped before all ReplicaSets had converged".to_owned(),
            ));
        }
    }
    Err(RunError::Demo(format!(
        "not converged within {} s",
        PATIENCE.as_secs()
    )))
}

fn read(object: &Value) -> Option<ReplicaSet> {
    ReplicaSet::from_json(object.to_string().as_bytes(), &mut Interner::default()).ok()
}

fn has_converged(rs: &ReplicaSet) -> bool {
    let status = &rs.status;
    let counts = [
        status.replicas,
        status.ready_replicas,
        status.available_replicas,
    ];
    counts.iter().all(|count| *count == rs.replicas) && status.observed_generation == rs.generation
}

fn describe(rs: &ReplicaSet) -> String {
    let status = &rs.status;
    format!(
        "{:16} desired {:3}  current {:3}  ready {:3}  available {:3}",
        rs.key.to_string(),
        rs.replicas,
        status.replicas,
        status.ready_replicas,
        status.available_replicas
    )
}

/// Whoever closed the pipe early has seen enough; the exit code still counts.
fn tell(line: &str) {
    writeln!(std::io::stdout(), "{line}").unwrap_or_default();
}
