//! The pure parts, with times in seconds before [`now`].

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::{BackOff, FAILED_POD_BACKOFF, report_back_off};
use crate::api::conditions::{Condition, REPLICA_FAILURE};
use crate::api::pod::PodFailure;
use crate::api::policy::FailedPodBackoff;
use crate::api::{Pod, PodPhase, Policy, ReplicaSet};
use crate::controller::decide::optional::failed_pods::OldFailedPods;
use crate::controller::decide::plan::Plan;
use crate::controller::decide::status::Counts;
use crate::controller::decide::status::{Failure, calculate_status};
use crate::controller::testing::{
    now, owned_pod, read_replica_set, ready_pod, replica_set, replica_set_json, seconds_ago,
};

const POLICY: FailedPodBackoff = FailedPodBackoff {
    first: Duration::from_secs(10),
    longest: Duration::from_mins(5),
};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A pod that failed so long ago, a second after its creation.
fn failed(name: &str, rs: &ReplicaSet, reason: &str, ago: i64) -> Pod {
    Pod {
        phase: PodPhase::Failed,
        creation: Some(seconds_ago(ago + 1)),
        failure: Some(Box::new(PodFailure {
            reason: reason.into(),
            at: Some(seconds_ago(ago)),
        })),
        ..owned_pod(name, rs)
    }
}

/// Pods that a node rejected so long ago, in this order.
fn rejected(rs: &ReplicaSet, ago: &[i64]) -> Vec<Pod> {
    let one = |(i, ago): (usize, &i64)| failed(&format!("r{i}"), rs, "OutOfcpu", *ago);
    ago.iter().enumerate().map(one).collect()
}

fn back_off_by(policy: FailedPodBackoff, rs: &ReplicaSet, pods: Vec<Pod>) -> Option<BackOff> {
    let selector = rs.selector.as_ref().expect("a selector");
    let pods: Vec<Arc<Pod>> = pods.into_iter().map(Arc::new).collect();
    let active: Vec<Arc<Pod>> = pods.iter().filter(|pod| pod.is_active()).cloned().collect();
    BackOff::of(policy, rs, selector, (&pods, &active), now())
}

fn back_off(rs: &ReplicaSet, pods: Vec<Pod>) -> Option<BackOff> {
    back_off_by(POLICY, rs, pods)
}

#[test]
fn the_wait_doubles_with_each_step_up_to_the_longest() {
    let rs = replica_set("web", 1);
    let mut ago = Vec::new();
    // Each trial fails a second after it was created.
    for expected in [10_i64, 20, 40, 80, 160, 300, 300] {
        for ago in &mut ago {
            *ago += expected;
        }
        ago.insert(0, 0);
        let back_off = back_off(&rs, rejected(&rs, &ago)).expect("pods failed");
        assert_eq!(back_off.wait, secs(expected.unsigned_abs()), "{ago:?}");
        assert_eq!(back_off.n_rounds, ago.len());
        assert_eq!((back_off.n_permitted, back_off.n_backed_off), (0, 1));
    }
}

#[test]
fn failures_within_the_first_wait_are_one_step() {
    let rs = replica_set("web", 10);
    let round = |ago: &[i64]| {
        let back_off = back_off(&rs, rejected(&rs, ago)).expect("pods failed");
        (
            back_off.n_failures,
            back_off.n_rounds,
            back_off.wait.as_secs(),
        )
    };
    assert_eq!(round(&[3; 10]), (10, 1, 10));
    assert_eq!(round(&[0, 4, 9]), (3, 1, 10));
    assert_eq!(round(&[0, 10]), (2, 2, 20));
    // A round begins with its own first failure, not with the one before.
    assert_eq!(round(&[0, 8, 16]), (3, 2, 20));
}

#[test]
fn evictions_count_half_and_together_with_rejections_as_those() {
    let rs = replica_set("web", 1);
    let wait = |pods: &[(&str, i64)]| {
        let pods = pods.iter().enumerate();
        let pods = pods.map(|(i, (reason, ago))| failed(&format!("p{i}"), &rs, reason, *ago));
        back_off(&rs, pods.collect()).expect("pods failed").wait
    };
    assert_eq!(wait(&[("Evicted", 0)]), secs(5));
    assert_eq!(wait(&[("Preempting", 0), ("Terminated", 20)]), secs(10));
    assert_eq!(
        wait(&[("Evicted", 0), ("OutOfcpu", 20)]).as_millis(),
        14_142
    );
    assert_eq!(wait(&[("Evicted", 0), ("OutOfcpu", 1)]), secs(10));
    for reason in [
        "NodeAffinity",
        "UnexpectedAdmissionError",
        "NodeShutdown",
        "",
    ] {
        assert_eq!(wait(&[(reason, 0)]), secs(10), "{reason}");
    }
}

