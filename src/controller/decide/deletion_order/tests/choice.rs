//! Group E: which pods are chosen. Whole syncs are in `act/tests.rs`.

use std::sync::Arc;

use crate::api::policy::ScaleDownOrder;
use crate::api::{Pod, PodPhase};
use crate::controller::decide::deletion_order::{
    DeletionContext, DeletionOrder, NodeCounts, RelatedPods, pods_to_delete,
};
use crate::controller::decide::optional::Marks;
use crate::controller::decide::plan::{BURST_REPLICAS, Plan, plan};
use crate::controller::testing::{now, owned_pod, ready_pod, replica_set, seconds_ago};

#[derive(Debug)]
struct Related(Vec<Arc<Pod>>);

impl RelatedPods for Related {
    fn related_pods(&self) -> Vec<Arc<Pod>> {
        self.0.clone()
    }

    fn active_pods_per_node(&self) -> NodeCounts {
        panic!("upstream's order reads no pods of other owners")
    }
}

/// Must not be called, because the choice needs no sort.
#[derive(Debug)]
struct Unused;

impl RelatedPods for Unused {
    fn related_pods(&self) -> Vec<Arc<Pod>> {
        panic!("only a sort needs related pods")
    }

    fn active_pods_per_node(&self) -> NodeCounts {
        panic!("only a sort needs pods per node")
    }
}

fn choose(
    pods: &[Pod],
    count: usize,
    related: &dyn RelatedPods,
    unresolved: &[&str],
) -> Vec<String> {
    let pods: Vec<Arc<Pod>> = pods.iter().cloned().map(Arc::new).collect();
    let context = DeletionContext {
        related_pods: related,
        unresolved: &unresolved
            .iter()
            .map(|uid| (*uid).into())
            .collect::<Vec<_>>(),
        order: DeletionOrder {
            now: now(),
            uses_deletion_cost: true,
            marks: Marks::Ignored,
        },
        preferences: ScaleDownOrder::default(),
        rs: &replica_set("web", 1),
    };
    let chosen = pods_to_delete(&pods, count, &context);
    chosen.iter().map(|pod| pod.key.name.to_string()).collect()
}

#[track_caller]
fn check(pods: &[Pod], count: usize, chosen: &[&str]) {
    assert_eq!(choose(pods, count, &Related(Vec::new()), &[]), chosen);
}

fn ready(name: &str, node: &str) -> Pod {
    Pod {
        node: Some(node.into()),
        ..ready_pod(name, &replica_set("web", 1))
    }
}

fn running(name: &str) -> Pod {
    owned_pod(name, &replica_set("web", 1))
}

fn pending(name: &str, node: Option<&str>) -> Pod {
    Pod {
        phase: PodPhase::Pending,
        node: node.map(Into::into),
        ..running(name)
    }
}

#[test]
fn the_difference_is_made_up_within_the_burst() {
    for (active, replicas, expected) in [
        (0, 0, Plan::Nothing),
        (2, 2, Plan::Nothing),
        (0, 3, Plan::Create(3)),
        (5, 3, Plan::Delete(2)),
        (1, 502, Plan::Create(500)),
        (1, 501, Plan::Create(500)),
        (501, 0, Plan::Delete(500)),
        (1, -1, Plan::Delete(1)),
        (0, i32::MAX, Plan::Create(500)),
    ] {
        assert_eq!(
            plan(active, replicas, BURST_REPLICAS),
            expected,
            "{active} of {replicas}"
        );
    }
}

#[test]
fn e_15_no_pods_yield_no_choice() {
    assert_eq!(choose(&[], 0, &Unused, &[]), [""; 0]);
}

#[test]
fn e_16_all_of_them_stay_in_their_order() {
    let mixed = [
        ready("a", "node-1"),
        running("b"),
        pending("c", None),
        ready("d", "node-2"),
        pending("e", Some("node-1")),
        running("f"),
    ];
    assert_eq!(
        choose(&mixed, 6, &Unused, &[]),
        ["a", "b", "c", "d", "e", "f"]
    );
    assert_eq!(
        choose(&mixed, 7, &Unused, &["uid-f"]),
        ["a", "b", "c", "d", "e", "f"]
    );
}

#[test]
fn e_17_those_that_are_not_ready_are_deleted_first() {
    check(&[ready("a", "n"), running("b")], 1, &["b"]);
    check(
        &[ready("a", "n"), running("b"), running("c")],
        2,
        &["b", "c"],
    );
}

#[test]
fn e_18_unscheduled_before_pending_before_running() {
    check(&[pending("a", Some("n")), pending("b", None)], 1, &["b"]);
    check(&[running("a"), pending("b", Some("n"))], 1, &["b"]);
}

#[test]
fn e_19_the_crowded_node_loses_pods_first() {
    let pods = [ready("a", "node-1"), ready("b", "node-2")];
    let related = Related(
        [
            ready("r1", "node-1"),
            ready("r2", "node-2"),
            ready("r3", "node-2"),
        ]
        .map(Arc::new)
        .into(),
    );
    assert_eq!(choose(&pods, 1, &related, &[]), ["b"]);
}

#[test]
fn e_22_only_active_pods_make_a_node_crowded() {
    let pods = [ready("a", "node-1"), ready("b", "node-2")];
    let failed = Pod {
        phase: PodPhase::Failed,
        ..ready("r1", "node-2")
    };
    let going = Pod {
        deletion: Some(seconds_ago(0)),
        ..ready("r2", "node-2")
    };
    let related = Related([failed, going, ready("r3", "node-1")].map(Arc::new).into());
    assert_eq!(choose(&pods, 1, &related, &[]), ["a"]);
}

#[test]
fn pods_whose_deletion_may_have_happened_precede_all_others() {
    let pods = [running("a"), ready("b", "n"), ready("c", "n"), running("d")];
    let related = Related(Vec::new());
    assert_eq!(choose(&pods, 1, &Unused, &["uid-c"]), ["c"]);
    assert_eq!(choose(&pods, 2, &related, &["uid-c"]), ["c", "a"]);
    assert_eq!(choose(&pods, 1, &Unused, &["uid-c", "uid-b"]), ["c"]);
    assert_eq!(choose(&pods, 1, &related, &["uid-unknown"]), ["a"]);
}
