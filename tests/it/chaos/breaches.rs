//! Histories that break an invariant, each in one way. The judge must find each, and nothing in the
//! history without a breach.

use std::time::Duration;

use serde_json::{Value, json};

use super::audit::Line;
use super::chronicle::Seen;
use super::judge::{Terms, judge};
use super::opt_ins::{BACK_OFF, KEPT, MARK, N_KEPT, ORDER, PROTECTION};
use super::rest::{FOREIGN, at_rest};
use crate::support::Kind;

const TERMS: Terms = Terms {
    lag: Duration::from_secs(2),
    is_alone: true,
    has_lease: false,
    n_lists_max: 1,
    n_starts: 1,
};

/// A history, a state each second.
#[derive(Default)]
struct History {
    seen: Vec<Seen>,
    lines: Vec<Line>,
}

impl History {
    fn push(mut self, kind: Kind, is_gone: bool, object: Value) -> Self {
        let n = self.seen.len() + 1;
        self.seen.push(Seen {
            kind,
            version: n.try_into().expect("a few"),
            at: Duration::from_secs(n.try_into().expect("a few")),
            is_gone,
            object,
        });
        self
    }

    fn line(mut self, who: &str, verb: &str, resource: &str, name: &str) -> Self {
        self.lines.push(Line {
            who: who.to_owned(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            code: 200,
            version: self.seen.len().try_into().expect("a few"),
            ..Line::default()
        });
        self
    }

    fn spec(self, replicas: i64) -> Self {
        self.push(Kind::ReplicaSets, false, set(replicas))
    }

    fn pod(self, name: &str, phase: &str) -> Self {
        self.push(Kind::Pods, false, pod(name, phase))
    }

    /// A spec that opts in.
    fn opted_in(self, replicas: i64, opt_in: &str) -> Self {
        self.push(Kind::ReplicaSets, false, opted_in(set(replicas), opt_in))
    }

    /// Nothing happens for some seconds.
    fn wait(self, seconds: usize) -> Self {
        (0..seconds).fold(self, |waiting, _| waiting.lease("nobody"))
    }

    fn create(self, name: &str) -> Self {
        let created = self.pod(name, "Pending");
        created.line("replicaset-controller", "create", "pods", name)
    }

    fn delete(self, name: &str) -> Self {
        let pods = self.seen.iter().filter(|seen| seen.kind == Kind::Pods);
        let mut named = pods.filter(|seen| seen.object["metadata"]["name"] == name);
        let last = named.next_back().expect("it was created").object.clone();
        let deleted = self.push(Kind::Pods, true, last);
        deleted.line("replicaset-controller", "delete", "pods", name)
    }

    /// A user takes the lease.
    fn lease(self, user: &str) -> Self {
        let lease = json!({
            "metadata": {"name": "replicaset-controller"}, "spec": {"holderIdentity": user},
        });
        let held = self.push(Kind::Leases, false, lease);
        let mut held = held.line(user, "update", "leases", "replicaset-controller");
        let line = held.lines.last_mut().expect("pushed");
        user.clone_into(&mut line.holder);
        held
    }

    #[track_caller]
    fn check(&self, terms: &Terms, expected: &str) {
        let violations = judge(&self.seen, &self.lines, terms).violations;
        match violations.as_slice() {
            [] => assert_eq!(expected, "", "no violation"),
            [violation] => assert!(
                !expected.is_empty() && violation.contains(expected),
                "{violation}"
            ),
            several => panic!("{several:?}"),
        }
    }
}

fn set(replicas: i64) -> Value {
    json!({
        "metadata": {"name": "a", "uid": "set", "generation": 1}, "spec": {"replicas": replicas},
        "status": {
            "replicas": replicas, "fullyLabeledReplicas": replicas, "observedGeneration": 1,
        },
    })
}

fn pod(name: &str, phase: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "ownerReferences": [{
            "uid": if name == FOREIGN { "other" } else { "set" }, "controller": true,
        }]},
        "status": {"phase": phase},
    })
}

fn opted_in(mut set: Value, opt_in: &str) -> Value {
    set["metadata"]["annotations"] = json!({opt_in: "on"});
    set
}

fn marked(name: &str, mark: &str) -> Value {
    let mut pod = pod(name, "Pending");
    pod["metadata"]["annotations"] = json!({MARK: mark});
    pod
}

fn scaled_up() -> History {
    History::default().spec(2).create("x").create("y")
}

#[test]
fn a_history_without_a_breach_has_no_violation() {
    scaled_up().spec(1).delete("x").check(&TERMS, "");
    // The daemon may have read the old spec.
    let late = History::default().spec(1).spec(0).create("x");
    late.check(&TERMS, "");
}

#[test]
fn a_create_above_the_spec_is_found() {
    scaled_up().create("z").check(&TERMS, "created pod z");
    // The old spec is too old to be read.
    let late = scaled_up().spec(1).lease("a").lease("a").lease("a");
    late.delete("x").create("z").check(&TERMS, "created pod z");
}

#[test]
fn a_daemon_may_be_as_late_as_its_requests_are_slow() {
    let late = || scaled_up().spec(1).lease("a").lease("a").lease("a");
    let mut slow = late().delete("x").create("z");
    slow.check(&TERMS, "created pod z");
    let answered = slow.lines.last_mut().expect("the create");
    answered.times = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z"].map(str::to_owned);
    slow.check(&TERMS, "");
}

