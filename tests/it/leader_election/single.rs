//! One daemon and its lease: the requests for it, the fields that it writes, and those that it
//! keeps.

use std::time::Duration;

use nix::sys::signal::Signal;
use replicaset_controller::client::{ClientConfig, Request};
use replicaset_controller::devserver::{Action, ApiCall};
use replicaset_controller::leader_election::LeaderElectionOptions;
use replicaset_controller::manager::{Manager, ManagerOptions};
use replicaset_controller::stdx::stop::{Cause, Stop};
use replicaset_controller::telemetry::Health;
use serde_json::json;

use super::rig::{LEASE, TIMES, grant_lease, holder, lease, lease_path};
use crate::support::{
    DaemonProcess, Relay, TestCluster, controller_reference, last_part, new_pod, new_replica_set,
    number_at, text_at,
};

/// A cluster that records the daemon's requests, including those for its lease.
fn recording() -> TestCluster {
    let cluster = TestCluster::start();
    grant_lease(&cluster, cluster.namespace());
    cluster
}

fn start(cluster: &TestCluster) -> DaemonProcess {
    cluster.start_process(&TIMES)
}

/// Lets the lease of another holder end in a second.
fn expire(cluster: &TestCluster) {
    let patch = json!({"spec": {"leaseDurationSeconds": 1}});
    let request = Request::patch(lease_path(cluster, LEASE));
    let request = request.body("application/merge-patch+json", patch.to_string());
    cluster.send(&request).expect("the lease is patched");
}

/// The verbs of the requests for the lease so far.
fn calls(cluster: &TestCluster) -> Vec<String> {
    let requests = cluster.faults().recorder().requests();
    let leases = requests
        .into_iter()
        .filter(|recorded| recorded.request.resource() == "leases");
    // The real API server's authorizer sees a new grant with a short delay.
    let allowed = leases.filter(|recorded| recorded.code() != Some(403));
    allowed
        .map(|recorded| recorded.request.verb().to_owned())
        .collect()
}

#[test]
fn l_01_l_09_l_12_l_14_the_lifecycle_of_a_lease() {
    let cluster = recording();
    let process = start(&cluster);
    cluster.eventually("the daemon leads", || {
        process.log().contains("successfully acquired lease")
    });
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    cluster.eventually("the daemon renews", || calls(&cluster).len() >= 5);
    let leading = lease(&cluster, LEASE).expect("a lease");
    let identity = text_at(&leading, "/spec/holderIdentity");
    assert!(
        identity.contains('_'),
        "{identity} is not <hostname>_<uuid>"
    );
    assert_eq!(number_at(&leading, "/spec/leaseDurationSeconds"), 30);
    assert_eq!(number_at(&leading, "/spec/leaseTransitions"), 0);
    for time in ["/spec/acquireTime", "/spec/renewTime"] {
        let time = text_at(&leading, time);
        let digits = time.split('.').nth(1).unwrap_or_default();
        assert_eq!(digits.len(), "123456Z".len(), "{time}");
    }
    process.signal(Signal::SIGTERM);
    let mut process = process;
    let status = process.exit();
    assert_eq!(status.code(), Some(0), "{}", process.log());
    let released = lease(&cluster, LEASE).expect("a lease");
    assert_eq!(text_at(&released, "/spec/holderIdentity"), "");
    assert_eq!(number_at(&released, "/spec/leaseDurationSeconds"), 1);
    assert_eq!(number_at(&released, "/spec/leaseTransitions"), 0);
    let calls = calls(&cluster);
    assert_eq!(calls[..2], ["get", "create"], "{calls:?}");
    let (renewals, release) = calls[2..].split_at(calls.len() - 4);
    assert!(renewals.iter().all(|verb| verb == "update"), "{calls:?}");
    assert_eq!(release, ["get", "update"], "{calls:?}");
    let events: Vec<(String, String)> = cluster
        .events_of(LEASE)
        .iter()
        .map(|event| (text_at(event, "/reason"), text_at(event, "/message")))
        .collect();
    let event = |what: &str| ("LeaderElection".to_owned(), format!("{identity} {what}"));
    assert_eq!(events, [event("became leader"), event("stopped leading")]);
    assert!(!process.log().contains("panicked"));
}

