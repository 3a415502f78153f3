//! Upstream's metrics: the snapshot in `upstream.txt`, its families that this daemon lacks, and the
//! comparison of the snapshot with a real kube-controller-manager.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use replicaset_controller::client::{Client, ClientConfig, ClientOptions, ConfigSource, Request};
use replicaset_controller::stdx::stop::Stop;
use serde_json::json;

use super::both_pages;
use super::exposition::Shape;
use crate::support::{PlainPort, Setup, TestCluster, Waiting, text_at};
use crate::tidy::{assert_none, root};
use crate::versions::followed;

const SNAPSHOT: &str = "tests/it/metrics/upstream.txt";

/// Families of upstream that this daemon lacks, each with the reason. A `*` ends a prefix.
pub(super) const NOT_OURS: &[(&str, &str)] = &[
    (
        "aggregator_*",
        "of an API server; kube-controller-manager has them because it shares its libraries",
    ),
    (
        "apiserver_*",
        "of an API server; kube-controller-manager has them because it shares its libraries",
    ),
    (
        "authenticated_user_requests",
        "of the library that authorizes requests for kube-controller-manager's own pages",
    ),
    (
        "authentication_*",
        "of the library that authorizes requests for kube-controller-manager's own pages",
    ),
    (
        "authorization_*",
        "of the library that authorizes requests for kube-controller-manager's own pages",
    ),
    (
        "cardinality_enforcement_unexpected_categorizations_total",
        "about component-base's own registry of metrics",
    ),
    (
        "disabled_metrics_total",
        "about component-base's own registry of metrics",
    ),
    (
        "hidden_metrics_total",
        "about component-base's own registry of metrics",
    ),
    (
        "registered_metrics_total",
        "about component-base's own registry of metrics",
    ),
    (
        "informer_queued_items",
        "there is no queue between a watch and its handlers: the watch thread calls them",
    ),
    ("node_collector_*", "of the node lifecycle controller"),
    (
        "rest_client_transport_cache_*",
        "no client shares its connections through a cache: each has its own from its start",
    ),
    (
        "rest_client_transport_create_calls_total",
        "no client shares its connections through a cache: each has its own from its start",
    ),
    (
        "rest_client_transport_cert_rotation_gc_calls_total",
        "there is no garbage collector for cached transports",
    ),
    (
        "version_info",
        "about the emulation of older Kubernetes versions, which this daemon lacks",
    ),
];

/// Families that a kube-controller-manager exposes only after an event that the test does not
/// cause. Their lines in the snapshot come from upstream's sources.
const ONLY_WHEN_USED: &[&str] = &[
    "informer_store_resource_version",
    "leader_election_slowpath_total",
    "replicaset_controller_stale_sync_skips_total",
    "rest_client_exec_plugin_call_total",
    "rest_client_request_retries_total",
    "rest_client_transport_ca_reload_total",
    "rest_client_transport_cache_gc_calls_total",
];

/// Families that are newer than the oldest pinned version, and the first version with them.
const SINCE: &[(&str, &str)] = &[("informer_*", "1.36")];

/// How long a kube-controller-manager may take until its pages are complete.
const START_WITHIN: Duration = Duration::from_mins(1);

