//! The metrics that dashboards and alerts use: upstream's series look exactly as upstream's, the
//! daemon's own are in the manual, and the values match the daemon's actions.
//!
//! `metrics/upstream.txt` lists the series of a kube-controller-manager: name, type, labels,
//! buckets, help. On the real control plane a test compares it with a running one; `UPDATE_EXPECT=1
//! tests/control-plane/run.sh cargo test --test it metrics` rewrites it.

mod exposition;
/// Alerts, dashboard and manifests for a monitor, and a Prometheus that uses them.
mod monitoring;
/// The dashboard as a picture.
mod picture;
mod upstream;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use replicaset_controller::client::Request;
use replicaset_controller::devserver::{Action, Matcher, Rule};
use replicaset_controller::telemetry::metrics::Metrics;
use replicaset_controller::telemetry::metrics::controller::{SyncEnd, WriteOutcome};
use replicaset_controller::telemetry::metrics::credentials::ExecPluginCall;
use replicaset_controller::telemetry::metrics::global;
use serde_json::json;

use self::exposition::{Exposition, Shape};
use self::upstream::{NOT_OURS, is_named, read_snapshot};
use crate::manifests::manifests;
use crate::manual;
use crate::support::{PlainPort, TestCluster, new_replica_set, text_at};
use crate::tidy::root;

/// Series under upstream's prefixes that upstream does not have, and why we do.
const EXTRA: &[(&str, &str)] = &[(
    "process_threads",
    "this daemon's threads are its structure; a Go process has go_threads and go_goroutines",
)];

/// Every family with at least one series.
fn all_families() -> Metrics {
    let metrics = Metrics::new();
    let gates = &metrics.build.feature_enabled;
    gates.with_label_values(&["Gate", "BETA"]).set(1);
    let version = k8s_openapi::apimachinery::pkg::version::Info::default();
    metrics.build.set_kubernetes_version(&version);
    let election = &metrics.leader_election;
    election.master_status.with_label_values(&["lease"]).set(1);
    election.slowpath.with_label_values(&["lease"]).inc();
    metrics.healthchecks.observe("ping", "healthz", true);

    let credentials = &metrics.credentials;
    credentials.exec_plugin_called(ExecPluginCall::ExecutionError(3));
    credentials.exec_plugin_certificate_rotated(Duration::from_hours(1));
    credentials.ca_reloaded(Ok(true));

    let get = metrics.rest_client.of("GET", "127.0.0.1:6443");
    get.attempted(Some(200));
    get.retried(None);

    let queue = &metrics.workqueue;
    queue.of("replicaset").queue_duration.observe(0.1);
    let computed = [
        &queue.depth,
        &queue.adds,
        &queue.retries,
        &queue.unfinished_work,
        &queue.longest_running_processor,
    ];
    for family in computed {
        family.register(&["replicaset"], || Some(1.0));
    }
    let watch = &metrics.watch;
    let computed = [
        &watch.objects,
        &watch.relists,
        &watch.watches,
        &watch.events,
        &watch.decode_failures,
        &watch.silence,
    ];
    for family in computed {
        family.register(&["pods"], || Some(1.0));
    }
    watch.processing_latency("", "v1", "pods").observe(0.1);
    let version = &watch.store_resource_version;
    version.register(&["replicaset-controller", "", "v1", "pods"], || Some(7.0));
    metrics
        .events
        .events
        .register(&["replicaset", "sent"], || Some(1.0));
    let controller = &metrics.controller;
    let expectations = &controller.open_expectations;
    expectations.register(&["replicaset", "creation"], || Some(1.0));
    let computed = [
        &controller.not_converged,
        &controller.pods_backed_off,
        &controller.scale_down_blocked_pods,
    ];
    for family in computed {
        family.register(&["replicaset"], || Some(1.0));
    }
    controller
        .backed_off
        .register(&["replicaset", "quota"], || Some(1.0));
    let controller = controller.of("replicaset", "apps", "replicasets");
    controller.pods_created.count(WriteOutcome::Success);
    controller
        .old_failed_pods_deleted
        .count(WriteOutcome::Success);
    controller.sync_ended(SyncEnd::Synced);
    controller.other_writer.with_label_values(&["pod"]).inc();
    let decisions = &controller.dry_run_decisions;
    decisions.with_label_values(&["create"]).inc();
    metrics
}

/// What both pages together show of `metrics`.
fn shapes(metrics: &Metrics) -> BTreeMap<String, Shape> {
    both_pages(&metrics.render(), &metrics.render_slis())
}

/// The families of `/metrics`, and those of `/metrics/slis` under names that begin with `slis:`.
fn both_pages(metrics: &str, slis: &str) -> BTreeMap<String, Shape> {
    let mut shapes = Exposition::read(metrics).families;
    let slis = Exposition::read(slis).families.into_iter();
    shapes.extend(slis.map(|(name, shape)| (format!("slis:{name}"), shape)));
    shapes
}