#[test]
fn a_dry_run_does_not_join_the_election() {
    let cluster = recording();
    let mut arguments = TIMES.to_vec();
    arguments.push("--dry-run");
    let process = cluster.start_process(&arguments);
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.eventually("the dry run logs its decision", || {
        process.log().contains("would create 2 pods")
    });
    // A leader beside it writes.
    let leader = start(&cluster);
    cluster.stable("a");
    assert!(leader.log().contains("successfully acquired lease"));
    process.signal(Signal::SIGTERM);
    let mut process = process;
    let status = process.exit();
    assert_eq!(status.code(), Some(0), "{}", process.log());
    assert!(!process.log().contains("lease"), "{}", process.log());
}

/// The standby syncs its caches but writes nothing while the lease is held. Once the lease has
/// expired, it leads and does the work that has accumulated.
#[test]
fn l_04_l_05_l_07_a_standby_waits_for_the_lease_to_expire() {
    let cluster = recording();
    let taken = json!({
        "metadata": {"name": LEASE, "labels": {"of": "others"}, "annotations": {"also": "theirs"}},
        "spec": {
            "holderIdentity": "another", "leaseDurationSeconds": 3600, "leaseTransitions": 4,
            "strategy": "OldestEmulationVersion",
        },
    });
    let path = lease_path(&cluster, LEASE);
    let collection = path.trim_end_matches(LEASE).trim_end_matches('/');
    let request = Request::post(collection).body("application/json", taken.to_string());
    cluster.send(&request).expect("the other holder's lease");
    let process = start(&cluster);
    cluster.eventually("the standby logs the leader", || {
        process.log().contains(" is held by another; ")
    });
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.eventually("both resources are listed", || {
        let log = process.log();
        log.contains(" pods listed in ") && log.contains(" replicasets listed in ")
    });
    assert_eq!(holder(&cluster, LEASE), "another");
    assert_eq!((cluster.n_writes(), cluster.live().len()), (0, 0));
    let calls = calls(&cluster);
    assert!(calls.iter().all(|verb| verb == "get"), "{calls:?}");
    expire(&cluster);
    cluster.stable("a");
    let ours = lease(&cluster, LEASE).expect("a lease");
    assert_ne!(text_at(&ours, "/spec/holderIdentity"), "another");
    assert_eq!(number_at(&ours, "/spec/leaseTransitions"), 5);
    // A real API server drops the field unless coordinated leader election is enabled.
    if !TestCluster::is_real() {
        assert_eq!(text_at(&ours, "/spec/strategy"), "OldestEmulationVersion");
    }
    assert_eq!(text_at(&ours, "/metadata/labels/of"), "others");
    assert_eq!(text_at(&ours, "/metadata/annotations/also"), "theirs");
}

/// A new leader does not repeat creates of the previous leader that its cache does not show yet.
#[test]
fn a_new_leader_repeats_no_unseen_create() {
    let cluster = recording();
    let path = lease_path(&cluster, LEASE);
    let collection = path.trim_end_matches(LEASE).trim_end_matches('/');
    let taken = json!({
        "metadata": {"name": LEASE},
        "spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600},
    });
    let request = Request::post(collection).body("application/json", taken.to_string());
    cluster.send(&request).expect("the other holder's lease");
    let process = start(&cluster);
    let rs = cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.eventually("both resources are listed", || {
        let log = process.log();
        log.contains(" pods listed in ") && log.contains(" replicasets listed in ")
    });
    // The previous leader's last pods, hidden from the standby by a held watch.
    let hold = cluster.hold_watch("pods");
    for name in ["a-1", "a-2"] {
        let mut pod = new_pod(name);
        pod["metadata"]["ownerReferences"] = json!([controller_reference(&rs)]);
        cluster.create_pod(&pod);
    }
    expire(&cluster);
    cluster.eventually("the daemon leads", || {
        process.log().contains("successfully acquired lease")
    });
    cluster.holds("no pod is created", || cluster.live().len() == 2);
    assert_eq!(cluster.recorded("create", "pods").len(), 0);
    hold.remove();
    cluster.stable("a");
    assert_eq!(cluster.recorded("create", "pods").len(), 0);
    let lists = cluster.recorded("list", "pods");
    assert!(lists.iter().all(|list| last_part(list) == "pods"));
}