/// True if `pattern` of [`NOT_OURS`] matches the family `name`.
pub(super) fn is_named(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

/// The snapshot's families. Those of `/metrics/slis` begin with `slis:`.
pub(super) fn read_snapshot() -> BTreeMap<String, Shape> {
    let text = fs::read_to_string(root().join(SNAPSHOT)).expect("the snapshot");
    text.lines().map(read_line).collect()
}

fn read_line(line: &str) -> (String, Shape) {
    let split = || {
        let (name, rest) = line.split_once(' ')?;
        let (kind, rest) = rest.split_once(" {")?;
        let (labels, rest) = rest.split_once("} [")?;
        let (bounds, help) = rest.split_once("] ")?;
        let list = |text: &str| -> Vec<String> {
            let parts = text.split(',').filter(|part| !part.is_empty());
            parts.map(str::to_owned).collect()
        };
        let shape = Shape {
            kind: kind.to_owned(),
            help: help.to_owned(),
            labels: list(labels).into_iter().collect(),
            bounds: list(bounds),
        };
        Some((name.to_owned(), shape))
    };
    split().unwrap_or_else(|| panic!("{SNAPSHOT}: cannot parse {line:?}"))
}

#[test]
fn every_excluded_family_is_in_the_snapshot() {
    let upstream = read_snapshot();
    for (pattern, _) in NOT_OURS {
        let is_there = upstream.keys().any(|name| is_named(name, pattern));
        assert!(is_there, "{pattern} matches no family of the snapshot");
    }
}

/// A kube-controller-manager for one test. It controls all namespaces, so no other test may use the
/// control plane at the same time.
struct ControllerManager {
    child: Child,
    log: tempfile::NamedTempFile,
}

impl ControllerManager {
    /// Starts it on `port`, with the certificate of the API server.
    fn start(program: &Path, files: &Path, port: u16) -> Self {
        let log = tempfile::NamedTempFile::new().expect("a file for the log");
        let stderr = log.reopen().expect("a file for the log");
        let file = |name: &str| files.join(name).display().to_string();
        let child = Command::new(program)
            .arg(format!("--kubeconfig={}", file("admin.kubeconfig")))
            .arg("--controllers=replicationcontroller-controller,replicaset-controller")
            .args([
                "--leader-elect=true",
                "--leader-elect-resource-name=metrics-test",
            ])
            .args(["--bind-address=127.0.0.1", &format!("--secure-port={port}")])
            .arg("--authorization-always-allow-paths=/metrics,/metrics/slis,/healthz")
            .arg(format!("--tls-cert-file={}", file("apiserver.crt")))
            .arg(format!("--tls-private-key-file={}", file("apiserver.key")))
            .arg(format!(
                "--service-account-private-key-file={}",
                file("service-account.key")
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("kube-controller-manager runs");
        Self { child, log }
    }
}

impl Drop for ControllerManager {
    fn drop(&mut self) {
        // The process may have exited already.
        self.child.kill().unwrap_or_default();
        self.child.wait().expect("the process can be reaped");
        if std::thread::panicking() {
            let text = fs::read_to_string(self.log.path()).unwrap_or_default();
            log::error!("kube-controller-manager logged:\n{text}");
        }
    }
}

/// A client for the pages of a local server with a certificate from the control plane's CA.
fn page_reader(files: &Path, port: u16) -> Client {
    let kubeconfig = json!({
        "clusters": [{"name": "x", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": files.join("ca.crt"),
        }}],
        "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "current-context": "x",
    });
    let file = tempfile::NamedTempFile::new().expect("a file for the kubeconfig");
    fs::write(file.path(), kubeconfig.to_string()).expect("a writable file");
    let source = ConfigSource {
        kubeconfig: Some(file.path().to_owned()),
        ..ConfigSource::default()
    };
    let config = ClientConfig::load(&source).expect("a valid kubeconfig");
    Client::new(&config, &ClientOptions::default(), &Stop::new())
}

fn read_page(client: &Client, path: &str) -> Option<String> {
    let request = Request::get(path).accept("text/plain;version=0.0.4");
    let response = client.send(&request).ok()?;
    String::from_utf8(response.body).ok()
}

/// Waits until both pages of a real kube-controller-manager are complete, and parses them. Returns
/// its version, such as `1.37`, with the families; `None` if there is no kube-controller-manager.
fn scrape() -> Option<(String, BTreeMap<String, Shape>)> {
    let files = PathBuf::from(env::var_os("CONTROL_PLANE_DIR")?);
    let program = PathBuf::from(env::var_os("CONTROL_PLANE_BIN")?).join("kube-controller-manager");
    if !program.exists() {
        return None;
    }
    // ORDER: drops last, as it locks the control plane for this test.
    let alone = TestCluster::with(Setup {
        all_namespaces: true,
        ..Setup::default()
    });
    let version = alone.api().send(&Request::get("/version"));
    let version = version.expect("the version of the API server");
    let [major, minor] = ["/major", "/minor"].map(|part| text_at(&version, part));
    let version = format!("{major}.{minor}");
    let reserved = PlainPort::free();
    let port = reserved.address().port();
    let _manager = ControllerManager::start(&program, &files, port);
    let client = page_reader(&files, port);
    let waiting = Waiting::new(&Stop::new());
    let began = Instant::now();
    loop {
        let pages = read_page(&client, "/metrics").zip(read_page(&client, "/metrics/slis"));
        if let Some((metrics, slis)) = pages {
            let shapes = both_pages(&metrics, &slis);
            // The last families: the queues exist once the lease is held, and a health check exists
            // after the first request for it.
            let is_complete = shapes.contains_key("workqueue_work_duration_seconds")
                && shapes.contains_key("slis:kubernetes_healthcheck");
            if is_complete {
                // The families of the Go runtime change with its version.
                let of_go = |name: &str| name.starts_with("go_");
                let shapes = shapes.into_iter().filter(|(name, _)| !of_go(name));
                return Some((version, shapes.collect()));
            }
            read_page(&client, "/healthz");
        }
        assert!(began.elapsed() < START_WITHIN, "the pages are not complete");
        waiting.pause(Duration::from_millis(200));
    }
}

/// Help texts and stages change with the version. What dashboards and alerts use does not: the
/// families that the daemon has too, with their types, labels and buckets.
fn offences_of_another_version(
    snapshot: &BTreeMap<String, Shape>,
    version: &str,
    actual: &BTreeMap<String, Shape>,
) -> Vec<String> {
    let is_expected = |name: &str| {
        let is_foreign = NOT_OURS.iter().any(|(it, _)| is_named(name, it));
        let is_newer = |(it, since): &(&str, &str)| is_named(name, it) && version < *since;
        !is_foreign && !ONLY_WHEN_USED.contains(&name) && !SINCE.iter().any(is_newer)
    };
    let expected = snapshot.iter().filter(|(name, _)| is_expected(name));
    let offences = expected.filter_map(|(name, shape)| match actual.get(name) {
        None => Some(format!("{name} is missing")),
        Some(other) => {
            let other = Shape {
                help: shape.help.clone(),
                ..other.clone()
            };
            (other != *shape).then(|| format!("{name}:\n  {other}\nis not\n  {shape}"))
        }
    });
    offences.collect()
}

#[test]
fn the_snapshot_matches_a_real_controller_manager() {
    let Some((version, actual)) = scrape() else {
        return;
    };
    let snapshot = read_snapshot();
    if version != followed() {
        let offences = offences_of_another_version(&snapshot, &version, &actual);
        assert_none("families of another shape", &offences);
        return;
    }
    if env::var_os("UPDATE_EXPECT").is_some() {
        let mut renewed = actual.clone();
        for name in ONLY_WHEN_USED {
            if let Some(shape) = snapshot.get(*name) {
                renewed
                    .entry((*name).to_owned())
                    .or_insert_with(|| shape.clone());
            }
        }
        let lines = renewed
            .iter()
            .map(|(name, shape)| format!("{name} {shape}\n"));
        fs::write(root().join(SNAPSHOT), lines.collect::<String>()).expect("a writable snapshot");
        return;
    }
    let mut offences = Vec::new();
    for (name, shape) in &actual {
        match snapshot.get(name) {
            Some(known) if known == shape => {}
            Some(known) => offences.push(format!("{name}:\n  {shape}\nis not\n  {known}")),
            None => offences.push(format!("{name} is new: {shape}")),
        }
    }
    let gone = snapshot
        .keys()
        .filter(|name| !actual.contains_key(*name) && !ONLY_WHEN_USED.contains(&name.as_str()));
    offences.extend(gone.map(|name| format!("{name} is missing")));
    assert!(
        offences.is_empty(),
        "{SNAPSHOT} is outdated; UPDATE_EXPECT=1 regenerates it:\n{}",
        offences.join("\n")
    );
}
