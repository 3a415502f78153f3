//! Protection as a pure function of pods, spec, policy, condition and time.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::{Block, Marks, PROTECTED_PODS, PROTECTED_TIMEOUT, show_block};
use crate::api::conditions::{Condition, SCALE_DOWN_BLOCKED};
use crate::api::workload_kind::REPLICA_SET;
use crate::api::{Pod, Policy, ReplicaSet, ScaleDownMark, Uid};
use crate::controller::decide::deletion_order::{NodeCounts, RelatedPods};
use crate::controller::decide::plan::Plan;
use crate::controller::decide::status::calculate_status;
use crate::controller::decide::{Pods, Rules, Step, View};
use crate::controller::memory::RecordView;
use crate::controller::testing::{now, ready_pod, replica_set};

#[derive(Debug)]
struct NoRelated;

impl RelatedPods for NoRelated {
    fn related_pods(&self) -> Vec<Arc<Pod>> {
        Vec::new()
    }

    fn active_pods_per_node(&self) -> NodeCounts {
        NodeCounts::default()
    }
}

/// A letter per pod: `n` for `never`, `f` for `first`, `u` for an unreadable mark, `.` for none.
/// The pods are called `a`, `b`, `c` and so on.
fn pods(rs: &ReplicaSet, marks: &str) -> Vec<Arc<Pod>> {
    let pod = |(name, mark): (char, char)| Pod {
        scale_down: match mark {
            'n' => ScaleDownMark::Never,
            'f' => ScaleDownMark::First,
            'u' => ScaleDownMark::Unreadable,
            _ => ScaleDownMark::None,
        },
        ..ready_pod(&name.to_string(), rs)
    };
    let pods = ('a'..='z').zip(marks.chars()).map(pod);
    pods.map(Arc::new).collect()
}

fn on() -> Policy {
    Policy {
        scale_down_protection: true,
        ..Policy::default()
    }
}

fn with_timeout(timeout: Duration) -> Policy {
    Policy {
        protected_timeout: Some(timeout),
        ..on()
    }
}

/// As if the scale-down had been blocked for this long.
fn blocked_for(rs: &mut ReplicaSet, seconds: i64) {
    rs.status.conditions = vec![Condition {
        type_: SCALE_DOWN_BLOCKED.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(now() - SignedDuration::from_secs(seconds)),
        reason: Some(PROTECTED_PODS.to_owned()),
        ..Condition::default()
    }];
}

fn decide(rs: &ReplicaSet, marks: &str, policy: Policy, unresolved: &[&str]) -> Step {
    decide_within(rs, marks, policy, unresolved, 500)
}

fn decide_within(
    rs: &ReplicaSet,
    marks: &str,
    policy: Policy,
    unresolved: &[&str],
    burst_replicas: usize,
) -> Step {
    let facts = View {
        rs,
        selector: rs.selector.as_ref().expect("a selector"),
        pods: Pods::Listed {
            owned: pods(rs, marks),
            orphans: Vec::new(),
        },
        related_pods: Box::new(NoRelated),
        record: RecordView {
            unknown_deletions: unresolved.iter().map(|uid| Uid::new(uid)).collect(),
            // The number is not what is tested here.
            unknowns_are_compared: true,
            ..RecordView::default()
        },
        rules: Rules {
            burst_replicas,
            policy,
            ..Rules::by_default(&REPLICA_SET, rs)
        },
        now: now(),
    };
    facts.decide()
}

fn names(decision: &Step) -> String {
    let names = decision.delete.iter().map(|pod| pod.key.name.to_string());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.concat()
}

/// With `replicas` desired, exactly these pods are deleted, and this many surplus ones are kept.
#[track_caller]
fn check(marks: &str, replicas: i32, policy: Policy, deleted: &str, kept: usize) {
    let decision = decide(&replica_set("web", replicas), marks, policy, &[]);
    assert_eq!(names(&decision), deleted, "{marks} to {replicas}");
    let n_kept = decision.effects.block.as_ref().map_or(0, Block::n_kept);
    assert_eq!(n_kept, kept, "{marks} to {replicas}");
    let expected = match deleted.len() {
        0 => Plan::Nothing,
        n => Plan::Delete(n),
    };
    assert_eq!(decision.plan, expected);
}

#[test]
fn without_protection_marks_have_no_effect() {
    let unmarked = decide(&replica_set("web", 1), "....", Policy::default(), &[]);
    let marked = decide(&replica_set("web", 1), "nfun", Policy::default(), &[]);
    assert_eq!(names(&marked), names(&unmarked));
    assert_eq!(marked.effects.block, None);
    check("nnn", 0, Policy::default(), "abc", 0);
}

#[test]
fn never_is_not_chosen_and_first_comes_first() {
    check("n..", 1, on(), "bc", 0);
    check("n.f", 2, on(), "c", 0);
    check("nf.f", 2, on(), "bd", 0);
    // An invalid annotation counts as absent.
    check("nuuf", 3, on(), "d", 0);
    check("nu", 1, on(), "b", 0);
}