#[test]
fn failures_lose_weight_with_age() {
    let rs = replica_set("web", 1);
    let window = POLICY.window();
    assert_eq!(window.as_secs(), 3544);
    let wait = |ago: i64| {
        let found = back_off(&rs, rejected(&rs, &[0, ago]));
        found.expect("pods failed").wait.as_secs()
    };
    assert_eq!([1772, 2658, 3543].map(wait), [20, 14, 10]);
    assert_eq!(back_off(&rs, rejected(&rs, &[3545])), None);
    let short = FailedPodBackoff {
        first: secs(1),
        longest: secs(4),
    };
    assert_eq!(short.window(), secs(600));
}

#[test]
fn steady_probing_at_the_longest_wait_keeps_it() {
    let rs = replica_set("web", 1);
    for (first, longest) in [(10, 300), (1, 3600), (10, 10), (10, 20), (7, 90)] {
        let policy = FailedPodBackoff {
            first: secs(first),
            longest: secs(longest),
        };
        let pause = i64::try_from(longest).expect("a short time") + 2;
        let n = i64::try_from(policy.window().as_secs()).expect("a short time") / pause;
        let ago: Vec<i64> = (0..=n).map(|i| i * pause + pause).collect();
        let back_off = back_off_by(policy, &rs, rejected(&rs, &ago)).expect("pods failed");
        assert_eq!(back_off.wait, policy.longest, "{policy}");
        assert_eq!(back_off.n_permitted, 1, "it is over by now");
    }
}

#[test]
fn the_first_pods_never_wait() {
    let rs = replica_set("web", 10);
    let permitted = |n_failed: usize, n_active: usize| {
        let mut pods = rejected(&rs, &vec![2; n_failed]);
        pods.extend((0..n_active).map(|i| owned_pod(&format!("a{i}"), &rs)));
        let back_off = back_off(&rs, pods).expect("pods failed");
        (back_off.n_permitted, back_off.n_backed_off)
    };
    assert_eq!(permitted(3, 0), (7, 3));
    assert_eq!(permitted(3, 4), (3, 3));
    assert_eq!(permitted(3, 7), (0, 3));
    assert_eq!(permitted(12, 0), (0, 10));
    // A scale-up creates its pods at once, whatever failed before.
    let larger = replica_set("web", 20);
    let found = back_off(&larger, rejected(&rs, &[2; 10])).expect("pods failed");
    assert_eq!((found.n_permitted, found.n_backed_off), (10, 10));
}

#[test]
fn the_wait_counts_from_the_last_failure_or_a_later_creation() {
    let rs = replica_set("web", 10);
    let remaining = |trial: Option<i64>| {
        let trial = trial.map(|ago| Pod {
            creation: Some(seconds_ago(ago)),
            ..owned_pod("trial", &rs)
        });
        let mut pods = rejected(&rs, &[7; 10]);
        pods.extend(trial);
        back_off(&rs, pods)
            .expect("pods failed")
            .remaining
            .as_secs()
    };
    assert_eq!(remaining(None), 3);
    assert_eq!(remaining(Some(9)), 3);
    assert_eq!(remaining(Some(5)), 5, "one trial for each wait");
}

#[test]
fn a_pod_that_turned_ready_since_ends_it() {
    let rs = replica_set("web", 3);
    let beside = |ready_ago: i64| {
        let mut pods = rejected(&rs, &[20, 40]);
        pods.push(Pod {
            ready_transition: Some(seconds_ago(ready_ago)),
            ..ready_pod("ready", &rs)
        });
        back_off(&rs, pods).map(|back_off| back_off.n_failures)
    };
    assert_eq!(beside(19), None);
    assert_eq!(
        beside(20),
        Some(1),
        "in the same second it may have been before"
    );
    assert_eq!(beside(30), Some(1));
    assert_eq!(beside(50), Some(2));
    // A pod that was Ready and is gone proves nothing.
    let mut pods = rejected(&rs, &[20]);
    pods.push(Pod {
        ready_transition: Some(seconds_ago(5)),
        phase: PodPhase::Succeeded,
        ..ready_pod("ready", &rs)
    });
    assert!(back_off(&rs, pods).is_some());
}

#[test]
fn nothing_is_over_unless_pods_are_missing_or_not_ready() {
    let rs = replica_set("web", 1);
    let mut pods = rejected(&rs, &[3]);
    pods.push(ready_pod("ready", &rs));
    assert_eq!(back_off(&rs, pods.clone()), None);
    assert_eq!(back_off(&replica_set("web", 0), rejected(&rs, &[3])), None);
    pods[1].is_ready = false;
    let probed = back_off(&rs, pods).expect("the trial is not Ready yet");
    assert_eq!(probed.n_backed_off, 0);
    assert_eq!(probed.changes_in() + secs(3), POLICY.window());
}

