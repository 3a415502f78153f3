//! The order of the capture: first the record, then the ReplicaSet, then its pods.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

use crate::api::{Pod, ReplicaSet};
use crate::controller::decide::plan::Plan;
use crate::controller::decide::{May, Pods, View};
use crate::controller::testing::{Fixture, HookedClock, fixture, key, ready_pod, replica_set};
use crate::stdx::clock::Clock;

/// A ReplicaSet with one replica, which has been created but not shown.
fn expected() -> (Fixture, Arc<HookedClock>, ReplicaSet, Pod) {
    let (clock, rs) = (Arc::new(HookedClock::default()), replica_set("web", 1));
    let mut fixture = fixture(&rs, []);
    fixture.controller = fixture.controller_with(Arc::clone(&clock) as Arc<dyn Clock>);
    fixture.expect(&rs, ["a".into()], []);
    let pod = ready_pod("a", &rs);
    (fixture, clock, rs, pod)
}

/// Syncs, and shows the pod at the reading of the clock after this many. Returns false if the sync
/// reads the clock less often.
fn sync_interrupted(n_readings: usize) -> bool {
    let (fixture, clock, _, pod) = expected();
    let (ask, asked) = channel::<()>();
    let (answer, answered) = channel();
    let fixture = &fixture;
    thread::scope(|scope| {
        scope.spawn(move || {
            if asked.recv().is_ok() {
                fixture.deliver_pod(pod);
                answer.send(()).expect("the sync waits");
            }
        });
        clock.set(n_readings, move || {
            ask.send(()).expect("the watch thread waits");
            answered.recv().expect("the watch thread answers");
        });
        let outcome = fixture.sync("web");
        // Without the hook the thread above ends.
        let is_missed = clock.unset();
        outcome.expect("no error");
        let (creates, ..) = fixture.writes.counts();
        assert_eq!(creates, 0, "interrupted after {n_readings} readings");
        !is_missed
    })
}

#[test]
fn a_pod_shown_in_the_middle_of_a_sync_is_not_created_again() {
    let n_readings = (0..1_000).take_while(|n| sync_interrupted(*n)).count();
    // Before the record is read, between record and pods, and later.
    assert!(n_readings >= 3, "{n_readings}");
}

/// What the order prevents.
#[test]
fn a_record_read_after_the_pods_would_create_a_pod_too_many() {
    for is_right in [true, false] {
        let (fixture, _, rs, pod) = expected();
        let (controller, selector) = (&fixture.controller, rs.selector.as_ref());
        let selector = selector.expect("a valid selector");
        let list = || {
            let [owned, orphans] = fixture
                .cache
                .pods_for(&controller.owner_key(&rs), "default");
            Pods::Listed { owned, orphans }
        };
        let capture = || controller.capture_record(&key("web"));
        let (record, pods) = if is_right {
            let record = capture();
            fixture.deliver_pod(pod);
            (record, list())
        } else {
            let pods = list();
            fixture.deliver_pod(pod);
            (capture(), pods)
        };
        let view = View {
            record,
            ..controller.view_of(&rs, selector, pods)
        };
        let step = view.decide();
        if is_right {
            assert_eq!(step.plan, Plan::Nothing);
            assert!(matches!(step.may, May::Report(_)), "{:?}", step.may);
        } else {
            assert_eq!((step.plan, step.may), (Plan::Create(1), May::Act));
        }
    }
}
