//! Group K: the event recorder. Failing or slow event requests must not hold up the controller.

use std::collections::BTreeMap;

use replicaset_controller::devserver::{Action, Matcher, Rule};

use crate::support::{Setup, TestCluster, json_body, name, new_replica_set, status_error, text_at};

/// Pods of a test. Waiting for one event takes at least 10 s, for its response or for the back-off
/// after a failure, so waiting for those of all pods takes longer than any test waits.
const N_PODS: i64 = 60;

/// Number of create requests per event name.
fn n_sent(cluster: &TestCluster) -> BTreeMap<String, usize> {
    let mut sent = BTreeMap::new();
    for post in cluster.recorded("create", "events") {
        *sent.entry(name(&json_body(&post))).or_insert(0) += 1;
    }
    sent
}

/// Pods and status converge although `fault` hits all event requests.
#[track_caller]
fn check_events_block_nothing(fault: Action) {
    let cluster = TestCluster::running();
    cluster.synced();
    cluster.fault("create", "events", fault.clone());
    cluster.fault("patch", "events", fault);
    cluster.create_replica_set(&new_replica_set("a", N_PODS));
    cluster.stable("a");
    cluster.scale("a", 0);
    cluster.stable("a");
    assert!(cluster.live().is_empty());
    assert!(!n_sent(&cluster).is_empty(), "events are sent");
}

#[test]
fn k_27_hanging_events_do_not_block_syncs() {
    check_events_block_nothing(Action::Hold);
}

/// They wait behind one that hangs, and then for the rate limit.
#[test]
fn a_stop_sends_the_queued_events_first() {
    let mut setup = Setup::default();
    setup.options.kube_api_qps = 20.0;
    setup.options.kube_api_burst = 1;
    let mut cluster = TestCluster::running_with(setup);
    cluster.synced();
    let held = cluster.fault("create", "events", Action::Hold);
    cluster.create_replica_set(&new_replica_set("a", 8));
    cluster.stable("a");
    held.remove();
    cluster.stop_daemon();
    assert_eq!(cluster.events_of("a").len(), 8);
}

/// The controller creates the pod under another name, so there is no failure to report.
#[test]
fn a_pod_name_that_is_taken_causes_no_event() {
    let cluster = TestCluster::running();
    cluster.synced();
    let taken = status_error(409, "AlreadyExists", "pods \"a-x\" already exists");
    let rule = Rule::new(Matcher::verb("create", "pods"), taken);
    let rule = cluster.faults().add(rule.times(1));
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    assert_eq!(rule.hits(), 1);
    let reasons = || {
        let events = cluster.events_of("a");
        let reason = |event| text_at(event, "/reason");
        events.iter().map(reason).collect::<Vec<_>>()
    };
    // The recorder sends events in order.
    cluster.eventually("the pod's event is stored", || {
        reasons().contains(&"SuccessfulCreate".to_owned())
    });
    assert_eq!(reasons(), ["SuccessfulCreate"]);
}
