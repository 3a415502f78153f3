//! Which ReplicaSets a table looks at closely.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::api::{Pod, PodPhase, ReplicaSet, ReplicaSetStatus};
use crate::controller::ReplicaSetController;
use crate::controller::testing::{
    Fixture, lost, owned_pod, pod, read_replica_set, ready_pod, rejected, replica_set,
    replica_set_json, seconds_ago, with_status,
};
use crate::explain::{Report, Sources, report};
use crate::stdx::clock::Clock;

impl ReplicaSetController {
    /// Checks that a ReplicaSet without a line in the table has nothing to report. The cache must
    /// not change meanwhile.
    #[track_caller]
    pub(super) fn check_settled(&self, now: Timestamp) {
        let mut unsettled = Vec::new();
        self.inspector().inspect_unsettled(None, &mut |facts| {
            unsettled.push(facts.replica_set.key.clone());
        });
        for rs in self.cache.replica_sets.list() {
            if !unsettled.contains(&rs.key) {
                let facts = self
                    .inspector()
                    .inspect(&rs.key)
                    .expect("it is in the cache");
                let report = report(&facts, &Sources::default(), now);
                assert!(report.has_converged(), "{report}");
            }
        }
    }
}

/// The reports on the ReplicaSets whose state is collected.
fn unsettled(fixture: &Fixture) -> Vec<Report> {
    let mut reports = Vec::new();
    let now = fixture.clock.wall();
    let take = &mut |facts: &_| reports.push(report(facts, &Sources::default(), now));
    fixture.controller.inspector().inspect_unsettled(None, take);
    reports
}

/// Checks whether `rs` with these pods is looked at closely.
#[track_caller]
fn check(rs: &ReplicaSet, pods: impl IntoIterator<Item = Pod>, is_unsettled: bool) {
    let fixture = Fixture::new();
    fixture.cache_silently(Some(rs.clone()), pods);
    let reports = unsettled(&fixture);
    assert_eq!(reports.len(), usize::from(is_unsettled), "{reports:?}");
    fixture.controller.check_settled(fixture.clock.wall());
}

#[test]
fn what_the_tallies_show_as_settled_is_skipped() {
    let rs = replica_set("web", 1);
    let ready = || ready_pod("a", &rs);
    let foreign = Pod {
        labels: [("type", "other")].into_iter().collect(),
        ..pod("orphan")
    };
    check(&replica_set("web", 0), [], false);
    check(&rs, [ready()], false);
    check(&rs, [ready(), foreign], false);

    check(&rs, [], true);
    check(&rs, [owned_pod("a", &rs)], true);
    check(&rs, [ready(), ready_pod("b", &rs)], true);
    check(&rs, [ready(), pod("orphan")], true);
    let failed = Pod {
        phase: PodPhase::Failed,
        ..owned_pod("b", &rs)
    };
    check(&rs, [ready(), failed], true);
    let going = Pod {
        deletion: Some(seconds_ago(60)),
        ..owned_pod("b", &rs)
    };
    check(&rs, [ready(), going], true);
    let stray = Pod {
        labels: [("type", "other")].into_iter().collect(),
        ..ready()
    };
    check(&rs, [stray], true);

    let mut slow = rs.clone();
    slow.min_ready_seconds = 60;
    check(&slow, [ready()], true);
    let mut terminating = rs.clone();
    terminating.deletion = Some(seconds_ago(0));
    check(&terminating, [ready()], true);
    let mut object = replica_set_json("web", 1);
    object["spec"]["selector"] = json!({"matchExpressions": [{"key": "a", "operator": "x"}]});
    check(&read_replica_set(&object), [ready()], true);
    let mut object = replica_set_json("web", 1);
    object["status"]["conditions"] = json!([{"type": "ReplicaFailure", "status": "True"}]);
    check(&read_replica_set(&object), [ready()], true);
    let mut object = replica_set_json("web", 1);
    object["metadata"]["annotations"] = json!({"replicaset-controller/scale-down-order": "zone"});
    check(&read_replica_set(&object), [ready()], true);
}

#[test]
fn what_the_daemon_remembers_is_looked_at() {
    let rs = replica_set("web", 1);
    let fixture = Fixture::new();
    fixture.cache_silently(Some(rs.clone()), [ready_pod("a", &rs)]);
    assert_eq!(unsettled(&fixture).len(), 0);
    fixture.expect(&rs, ["b".into()], []);
    assert_eq!(unsettled(&fixture).len(), 1);
    fixture.see_creation(&rs, "b");
    assert_eq!(unsettled(&fixture).len(), 0);
    fixture.queue.add(rs.key.clone());
    assert_eq!(unsettled(&fixture).len(), 1, "it waits in the queue");
    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    fixture
        .writes
        .on_update_status(|_, _| Some(Err(rejected(500, "InternalError", "a hiccup"))));
    let key = fixture.queue.try_get().expect("it waits");
    fixture.process(&key);
    let reports = unsettled(&fixture);
    assert!(reports[0].reason().0.contains("a hiccup"), "{reports:?}");
}

