//! `replicaset-controller/scale-down-order`: which of equal pods a scale-down deletes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{
    Kind, TestCluster, controller_reference, foreign_controller_reference, is_terminating, name,
    new_pod, new_replica_set_labelled, running, text_at,
};

const ORDER: &str = "replicaset-controller/scale-down-order";
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const ZONE: &str = "topology.kubernetes.io/zone";
const RACK: &str = "example.com/rack";

/// A ReplicaSet with this order that keeps `replicas` pods.
fn new_ordered(app: &str, order: &str, replicas: i64) -> Value {
    let mut rs = new_replica_set_labelled(app, replicas, app);
    rs["metadata"]["annotations"] = json!({ORDER: order});
    rs
}

/// Creates a Ready pod on a node, in a zone unless that is empty.
fn create_pod(cluster: &TestCluster, app: &str, owner: &Value, (node, zone): (&str, &str)) {
    let n_pods = cluster.list(Kind::Pods, &format!("app={app}")).len();
    let mut pod = new_pod(&format!("{app}-{n_pods:02}"));
    pod["metadata"]["labels"] = json!({"app": app});
    if !zone.is_empty() {
        pod["metadata"]["labels"][ZONE] = json!(zone);
        pod["metadata"]["labels"][RACK] = json!(zone);
    }
    pod["metadata"]["ownerReferences"] = json!([owner]);
    pod["spec"]["nodeName"] = json!(node);
    let created = cluster.create_pod(&pod);
    cluster.set_pod_status(
        &name(&created),
        &running(true, Some("2026-01-01T00:00:00Z")),
    );
}

/// Number of active pods by the value at a JSON pointer.
fn active_by(cluster: &TestCluster, app: &str, pointer: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut pods = cluster.list(Kind::Pods, &format!("app={app}"));
    pods.retain(|pod| !is_terminating(pod));
    for pod in &pods {
        *counts.entry(text_at(pod, pointer)).or_default() += 1;
    }
    counts
}

fn counts<const N: usize>(expected: [(&str, usize); N]) -> BTreeMap<String, usize> {
    expected.map(|(key, n)| (key.to_owned(), n)).into()
}

const BY_NODE: &str = "/spec/nodeName";
const BY_ZONE: &str = "/metadata/labels/topology.kubernetes.io~1zone";

/// kubernetes/kubernetes#138718: 5 nodes with 4 pods each, 20 replicas to 10.
#[test]
fn consolidate_empties_nodes_that_no_other_pod_needs() {
    let mut cluster = TestCluster::start();
    for (app, order) in [("packed", "consolidate"), ("stock", "off")] {
        let rs = cluster.create_replica_set(&new_ordered(app, order, 10));
        for n in 0..20 {
            let node = format!("{app}-{}", n % 5);
            create_pod(&cluster, app, &controller_reference(&rs), (&node, ""));
        }
    }
    // Other owners' pods: one that keeps its node, and a DaemonSet's, which does not.
    let mut daemon_set = foreign_controller_reference("0d1f5c1e-27a5-4b42-8f0e-6e3f0f8b5a11");
    create_pod(&cluster, "other", &daemon_set, ("packed-0", ""));
    daemon_set["kind"] = json!("DaemonSet");
    for node in 1..5 {
        create_pod(
            &cluster,
            "agent",
            &daemon_set,
            (&format!("packed-{node}"), ""),
        );
    }
    cluster.start_daemon();
    // The node that another owner's pod keeps, and two of four others, which are equal.
    let expected = (Some(4), vec![2, 4, 4]);
    cluster.eventually_eq("packed", &expected, || {
        let left = active_by(&cluster, "packed", BY_NODE);
        let mut sizes: Vec<usize> = left.values().copied().collect();
        sizes.sort_unstable();
        (left.get("packed-0").copied(), sizes)
    });
    let n_left = || {
        let left = active_by(&cluster, "stock", BY_NODE);
        left.values().sum::<usize>()
    };
    cluster.eventually_eq("stock", &10, n_left);
}

#[test]
fn spread_keeps_the_zones_even() {
    let mut cluster = TestCluster::start();
    // The zone is the default; a template's own constraint comes first.
    let mut own = new_ordered("own", "spread", 3);
    own["spec"]["template"]["spec"]["topologySpreadConstraints"] = json!([
        {"maxSkew": 1, "topologyKey": "example.com/none", "whenUnsatisfiable": "ScheduleAnyway",
         "labelSelector": {"matchLabels": {"app": "own"}}},
        {"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": {"matchLabels": {"app": "own"}}},
    ]);
    for rs in [new_ordered("zone", "spread", 3), own] {
        let rs = cluster.create_replica_set(&rs);
        let zones = ["a", "a", "b", "a", "c", "a", "b", "a", "b"];
        for (n, zone) in zones.iter().enumerate() {
            let node = format!("{zone}-{}", n % 2);
            create_pod(
                &cluster,
                &name(&rs),
                &controller_reference(&rs),
                (&node, zone),
            );
        }
    }
    cluster.start_daemon();
    let even = counts([("a", 1), ("b", 1), ("c", 1)]);
    cluster.eventually_eq("zone", &even, || active_by(&cluster, "zone", BY_ZONE));
    cluster.eventually_eq("own", &even, || active_by(&cluster, "own", BY_ZONE));
}

/// Karpenter writes the cost of every pod as often as once a minute, and the cost comes before any
/// preference.
#[test]
fn new_deletion_costs_cause_no_write_and_are_obeyed() {
    let mut cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_ordered("web", "consolidate", 6));
    for node in ["n0", "n1", "n1", "n2", "n2", "n2"] {
        create_pod(&cluster, "web", &controller_reference(&rs), (node, ""));
    }
    cluster.start_daemon();
    cluster.stable("web");
    let n_writes = cluster.n_writes();
    let mut last = Value::Null;
    for pod in cluster.list(Kind::Pods, "app=web") {
        let cost = if text_at(&pod, BY_NODE) == "n2" {
            "-7"
        } else {
            "3"
        };
        let patch = json!({"metadata": {"annotations": {COST: cost}}});
        last = cluster.merge_patch(Kind::Pods, &name(&pod), &patch);
    }
    cluster.caught_up_with(Kind::Pods, &last);
    cluster.holds("no write", || cluster.n_writes() == n_writes);
    cluster.scale("web", 2);
    let expected = counts([("n1", 2)]);
    cluster.eventually_eq("costs, then emptied", &expected, || {
        active_by(&cluster, "web", BY_NODE)
    });
}
