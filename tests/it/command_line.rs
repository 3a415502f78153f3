//! The binary as its operator meets it on a cluster: signals, log, threads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use replicaset_controller::client::Request;
use replicaset_controller::devserver::Action;
use replicaset_controller::stdx::stop::Stop;
use serde_json::{Value, json};

use crate::support::{DaemonProcess, Kind, TestCluster, Waiting, new_replica_set, text_at};
use crate::tidy::root;

/// Waits until the process has read both lists.
#[track_caller]
fn synced(cluster: &TestCluster, process: &DaemonProcess) {
    cluster.eventually("both lists are read", || {
        let log = process.log();
        log.contains(" pods listed in ") && log.contains(" replicasets listed in ")
    });
}

#[track_caller]
fn check_ends(mut process: DaemonProcess, code: i32) {
    process.signal(Signal::SIGTERM);
    let status = process.exit();
    assert_eq!(status.code(), Some(code), "{}", process.log());
}

/// A kubeconfig file.
fn kubeconfig(
    server: &str,
    authority: Option<&str>,
    token: Option<&str>,
) -> tempfile::NamedTempFile {
    let mut cluster = json!({"server": server});
    if let Some(authority) = authority {
        cluster["certificate-authority"] = json!(authority);
    }
    let user = token.map_or(json!({}), |token| json!({"token": token}));
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "other",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "test", "user": "me"}}],
    });
    let mut file = tempfile::NamedTempFile::new().expect("a file for the kubeconfig");
    let text = config.to_string();
    file.write_all(text.as_bytes())
        .expect("room for a kubeconfig");
    file
}

#[test]
fn a_kubeconfig_and_a_context_are_enough() {
    let cluster = TestCluster::start();
    let file = kubeconfig(&cluster.url(), None, None);
    let path = file.path().display().to_string();
    let namespace = format!("--namespace={}", cluster.namespace());
    let process = DaemonProcess::start(&["--kubeconfig", &path, "--context=here", &namespace]);
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.stable("a");
    check_ends(process, 0);
}

/// The manifest that install.md of the manual names, for this namespace in place of its own.
fn namespaced_rbac(namespace: &str) -> Vec<Value> {
    let text = fs::read_to_string(root().join("config/rbac-namespace.yaml"));
    let text = text.expect("the manifest").replace("shop", namespace);
    serde_saphyr::from_multiple(&text).expect("the manifest is YAML")
}

/// On the dev server, which knows no rights, this shows no more than that the token does no harm.
#[test]
fn with_rights_in_one_namespace_it_controls_that_namespace() {
    let cluster = TestCluster::start();
    let mut token = None;
    if TestCluster::is_real() {
        for object in namespaced_rbac(cluster.namespace()) {
            let path = match text_at(&object, "/kind").as_str() {
                "ServiceAccount" => cluster.collection(Kind::ServiceAccounts),
                kind => format!(
                    "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/{}s",
                    cluster.namespace(),
                    kind.to_lowercase()
                ),
            };
            let request = Request::post(path).body("application/json", object.to_string());
            cluster
                .send(&request)
                .expect("the administrator may do this");
        }
        let account = "replicaset-controller/token";
        let request = Request::post(cluster.path(Kind::ServiceAccounts, account)).body(
            "application/json",
            r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}"#,
        );
        let answer = cluster.send(&request).expect("the account is there");
        token = Some(text_at(&answer, "/status/token"));
    }
    let (server, authority) = match std::env::var("CONTROL_PLANE_URL") {
        Ok(url) => (url, std::env::var("CONTROL_PLANE_CA").ok()),
        Err(_) => (cluster.url(), None),
    };
    let file = kubeconfig(&server, authority.as_deref(), token.as_deref());
    let path = file.path().display().to_string();
    let common = ["--kubeconfig", &path, "--context=here"];
    if TestCluster::is_real() {
        let without = DaemonProcess::start(&common);
        cluster.eventually("it may not watch the whole cluster", || {
            let log = without.log();
            let rejection = |resource| format!("cannot watch resource \"{resource}\"");
            log.contains(&rejection("pods")) && log.contains(&rejection("replicasets"))
        });
        check_ends(without, 0);
    }
    let namespace = format!("--namespace={}", cluster.namespace());
    let process = DaemonProcess::start(&[&common[..], &[&namespace]].concat());
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.stable("a");
    cluster.scale("a", 1);
    cluster.stable("a");
    cluster.eventually_eq("events", &5, || cluster.events_of("a").len());
    let log = process.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    check_ends(process, 0);
}

#[test]
fn sighup_and_sigusr1_are_served_and_the_daemon_runs_on() {
    let cluster = TestCluster::start();
    let mut process = cluster.start_process(&[]);
    synced(&cluster, &process);
    for (signal, answer) in [
        (Signal::SIGHUP, "SIGHUP: "),
        (Signal::SIGUSR1, "thread ctrl-c "),
    ] {
        for n in 1..=2 {
            process.signal(signal);
            cluster.eventually("it answers", || process.log().matches(answer).count() >= n);
        }
    }
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    assert_eq!(process.try_wait(), None);
    check_ends(process, 0);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let cluster = TestCluster::start();
    let mut process = cluster.start_process(&[]);
    synced(&cluster, &process);
    let hold = cluster.fault("create", "pods", Action::Hold);
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.eventually("a create is under way", || hold.hits() == 1);
    process.signal(Signal::SIGTERM);
    cluster.eventually("it stops", || process.log().contains("shutting down"));
    cluster.holds("it waits for the answer", || {
        fs::exists(format!("/proc/{}/fd", process.id())).is_ok_and(|exists| exists)
    });
    assert_eq!(process.try_wait(), None);
    process.signal(Signal::SIGTERM);
    let status = process.exit();
    assert_eq!(status.code(), Some(1), "{}", process.log());
    assert!(!process.log().contains("did not end within"));
}

