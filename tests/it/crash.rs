//! Kills the binary at any moment, and stops it while requests hang. On the real control plane some
//! tests connect over TLS.

use std::collections::HashSet;
use std::net::TcpListener;

use nix::sys::signal::Signal;
use replicaset_controller::devserver::{Action, Matcher, Rule};
use serde_json::Value;

use crate::support::{
    Access, Census, DaemonProcess, Setup, TestCluster, name, new_replica_set,
    new_replica_set_labelled, uid,
};

/// How often a test kills the daemon.
const KILLS: usize = 6;

fn over_tls() -> TestCluster {
    TestCluster::with(Setup {
        access: Access::Certificate,
        ..Setup::default()
    })
}

/// Starts the daemon and waits until it has listed both resources.
fn start_synced(cluster: &TestCluster) -> DaemonProcess {
    let process = cluster.start_process(&[]);
    cluster.eventually("both resources are listed", || {
        let log = process.log();
        log.contains(" pods listed in ") && log.contains(" replicasets listed in ")
    });
    process
}

#[track_caller]
fn check_exits(mut process: DaemonProcess, signal: Signal) {
    process.signal(signal);
    let status = process.exit();
    assert_eq!(status.code(), Some(0), "{}", process.log());
}

/// Three ReplicaSets with 60 replicas each. The test kills the daemon after random numbers of
/// creates.
#[test]
fn a_daemon_killed_at_any_moment_creates_no_surplus_pod() {
    const REPLICAS: i64 = 60;
    let cluster = over_tls();
    let census = Census::start(cluster.api(), cluster.stop());
    let names = ["a", "b", "c"];
    let sets: Vec<Value> = names
        .iter()
        .map(|name| cluster.create_replica_set(&new_replica_set_labelled(name, REPLICAS, name)))
        .collect();
    let wanted = usize::try_from(REPLICAS).expect("a few") * sets.len();
    let mut kill_after: Vec<usize> = (0..KILLS).map(|_| fastrand::usize(1..wanted)).collect();
    kill_after.sort_unstable();
    for n_pods in &kill_after {
        let mut process = cluster.start_process(&[]);
        census.wait_for_seen(*n_pods);
        process.kill();
    }
    let process = cluster.start_process(&[]);
    for name in names {
        cluster.stable(name);
    }
    census.wait_for_active(|n_active| n_active == wanted);
    cluster.holds("pods as replicas", || census.n_active() == wanted);
    for rs in &sets {
        let most = census.most(&uid(rs));
        assert!(
            most <= wanted / sets.len(),
            "{most} active pods, killed after {kill_after:?}"
        );
    }
    // Stricter than required: the daemons created no pod that a later one had to delete.
    assert_eq!(census.n_seen(), wanted, "killed after {kill_after:?}");
    check_exits(process, Signal::SIGTERM);
}

/// The API server executes a create of the killed daemon after the next daemon has created its
/// pods.
#[test]
fn a_create_pending_at_a_kill_causes_no_second_pod() {
    let cluster = TestCluster::start();
    let census = Census::start(cluster.api(), cluster.stop());
    for replicas in [1, 3] {
        let name = format!("of-{replicas}");
        let creates = Matcher::verb("create", "pods");
        let rule = Rule::new(creates, Action::Hold).times(1);
        let hold = cluster.faults().add(rule);
        let rs = cluster.create_replica_set(&new_replica_set_labelled(&name, replicas, &name));
        let mut process = cluster.start_process(&[]);
        cluster.eventually("a create is under way", || hold.hits() == 1);
        process.kill();
        let process = cluster.start_process(&[]);
        cluster.stable(&name);
        hold.remove();
        let n_replicas = usize::try_from(replicas).expect("a few");
        let has_replicas = || census.most(&uid(&rs)) == n_replicas;
        cluster.eventually("pods as replicas", has_replicas);
        cluster.holds("no more pods", has_replicas);
        check_exits(process, Signal::SIGTERM);
    }
    assert_eq!(census.n_seen(), 4);
}

