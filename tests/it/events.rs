//! The event recorder as seen from outside (group K): it writes what it can and holds up nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use replicaset_controller::devserver::{Action, Matcher, Rule};

use crate::support::{
    TestCluster, internal_error, json_body, name, new_replica_set, refusal, text_at,
};

/// A scale-up and a scale-down of a few pods take milliseconds, and on a machine with other work seconds; one
/// event that is waited for takes ten at least, for its answer or the pause after a failure.
const NORMAL_TIME: Duration = Duration::from_secs(10);

/// How often each event was sent, by its name.
fn n_sent(cluster: &TestCluster) -> BTreeMap<String, usize> {
    let mut sent = BTreeMap::new();
    for post in cluster.recorded("create", "events") {
        *sent.entry(name(&json_body(&post))).or_insert(0) += 1;
    }
    sent
}

/// Pods and status converge in normal time whatever becomes of the events.
#[track_caller]
fn check_events_hold_up_nothing(fault: Action) {
    let cluster = TestCluster::running();
    cluster.synced();
    cluster.fault("create", "events", fault.clone());
    cluster.fault("patch", "events", fault);
    let began = Instant::now();
    cluster.create_replica_set(&new_replica_set("a", 20));
    cluster.stable("a");
    cluster.scale("a", 0);
    cluster.stable("a");
    assert!(
        began.elapsed() < NORMAL_TIME,
        "it took {:?}",
        began.elapsed()
    );
    assert!(cluster.live().is_empty());
    assert!(!n_sent(&cluster).is_empty(), "events were tried");
}

#[test]
fn k_27_events_that_hang_hold_up_nothing() {
    check_events_hold_up_nothing(Action::Hold);
}

#[test]
fn k_27_events_that_fail_hold_up_nothing() {
    check_events_hold_up_nothing(internal_error("no events"));
}

#[test]
fn k_27_events_that_get_no_answer_hold_up_nothing() {
    check_events_hold_up_nothing(Action::CutBefore);
}

/// The pod comes under another name, so there is nothing to report.
#[test]
fn a_name_that_is_taken_makes_no_event() {
    let cluster = TestCluster::running();
    cluster.synced();
    let taken = refusal(409, "AlreadyExists", "pods \"a-x\" already exists");
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
    // Events are sent in the order in which they are recorded.
    cluster.eventually("the pod's event is there", || {
        reasons().contains(&"SuccessfulCreate".to_owned())
    });
    assert_eq!(reasons(), ["SuccessfulCreate"]);
}

#[test]
fn k_09_an_event_that_is_refused_is_not_sent_again() {
    let cluster = TestCluster::running();
    let invalid = refusal(422, "Invalid", "Event \"e\" is invalid");
    let rule = Rule::new(Matcher::verb("create", "events"), invalid);
    let rule = cluster.faults().add(rule.times(1));
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.eventually_eq("two events are sent", &2, || n_sent(&cluster).len());
    cluster.holds("once each", || {
        n_sent(&cluster).values().copied().eq([1, 1])
    });
    assert_eq!(rule.hits(), 1);
    assert_eq!(cluster.events_of("a").len(), 1);
}

/// The first wait between two tries is random, up to ten seconds.
#[test]
fn k_09_an_event_that_got_no_answer_is_sent_again() {
    let cluster = TestCluster::running();
    let rule = Rule::new(Matcher::verb("create", "events"), Action::CutBefore);
    cluster.faults().add(rule.times(1));
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    cluster.eventually_eq("both events are there", &2, || cluster.events_of("a").len());
    let sent: Vec<usize> = n_sent(&cluster).into_values().collect();
    assert_eq!(sent.iter().sum::<usize>(), 3, "{sent:?}");
    assert_eq!(sent.iter().max(), Some(&2), "the same event: {sent:?}");
}

/// What the API server stored although its answer was lost is there already the second time.
#[test]
fn k_09_an_event_whose_answer_was_lost_is_there_once() {
    let cluster = TestCluster::running();
    let rule = Rule::new(Matcher::verb("create", "events"), Action::CutAfter);
    cluster.faults().add(rule.times(1));
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    cluster.eventually_eq("three are sent", &3, || {
        n_sent(&cluster).values().sum::<usize>()
    });
    cluster.eventually_eq("both events are there", &2, || cluster.events_of("a").len());
    cluster.holds("no more are sent", || {
        n_sent(&cluster).values().sum::<usize>() == 3
    });
}

/// Each create of many makes an event of the same kind: the tenth begins a summary that counts the
/// rest, and the spam filter ends that.
#[test]
fn k_22_k_26_many_events_of_a_kind_become_one() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 60));
    cluster.stable("a");
    let summaries = || {
        let mut events = cluster.events_of("a");
        events.retain(|event| {
            text_at(event, "/message").starts_with("(combined from similar events): Created pod: ")
        });
        events
    };
    cluster.eventually_eq(
        "a summary of what the spam filter lets pass",
        &[16].into(),
        || {
            let counts = summaries();
            let counts = counts.iter().map(|event| event["count"].as_i64());
            counts.flatten().collect::<Vec<i64>>()
        },
    );
    assert_eq!(cluster.events_of("a").len(), 10);
    cluster.holds("nothing more is sent", || {
        cluster.recorded("create", "events").len() == 10
            && cluster.recorded("patch", "events").len() == 15
    });
}
