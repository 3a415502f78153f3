//! Two daemons, and the one that leads is killed, frozen, or cut off. By the API server's own record the
//! other's first write comes after the last of the first, and no pod is made twice.
//!
//! That a clock jumps cannot be shown with processes, since no test may set the machine's: see
//! `src/leader_election/tests`, where the clock is turned by hand.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use super::rig::{
    Candidate, Churn, LEASE, LEASE_AND_PAUSE, assert_one_after_the_other, cluster, holder, writes,
};
use crate::support::{Census, Kind, TestCluster, new_replica_set, uid};

/// From the first try for the lease to the first pod, on a machine that is busy.
const BUSY: Duration = Duration::from_secs(4);

/// Bytes that nothing else has at once.
const LARGE: usize = 200_000;

/// Two daemons: the first leads and has made pods, the second stands by and is warm.
struct Pair {
    // ORDER: the processes end before the cluster.
    leader: Candidate,
    standby: Candidate,
    cluster: TestCluster,
}

impl Pair {
    fn start() -> Self {
        let cluster = cluster();
        let leader = Candidate::start(&cluster, 0, &[]);
        cluster.eventually("the first leads", || leader.leads());
        let standby = Candidate::start(&cluster, 1, &[]);
        cluster.eventually("the second is warm", || standby.is_warm());
        cluster.create_replica_set(&new_replica_set("a", 2));
        cluster.stable("a");
        Self {
            leader,
            standby,
            cluster,
        }
    }

    /// Waits until the standby leads and has written.
    fn taken_over(&self) {
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

    /// Ends the churn and checks that all came out well.
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
fn l_18_killed_it_is_followed_and_no_pod_is_made_twice() {
    let mut pair = Pair::start();
    let census = Census::start(pair.cluster.api(), pair.cluster.stop());
    let churn = Churn::start(&pair.cluster, "a");
    census.wait_for_seen(40);
    pair.leader.process.kill();
    pair.taken_over();
    pair.check(churn);
}

/// The last thing that the leader did was a scale-up, and everything is still to be done when it dies.
#[test]
fn l_18_the_next_pod_comes_within_the_lease_and_a_moment() {
    let mut pair = Pair::start();
    let census = Census::start(pair.cluster.api(), pair.cluster.stop());
    pair.leader.process.kill();
    let began = Instant::now();
    let rs = pair.cluster.create_replica_set(&new_replica_set("b", 7));
    pair.cluster.scale("a", 1);
    census.wait_for_active(|n_active| n_active > 2);
    let took = began.elapsed();
    log::info!("the next pod came {took:.1?} after the kill");
    assert!(took < LEASE_AND_PAUSE + BUSY, "{took:?}");
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
    pair.taken_over();
    pair.leader.process.signal(Signal::SIGCONT);
    let status = pair.leader.process.exit_within(Duration::from_secs(10));
    assert_eq!(status.code(), Some(1), "{}", pair.leader.process.log());
    assert!(pair.leader.process.log().contains("is lost"));
    pair.check(churn);
}

#[test]
fn l_18_l_19_cut_off_it_ends_before_it_is_followed() {
    let mut pair = Pair::start();
    let churn = Churn::start(&pair.cluster, "a");
    let census = Census::start(pair.cluster.api(), pair.cluster.stop());
    census.wait_for_seen(30);
    pair.leader.relay.cut();
    let status = pair.leader.process.exit_within(Duration::from_secs(10));
    assert_eq!(status.code(), Some(1), "{}", pair.leader.process.log());
    pair.leader.relay.restore();
    pair.taken_over();
    pair.check(churn);
}

#[test]
fn stopped_it_hands_over_at_once() {
    let mut pair = Pair::start();
    let churn = Churn::start(&pair.cluster, "a");
    let census = Census::start(pair.cluster.api(), pair.cluster.stop());
    census.wait_for_seen(30);
    pair.leader.process.signal(Signal::SIGTERM);
    let status = pair.leader.process.exit_within(Duration::from_secs(10));
    assert_eq!(status.code(), Some(0), "{}", pair.leader.process.log());
    let began = Instant::now();
    pair.cluster
        .eventually("the second leads", || pair.standby.leads());
    let took = began.elapsed();
    assert!(
        took < Duration::from_millis(2500),
        "{took:?}, without waiting for the lease"
    );
    pair.taken_over();
    pair.check(churn);
}

/// Whoever edits the Lease by hand takes it away from the leader, who ends instead of writing on.
#[test]
fn a_leader_whose_lease_is_taken_ends() {
    let mut pair = Pair::start();
    let path = super::rig::lease_path(&pair.cluster, super::rig::LEASE);
    let spec = json!({"spec": {"holderIdentity": "somebody else", "leaseDurationSeconds": 3}});
    let request = replicaset_controller::client::Request::patch(path);
    let request = request.body("application/merge-patch+json", spec.to_string());
    pair.cluster.send(&request).expect("the lease is taken");
    let status = pair.leader.process.exit_within(Duration::from_secs(5));
    assert_eq!(status.code(), Some(1), "{}", pair.leader.process.log());
    let log = pair.leader.process.log();
    assert!(log.contains("it is held by somebody else"), "{log}");
    pair.cluster
        .eventually("the second leads in time", || pair.standby.leads());
    assert!(pair.cluster.get(Kind::ReplicaSets, "a").is_some());
}

/// It sleeps through the whole term of another that stops cleanly, and when it wakes, its watch of
/// ReplicaSets is behind that of pods: by what it knows then, three of five pods are too many.
#[test]
fn a_leader_that_slept_deletes_nothing_when_it_wakes() {
    let mut pair = Pair::start();
    let (cluster, leader) = (&pair.cluster, &mut pair.leader);
    // The connection on which the ReplicaSet comes, when it is larger than anything else.
    let before = leader.relay.received();
    let large = json!({"metadata": {"annotations": {"large": "x".repeat(LARGE)}}});
    cluster.api().merge_patch(Kind::ReplicaSets, "a", &large);
    let relay = &leader.relay;
    let came_on = || {
        let grown = before.iter().zip(relay.received());
        let mut grown = grown.map(|(before, now)| now - before);
        grown.position(|n_bytes| n_bytes >= LARGE)
    };
    cluster.eventually("it comes to the first", || came_on().is_some());
    relay.hold(came_on().expect("it has come"));
    leader.process.signal(Signal::SIGSTOP);
    cluster.eventually("the second leads", || pair.standby.leads());
    cluster.scale("a", 5);
    cluster.stable("a");
    let live = || -> BTreeSet<String> { cluster.live().iter().map(uid).collect() };
    let pods = live();
    assert_eq!(pods.len(), 5);
    pair.standby.process.signal(Signal::SIGTERM);
    let status = pair.standby.process.exit_within(Duration::from_secs(10));
    assert_eq!(status.code(), Some(0), "{}", pair.standby.process.log());
    assert_eq!(holder(cluster, LEASE), "");
    leader.process.signal(Signal::SIGCONT);
    cluster.holds("the five pods of before are there", || live() == pods);
    let status = leader.process.exit_within(Duration::from_secs(10));
    assert_eq!(status.code(), Some(1), "{}", leader.process.log());
    let log = leader.process.log();
    // It has read that the Lease names nobody, or its last request ran out of time while it slept.
    assert!(log.contains(" is lost: it "), "{log}");
    assert_eq!(live(), pods);
}