#[test]
fn the_facts_for_a_table_give_the_findings_of_the_whole_report() {
    let rs = replica_set("web", 3);
    let fixture = Fixture::new();
    let pods = [ready_pod("a", &rs), owned_pod("b", &rs), pod("orphan")];
    fixture.cache_silently(Some(rs.clone()), pods);
    let reports = unsettled(&fixture);
    let facts = fixture
        .controller
        .inspector()
        .inspect(&rs.key)
        .expect("it is cached");
    let whole = report(&facts, &Sources::default(), fixture.clock.wall());
    assert_eq!(reports[0].reason(), whole.reason());
    let counts = |report: &Report| (report.active, report.ready, report.available);
    assert_eq!(counts(&reports[0]), counts(&whole));
}

#[test]
fn a_namespace_can_be_asked_for() {
    let fixture = Fixture::new();
    fixture.cache_silently(Some(replica_set("web", 1)), []);
    let controller = &fixture.controller;
    let mut n = 0;
    assert_eq!(
        controller
            .inspector()
            .inspect_unsettled(Some("default"), &mut |_| n += 1),
        1
    );
    assert_eq!(
        controller
            .inspector()
            .inspect_unsettled(Some("other"), &mut |_| n += 1),
        0
    );
    assert_eq!(n, 1);
}

#[test]
fn a_status_that_differs_from_the_spec_has_not_converged() {
    let two_ready = ReplicaSetStatus {
        replicas: 2,
        available_replicas: 2,
        observed_generation: 1,
        ..ReplicaSetStatus::default()
    };
    let check = |rs: ReplicaSet, status: &ReplicaSetStatus, expected: usize| {
        let fixture = Fixture::new();
        fixture.cache_silently(Some(with_status(&rs, status.clone())), []);
        assert_eq!(
            fixture.controller.inspector().n_not_converged(),
            expected,
            "{rs:?} {status:?}"
        );
    };
    check(replica_set("web", 2), &two_ready, 0);
    check(replica_set("web", 3), &two_ready, 1);
    let one_available = ReplicaSetStatus {
        available_replicas: 1,
        ..two_ready.clone()
    };
    check(replica_set("web", 2), &one_available, 1);
    let mut newer = replica_set("web", 2);
    newer.generation = 2;
    check(newer, &two_ready, 1);
    let mut terminating = replica_set("web", 3);
    terminating.deletion = Some(seconds_ago(0));
    check(terminating, &two_ready, 0);
}

#[test]
fn the_pods_of_all_owners_are_counted_for_consolidation_only() {
    for (order, n_counted) in [("consolidate", Some(&2)), ("spread", None)] {
        let mut object = replica_set_json("web", 1);
        object["metadata"]["annotations"]["replicaset-controller/scale-down-order"] = order.into();
        let rs = read_replica_set(&object);
        let on_node = |pod: Pod| Pod {
            node: Some("node-1".into()),
            ..pod
        };
        let pods = [on_node(owned_pod("a", &rs)), on_node(pod("other"))];
        let fixture = Fixture::new();
        fixture.cache_silently(Some(rs.clone()), pods);
        let facts = fixture
            .controller
            .inspector()
            .inspect(&rs.key)
            .expect("it is cached");
        assert_eq!(facts.per_node.get("node-1"), n_counted, "{order}");
    }
}

#[test]
fn each_replica_set_in_back_off_counts_once() {
    let (web, db) = (replica_set("web", 1), replica_set("db", 0));
    let fixture = Fixture::new();
    for rs in [&web, &db] {
        fixture.cache_silently(Some(rs.clone()), []);
        fixture.writes.set_live_replica_set(Ok(rs.clone()));
    }
    let n = || fixture.controller.inspector().n_in_back_off();
    assert_eq!(n(), 0);
    let refuse = || rejected(403, "Forbidden", "a policy");
    fixture.writes.on_create(move |_, _| Some(Err(refuse())));
    fixture.process(&web.key);
    assert_eq!(n(), 1, "its create is rejected");
    let hiccup = || rejected(500, "InternalError", "a hiccup");
    fixture
        .writes
        .on_update_status(move |_, _| Some(Err(hiccup())));
    fixture.process(&db.key);
    assert_eq!(n(), 2, "its status is rejected");
    fixture.controller.queue.forget_all();
    assert_eq!(n(), 1);
}

/// No pod can appear any more, and none is missing.
#[test]
fn a_lost_create_that_is_not_needed_is_over_at_last() {
    let fixture = Fixture::new();
    fixture.cache_silently(Some(replica_set("web", 1)), []);
    fixture.writes.on_create(|_, _| Some(Err(lost())));
    fixture.sync("web").expect_err("the response is lost");
    let mut rs = replica_set("web", 0);
    rs.resource_version = "2".into();
    fixture.cache_silently(Some(rs.clone()), []);
    assert_eq!(unsettled(&fixture).len(), 1);
    fixture
        .clock
        .advance(Duration::from_mins(5) + Duration::from_millis(1));
    assert_eq!(unsettled(&fixture).len(), 0);
    fixture.process(&rs.key);
    let has_record = fixture.controller.memories.get(&rs, |_| ());
    assert_eq!(has_record, None, "no record of a settled ReplicaSet stays");
}
