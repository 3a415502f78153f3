//! Group E: the order in which a scale-down deletes pods.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Kind, TestCluster, container_statuses, controller_reference, foreign_controller_reference,
    is_terminating, name, names, new_pod, new_replica_set_labelled, seconds_ago,
};

/// Prefix of the UID of the owner that sibling ReplicaSets share. The owner need not exist.
const PARENT: &str = "0d1f5c1e-27a5-4b42-8f0e-6e3f0f8b5a11";

/// The deletion cost annotation.
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A pod of a test case.
#[derive(Clone)]
struct Candidate {
    name: &'static str,
    node: Option<&'static str>,
    status: Value,
    cost: Option<&'static str>,
}

/// A pod with this status on a node; `""` leaves it unassigned.
fn on(node: &'static str, status: Value) -> Candidate {
    Candidate {
        name: "",
        node: Some(node).filter(|node| !node.is_empty()),
        status,
        cost: None,
    }
}

impl Candidate {
    fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    fn cost(mut self, cost: &'static str) -> Self {
        self.cost = Some(cost);
        self
    }

    fn restarted(mut self, restarts: i64) -> Self {
        self.status["containerStatuses"] = container_statuses(restarts);
        self
    }

    /// Creates the pod as the ReplicaSet's.
    fn create(&self, cluster: &TestCluster, app: &str, rs: &Value) {
        let mut pod = new_pod(&format!("{app}-{}", self.name));
        pod["metadata"]["labels"] = json!({"app": app});
        pod["metadata"]["ownerReferences"] = json!([controller_reference(rs)]);
        if let Some(cost) = self.cost {
            pod["metadata"]["annotations"] = json!({COST: cost});
        }
        if let Some(node) = self.node {
            pod["spec"]["nodeName"] = json!(node);
        }
        let created = cluster.create_pod(&pod);
        cluster.set_pod_status(&name(&created), &self.status);
    }
}

fn pending() -> Value {
    json!({"phase": "Pending"})
}

fn unknown() -> Value {
    json!({"phase": "Unknown"})
}

fn not_ready() -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]})
}

/// The status of a pod that became ready this many seconds ago; `None` leaves the time out.
fn ready(seconds: Option<i64>) -> Value {
    let since = seconds.map(seconds_ago);
    json!({
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
    })
}

const MONTH: Option<i64> = Some(30 * 24 * 3600);

/// Many cases in one namespace. Each case has its own ReplicaSet and label.
struct Cases {
    cluster: TestCluster,
    expected: Vec<(String, Vec<String>)>,
}

impl Cases {
    fn new() -> Self {
        Self {
            cluster: TestCluster::start(),
            expected: Vec::new(),
        }
    }