#[test]
fn a_delete_below_the_spec_is_found() {
    scaled_up().delete("x").check(&TERMS, "1 left");
}

/// The watch has not shown the failure yet.
#[test]
fn a_pod_that_has_just_failed_counts_as_active_to_a_daemon() {
    let failed = |wait| scaled_up().spec(1).pod("x", "Failed").wait(wait);
    failed(0).delete("x").check(&TERMS, "");
    failed(2).delete("x").check(&TERMS, "which had failed");
    failed(0).delete("y").check(&TERMS, "");
    failed(2)
        .delete("y")
        .check(&TERMS, "0 left, but replicas were 1");
}

#[test]
fn a_delete_out_of_order_is_found() {
    let running = scaled_up().pod("x", "Running").lease("a").lease("a");
    let scaled_down = running.lease("a").spec(1);
    let found = r#"["y"] come first"#;
    scaled_down.delete("x").check(&TERMS, found);
}

#[test]
fn a_delete_of_a_protected_pod_is_found() {
    let marked = || {
        let scaled_up = History::default().opted_in(2, PROTECTION);
        let scaled_up = scaled_up.create("x").create("y");
        let marked = scaled_up.push(Kind::Pods, false, marked("x", "never"));
        marked.opted_in(1, PROTECTION)
    };
    marked().delete("x").check(&TERMS, "marked never");
    marked().delete("y").check(&TERMS, "");
}

#[test]
fn a_create_within_the_back_off_is_found() {
    let failed = |opt_in| {
        let created = History::default().opted_in(1, opt_in).create("x");
        created.pod("x", "Failed")
    };
    let (early, late) = (3, 8);
    let found = "though x failed";
    failed(BACK_OFF)
        .wait(early)
        .create("y")
        .check(&TERMS, found);
    failed(BACK_OFF).wait(late).create("y").check(&TERMS, "");
    failed(ORDER).wait(early).create("y").check(&TERMS, "");
    // Another one of the first pods.
    let grown = failed(BACK_OFF).opted_in(2, BACK_OFF).wait(early);
    grown.create("y").check(&TERMS, "");
}

#[test]
fn a_delete_of_a_failed_pod_that_is_kept_is_found() {
    let failed = |opt_in: &str, n: usize| {
        let history = History::default().opted_in(1, opt_in);
        (0..n).fold(history, |history, n| {
            let name = format!("x{n}");
            history.create(&name).pod(&name, "Failed")
        })
    };
    failed(KEPT, N_KEPT + 1).delete("x0").check(&TERMS, "");
    failed(KEPT, N_KEPT)
        .delete("x0")
        .check(&TERMS, "2 are left");
    let upstreams = failed(ORDER, N_KEPT + 1).delete("x0");
    upstreams.check(&TERMS, "which had failed");
}

#[test]
fn a_delete_of_a_foreign_pod_is_found() {
    let deleted = scaled_up().pod(FOREIGN, "Pending").delete(FOREIGN);
    deleted.check(&TERMS, "no ReplicaSet owns");
}

#[test]
fn a_write_in_anothers_term_is_found() {
    let terms = Terms {
        has_lease: true,
        ..TERMS
    };
    let (first, second) = ("replicaset-controller", "replicaset-controller-token");
    let orderly = History::default().spec(1).lease(second).lease(first);
    orderly.create("x").check(&terms, "");
    let late = History::default().spec(1).lease(first).lease(second);
    late.create("x").check(&terms, "held the lease");
}

#[test]
fn lists_and_requests_without_cause_are_found() {
    let list = |history: History| history.line("replicaset-controller", "list", "pods", "");
    list(scaled_up()).check(&TERMS, "");
    list(list(scaled_up())).check(&TERMS, "2 lists of pods");
    let ordered = |opt_in| {
        let mut changed = opted_in(set(2), opt_in);
        changed["metadata"]["generation"] = json!(2);
        list(list(scaled_up().push(Kind::ReplicaSets, false, changed)))
    };
    ordered(ORDER).check(&TERMS, "2 lists of pods, with cause for 1");
    ordered(PROTECTION).check(&TERMS, "");
    list(ordered(PROTECTION)).check(&TERMS, "3 lists of pods, with cause for 2");
    let get = |history: History, _| history.line("replicaset-controller", "get", "pods", "x");
    let busy = (0..1000).fold(scaled_up(), get);
    busy.check(&TERMS, "requests, with cause for");
}

#[test]
fn what_is_wrong_at_rest_is_found() {
    let (foreign, x) = (pod(FOREIGN, "Pending"), pod("x", "Pending"));
    assert_eq!(at_rest(&[set(1)], &[foreign.clone(), x.clone()]), [""; 0]);
    let surplus = [foreign.clone(), x.clone(), pod("y", "Pending")];
    assert_eq!(at_rest(&[set(1)], &surplus).len(), 3, "pods and status");
    assert_eq!(
        at_rest(&[set(1)], &surplus[1..2]).len(),
        1,
        "the foreign pod"
    );
    assert_eq!(at_rest(&[], &[foreign, x]).len(), 1, "a pod without owner");
    let blocked = [
        pod(FOREIGN, "Pending"),
        marked("x", "never"),
        marked("y", "never"),
    ];
    let protecting = opted_in(set(1), PROTECTION);
    let mistakes = at_rest(&[protecting], &blocked);
    assert_eq!(mistakes.len(), 3, "condition and status: {mistakes:?}");
}
