//! One elector against a fake lock.

mod loss;
mod rig;
mod scopes;
mod two;

use std::time::Duration;

use super::lock::not_read;
use super::{LeaderElectionOptions, LeaderElectionRecord, identity};
use crate::api::Status;
use crate::client::Fence;
use rig::{Rig, SECOND, conflict, held_by, unavailable};

#[test]
fn l_01_without_a_lease_it_is_created() {
    let mut rig = Rig::new("us");
    assert!(rig.elect());
    assert_eq!(rig.calls(), ["get", "create"]);
    let lease = rig.lease().expect("a lease");
    assert_eq!(
        (&*lease.holder_identity, lease.lease_transitions),
        ("us", 0)
    );
    assert_eq!(lease.lease_duration_seconds, 15);
    assert_eq!(lease.acquire_time, "2026-01-01T00:00:00.000000Z");
    assert_eq!(lease.acquire_time, lease.renew_time);
    assert!(rig.fence.is_open());
}

#[test]
fn l_02_l_04_an_empty_lease_is_acquired() {
    let emptied = LeaderElectionRecord {
        holder_identity: String::new(),
        ..held_by("them")
    };
    for (lease, n_transitions) in [(LeaderElectionRecord::default(), 1), (emptied, 8)] {
        let mut rig = Rig::new("us");
        rig.set_lease(&lease);
        assert!(rig.elect());
        assert_eq!(rig.calls(), ["get", "update"]);
        let lease = rig.lease().expect("a lease");
        assert_eq!(lease.lease_transitions, n_transitions);
    }
}

#[test]
fn l_05_l_07_another_holders_lease_is_acquired_once_expired() {
    let mut rig = Rig::new("us");
    rig.set_lease(&held_by("them"));
    assert!(!rig.elect());
    assert_eq!(
        rig.calls(),
        ["get"],
        "first seen just now; its own times do not count"
    );
    assert_eq!(rig.leader(), "them");
    rig.clock.advance(SECOND * 14);
    assert!(!rig.elect());
    rig.set_lease(&LeaderElectionRecord {
        renew_time: "1970-01-01T00:00:00.000000Z".to_owned(),
        ..held_by("them")
    });
    rig.clock.advance(SECOND * 14);
    assert!(
        !rig.elect(),
        "renewed by a clock that is wrong, but renewed"
    );
    rig.clock.advance(SECOND * 15);
    rig.calls();
    assert!(rig.elect());
    assert_eq!(rig.calls(), ["get", "update"]);
    let lease = rig.lease().expect("a lease");
    assert_eq!(
        (&*lease.holder_identity, lease.lease_transitions),
        ("us", 8)
    );
    let kept = (&*lease.preferred_holder, &*lease.strategy);
    assert_eq!(kept, ("heir", "OldestEmulationVersion"));
}

#[test]
fn l_08_a_lease_with_our_identity_is_renewed() {
    let mut rig = Rig::new("us");
    rig.set_lease(&held_by("us"));
    assert!(rig.elect());
    assert_eq!(rig.calls(), ["get", "update"]);
    let lease = rig.lease().expect("a lease");
    assert_eq!(lease.lease_transitions, 7);
    assert_eq!(lease.acquire_time, held_by("us").acquire_time);
    assert_ne!(lease.renew_time, held_by("us").renew_time);
}

#[test]
fn l_09_a_steady_leader_only_updates() {
    let mut rig = Rig::new("us");
    for _ in 0..4 {
        assert!(rig.elect());
        rig.clock.advance(SECOND * 2);
    }
    assert_eq!(rig.calls(), ["get", "create", "update", "update", "update"]);
    rig.refuse_once("update", conflict());
    assert!(rig.elect());
    assert_eq!(rig.calls(), ["update", "get", "update"], "the slow path");
}

/// The Lease carries whole seconds; other daemons never see a fraction.
#[test]
fn the_margin_is_never_empty() {
    let mut options = LeaderElectionOptions::new("us".to_owned(), "kube-system", "a");
    assert_eq!(
        (options.write_limit(), options.margin()),
        (SECOND * 10, SECOND * 5)
    );
    options.lease_duration = Duration::from_millis(10_900);
    options.renew_deadline = Duration::from_millis(10_800);
    assert_eq!(
        (options.write_limit(), options.margin()),
        (SECOND * 9, SECOND)
    );
}

#[test]
fn l_19_without_a_renewal_the_fence_closes_by_itself() {
    let mut rig = Rig::new("us");
    assert!(rig.elect());
    rig.refuse_always(&unavailable());
    for _ in 0..4 {
        rig.clock.advance(SECOND * 2);
        assert!(!rig.elect());
        assert!(rig.fence.is_open());
    }
    // The fence closes by the clock; no thread needs to run.
    rig.clock
        .advance((SECOND * 2).saturating_sub(Duration::from_nanos(1)));
    assert!(rig.fence.is_open());
    rig.clock.advance(Duration::from_nanos(1));
    assert!(!rig.fence.is_open());
}