#[test]
fn surplus_protected_pods_block_a_scale_down() {
    check("nn.", 1, on(), "c", 1);
    check("nn", 1, on(), "", 1);
    check("nn", 2, on(), "", 0);
    // No short cut deletes all.
    check("nnn", 0, on(), "", 3);
    check("n.n.", 0, on(), "bd", 2);
    check("n.", -1, on(), "b", 1);
}

#[test]
fn a_pod_that_is_not_ready_is_protected_too() {
    let rs = replica_set("web", 1);
    let unready = |name: &str| Pod {
        is_ready: false,
        node: None,
        scale_down: ScaleDownMark::Never,
        ..ready_pod(name, &rs)
    };
    let active = [unready("a"), ready_pod("b", &rs)].map(Arc::new);
    assert_eq!(Block::of(&rs, &active, &on(), now()), None);
    let both = [unready("a"), unready("b")].map(Arc::new);
    let block = Block::of(&rs, &both, &on(), now()).expect("a block");
    assert_eq!((block.surplus, block.protected), (1, 2));
}

#[test]
fn the_burst_limits_what_protection_leaves() {
    let rs = replica_set("web", 1);
    let decision = decide_within(&rs, "nn....", on(), &[], 3);
    assert_eq!(decision.plan, Plan::Delete(3));
    assert_eq!(decision.effects.block.map(|block| block.surplus), Some(1));
}

/// A delete of unknown outcome is retried first, but not if its pod was annotated since.
#[test]
fn an_unresolved_delete_is_first_unless_the_pod_is_protected() {
    let rs = replica_set("web", 3);
    assert_eq!(names(&decide(&rs, "..f.", on(), &["uid-d"])), "d");
    assert_eq!(names(&decide(&rs, "..fn", on(), &["uid-d"])), "c");
    let off = Policy::default();
    assert_eq!(names(&decide(&rs, "...n", off, &["uid-d"])), "d");
}

#[test]
fn after_the_timeout_protected_pods_are_deleted_last() {
    let minute = Duration::from_mins(1);
    let mut rs = replica_set("web", 1);
    blocked_for(&mut rs, 59);
    let before = decide(&rs, "nn.", with_timeout(minute), &[]);
    assert_eq!(names(&before), "c");
    let remaining = before.effects.block.and_then(|block| block.remaining);
    assert_eq!(remaining, Some(Duration::from_secs(1)));
    blocked_for(&mut rs, 60);
    let after = decide(&rs, "nn.", with_timeout(minute), &[]);
    assert_eq!(after.plan, Plan::Delete(2));
    assert!(
        names(&after).contains('c'),
        "the unmarked pod is deleted first"
    );
    assert!(after.effects.block.as_ref().is_some_and(Block::is_over));
    // In bursts, so that several syncs see the same block.
    assert_eq!(
        names(&decide_within(&rs, "nn.", with_timeout(minute), &[], 1)),
        "c"
    );
    // The block is over: protection begins again.
    assert_eq!(
        decide(&rs, "n.", with_timeout(minute), &[]).effects.block,
        None
    );
    assert_eq!(names(&decide(&rs, "n.", with_timeout(minute), &[])), "b");
    // A delete of unknown outcome may be of a protected pod then.
    let again = decide_within(&rs, "nn.", with_timeout(minute), &["uid-b"], 1);
    assert_eq!(names(&again), "b");
}

#[test]
fn the_timeout_counts_from_the_condition_of_this_block_alone() {
    let policy = with_timeout(Duration::from_mins(1));
    let remaining = |rs: &ReplicaSet, policy: &Policy| {
        let block = Block::of(rs, &pods(rs, "nn"), policy, now());
        block.and_then(|block| block.remaining)
    };
    let mut rs = replica_set("web", 1);
    let minute = Some(Duration::from_mins(1));
    assert_eq!(remaining(&rs, &policy), minute, "a new block");
    blocked_for(&mut rs, 3600);
    assert_eq!(remaining(&rs, &policy), Some(Duration::ZERO));
    assert_eq!(remaining(&rs, &on()), None, "without a timeout");
    rs.status.conditions[0].status = "False".to_owned();
    assert_eq!(remaining(&rs, &policy), minute, "a condition that is false");
    blocked_for(&mut rs, 3600);
    rs.status.conditions[0].reason = Some("Budget".to_owned());
    assert_eq!(
        remaining(&rs, &policy),
        minute,
        "another program's condition"
    );
    // A clock that was set back: the time is computed again after one timeout.
    blocked_for(&mut rs, -3600);
    assert_eq!(remaining(&rs, &policy), minute);
    blocked_for(&mut rs, 0);
    let zero = with_timeout(Duration::ZERO);
    assert_eq!(remaining(&rs, &zero), Some(Duration::ZERO));
    let for_ever = with_timeout(Duration::MAX);
    assert!(remaining(&rs, &for_ever) > minute);
    rs.deletion = Some(now().into());
    assert_eq!(
        remaining(&rs, &policy),
        None,
        "the garbage collector deletes"
    );
}

