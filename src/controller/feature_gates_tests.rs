//! Each gate at both values.

use std::cmp::Ordering;
use std::sync::Arc;

use super::FeatureGates;
use crate::api::Pod;
use crate::controller::decide::deletion_order::{DeletionOrder, RankedPod, compare};
use crate::controller::decide::optional::Marks;
use crate::controller::memory::history::SyncEnd;
use crate::controller::testing::{
    Fixture, deletes, now, owned_pod, ready_pod, replica_set, seconds_ago,
};
use crate::writes::WrittenPod;

#[test]
fn m_12_without_pod_deletion_cost_the_other_rules_choose() {
    for (pod_deletion_cost, goes) in [(true, "cheap"), (false, "crowded")] {
        let gates = FeatureGates {
            pod_deletion_cost,
            ..FeatureGates::default()
        };
        let (fixture, rs) = (Fixture::with_gates(gates), replica_set("web", 1));
        let cheap = Pod {
            deletion_cost: -1,
            ..ready_pod("cheap", &rs)
        };
        let crowded = Pod {
            ready_transition: Some(seconds_ago(1)),
            ..ready_pod("crowded", &rs)
        };
        fixture.cache_silently(Some(rs.clone()), [cheap, crowded]);
        fixture.sync_ok("web");
        assert_eq!(deletes(&fixture), [goes], "{gates:?}");
        let facts = fixture
            .controller
            .inspector()
            .inspect(&rs.key)
            .expect("in the cache");
        assert_eq!(facts.rules.uses_deletion_cost, pod_deletion_cost);
    }
}

#[test]
fn e_12_without_pod_deletion_cost_the_rank_decides() {
    let ranked = |deletion_cost, rank| RankedPod {
        pod: Arc::new(Pod {
            deletion_cost,
            ..Pod::default()
        }),
        rank,
    };
    let (cheap, dear) = (ranked(10, 1), ranked(100, 2));
    for (uses_deletion_cost, expected) in [(true, Ordering::Less), (false, Ordering::Greater)] {
        let order = DeletionOrder {
            now: now(),
            uses_deletion_cost,
            marks: Marks::Ignored,
        };
        assert_eq!(compare(&cheap, &dear, order), expected);
    }
}

#[test]
fn m_22_without_the_gate_no_status_counts_terminating_pods() {
    for (terminating_replicas, expected) in [(true, Some(1)), (false, None)] {
        let gates = FeatureGates {
            terminating_replicas,
            ..FeatureGates::default()
        };
        let (fixture, mut rs) = (Fixture::with_gates(gates), replica_set("web", 1));
        // A status from a time when the gate had the other value.
        rs.status.terminating_replicas = if terminating_replicas { None } else { Some(1) };
        rs.status.replicas = 1;
        rs.status.fully_labeled_replicas = 1;
        rs.status.observed_generation = 1;
        let going = Pod {
            deletion: Some(seconds_ago(0)),
            ..owned_pod("going", &rs)
        };
        fixture.cache_silently(Some(rs.clone()), [going, owned_pod("stays", &rs)]);
        fixture.sync_ok("web");
        let updates = fixture.writes.status_updates();
        assert_eq!(updates.len(), 1, "{gates:?}");
        assert_eq!(updates[0].terminating_replicas, expected, "{gates:?}");
        fixture.controller.check_tally_counts(&rs.key);
    }
}

#[test]
fn h_15_without_the_gate_own_writes_are_not_waited_for() {
    for (stale_controller_consistency, outcome, n_statuses) in
        [(true, SyncEnd::TooEarly, 0), (false, SyncEnd::Synced, 1)]
    {
        let gates = FeatureGates {
            stale_controller_consistency,
            ..FeatureGates::default()
        };
        let (fixture, rs) = (Fixture::with_gates(gates), replica_set("web", 2));
        fixture.deliver_replica_set(rs.clone());
        fixture.deliver_bookmarks("10", "20");
        fixture.writes.on_create(|call, _| {
            let resource_version = format!("{}", 11 + call).as_str().into();
            Some(Ok(WrittenPod {
                resource_version,
                ..WrittenPod::default()
            }))
        });
        fixture.sync_ok("web");
        assert_eq!(fixture.writes.created().len(), 2);
        fixture.writes.take();
        // The cache shows neither the pods nor the status.
        assert_eq!(fixture.sync("web").expect("no error"), outcome, "{gates:?}");
        fixture.assert_counts(0, 0, 0);
        assert_eq!(fixture.writes.status_updates().len(), n_statuses);
        assert_eq!(fixture.open(&rs), Some((2, 0)), "{gates:?}");
        let facts = fixture
            .controller
            .inspector()
            .inspect(&rs.key)
            .expect("in the cache");
        let memory = facts.memory.expect("that of a controller");
        let is_reported = memory.waits_for.is_some();
        assert_eq!(is_reported, stale_controller_consistency);
    }
}
