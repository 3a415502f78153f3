//! Compatibility flags of kube-controller-manager, and the formats and the secrecy of the log.

use std::io::Write;

use replicaset_controller::api::Status;
use replicaset_controller::devserver::Action;
use serde_json::{Value, json};

use crate::support::{DaemonProcess, TestCluster, new_replica_set, over_tls};

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes())
        .expect("the file is writable");
    file
}

#[test]
fn a_pasted_command_line_logs_ignored_flags_once() {
    let cluster = TestCluster::start();
    let process = cluster.start_process(&[
        "--kcm-compat",
        "--cluster-cidr",
        "10.0.0.0/8",
        "--allocate-node-cidrs=true",
        "--use-service-account-credentials",
    ]);
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    let log = process.log();
    let n_logged = |words: &str| log.matches(words).count();
    let ignored = "--cluster-cidr --allocate-node-cidrs --use-service-account-credentials";
    assert_eq!(n_logged(ignored), 1, "{log}");
}

#[test]
fn json_lines_have_klogs_fields() {
    let cluster = TestCluster::start();
    let process = cluster.start_process(&["--logging-format=json"]);
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    cluster.eventually("the sync is logged", || {
        process.log().contains("\"created\":2")
    });
    let log = process.log();
    let lines = log.lines().map(serde_json::from_str::<Value>);
    let lines: Vec<Value> = lines.collect::<Result<_, _>>().expect("every line is JSON");
    for line in &lines {
        assert!(line["ts"].as_f64().is_some_and(|ts| ts > 1.7e12), "{line}");
        assert!(
            line["caller"]
                .as_str()
                .is_some_and(|at| at.contains(".rs:")),
            "{line}"
        );
        assert!(line["msg"].is_string() && line["v"] == 0, "{line}");
    }
    let subject = json!({"namespace": cluster.namespace(), "name": "a"});
    let is_sync = |line: &Value| {
        let msg = "created {created} of {wanted} pods";
        (&line["replicaSet"], &line["msg"]) == (&subject, &json!(msg))
            && (&line["created"], &line["wanted"]) == (&json!(2), &json!(2))
    };
    assert!(lines.iter().any(is_sync), "{log}");
}

#[test]
fn the_line_of_a_failed_batch_has_its_numbers() {
    if TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    let process = cluster.start_process(&["--logging-format=json"]);
    let message = "the pod violates PodSecurity";
    let reject = |verb| {
        let status = Status::new(403, "Forbidden", message);
        cluster.fault(verb, "pods", Action::reject(status))
    };
    let has_line = |done: &str| {
        let log = process.log();
        let lines = log.lines().map(serde_json::from_str::<Value>);
        let mut lines = lines.filter_map(Result::ok);
        lines.any(|line| {
            let is_its = line["err"].as_str().is_some_and(|it| it.contains(message));
            is_its && line[done] == 0 && line["wanted"] == 2 && line["nextTry"].is_string()
        })
    };
    let rule = reject("create");
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.eventually("the creates are reported", || has_line("created"));
    rule.remove();
    cluster.stable("a");
    let _rule = reject("delete");
    cluster.scale("a", 0);
    cluster.eventually("the deletes are reported", || has_line("deleted"));
}

#[test]
fn neither_tokens_nor_bodies_are_logged_at_any_level() {
    const TOKEN: &str = "token-that-nobody-may-see";
    const BODY: &str = "body-that-nobody-may-see";
    let cluster = TestCluster::start();
    let server = over_tls(&cluster);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [{"name": "test", "cluster": {
            "server": server.url(), "insecure-skip-tls-verify": true,
        }}],
        "users": [{"name": "me", "user": {"token": TOKEN}}],
        "contexts": [{"name": "here", "context": {"cluster": "test", "user": "me"}}],
    });
    let file = file(&config.to_string());
    let path = file.path().display().to_string();
    let namespace = format!("--namespace={}", cluster.namespace());
    for (name, format) in [
        ("a", "--logging-format=text"),
        ("b", "--logging-format=json"),
    ] {
        let arguments = ["--kubeconfig", &path, &namespace, "--v=10", format];
        let process = DaemonProcess::start(&arguments);
        let mut rs = new_replica_set(name, 2);
        rs["spec"]["template"]["metadata"]["annotations"] = json!({"secret": BODY});
        cluster.create_replica_set(&rs);
        cluster.stable(name);
        let log = process.log();
        for secret in [TOKEN, BODY, "BEGIN CERTIFICATE", "PRIVATE KEY", "Bearer "] {
            assert!(!log.contains(secret), "{secret} is in\n{log}");
        }
    }
}