/// The conditions after a status step with this block.
fn shown(rs: &ReplicaSet, marks: &str, policy: &Policy, replicas: i32) -> Vec<Condition> {
    let active = pods(rs, marks);
    let block = Block::of(rs, &active, policy, now());
    let counts = (&rs.status).into();
    let mut status = calculate_status(rs, &counts, None);
    status.replicas = replicas;
    show_block(&mut status, rs, block.as_ref());
    status.conditions
}

#[test]
fn the_condition_begins_and_ends_with_the_block() {
    let mut rs = replica_set("web", 1);
    rs.status.replicas = 5;
    rs.status.observed_generation = rs.generation;
    let conditions = shown(&rs, "nnnnn", &on(), 5);
    assert_eq!(conditions.len(), 1);
    let condition = &conditions[0];
    assert_eq!(
        (&*condition.type_, &*condition.status),
        (SCALE_DOWN_BLOCKED, "True")
    );
    assert_eq!(condition.reason.as_deref(), Some(PROTECTED_PODS));
    let second = Timestamp::from_second(now().as_second()).ok();
    assert_eq!(condition.last_transition_time, second);
    let message = "5 pods have the annotation replicaset-controller/scale-down=never (a, b, c, …), \
                   4 more than spec.replicas (1); kept";
    assert_eq!(condition.message.as_deref(), Some(message));
    rs.status.conditions = conditions.clone();
    // Fewer marks alone are no news; fewer pods are.
    assert_eq!(shown(&rs, "nnn", &on(), 5), conditions);
    let renewed = shown(&rs, "nnn", &on(), 3);
    assert_ne!(renewed[0].message, conditions[0].message);
    assert_eq!(renewed[0].last_transition_time, second, "the same block");
    let limited = shown(&rs, "nnn", &with_timeout(Duration::from_mins(1)), 5);
    assert_ne!(limited[0].message, conditions[0].message, "another end");
    assert_eq!(limited[0].last_transition_time, second);
    rs.generation += 1;
    assert_ne!(
        shown(&rs, "nnn", &on(), 5)[0].message,
        conditions[0].message
    );
    // Other conditions stay.
    let other = Condition {
        type_: "Other".to_owned(),
        ..Condition::default()
    };
    rs.status.conditions.push(other.clone());
    for conditions in [
        shown(&rs, "n", &on(), 1),
        shown(&rs, "nn", &Policy::default(), 2),
    ] {
        assert_eq!(conditions, std::slice::from_ref(&other));
    }
}

#[test]
fn another_programs_block_stays_until_there_is_an_own_one() {
    let mut rs = replica_set("web", 1);
    let foreign = Condition {
        type_: SCALE_DOWN_BLOCKED.to_owned(),
        status: "True".to_owned(),
        reason: Some("Budget".to_owned()),
        ..Condition::default()
    };
    rs.status.conditions.push(foreign);
    for policy in [on(), Policy::default()] {
        assert_eq!(shown(&rs, "n", &policy, 1), rs.status.conditions);
    }
    let own = shown(&rs, "nn", &on(), 2);
    assert_eq!(own.len(), 1);
    assert_eq!(own[0].reason.as_deref(), Some(PROTECTED_PODS));
}

#[test]
fn the_timeout_changes_the_reason_but_not_the_transition_time() {
    let mut rs = replica_set("web", 1);
    let policy = with_timeout(Duration::from_mins(1));
    blocked_for(&mut rs, 60);
    let began = rs.status.conditions[0].last_transition_time;
    let conditions = shown(&rs, "nn", &policy, 0);
    assert_eq!(conditions[0].reason.as_deref(), Some(PROTECTED_TIMEOUT));
    assert_eq!(conditions[0].last_transition_time, began);
}

proptest! {
    /// No choice contains a protected pod, none leaves out a pod marked `first` for an unmarked
    /// one, and exactly the protected surplus remains.
    #[test]
    fn a_scale_down_takes_all_that_it_may(marks in "[nfu.]{0,12}", replicas in -1..12_i32) {
        let rs = replica_set("web", replicas);
        let decision = decide(&rs, &marks, on(), &[]);
        let wanted = usize::try_from(replicas).unwrap_or(0);
        let is_marked = |mark: ScaleDownMark| move |pod: &&Arc<Pod>| pod.scale_down == mark;
        let count = |mark| decision.active.iter().filter(is_marked(mark)).count();
        let n_deleted = decision.delete.len();
        prop_assert!(!decision.delete.iter().any(|pod| Marks::Respected.spare(pod)));
        let n_kept = decision.active.len() - n_deleted;
        if decision.active.len() > wanted {
            prop_assert_eq!(n_kept, wanted.max(count(ScaleDownMark::Never)));
        }
        let first = decision.delete.iter().filter(is_marked(ScaleDownMark::First)).count();
        prop_assert_eq!(first, n_deleted.min(count(ScaleDownMark::First)));
    }
}
