//! How a leader loses or releases its lease, and how a standby treats a Lease without a holder.

use std::time::Duration;

use super::rig::{Rig, SECOND, Server, conflict, held_by, unavailable};
use crate::client::Fence;
use crate::leader_election::{Election, LeaderElectionOptions, LeaderElectionRecord};

/// A Lease as client-go's release leaves it.
fn released() -> LeaderElectionRecord {
    let now = "2026-01-01T00:01:00.000000Z".to_owned();
    LeaderElectionRecord {
        holder_identity: String::new(),
        lease_duration_seconds: 1,
        acquire_time: now.clone(),
        renew_time: now,
        ..held_by("")
    }
}

/// Runs an elector whose Lease changes right before its first renewal.
#[track_caller]
fn loses(change: fn(&mut Server), why: &str) {
    let mut rig = Rig::new("us");
    rig.before("update", change);
    // If the elector did not lose it, the next write would stop the elector.
    rig.before("create", |_| ());
    for call in ["create", "update"] {
        let stop = rig.stops();
        rig.before(call, |_| stop());
    }
    rig.run();
    let why = format!("stopped: the lease kube-system/a is lost: {why}");
    assert_eq!(rig.notifications().last(), Some(&why));
    assert!(!rig.fence.is_open());
    assert_eq!(rig.calls(), ["get", "create", "update", "get"]);
}

#[test]
fn a_renewal_never_acquires() {
    let no_holder = "it has no holder";
    loses(|server| server.set(&released()), no_holder);
    loses(Server::empty, no_holder);
    loses(|server| server.lease = None, no_holder);
    let them = "it is held by them";
    loses(|server| server.set(&held_by("them")), them);
}

/// A standby that saw `them` hold the Lease for 15 s, three seconds ago.
fn standby() -> Rig {
    let mut rig = Rig::new("us");
    rig.set_lease(&held_by("them"));
    assert!(!rig.elect());
    rig.clock.advance(SECOND * 3);
    rig
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let mut rig = standby();
    rig.set_lease(&released());
    assert!(rig.elect());
}

/// The holder may not know yet, and may have renewed right before.
#[test]
fn a_standby_waits_out_a_vanished_lease() {
    for change in [Rig::delete_lease, Rig::empty_lease] {
        let mut rig = standby();
        change(&rig);
        assert!(!rig.elect());
        rig.clock.advance(Duration::from_millis(14_999));
        assert!(!rig.elect());
        rig.clock.advance(Duration::from_millis(1));
        assert!(rig.elect());
        assert!(rig.fence.is_open());
    }
}

#[test]
fn a_release_never_empties_a_successors_lease() {
    let mut rig = Rig::new("us");
    assert!(rig.elect());
    rig.calls();
    // Another daemon takes the Lease between the read and the update.
    rig.before("update", |server| server.set(&held_by("them")));
    rig.release();
    assert_eq!(rig.calls(), ["get", "update", "get"]);
    assert_eq!(rig.lease().expect("a lease"), held_by("them"));
}

#[test]
fn a_release_is_repeated_until_the_renew_deadline() {
    let mut rig = Rig::new("us");
    assert!(rig.elect());
    rig.calls();
    for _ in 0..5 {
        // For example, a user labels the Lease.
        rig.before("update", |server| {
            let (record, _) = server.lease.clone().expect("a lease");
            server.set(&record);
        });
    }
    rig.release();
    assert_eq!(rig.calls().len(), 12);
    assert_eq!(rig.lease().expect("a lease").holder_identity, "");

    let mut rig = Rig::new("us");
    assert!(rig.elect());
    rig.calls();
    rig.set_latency(SECOND);
    rig.refuse_always(&conflict());
    rig.release();
    assert_eq!(rig.calls(), ["get"; 10], "a renew deadline in all");
}

#[test]
fn a_daemon_stopped_while_it_acquires_never_starts() {
    let mut rig = Rig::new("us");
    let stop = rig.stops();
    rig.before("create", |_| stop());
    rig.run();
    assert_eq!(rig.notifications(), ["leader us", "leader "]);
    assert_eq!(rig.lease().expect("a lease").holder_identity, "");
}

/// No write is allowed after the deadline, so longer requests are pointless.
#[test]
fn a_leader_that_cannot_renew_ends_at_its_deadline() {
    let mut rig = Rig::new("us");
    assert!(rig.elect());
    rig.limits();
    rig.clock.advance(SECOND * 7);
    rig.refuse_always(&unavailable());
    assert!(!rig.elect());
    assert_eq!(rig.limits(), [SECOND * 3; 2], "not 5 s");
}

#[test]
fn a_failed_renewal_is_repeated_before_the_deadline() {
    let options = LeaderElectionOptions::new("us".to_owned(), "kube-system", "a");
    let mut election = Election::new(options);
    let Some(record) = election.on_read(None, Duration::ZERO, "") else {
        panic!("the lease is free");
    };
    election.on_written(record, Duration::ZERO, Duration::ZERO);
    for (has_failed, now, expected) in [
        (false, 0, 2),
        (false, 1, 1),
        (false, 5, 0),
        (true, 5, 2),
        (true, 9, 1),
        (true, 10, 0),
    ] {
        let pause = election.pause(has_failed, SECOND * now);
        assert_eq!(pause, SECOND * expected, "{has_failed} at {now}");
    }
}

#[test]
fn a_failed_renewal_does_not_cost_the_lease() {
    let mut rig = Rig::new("us");
    rig.meanwhile("update", rig.fails());
    rig.before("update", |_| ());
    let stop = rig.stops();
    rig.before("update", |_| stop());
    rig.run();
    let notifications = rig.notifications();
    assert_eq!(notifications, ["leader us", "started", "leader "]);
    let calls = ["get", "create", "update", "get", "update"];
    assert_eq!(rig.calls()[..5], calls);
}

/// Requests that take 4 s each, with a timeout of 5 s.
#[test]
fn slow_requests_do_not_cost_the_lease() {
    let mut rig = Rig::new("us");
    rig.set_latency(SECOND * 4);
    let stop = rig.stops();
    for _ in 0..9 {
        rig.before("update", |_| ());
    }
    rig.before("update", |_| stop());
    rig.run();
    let notifications = rig.notifications();
    assert_eq!(notifications, ["leader us", "started", "leader "]);
}
