//! Group F: when a pod counts as available, and when the sync checks that again.

use std::sync::Arc;
use std::time::Duration;

use super::ready_since;
use crate::api::Pod;
use crate::controller::decide::Pods;
use crate::controller::decide::status::Availability;
use crate::controller::testing::{Fixture, now, owned_pod, ready_pod, rejected, replica_set};

#[test]
fn f_14_ready_without_a_time_is_available_only_at_once() {
    let pod = Pod {
        ready_transition: None,
        ..ready_since(0)
    };
    assert!(pod.is_available(0, now()));
    assert!(!pod.is_available(1, now()));
}

#[test]
fn f_30_availability_is_checked_again_when_due() {
    let (fixture, mut rs) = (Fixture::new(), replica_set("web", 4));
    rs.min_ready_seconds = 5;
    let ready = |name: &str, milliseconds| Pod {
        ready_transition: Some((now() - jiff::SignedDuration::from_millis(milliseconds)).into()),
        ..ready_pod(name, &rs)
    };
    let pods = [
        ready("a", 0),
        ready("b", 2_000),
        ready("c", 4_300),
        owned_pod("d", &rs),
    ];
    fixture.cache_silently(Some(rs.clone()), pods);
    fixture.sync_ok("web");
    let status = fixture.writes.status_updates().pop().expect("a status");
    assert_eq!((status.ready_replicas, status.available_replicas), (3, 0));
    assert_eq!(fixture.queued(), [""; 0]);
    assert_eq!(fixture.queued_after(Duration::from_millis(699)), [""; 0]);
    for (wait, available) in [(1, 1), (2_300, 2), (2_000, 3)] {
        assert_eq!(
            fixture.queued_after(Duration::from_millis(wait)),
            ["default/web"]
        );
        fixture.sync_ok("web");
        let status = fixture.writes.status_updates().pop().expect("a status");
        assert_eq!(status.available_replicas, available);
    }
    assert_eq!(fixture.queue.next_deadline(), None);
}

#[test]
fn f_31_time_until_a_pod_is_available() {
    let not_ready = Pod {
        is_ready: false,
        ..ready_since(10)
    };
    let timeless = Pod {
        ready_transition: None,
        ..ready_since(0)
    };
    for (pod, min_ready, expected) in [
        (not_ready, 1, None),
        (ready_since(0), 0, None),
        (timeless, 1, None),
        (ready_since(0), 1, Some(1)),
        (ready_since(20), 30, Some(10)),
        (ready_since(51), 50, None),
        (ready_since(50), 50, None),
    ] {
        let next = pod.available_in(min_ready, now());
        assert_eq!(next, expected.map(Duration::from_secs));
    }
}

#[test]
fn f_32_the_next_of_all_pods() {
    let unready = || Pod {
        is_ready: false,
        ..ready_since(1)
    };
    for (pods, min_ready, expected) in [
        (vec![], 10, None),
        (vec![unready()], 10, None),
        (vec![ready_since(0)], 0, None),
        (
            vec![
                unready(),
                ready_since(2),
                ready_since(0),
                ready_since(4),
                unready(),
            ],
            10,
            Some(6),
        ),
        (
            vec![ready_since(15), ready_since(11), ready_since(10)],
            10,
            None,
        ),
    ] {
        let pods: Vec<Arc<Pod>> = pods.into_iter().map(Arc::new).collect();
        let next = Availability::of(&pods, min_ready, now()).next_check;
        assert_eq!(next, expected.map(Duration::from_secs));
    }
}

#[test]
fn f_34_an_availability_check_is_scheduled_only_if_useful() {
    let timeless = Pod {
        ready_transition: None,
        ..ready_since(0)
    };
    for (pod, min_ready, fails, planned) in [
        (ready_since(1), 10, false, Some(9)),
        (ready_since(1), 10, true, None),
        (ready_since(1), 0, false, None),
        (ready_since(11), 10, false, None),
        (timeless, 10, false, Some(10)),
    ] {
        let (fixture, mut rs) = (
            Fixture::new(),
            replica_set("web", if fails { 2 } else { 1 }),
        );
        rs.min_ready_seconds = min_ready;
        fixture.cache_silently(Some(rs), [pod]);
        fixture
            .writes
            .on_create(|_, _| Some(Err(rejected(403, "Forbidden", "no"))));
        assert_eq!(fixture.sync("web").is_err(), fails);
        let now = crate::stdx::clock::Clock::now(&*fixture.clock);
        let due = fixture.queue.next_deadline().map(|due| due - now);
        assert_eq!(due, planned.map(Duration::from_secs));
    }
}

/// The API server rejects a status with more available than ready pods.
#[test]
fn available_pods_never_exceed_ready_pods() {
    let (fixture, mut rs) = (Fixture::new(), replica_set("web", 2));
    rs.min_ready_seconds = 5;
    let pods = [ready_pod("a", &rs), owned_pod("b", &rs)];
    fixture.cache_silently(Some(rs.clone()), pods);
    let selector = rs.selector.as_ref().expect("a valid one");
    let counts = fixture.controller.count_tallies(&rs, selector);
    // One pod becomes Ready again between the tallies and the visit of the pods.
    let ready = Pod {
        resource_version: "9".into(),
        ..ready_pod("b", &rs)
    };
    fixture.cache_silently(None, [ready]);
    let counts = counts.expect("the tallies are enough");
    let Pods::Counted { counts, .. } = fixture.controller.counted(&rs, counts, now()) else {
        panic!("the pods are listed");
    };
    assert_eq!((counts.ready, counts.available), (1, 1));
}