/// A restarted daemon does not reuse the pod names of the previous one.
#[test]
fn a_restart_does_not_reuse_pod_names() {
    let cluster = TestCluster::start();
    cluster.create_replica_set(&new_replica_set("a", 1));
    let mut names = HashSet::new();
    for _ in 0..4 {
        let n_statuses = || cluster.recorded("update", "replicasets/status").len();
        let n_before = n_statuses();
        let process = cluster.start_process(&[]);
        cluster.eventually("one pod", || cluster.live().len() == 1);
        cluster.eventually("a status update after it", || n_statuses() > n_before);
        let name = name(&cluster.live()[0]);
        assert!(names.insert(name.clone()), "{name} again, of {names:?}");
        check_exits(process, Signal::SIGTERM);
        cluster.api().kill_pod(&name);
        cluster.eventually("the pod is gone", || cluster.live().is_empty());
    }
}

/// A real API server deletes a pod in two steps and stops between them if the client disconnects.
/// Such a pod stays terminating until another request deletes it, and does not count as active.
#[test]
fn a_daemon_killed_in_a_scale_down_deletes_no_extra_pod() {
    let cluster = over_tls();
    let census = Census::start(cluster.api(), cluster.stop());
    cluster.create_replica_set(&new_replica_set("a", 80));
    let mut process = cluster.start_process(&[]);
    cluster.stable("a");
    cluster.scale("a", 10);
    for n_remaining in [70, 40, 20] {
        census.wait_for_active(|n_active| n_active <= n_remaining);
        process.kill();
        process = cluster.start_process(&[]);
    }
    cluster.stable("a");
    census.wait_for_active(|n_active| n_active == 10);
    cluster.holds("ten pods", || census.n_active() == 10);
    assert_eq!(census.n_seen(), 80, "no deleted pod was replaced");
    check_exits(process, Signal::SIGTERM);
}

#[test]
fn an_idle_daemon_stops_at_once() {
    let cluster = over_tls();
    let process = start_synced(&cluster);
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    // Both watches block in a read, over TLS on the real control plane.
    check_exits(process, Signal::SIGTERM);
}

#[test]
fn sigint_stops_the_daemon() {
    let cluster = TestCluster::start();
    let process = start_synced(&cluster);
    check_exits(process, Signal::SIGINT);
}

#[test]
fn a_daemon_without_a_list_response_stops_at_once() {
    let cluster = TestCluster::start();
    let hold = cluster
        .faults()
        .add(Rule::new(Matcher::any(), Action::Hold));
    let process = cluster.start_process(&[]);
    cluster.eventually("both lists are requested", || hold.hits() >= 2);
    check_exits(process, Signal::SIGTERM);
}

#[test]
fn a_daemon_whose_api_server_is_down_stops_at_once() {
    // A port without a listener: it was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let cluster = TestCluster::start();
    let process = DaemonProcess::start(&["--master", &format!("http://{address}")]);
    cluster.eventually("both watches log the retry", || {
        process.log().matches("retrying in").count() >= 2
    });
    check_exits(process, Signal::SIGTERM);
}

#[test]
fn a_daemon_whose_requests_hang_stops_in_time() {
    let cluster = TestCluster::start();
    let process = start_synced(&cluster);
    let hold = cluster
        .faults()
        .add(Rule::new(Matcher::any(), Action::Hold));
    cluster.create_replica_set(&new_replica_set("a", 30));
    cluster.eventually("a create hangs", || hold.hits() > 0);
    check_exits(process, Signal::SIGTERM);
}

#[test]
fn pending_requests_are_finished_and_their_events_written() {
    let cluster = TestCluster::start();
    let mut process = start_synced(&cluster);
    let hold = cluster.fault("create", "pods", Action::Hold);
    cluster.create_replica_set(&new_replica_set("a", 5));
    cluster.eventually("a create is under way", || hold.hits() == 1);
    process.signal(Signal::SIGTERM);
    cluster.eventually("the daemon is stopping", || {
        process.log().contains("shutting down")
    });
    cluster.holds("the daemon waits for the response", || {
        cluster.live().is_empty()
    });
    assert_eq!(process.try_wait(), None);
    hold.remove();
    let status = process.exit();
    assert_eq!(status.code(), Some(0), "{}", process.log());
    assert_eq!(cluster.live().len(), 1, "no further request is sent");
    assert_eq!(cluster.recorded("create", "pods").len(), 1);
    assert_eq!(cluster.events_of("a").len(), 1);
}