#[test]
fn upstreams_series_look_as_upstreams() {
    let (upstream, ours) = (read_snapshot(), shapes(&all_families()));
    let mut offences = Vec::new();
    for (name, theirs) in &upstream {
        match (
            NOT_OURS.iter().find(|(pattern, _)| is_named(name, pattern)),
            ours.get(name),
        ) {
            (None, Some(own)) if own == theirs => {}
            (None, Some(own)) => offences.push(format!("{name}:\n  {own}\nis not\n  {theirs}")),
            (None, None) => offences.push(format!("{name} is missing: {theirs}")),
            (Some((pattern, _)), Some(_)) => {
                offences.push(format!(
                    "{name} is ours, although {pattern} is said not to be"
                ));
            }
            (Some(_), None) => {}
        }
    }
    assert!(offences.is_empty(), "{}", offences.join("\n"));
}

#[test]
fn series_unknown_upstream_have_our_prefix() {
    let upstream = read_snapshot();
    for (name, shape) in shapes(&all_families()) {
        let is_extra = EXTRA.iter().any(|(extra, _)| *extra == name);
        let is_own = name.starts_with("replicaset_controller_") && !shape.help.starts_with('[');
        assert!(
            is_own || is_extra || upstream.contains_key(&name),
            "{name} is neither upstream's nor ours"
        );
    }
}

#[test]
fn no_series_is_named_by_an_object() {
    let labels = ["namespace", "pod", "replicaset", "uid", "owner", "node"];
    for (name, shape) in shapes(&all_families()) {
        let found = labels.iter().find(|label| shape.labels.contains(**label));
        assert_eq!(found, None, "{name} grows with the cluster");
    }
}

#[test]
fn the_manual_lists_every_metric_of_ours() {
    let page = manual::page("metrics.md");
    let upstream = read_snapshot();
    let ours = shapes(&all_families()).into_keys();
    let ours = ours.filter(|name| !upstream.contains_key(name));
    let ours =
        ours.filter_map(|name| Some(name.strip_prefix("replicaset_controller_")?.to_owned()));
    let missing: Vec<String> = ours
        .filter(|name| !page.contains(&format!("`{name}")))
        .collect();
    assert!(missing.is_empty(), "not in metrics.md: {missing:?}");
}

