//! Two daemons, of which the leader is killed, frozen, cut off or stopped. By the API server's own
//! record, the standby's first write follows the leader's last one, and no pod is created twice.
//!
//! A test cannot set the machine's clock, so the tests for clock jumps are in
//! `src/kubernetes/leader_election/tests`, with a fake clock.

use std::collections::BTreeSet;

use nix::sys::signal::Signal;
use serde_json::json;

use super::rig::{Candidate, Churn, LEASE, assert_one_after_the_other, cluster, holder, writes};
use crate::support::{Census, Kind, TestCluster, new_replica_set, uid};

/// Bytes of an event that no other event reaches.
const LARGE: usize = 200_000;

/// Two daemons: the first leads and has created pods, the second is a standby with synced caches.
struct Pair {
    // ORDER: drops the processes before the cluster.
    leader: Candidate,
    standby: Candidate,
    cluster: TestCluster,
}

impl Pair {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(arguments: &[&str]) -> Self {
        let cluster = cluster();
        let leader = Candidate::start(&cluster, 0, arguments);
        cluster.eventually("the first leads", || leader.leads());
        let standby = Candidate::start(&cluster, 1, arguments);
        cluster.eventually("the second has synced", || standby.is_warm());
        cluster.create_replica_set(&new_replica_set("a", 2));
        cluster.stable("a");
        Self {
            leader,
            standby,
            cluster,
        }
    }

    /// Waits until the standby leads and has written.
    fn wait_for_failover(&self) {
        let (cluster, user) = (&self.cluster, self.standby.user);
        cluster.eventually("the second leads", || self.standby.leads());
        cluster.eventually("the second writes", || {
            writes(cluster)
                .iter()
                .filter(|write| write.user == user)
                .count()
                > 5
        });
    }

    /// Ends the churn, and checks that the pods converge and the users' writes do not overlap.
    #[track_caller]
    fn check(self, churn: Churn) {
        drop(churn);
        self.cluster.scale("a", 5);
        self.cluster.stable("a");
        self.cluster
            .holds("five pods", || self.cluster.live().len() == 5);
        let writes = writes(&self.cluster);
        assert_one_after_the_other(&writes, self.leader.user, self.standby.user);
    }
}

#[test]
fn l_18_after_a_kill_the_standby_creates_no_pod_twice() {
    let mut pair = Pair::start();
    let census = Census::start(pair.cluster.api(), pair.cluster.stop());
    let churn = Churn::start(&pair.cluster, "a");
    census.wait_for_seen(40);
    pair.leader.process.kill();
    pair.wait_for_failover();
    pair.check(churn);
}

/// The spec changes follow the kill, so the standby must create all pods of `b`.
#[test]
fn l_18_after_a_kill_the_next_pod_waits_only_for_the_lease() {
    let mut pair = Pair::start();
    let census = Census::start(pair.cluster.api(), pair.cluster.stop());
    pair.leader.process.kill();
    let rs = pair.cluster.create_replica_set(&new_replica_set("b", 7));
    pair.cluster.scale("a", 1);
    pair.cluster.stable("a");
    pair.cluster.stable("b");
    assert_eq!(census.most(&uid(&rs)), 7);
    assert_one_after_the_other(&writes(&pair.cluster), pair.leader.user, pair.standby.user);
}

#[test]
fn l_18_a_leader_frozen_beyond_its_lease_writes_nothing() {
    let mut pair = Pair::start();
    let churn = Churn::start(&pair.cluster, "a");
    let census = Census::start(pair.cluster.api(), pair.cluster.stop());
    census.wait_for_seen(30);
    pair.leader.process.signal(Signal::SIGSTOP);
    pair.wait_for_failover();
    pair.leader.process.signal(Signal::SIGCONT);
    let status = pair.leader.process.exit();
    assert_eq!(status.code(), Some(1), "{}", pair.leader.process.log());
    assert!(pair.leader.process.log().contains("is lost"));
    pair.check(churn);
}

#[test]
fn l_18_l_19_a_leader_cut_off_exits_before_the_failover() {
    let mut pair = Pair::start();
    let churn = Churn::start(&pair.cluster, "a");
    let census = Census::start(pair.cluster.api(), pair.cluster.stop());
    census.wait_for_seen(30);
    pair.leader.relay.cut();
    let status = pair.leader.process.exit();
    assert_eq!(status.code(), Some(1), "{}", pair.leader.process.log());
    pair.leader.relay.restore();
    pair.wait_for_failover();
    pair.check(churn);
}

