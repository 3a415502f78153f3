//! The binary killed at any moment, and stopped while something hangs. The process is the shipped
//! one; on the real control plane it connects over TLS where a test says so.

use std::collections::HashSet;
use std::net::TcpListener;
use std::time::Duration;

use nix::sys::signal::Signal;
use replicaset_controller::devserver::{Action, Matcher, Rule};
use serde_json::Value;

use crate::support::{
    Access, Census, DaemonProcess, Setup, TestCluster, name, new_replica_set,
    new_replica_set_labelled, uid,
};

/// Within this a daemon that waits for nothing but the next event ends.
const SOON: Duration = Duration::from_secs(5);

/// Within this every daemon ends.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// How often the daemon is killed on its way.
const KILLS: usize = 6;

fn over_tls() -> TestCluster {
    TestCluster::with(Setup {
        access: Access::Certificate,
        ..Setup::default()
    })
}

/// A process that has read both lists.
fn start_synced(cluster: &TestCluster) -> DaemonProcess {
    let process = cluster.start_process(&[]);
    cluster.eventually("both lists are read", || {
        let log = process.log();
        log.contains(" pods listed in ") && log.contains(" replicasets listed in ")
    });
    process
}

#[track_caller]
fn check_ends(mut process: DaemonProcess, signal: Signal, limit: Duration) {
    process.signal(signal);
    let status = process.exit_within(limit);
    assert_eq!(status.code(), Some(0), "{}", process.log());
}

/// Three ReplicaSets of sixty pods each, and the daemon killed whenever so many pods more are there.
#[test]
fn killed_at_any_moment_it_makes_no_pod_too_many() {
    const REPLICAS: i64 = 60;
    let cluster = over_tls();
    let census = Census::start(cluster.api(), cluster.stop());
    let names = ["a", "b", "c"];
    let sets: Vec<Value> = names
        .iter()
        .map(|name| cluster.create_replica_set(&new_replica_set_labelled(name, REPLICAS, name)))
        .collect();
    let wanted = usize::try_from(REPLICAS).expect("a few") * sets.len();
    let mut moments: Vec<usize> = (0..KILLS).map(|_| fastrand::usize(1..wanted)).collect();
    moments.sort_unstable();
    for moment in &moments {
        let mut process = cluster.start_process(&[]);
        census.wait_for_seen(*moment);
        process.kill();
    }
    let process = cluster.start_process(&[]);
    for name in names {
        cluster.stable(name);
    }
    cluster.holds("as many as wanted", || census.n_active() == wanted);
    for rs in &sets {
        let most = census.most(&uid(rs));
        assert!(
            most <= wanted / sets.len(),
            "{most} pods at once, killed at {moments:?}"
        );
    }
    // More than is asked for: nothing was even made in vain.
    assert_eq!(census.n_seen(), wanted, "killed at {moments:?}");
    check_ends(process, Signal::SIGTERM, SOON);
}

/// The API server has a create in hand when the daemon dies, and carries it out when the next one has made
/// its pods.
#[test]
fn a_create_under_way_at_a_kill_makes_no_second_pod() {
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
        cluster.holds("as many as wanted", || {
            census.most(&uid(&rs)) == usize::try_from(replicas).expect("a few")
        });
        check_ends(process, Signal::SIGTERM, SOON);
    }
    assert_eq!(census.n_seen(), 4);
}

/// A daemon that begins where another ended gives no name a second time.
#[test]
fn a_pod_never_gets_the_name_of_one_before_a_restart() {
    let cluster = TestCluster::start();
    cluster.create_replica_set(&new_replica_set("a", 1));
    let mut names = HashSet::new();
    for _ in 0..4 {
        let n_statuses = || cluster.recorded("update", "replicasets/status").len();
        let n_before = n_statuses();
        let process = cluster.start_process(&[]);
        cluster.eventually("one pod", || cluster.live().len() == 1);
        cluster.eventually("a status after it", || n_statuses() > n_before);
        let name = name(&cluster.live()[0]);
        assert!(names.insert(name.clone()), "{name} again, of {names:?}");
        check_ends(process, Signal::SIGTERM, SOON);
        cluster.api().kill_pod(&name);
        cluster.eventually("it has gone", || cluster.live().is_empty());
    }
}