/// Runs promtool with `input`; says so and passes where there is none.
#[track_caller]
fn promtool(arguments: &[&str], input: &str) {
    let command = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = command else {
        let line = "no promtool in PATH (Debian: prometheus): nothing is checked with it\n";
        std::io::stderr()
            .write_all(line.as_bytes())
            .unwrap_or_default();
        return;
    };
    let mut stdin = promtool.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("promtool reads");
    drop(stdin);
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

/// Debian builds Prometheus without the discovery of pods.
fn without_discovery(mut scrape: serde_json::Value) -> serde_json::Value {
    for job in scrape["scrape_configs"].as_array_mut().expect("jobs") {
        let job = job.as_object_mut().expect("a job");
        if job.remove("kubernetes_sd_configs").is_some() {
            job.insert("static_configs".to_owned(), json!([{"targets": ["a:1"]}]));
        }
    }
    scrape
}

#[test]
fn promtool_finds_nothing_wrong() {
    let metrics = all_families();
    for text in [metrics.render(), metrics.render_slis()] {
        promtool(&["check", "metrics"], &text);
    }
    let path = |file: &str| root().join("config").join(file).display().to_string();
    promtool(&["check", "rules", &path("prometheus-rules.yaml")], "");
    // The file with the token is not on this machine.
    let file = tempfile::NamedTempFile::new().expect("a file");
    let scrape = without_discovery(manifests("monitoring/scrape-config.yaml").remove(0));
    std::fs::write(file.path(), scrape.to_string()).expect("the file is writable");
    let scrape = file.path().display().to_string();
    promtool(&["check", "config", "--syntax-only", &scrape], "");
}

#[test]
fn the_numbers_are_those_of_what_was_done() {
    let cluster = TestCluster::running();
    // Other tests of this process count into the same registry.
    let before = Exposition::read(&global().render());
    // The daemon counts an answer after the API server shows what it says.
    let grew = |name: &str, labels: &[(&str, &str)], by: f64| {
        let before = before.sum(name, labels);
        cluster.eventually(&format!("{name}{labels:?} grows by {by}"), || {
            Exposition::read(&global().render()).sum(name, labels) - before >= by
        });
    };
    let converged = "replicaset_controller_converge_seconds_count";
    cluster.create_replica_set(&new_replica_set("a", 4));
    cluster.stable("a");
    // What is asked for next takes the place of what has not been counted.
    grew(converged, &[("name", "replicaset")], 1.0);
    cluster.scale("a", 1);
    cluster.stable("a");
    let ours = ("name", "replicaset");
    grew(
        "replicaset_controller_pods_created_total",
        &[ours, ("outcome", "success")],
        4.0,
    );
    grew(
        "replicaset_controller_pods_deleted_total",
        &[ours, ("outcome", "success")],
        3.0,
    );
    grew(
        "replicaset_controller_syncs_total",
        &[ours, ("outcome", "synced")],
        2.0,
    );
    grew(
        "replicaset_controller_first_request_seconds_count",
        &[ours],
        2.0,
    );
    grew(converged, &[ours], 2.0);
    grew("workqueue_queue_duration_seconds_count", &[ours], 2.0);
    grew("workqueue_work_duration_seconds_count", &[ours], 2.0);
    grew(
        "rest_client_requests_total",
        &[("method", "POST"), ("code", "201")],
        4.0,
    );
    grew(
        "rest_client_requests_total",
        &[("method", "DELETE"), ("code", "200")],
        3.0,
    );
    grew(
        "rest_client_request_duration_seconds_count",
        &[("verb", "POST")],
        4.0,
    );
    grew(
        "rest_client_request_size_bytes_sum",
        &[("verb", "POST")],
        4.0 * 200.0,
    );
    grew(
        "rest_client_response_size_bytes_sum",
        &[("verb", "POST")],
        4.0 * 200.0,
    );
    grew(
        "informer_processing_latency_seconds_count",
        &[("resource", "pods"), ("version", "v1")],
        4.0,
    );
}

#[test]
fn the_kubernetes_version_shown_is_the_api_servers() {
    let cluster = TestCluster::start();
    let silent = Rule::new(Matcher::path("GET", "/version"), Action::Hold);
    let silent = cluster.faults().add(silent);
    let port = PlainPort::free();
    let _process = cluster.start_process(&[&port.argument()]);
    let own = format!(
        "replicaset_controller_build_info{{commit=\"\",version=\"{}\"}} 1\n",
        env!("CARGO_PKG_VERSION")
    );
    let page = || port.get("/metrics").1;
    cluster.eventually("the version of the daemon", || page().contains(&own));
    cluster.eventually("the API server is asked", || silent.hits() == 1);
    assert!(!page().contains("kubernetes_build_info{"), "{}", page());
    silent.remove();
    let version = cluster.api().send(&Request::get("/version"));
    let version = version.expect("the version of the API server");
    let version = text_at(&version, "/gitVersion");
    let version = format!("git_version=\"{version}\"");
    cluster.eventually("the version of the API server", || {
        let page = page();
        let mut lines = page.lines();
        lines.any(|line| {
            line.starts_with("kubernetes_build_info{")
                && line.contains(&version)
                && line.contains("platform=\"linux/amd64\"")
        })
    });
}

#[test]
fn gates_are_shown_unless_only_older_versions_have_them() {
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let gates = "--feature-gates=LogarithmicScaleDown=true,PodDeletionCost=false";
    let _process = cluster.start_process(&[&port.argument(), gates]);
    let mut expected = [
        (
            "ControllerManagerReleaseLeaderElectionLockOnExit",
            "ALPHA",
            1,
        ),
        ("CoordinatedLeaderElection", "BETA", 0),
        ("DeploymentReplicaSetTerminatingReplicas", "BETA", 1),
        ("PodDeletionCost", "BETA", 0),
        ("StaleControllerConsistencyReplicaSet", "BETA", 1),
        ("WatchListClient", "BETA", 1),
    ]
    .map(|(name, stage, value)| format!("{{name=\"{name}\",stage=\"{stage}\"}} {value}"));
    expected.sort();
    cluster.eventually_eq("the gates of 1.37", &expected.to_vec(), || {
        let page = port.get("/metrics").1;
        let lines = page.lines();
        let lines = lines.filter_map(|line| line.strip_prefix("kubernetes_feature_enabled"));
        let mut shown: Vec<String> = lines.map(str::to_owned).collect();
        shown.sort();
        shown
    });
}

#[test]
fn queues_and_caches_show_their_figures() {
    let cluster = TestCluster::start();
    // A process of its own: in this one other tests' daemons show and withdraw the same series.
    let port = PlainPort::free();
    let _process = cluster.start_process(&[&port.argument()]);
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    let after = Exposition::read(&port.get("/metrics").1);
    let ours = ("name", "replicaset");
    let shown = |name: &str, labels: &[(&str, &str)]| {
        let is_there = |sample: &exposition::Sample| {
            let has = |(label, value): &(&str, &str)| sample.labels[*label] == **value;
            sample.name == name && labels.iter().all(has)
        };
        assert!(
            after.samples.iter().any(is_there),
            "{name}{labels:?} is not shown"
        );
    };
    for name in [
        "depth",
        "adds_total",
        "retries_total",
        "unfinished_work_seconds",
    ] {
        shown(&format!("workqueue_{name}"), &[ours]);
    }
    for name in [
        "cache_objects",
        "watch_silence_seconds",
        "relists_total",
        "decode_failures_total",
    ] {
        shown(
            &format!("replicaset_controller_{name}"),
            &[("resource", "pods")],
        );
    }
    shown(
        "replicaset_controller_events_total",
        &[ours, ("outcome", "dropped")],
    );
    shown(
        "replicaset_controller_open_expectations",
        &[ours, ("type", "deletion")],
    );
    shown("process_resident_memory_bytes", &[]);
}