/// Each request for the lease takes more than a quarter of the renew deadline, and lists never end.
#[test]
fn a_leader_keeps_its_lease_on_a_slow_api_server() {
    let cluster = recording();
    let slow = Action::Delay(Duration::from_millis(5200));
    let rules = ["get", "create", "update"].map(|verb| cluster.fault(verb, "leases", slow.clone()));
    let lists = cluster.fault("list", "pods", Action::Hold);
    let mut process = start(&cluster);
    cluster.eventually("the daemon leads", || {
        process.log().contains("successfully acquired lease")
    });
    cluster.eventually("the daemon renews", || calls(&cluster).len() >= 7);
    assert!(process.try_wait().is_none(), "{}", process.log());
    assert!(!process.log().contains("is lost"), "{}", process.log());
    for rule in rules.iter().chain([&lists]) {
        rule.remove();
    }
}

#[test]
fn a_lost_lease_ends_the_daemon_despite_pending_requests() {
    let cluster = recording();
    let mut process = start(&cluster);
    cluster.eventually("the daemon leads", || {
        process.log().contains("successfully acquired lease")
    });
    let held = cluster.fault("create", "pods", Action::Hold);
    cluster.create_replica_set(&new_replica_set("a", 2));
    let creates = || cluster.recorded("create", "pods");
    cluster.eventually("a create is pending", || !creates().is_empty());
    let taken = json!({"spec": {"holderIdentity": "another", "leaseDurationSeconds": 60}});
    let request = Request::patch(lease_path(&cluster, LEASE));
    let request = request.body("application/merge-patch+json", taken.to_string());
    cluster.send(&request).expect("the lease is patched");
    let status = process.exit();
    assert_eq!(status.code(), Some(1), "{}", process.log());
    assert!(!process.log().contains("did not end within"));
    held.remove();
}

/// A worker cannot end in time, as it waits for a connection that is neither established nor
/// refused.
///
/// Dev server only: the order in which a daemon stops does not depend on the API server.
#[test]
fn the_lease_is_kept_while_a_worker_may_still_write() {
    if TestCluster::is_real() {
        return;
    }
    let cluster = recording();
    let target = cluster.url();
    let target = target.trim_start_matches("http://").trim_end_matches('/');
    let relay = Relay::start(target.parse().expect("an address"), cluster.stop());
    let config = ClientConfig::plain(&format!("http://{}", relay.address()));
    let options = ManagerOptions {
        namespace: Some(cluster.namespace().to_owned()),
        stop_within: Duration::from_secs(2),
        leader_election: Some(LeaderElectionOptions {
            retry_period: Duration::from_millis(500),
            ..LeaderElectionOptions::new("us".to_owned(), cluster.namespace(), LEASE)
        }),
        ..ManagerOptions::default()
    };
    let stop = Stop::new();
    let health = Health::default();
    let manager = Manager::start(&config, &options, &health, &stop);
    let manager = manager.expect("a valid configuration");
    for resource in ["pods", "replicasets"] {
        let watches = || !cluster.recorded("watch", resource).is_empty();
        cluster.eventually("the daemon watches", watches);
    }
    cluster.eventually("the daemon leads", || holder(&cluster, LEASE) == "us");
    let full = relay.stop_accepting();
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.holds("no pod is created", || cluster.live().is_empty());
    stop.stop(Cause::Requested("the test stops the daemon".to_owned()));
    let stuck = manager.wait().expect_err("a worker is stuck");
    assert!(stuck.contains("sync-"), "{stuck}");
    cluster.holds("the lease is kept", || holder(&cluster, LEASE) == "us");
    drop(full);
}