/// A real API server deletes a pod in two steps, and gives up between them if its client is gone;
/// such a pod is terminating until somebody else finishes it off, and counts no more.
#[test]
fn killed_in_a_scale_down_it_leaves_as_many_as_wanted() {
    let cluster = over_tls();
    let census = Census::start(cluster.api(), cluster.stop());
    cluster.create_replica_set(&new_replica_set("a", 80));
    let mut process = cluster.start_process(&[]);
    cluster.stable("a");
    cluster.scale("a", 10);
    for n_left in [70, 40, 20] {
        census.wait_for_active(|n_active| n_active <= n_left);
        process.kill();
        process = cluster.start_process(&[]);
    }
    cluster.stable("a");
    census.wait_for_active(|n_active| n_active == 10);
    cluster.holds("ten pods", || census.n_active() == 10);
    assert_eq!(census.n_seen(), 80, "none was deleted only to be replaced");
    check_ends(process, Signal::SIGTERM, SOON);
}

#[test]
fn a_quiet_daemon_ends_at_once() {
    let cluster = over_tls();
    let process = start_synced(&cluster);
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    // Both watches are blocked in a read now, over TLS on the real control plane.
    check_ends(process, Signal::SIGTERM, SOON);
}

#[test]
fn an_interrupt_from_the_keyboard_ends_it_too() {
    let cluster = TestCluster::start();
    let process = start_synced(&cluster);
    check_ends(process, Signal::SIGINT, SOON);
}

#[test]
fn a_daemon_that_gets_no_list_ends_at_once() {
    let cluster = TestCluster::start();
    let hold = cluster
        .faults()
        .add(Rule::new(Matcher::any(), Action::Hold));
    let process = cluster.start_process(&[]);
    cluster.eventually("both lists are asked for", || hold.hits() >= 2);
    check_ends(process, Signal::SIGTERM, SOON);
}

#[test]
fn a_daemon_that_waits_for_a_server_that_is_down_ends_at_once() {
    // A port that nobody listens at: it was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let cluster = TestCluster::start();
    let process = DaemonProcess::start(&["--master", &format!("http://{address}")]);
    cluster.eventually("both watches say so", || {
        process.log().matches("tries again in").count() >= 2
    });
    check_ends(process, Signal::SIGTERM, SOON);
}

#[test]
fn a_daemon_whose_requests_hang_ends_in_time() {
    let cluster = TestCluster::start();
    let process = start_synced(&cluster);
    let hold = cluster
        .faults()
        .add(Rule::new(Matcher::any(), Action::Hold));
    cluster.create_replica_set(&new_replica_set("a", 30));
    cluster.eventually("a create hangs", || hold.hits() > 0);
    check_ends(process, Signal::SIGTERM, STOP_WITHIN);
}

#[test]
fn requests_under_way_are_finished_and_their_events_written() {
    let cluster = TestCluster::start();
    let mut process = start_synced(&cluster);
    let hold = cluster.fault("create", "pods", Action::Hold);
    cluster.create_replica_set(&new_replica_set("a", 5));
    cluster.eventually("a create is under way", || hold.hits() == 1);
    process.signal(Signal::SIGTERM);
    cluster.eventually("it stops", || process.log().contains("stopping: "));
    cluster.holds("it waits for the answer", || cluster.live().is_empty());
    assert_eq!(process.try_wait(), None);
    hold.remove();
    let status = process.exit_within(SOON);
    assert_eq!(status.code(), Some(0), "{}", process.log());
    assert_eq!(cluster.live().len(), 1, "nothing is begun any more");
    assert_eq!(cluster.recorded("create", "pods").len(), 1);
    assert_eq!(cluster.events_of("a").len(), 1);
}