/// As `timeout` of GNU sends them: one to the process, one to its group.
#[test]
fn two_signals_at_once_are_one() {
    let cluster = TestCluster::start();
    let process = cluster.start_process(&[]);
    synced(&cluster, &process);
    let hold = cluster.fault("create", "pods", Action::Hold);
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.eventually("a create is under way", || hold.hits() == 1);
    process.signal(Signal::SIGTERM);
    process.signal(Signal::SIGINT);
    cluster.eventually("it stops", || process.log().contains("shutting down"));
    hold.remove();
    check_ends(process, 0);
}

/// A daemon that is started with `arguments` reads from `fifo` for ever, until it gets a signal.
#[track_caller]
fn check_start_hangs_and_ends(fifo: &Path, arguments: &[&str]) {
    let mut process = DaemonProcess::start(arguments);
    // A FIFO opens for writing only while a process reads it, and has no end while it is open.
    let writer = RefCell::new(None);
    Waiting::new(&Stop::new()).eventually("it reads", || {
        let mut options = fs::OpenOptions::new();
        let options = options.write(true).custom_flags(nix::libc::O_NONBLOCK);
        *writer.borrow_mut() = options.open(fifo).ok();
        writer.borrow().is_some()
    });
    assert_eq!(process.try_wait(), None);
    process.signal(Signal::SIGTERM);
    let status = process.exit();
    assert_eq!(status.code(), Some(0), "{}", process.log());
}

#[test]
fn a_signal_ends_a_start_that_hangs() {
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo is there").success());
    let path = fifo.display().to_string();
    check_start_hangs_and_ends(&fifo, &["run", "--kubeconfig", &path]);

    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "it", "user": {"tokenFile": path}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    });
    let file = folder.path().join("config");
    fs::write(&file, config.to_string()).expect("room for a kubeconfig");
    let file = file.display().to_string();
    check_start_hangs_and_ends(&fifo, &["run", "--kubeconfig", &file]);
}

/// The levels of all lines of a daemon that has made a few pods.
fn levels(arguments: &[&str]) -> BTreeMap<String, usize> {
    let cluster = TestCluster::start();
    let process = cluster.start_process(arguments);
    synced(&cluster, &process);
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    let mut levels = BTreeMap::new();
    for line in process.log().lines() {
        let level = line.split_whitespace().nth(1).unwrap_or_default();
        *levels.entry(level.to_owned()).or_insert(0) += 1;
    }
    check_ends(process, 0);
    levels
}

#[test]
fn v_raises_the_level_of_the_log() {
    let known = ["INFO", "DEBUG", "TRACE"];
    for (arguments, shown) in [
        (&[][..], 1),
        (&["-v"][..], 2),
        (&["-vv"][..], 3),
        (&["--v=2"][..], 1),
    ] {
        let levels = levels(arguments);
        for (number, level) in known.into_iter().enumerate() {
            let is_shown = levels.contains_key(level);
            assert_eq!(is_shown, number < shown, "{arguments:?}: {levels:?}");
        }
    }
}

#[test]
fn a_quiet_cluster_logs_nothing() {
    let cluster = TestCluster::start();
    let process = cluster.start_process(&[]);
    synced(&cluster, &process);
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.stable("a");
    cluster.eventually_eq("events", &3, || cluster.events_of("a").len());
    let log = process.log();
    let n_lines = log.lines().count();
    assert!(n_lines <= 6, "start, two lists, and what was done:\n{log}");
    for line in log.lines() {
        let thread = line.split(['[', ']']).nth(1).unwrap_or_default();
        assert!(!thread.is_empty(), "no thread in {line}");
        assert!(line.contains(" INFO  ["), "{line}");
    }
    let name = format!("replicaset={}/a", cluster.namespace());
    assert!(log.contains(&name), "{log}");
    cluster
        .waiting()
        .holds_for(Duration::from_secs(4), "no new line", || {
            process.log() == log
        });
    check_ends(process, 0);
}

#[test]
fn every_thread_has_its_name() {
    let cluster = TestCluster::start();
    let arguments = ["--concurrent-replicaset-syncs=2", "--batch-parallelism=3"];
    let process = cluster.start_process(&arguments);
    synced(&cluster, &process);
    cluster.create_replica_set(&new_replica_set("a", 10));
    cluster.stable("a");
    let expected = [
        "batch-0",
        "batch-1",
        "batch-2",
        "ctrl-c",
        "delay",
        "events",
        "replicaset-cont",
        "self-check",
        "signal",
        "sync-0",
        "sync-1",
        "watch-pods",
        "watch-quotas",
        "watch-rs",
    ]
    .map(str::to_owned)
    .to_vec();
    let threads = || process.thread_names();
    cluster.eventually_eq("the threads that last", &expected, threads);
    cluster.holds("they stay the same", || threads() == expected);
    check_ends(process, 0);
}