    /// Adds a case: a scale-down of `pods` must keep `survivors`. A sibling ReplicaSet has one pod
    /// on each of the nodes in `siblings`.
    fn add(
        &mut self,
        case: &str,
        pods: &[Candidate],
        siblings: &[&'static str],
        survivors: &[&str],
    ) {
        let app = format!("{case}-{}", self.expected.len());
        let replicas = i64::try_from(survivors.len()).expect("a small number");
        let rs = self.replica_set(&app, replicas);
        for pod in pods {
            pod.create(&self.cluster, &app, &rs);
        }
        if !siblings.is_empty() {
            let sibling_app = format!("{app}-sibling");
            let replicas = i64::try_from(siblings.len()).expect("a small number");
            let sibling = self.replica_set(&sibling_app, replicas);
            for (name, node) in ["a", "b", "c"].into_iter().zip(siblings) {
                let pod = on(node, ready(Some(60))).named(name);
                pod.create(&self.cluster, &sibling_app, &sibling);
            }
        }
        let survivors = survivors.iter().map(|name| format!("{app}-{name}"));
        self.expected.push((app.clone(), survivors.collect()));
    }

    /// Adds cases of two pods, in both orders of creation: the scale-down must delete the first
    /// pod.
    fn precedes(
        &mut self,
        case: &str,
        first: &Candidate,
        second: &Candidate,
        siblings: &[&'static str],
    ) {
        let (goes, stays) = (first.clone().named("goes"), second.clone().named("stays"));
        // Two rounds: if the daemon ignores the criterion, chance could pick the right pod once.
        for _ in 0..2 {
            self.add(case, &[goes.clone(), stays.clone()], siblings, &["stays"]);
            self.add(case, &[stays.clone(), goes.clone()], siblings, &["stays"]);
        }
    }

    fn replica_set(&self, app: &str, replicas: i64) -> Value {
        let mut rs = new_replica_set_labelled(app, replicas, app);
        let mut parent = foreign_controller_reference(PARENT);
        // A parent per case, so that the pods of other cases do not count as siblings.
        let case = app.trim_end_matches("-sibling");
        parent["uid"] = json!(format!("{PARENT}-{case}"));
        rs["metadata"]["ownerReferences"] = json!([parent]);
        self.cluster.create_replica_set(&rs)
    }

    /// Starts the daemon and checks which pods of each case remain.
    #[track_caller]
    fn check(mut self) {
        self.cluster.start_daemon();
        for (app, survivors) in &self.expected {
            self.cluster.eventually_eq(app, survivors, || {
                let mut pods = self.cluster.list(Kind::Pods, &format!("app={app}"));
                pods.retain(|pod| !is_terminating(pod));
                names(&pods)
            });
        }
        let n_created = self.cluster.recorded("create", "pods").len();
        assert_eq!(n_created, 0, "no case lacks pods");
    }
}

#[test]
fn e_03_e_04_e_05_e_06_node_then_phase_then_readiness() {
    let mut cases = Cases::new();
    let nowhere = on("", pending());
    let assigned = on("n1", pending());
    cases.precedes("e-03", &nowhere, &assigned, &["n1"]);
    cases.precedes("e-03-ranks-swapped", &nowhere, &assigned, &[""]);
    cases.precedes("e-04", &assigned, &on("n2", unknown()), &["n2"]);
    cases.precedes(
        "e-05",
        &on("n1", unknown()),
        &on("n2", not_ready()),
        &["n2"],
    );
    cases.precedes("e-06", &on("n1", not_ready()), &on("n2", ready(None)), &[]);
    cases.check();
}

#[test]
fn e_08_e_09_rank_then_ready_time_then_restarts() {
    let mut cases = Cases::new();
    let (now, month) = (on("n1", ready(Some(0))), on("n2", ready(MONTH)));
    cases.precedes("e-08", &now, &month, &[]);
    cases.precedes("e-08-rank-first", &month, &now, &["n2"]);
    let restarted = on("n1", ready(MONTH)).restarted(9001);
    let unrestarted = on("n2", restarted.status.clone()).restarted(0);
    cases.precedes("e-09", &restarted, &unrestarted, &[]);
    cases.precedes("e-09-rank-first", &unrestarted, &restarted, &["n2"]);
    cases.check();
}

#[test]
fn e_17_e_18_unready_and_unassigned_pods_are_deleted_first() {
    let mut cases = Cases::new();
    let good = on("n1", ready(MONTH)).named("good");
    let bad = on("n1", not_ready());
    cases.add(
        "e-17",
        &[good.clone(), bad.clone().named("bad")],
        &[],
        &["good"],
    );
    let (first, second) = (bad.clone().named("bad-1"), bad.clone().named("bad-2"));
    cases.add("e-17-both", &[good, first, second], &[], &["good"]);
    let assigned = on("n1", pending());
    cases.precedes("e-18", &on("", pending()), &assigned, &[]);
    cases.precedes("e-18-phase", &assigned, &bad, &[]);
    cases.check();
}

#[test]
fn e_19_e_22_pods_on_crowded_nodes_are_deleted_first() {
    let mut cases = Cases::new();
    let (lonely, crowded) = (on("n1", ready(MONTH)), on("n2", ready(MONTH)));
    cases.precedes("e-19", &crowded, &lonely, &["n1", "n2", "n2"]);
    // The ReplicaSet's own pods count too. Otherwise the pod with the most restarts would be
    // deleted.
    let own = [
        lonely.restarted(9).named("lonely"),
        crowded.clone().restarted(5).named("goes"),
        crowded.restarted(0).named("stays"),
    ];
    cases.add("e-22-own", &own, &[], &["lonely", "stays"]);
    cases.check();
}

#[test]
fn e_22_finished_and_foreign_pods_do_not_crowd_a_node() {
    let mut cases = Cases::new();
    // With equal ranks, the pod that became ready later is deleted. It would stay if the finished
    // pod and the foreign pod counted towards the rank of `n2`.
    let goes = on("n1", ready(Some(0))).named("goes");
    let stays = on("n2", ready(MONTH)).named("stays");
    cases.add(
        "e-22-finished",
        &[goes.clone(), stays.clone()],
        &[],
        &["stays"],
    );
    let app = "e-22-finished-0";
    let rs = cases.cluster.replica_set(app);
    on("n2", json!({"phase": "Succeeded"}))
        .named("finished")
        .create(&cases.cluster, app, &rs);
    // A pod on the same node without a common owner.
    let mut foreign = new_pod("foreign");
    foreign["metadata"]["labels"] = json!({"app": "foreign"});
    foreign["spec"]["nodeName"] = json!("n2");
    cases.cluster.create_pod(&foreign);
    cases.expected[0].1 = vec![format!("{app}-finished"), format!("{app}-stays")];
    cases.check();
}

#[test]
fn e_24_a_cost_may_be_negative_and_defaults_to_zero() {
    let mut cases = Cases::new();
    let pod = on("n1", ready(MONTH));
    cases.precedes("e-24-negative", &pod.clone().cost("-5"), &pod, &[]);
    cases.precedes("e-24-positive", &pod, &pod.clone().cost("5"), &[]);
    let (most, least) = (
        pod.clone().cost("2147483647"),
        pod.clone().cost("-2147483648"),
    );
    cases.precedes("e-24-limits", &least, &most, &[]);
    // Readiness precedes the cost.
    let cheap = on("n1", ready(MONTH)).cost("-100");
    cases.precedes(
        "e-24-later",
        &on("n1", not_ready()).cost("100"),
        &cheap,
        &[],
    );
    cases.check();
}

#[test]
fn e_28_of_equal_pods_the_one_created_much_later_is_deleted() {
    let mut cases = Cases::new();
    let pod = on("n1", ready(MONTH));
    let old = [pod.clone().named("old-1"), pod.clone().named("old-2")];
    // Four rounds: if the daemon ignores the age, the UID decides and could pick the right pod
    // once.
    for _ in 0..4 {
        cases.add("e-28", &old, &[], &["old-1", "old-2"]);
    }
    // Ages are compared by the base-two logarithm of their seconds. They still differ by that when
    // the daemon looks as long after this pause as the pause takes.
    cases.cluster.waiting().pause(Duration::from_secs(30));
    for app in ["e-28-0", "e-28-1", "e-28-2", "e-28-3"] {
        let rs = cases.cluster.replica_set(app);
        pod.clone().named("new").create(&cases.cluster, app, &rs);
    }
    cases.check();
}