#[test]
fn after_a_probe_the_next_one_waits_again() {
    let rs = replica_set("web", 3);
    let due = back_off(&rs, rejected(&rs, &[40, 40, 40])).expect("pods failed");
    assert_eq!((due.n_permitted, due.n_backed_off), (1, 2));
    assert!(due.remaining.is_zero() && due.wait >= secs(10));
    assert_eq!(due.changes_in(), due.wait);
    let waits = back_off(&rs, rejected(&rs, &[3, 3, 3])).expect("pods failed");
    assert_eq!((waits.n_permitted, waits.n_backed_off), (0, 3));
    assert_eq!(waits.changes_in(), waits.remaining);
}

#[test]
fn deleted_and_foreign_pods_are_no_failures() {
    let rs = replica_set("web", 1);
    let mut deleted = failed("deleted", &rs, "", 3);
    deleted.deletion = Some(seconds_ago(0));
    let mut relabelled = failed("relabelled", &rs, "OutOfcpu", 3);
    relabelled.labels = [("type", "kept-for-debugging")].into_iter().collect();
    let mut succeeded = failed("succeeded", &rs, "", 3);
    succeeded.phase = PodPhase::Succeeded;
    succeeded.failure = None;
    assert_eq!(back_off(&rs, vec![deleted, relabelled, succeeded]), None);
}

#[test]
fn a_wrong_clock_neither_blocks_for_long_nor_hides_all_failures() {
    let rs = replica_set("web", 1);
    let remaining = |created_ago: i64, failed_ago: Option<i64>| {
        let mut pod = failed("p", &rs, "OutOfcpu", 0);
        pod.creation = Some(seconds_ago(created_ago));
        pod.failure = Some(Box::new(PodFailure {
            at: failed_ago.map(seconds_ago),
            ..PodFailure::default()
        }));
        back_off(&rs, vec![pod]).map(|back_off| back_off.remaining.as_secs())
    };
    // A kubelet that rejects a pod may report no time at all.
    assert_eq!(remaining(3, None), Some(7));
    // The node's clock is ahead, or behind.
    assert_eq!(remaining(3, Some(-1000)), Some(7));
    assert_eq!(remaining(3, Some(4000)), Some(7));
    // The daemon's own clock is behind.
    assert_eq!(remaining(-4, Some(-4)), Some(14));
    assert_eq!(remaining(-301, Some(-301)), None);
}

/// The pods that a policy deletes, and the seconds until the next one.
fn old_failed_pods(policy: &[(&str, &str)], pods: Vec<Pod>) -> (Vec<String>, Option<u64>) {
    let annotations = policy.iter();
    let annotations =
        annotations.map(|(name, value)| (format!("replicaset-controller/{name}"), *value));
    let policy = Policy::of(&annotations.collect(), &Policy::default());
    let rs = replica_set("web", 1);
    let pods: Vec<Arc<Pod>> = pods.into_iter().map(Arc::new).collect();
    let selector = rs.selector.as_ref().expect("a selector");
    let found = OldFailedPods::of(&policy, &pods, selector, now());
    let names = found.delete.iter().map(|pod| pod.key.name.to_string());
    (names.collect(), found.next_in.map(|next| next.as_secs()))
}

#[test]
fn the_newest_failed_pods_are_kept_and_the_evidence_too() {
    let rs = replica_set("web", 1);
    let pods = || rejected(&rs, &[10, 700, 200, 900, 400]);
    let check = |policy: &[(&str, &str)], names: &[&str], next: Option<u64>| {
        let (deleted, next_in) = old_failed_pods(policy, pods());
        assert_eq!(
            (&*deleted, next_in),
            (
                &*names.iter().map(ToString::to_string).collect::<Vec<_>>(),
                next
            )
        );
    };
    check(&[], &[], None);
    check(&[("failed-pods-kept", "off")], &[], None);
    check(&[("failed-pods-kept", "9")], &[], None);
    check(&[("failed-pods-kept", "3")], &["r3", "r1"], None);
    check(&[("failed-pods-kept", "0")], &["r3", "r1", "r4"], Some(100));
    let min_age = ("failed-pods-min-age", "800s");
    check(&[("failed-pods-kept", "1"), min_age], &["r3"], Some(100));
    // Hazard: the evidence that a back-off reads stays.
    let backoff = ("failed-pod-backoff", "1s..4s");
    check(
        &[("failed-pods-kept", "0"), backoff],
        &["r3", "r1"],
        Some(200),
    );
}