/// If the leader did not release its lease, the standby would wait an hour.
#[test]
fn a_stopped_leader_hands_over_at_once() {
    let mut pair = Pair::start_with(&["--leader-elect-lease-duration=1h"]);
    let churn = Churn::start(&pair.cluster, "a");
    let census = Census::start(pair.cluster.api(), pair.cluster.stop());
    census.wait_for_seen(30);
    pair.leader.process.signal(Signal::SIGTERM);
    let status = pair.leader.process.exit();
    assert_eq!(status.code(), Some(0), "{}", pair.leader.process.log());
    pair.wait_for_failover();
    pair.check(churn);
}

/// A manual edit of the Lease removes the leader as its holder. The leader must exit. Its log names
/// the identity that the Lease had, so that an operator can compare them.
#[test]
fn a_leader_that_loses_its_lease_to_an_edit_exits() {
    let mut pair = Pair::start();
    let path = super::rig::lease_path(&pair.cluster, super::rig::LEASE);
    let holder = holder(&pair.cluster, LEASE);
    let spec = json!({"spec": {"holderIdentity": "somebody else", "leaseDurationSeconds": 3}});
    let request = replicaset_controller::client::Request::patch(path);
    let request = request.body("application/merge-patch+json", spec.to_string());
    pair.cluster.send(&request).expect("the lease is patched");
    let status = pair.leader.process.exit();
    assert_eq!(status.code(), Some(1), "{}", pair.leader.process.log());
    let log = pair.leader.process.log();
    assert!(log.contains("it is held by somebody else"), "{log}");
    let namespace = pair.cluster.namespace();
    let own = format!("attempting to acquire leader lease {namespace}/{LEASE} as {holder}");
    assert!(log.contains(&own), "{log}");
    pair.cluster
        .eventually("the second leads in time", || pair.standby.leads());
    assert!(pair.cluster.get(Kind::ReplicaSets, "a").is_some());
}

/// The leader is frozen during the whole term of the standby, which then stops cleanly. When the
/// leader resumes, its watch of ReplicaSets lags behind that of pods, so by its cache there are
/// three pods too many.
#[test]
fn a_leader_that_resumes_after_a_pause_deletes_nothing() {
    let mut pair = Pair::start();
    let (cluster, leader) = (&pair.cluster, &mut pair.leader);
    // Finds the connection of the watch of ReplicaSets by an event larger than any other.
    let before = leader.relay.received();
    let large = json!({"metadata": {"annotations": {"large": "x".repeat(LARGE)}}});
    cluster.api().merge_patch(Kind::ReplicaSets, "a", &large);
    let relay = &leader.relay;
    let connection = || {
        let grown = before.iter().zip(relay.received());
        let mut grown = grown.map(|(before, now)| now - before);
        grown.position(|n_bytes| n_bytes >= LARGE)
    };
    cluster.eventually("the leader receives the event", || connection().is_some());
    relay.hold(connection().expect("the connection was found"));
    leader.process.signal(Signal::SIGSTOP);
    cluster.eventually("the second leads", || pair.standby.leads());
    cluster.scale("a", 5);
    cluster.stable("a");
    let live = || -> BTreeSet<String> { cluster.live().iter().map(uid).collect() };
    let pods = live();
    assert_eq!(pods.len(), 5);
    pair.standby.process.signal(Signal::SIGTERM);
    let status = pair.standby.process.exit();
    assert_eq!(status.code(), Some(0), "{}", pair.standby.process.log());
    assert_eq!(holder(cluster, LEASE), "");
    leader.process.signal(Signal::SIGCONT);
    cluster.holds("the same five pods", || live() == pods);
    let status = leader.process.exit();
    assert_eq!(status.code(), Some(1), "{}", leader.process.log());
    let log = leader.process.log();
    // The leader finds that the Lease has no holder, or its last request timed out during the
    // freeze.
    assert!(log.contains(" is lost: it "), "{log}");
    assert_eq!(live(), pods);
}