#[test]
fn a_renewal_counts_from_before_it_was_sent() {
    let mut rig = Rig::new("us");
    assert!(rig.elect());
    rig.clock.advance(SECOND * 2);
    rig.set_latency(SECOND * 4);
    assert!(rig.elect());
    rig.clock
        .advance((SECOND * 6).saturating_sub(Duration::from_nanos(1)));
    assert!(rig.fence.is_open());
    rig.clock.advance(Duration::from_nanos(1));
    assert!(!rig.fence.is_open(), "ten seconds after it was sent");
}

/// The server may have written the record at any time between request and response.
#[test]
fn a_record_counts_from_when_it_was_seen() {
    let mut rig = Rig::new("us");
    rig.set_lease(&held_by("them"));
    rig.set_latency(SECOND * 5);
    assert!(!rig.elect());
    rig.set_latency(Duration::ZERO);
    rig.clock.advance(SECOND * 14);
    assert!(
        !rig.elect(),
        "19 s after the request, 14 after the response"
    );
    rig.clock.advance(SECOND);
    assert!(rig.elect());
}

/// A kube-controller-manager may use a longer or shorter duration than this daemon.
#[test]
fn a_lease_is_held_for_its_own_duration() {
    for seconds in [3, 40] {
        let mut rig = Rig::new("us");
        rig.set_lease(&LeaderElectionRecord {
            lease_duration_seconds: seconds,
            ..held_by("them")
        });
        assert!(!rig.elect());
        let almost = Duration::from_millis(u64::from(seconds.unsigned_abs()) * 1000 - 1);
        rig.clock.advance(almost);
        assert!(!rig.elect(), "{seconds}");
        rig.clock.advance(Duration::from_millis(1));
        assert!(rig.elect(), "{seconds}");
    }
}

#[test]
fn a_leader_that_reads_another_holder_closes_its_fence() {
    let mut rig = Rig::new("us");
    assert!(rig.elect());
    rig.set_lease(&held_by("them"));
    rig.refuse_once("update", conflict());
    assert!(!rig.elect());
    assert!(!rig.fence.is_open());
    assert_eq!(rig.leader(), "them");
}

#[test]
fn a_clock_jump_closes_the_fence_permanently() {
    let mut rig = Rig::new("us");
    assert!(rig.elect());
    // The machine was suspended over night; the boot clock includes that time.
    rig.clock.advance(Duration::from_hours(8));
    assert!(!rig.fence.is_open());
    rig.set_lease(&held_by("them"));
    rig.refuse_once("update", conflict());
    assert!(!rig.elect());
    assert!(!rig.fence.is_open());
}

#[test]
fn l_12_the_lease_is_released_when_the_last_write_has_ended() {
    let mut rig = Rig::new("us");
    assert!(rig.elect());
    rig.calls();
    rig.run_to_end(true);
    assert_eq!(rig.calls(), ["get", "update"]);
    let lease = rig.lease().expect("a lease");
    assert_eq!((&*lease.holder_identity, lease.lease_transitions), ("", 0));
    assert_eq!(lease.lease_duration_seconds, 1);
    assert_eq!(rig.notifications(), ["leader us", "leader "]);
    assert!(!rig.fence.is_open());
}

#[test]
fn a_lease_is_not_released_while_a_write_may_be_under_way() {
    let mut rig = Rig::new("us");
    assert!(rig.elect());
    rig.calls();
    rig.run_to_end(false);
    assert_eq!(rig.calls(), [""; 0]);
    assert_eq!(rig.lease().expect("a lease").holder_identity, "us");
}

/// The response to the create is lost, then the daemon stops.
#[test]
fn l_14_a_lease_that_may_be_ours_is_released_too() {
    let mut rig = Rig::new("us");
    rig.lose_response_once("create");
    assert!(!rig.elect());
    assert!(!rig.fence.is_open());
    rig.calls();
    rig.run_to_end(true);
    assert_eq!(rig.calls(), ["get", "update"]);
    assert_eq!(rig.lease().expect("a lease").holder_identity, "");
}

#[test]
fn a_standby_that_stops_sends_nothing() {
    let mut rig = Rig::new("us");
    rig.set_lease(&held_by("them"));
    assert!(!rig.elect());
    rig.calls();
    rig.run_to_end(true);
    assert_eq!(rig.calls(), [""; 0]);
}

#[test]
fn l_17_an_update_needs_a_read() {
    let error = not_read();
    let expected = "the request cannot be built: lease not initialized, call get or create first";
    assert_eq!(error.to_string(), expected);
    assert!(!error.leaves_outcome_open() && error.status().is_none());
}

#[test]
fn only_an_api_server_can_report_a_deleted_lease() {
    assert!(Status::new(404, "NotFound", "no").is_not_found());
    let page = Status::from_body(404, b"no");
    assert!(!page.is_not_found(), "a proxy's page");
}

#[test]
fn two_processes_have_different_identities() {
    let (ours, other) = (identity(), identity());
    assert_ne!(ours, other);
    let (host, uuid) = ours.rsplit_once('_').expect("two parts");
    assert!(!host.is_empty() && uuid.len() == 36, "{ours}");
}