#[test]
fn failed_pods_with_finalizers_are_not_deleted() {
    let rs = replica_set("web", 1);
    let kept = ("failed-pods-kept", "0");
    let pod = failed("p", &rs, "Evicted", 900);
    let check = |change: fn(&mut Pod), n_expected: usize| {
        let mut pod = pod.clone();
        change(&mut pod);
        assert_eq!(old_failed_pods(&[kept], vec![pod]).0.len(), n_expected);
    };
    check(|_| {}, 1);
    // Hazards: a finalizer's owner, a deletion under way, a pod that succeeded, one that was
    // taken out of the selector to look into it, and one of unknown age.
    check(|pod| pod.has_finalizers = true, 0);
    check(|pod| pod.deletion = Some(seconds_ago(1)), 0);
    check(
        |pod| {
            pod.phase = PodPhase::Succeeded;
            pod.failure = None;
        },
        0,
    );
    check(
        |pod| pod.labels = [("type", "other")].into_iter().collect(),
        0,
    );
    check(
        |pod| {
            pod.creation = None;
            pod.failure = Some(Box::default());
        },
        0,
    );
}

/// The condition that a status gets after this one was stored, and whether it reports news.
fn reported(
    stored: Option<Condition>,
    pods: Vec<Pod>,
    failure: Option<&Failure>,
) -> (Option<Condition>, bool) {
    let mut object = replica_set_json("web", 3);
    object["status"]["conditions"] = json!([{"type": "Before", "status": "True"}]);
    let mut rs = read_replica_set(&object);
    rs.status.conditions.extend(stored);
    let back_off = back_off(&rs, pods);
    let mut status = calculate_status(&rs, &Counts::default(), failure);
    let news = report_back_off(&mut status, &rs, back_off.as_ref(), failure);
    assert_eq!(status.conditions[0].type_, "Before");
    assert!(status.conditions.len() <= 2);
    (status.conditions.get(1).cloned(), news.is_some())
}

#[test]
fn the_condition_changes_once_per_round() {
    let rs = replica_set("web", 3);
    let (first, news) = reported(None, rejected(&rs, &[5, 3]), None);
    let first = first.expect("a condition");
    assert!(news);
    assert_eq!(first.reason.as_deref(), Some(FAILED_POD_BACKOFF));
    assert_eq!(
        first.message.as_deref(),
        Some(
            "2 pods have failed, the last one on node-1 (OutOfcpu). Creating one replacement every \
             10 s until a pod is Ready"
        )
    );
    let again = reported(Some(first.clone()), rejected(&rs, &[5, 3, 2]), None);
    assert_eq!(again, (Some(first.clone()), false), "the round is the same");
    let fresh = reported(Some(first.clone()), rejected(&rs, &[15, 1]), None);
    assert_eq!(
        fresh,
        (Some(first.clone()), false),
        "a new round settles for 2 s"
    );
    assert_eq!(reported(None, rejected(&rs, &[1]), None), (None, false));
    let of_later = Condition {
        last_transition_time: Some(now()),
        ..first.clone()
    };
    let again = reported(Some(of_later.clone()), rejected(&rs, &[5, 3]), None);
    assert_eq!(again, (Some(of_later), false), "a pod of the round is gone");
    let (second, news) = reported(Some(first.clone()), rejected(&rs, &[15, 2]), None);
    let message = second.and_then(|it| it.message).expect("a message");
    assert!(
        news && message.contains("in 2 rounds") && message.contains("every 20 s"),
        "{message}"
    );
    assert_eq!(
        reported(Some(first), Vec::new(), None),
        (None, false),
        "it is over"
    );
}

#[test]
fn a_failed_request_precedes_a_back_off() {
    let rs = replica_set("web", 3);
    let failure = Failure {
        plan: Plan::Create(1),
        message: "exceeded quota".to_owned(),
        at: now(),
    };
    let (ours, _) = reported(None, rejected(&rs, &[5, 3]), None);
    let (replaced, news) = reported(ours, rejected(&rs, &[5, 3]), Some(&failure));
    let replaced = replaced.expect("a condition");
    assert_eq!(replaced.reason.as_deref(), Some("FailedCreate"));
    assert!(!news);
    let other = Condition {
        type_: REPLICA_FAILURE.to_owned(),
        status: "True".to_owned(),
        reason: Some("FailedDelete".to_owned()),
        last_transition_time: Timestamp::from_second(1).ok(),
        ..Condition::default()
    };
    let kept = reported(Some(other.clone()), rejected(&rs, &[5]), Some(&failure));
    let reason = kept.0.and_then(|it| it.reason);
    assert_eq!(reason.as_deref(), Some("FailedCreate"), "the newest");
    // Without a failed request the back-off shows again.
    let (back, news) = reported(Some(other), rejected(&rs, &[5]), None);
    assert!(news && back.is_some_and(|it| it.reason.as_deref() == Some(FAILED_POD_BACKOFF)));
}
