//! Which pods a scale-down deletes: how many nodes it empties with `consolidate`, and how even the
//! zones stay with `spread`. kube-controller-manager ignores the annotation.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use jiff::Timestamp;
use replicaset_controller::api::Pod;
use replicaset_controller::client::Request;
use serde_json::json;

use super::{PATIENCE, Stage};
use crate::cluster::Cluster;
use crate::load::in_parallel;
use crate::pods::{ready_status, template};
use crate::statistics::number;
use crate::watch::State;
use crate::workloads::{collection, pods, scale};

/// The label that the API server copies from a node to its pods.
const ZONE: &str = "topology.kubernetes.io/zone";

/// A scale-down.
struct Case {
    order: &'static str,
    /// The node of each pod, by number. Node N is in zone N % 3.
    nodes: Vec<usize>,
    replicas: usize,
    figure: &'static str,
    measure: fn(&Places, &State) -> usize,
    chart: &'static str,
    title: &'static str,
}

/// The node and the zone of each pod.
type Places = HashMap<String, (String, String)>;

/// Runs both cases.
pub(super) fn all(stage: &mut Stage<'_>) -> Result<(), String> {
    let consolidate = Case {
        order: "consolidate",
        // kubernetes/kubernetes#138718.
        nodes: (0..20).map(|n| n % 5).collect(),
        replicas: 10,
        figure: "consolidate, 20 to 10 pods on 5 nodes: nodes with pods",
        measure: |places, state| {
            let nodes = present(places, state).map(|place| &place.0);
            nodes.collect::<HashSet<_>>().len()
        },
        chart: "orders-consolidate.svg",
        title: "Scale-down from 20 to 10 pods: nodes with pods",
    };
    let spread = Case {
        order: "spread",
        // 9 pods in zone 0, 6 in zone 1, and 3 in zone 2.
        nodes: [0, 3, 6, 1, 4, 2].repeat(3),
        replicas: 9,
        figure: "spread, 18 to 9 pods in 3 zones: skew",
        measure: |places, state| {
            let all: HashSet<_> = places.values().map(|place| &place.1).collect();
            let left: Vec<_> = present(places, state).map(|place| &place.1).collect();
            let in_zone = |zone: &&String| left.iter().filter(|it| *it == zone).count();
            let counts = all.iter().map(in_zone);
            counts.clone().max().unwrap_or(0) - counts.min().unwrap_or(0)
        },
        chart: "orders-spread.svg",
        title: "Scale-down from 18 to 9 pods: skew of the zones",
    };
    for case in [consolidate, spread] {
        stage.enter()?;
        case.run(stage)?;
    }
    Ok(())
}

impl Case {
    fn run(&self, stage: &mut Stage<'_>) -> Result<(), String> {
        let (cluster, namespace) = (stage.cluster, stage.namespace.clone());
        let n_pods = self.nodes.len();
        for node in 0..=self.nodes.iter().copied().max().unwrap_or(0) {
            create_node(cluster, node)?;
        }
        stage.observer.expect_pods("web", n_pods);
        self.create(cluster, &namespace)?;
        let is_up = |state: &State| state.sums().replicas == n_pods;
        stage.observer.wait("all pods", PATIENCE, is_up)?;
        let names: Vec<String> = {
            let state = stage.observer.lock();
            state.pods.values().map(|pod| pod.name.clone()).collect()
        };
        in_parallel(n_pods, |n| {
            run_on(cluster, &namespace, &names[n], self.nodes[n])
        })?;
        let are_ready = |state: &State| state.sums().ready == n_pods;
        stage.observer.wait("Ready pods", PATIENCE, are_ready)?;

        let places = places(cluster, &namespace)?;
        let before = (self.measure)(&places, &stage.observer.lock());
        let began = Instant::now();
        scale(cluster, &namespace, "web", self.replicas)?;
        let mut line = vec![(0.0, number(before))];
        let is_down = |state: &State| {
            let value = number((self.measure)(&places, state));
            line.push((began.elapsed().as_secs_f64(), value));
            state.pods.len() == self.replicas
        };
        stage.observer.wait("scaled down", PATIENCE, is_down)?;
        let after = line.last().map_or(0.0, |point| point.1);
        line.push((1.0, after));
        stage.add(self.figure, after);
        let name = stage.contestant.name;
        stage.report.add_line(name, self.chart, self.title, line);
        Ok(())
    }

    fn create(&self, cluster: &Cluster, namespace: &str) -> Result<(), String> {
        let order = json!({"replicaset-controller/scale-down-order": self.order});
        let object = json!({
            "metadata": {"name": "web", "annotations": order},
            "spec": {
                "replicas": self.nodes.len(),
                "selector": {"matchLabels": {"app": "web"}},
                "template": template("web"),
            },
        });
        cluster.post(&collection(namespace), &object).map(drop)
    }
}

/// The places of those pods that the state has.
fn present<'a>(places: &'a Places, state: &'a State) -> impl Iterator<Item = &'a (String, String)> {
    state.pods.values().filter_map(|pod| places.get(&pod.name))
}

fn node_name(node: usize) -> String {
    format!("bench-node-{node}")
}

/// Creates a node in its zone, unless it exists.
fn create_node(cluster: &Cluster, node: usize) -> Result<(), String> {
    let name = node_name(node);
    let labels = json!({ZONE: format!("zone-{}", node % 3)});
    let object = json!({"metadata": {"name": name, "labels": labels}});
    let known = cluster.json(&Request::get(format!("/api/v1/nodes/{name}")));
    match known {
        Ok(_) => Ok(()),
        Err(_) => cluster.post("/api/v1/nodes", &object).map(drop),
    }
}

/// Binds a pod as a scheduler does, and makes it Ready as a kubelet does.
fn run_on(cluster: &Cluster, namespace: &str, pod: &str, node: usize) -> Result<(), String> {
    let path = format!("{}/{pod}", pods(namespace));
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name(node)},
    });
    cluster.post(&format!("{path}/binding"), &binding)?;
    let patch = Request::patch(format!("{path}/status"));
    let status = ready_status(&Timestamp::now().to_string()).to_string();
    let patch = patch.body("application/strategic-merge-patch+json", status);
    cluster.send(&patch).map(drop)
}

/// The places of all pods, as the API server has stored them.
fn places(cluster: &Cluster, namespace: &str) -> Result<Places, String> {
    let list = cluster.json(&Request::get(pods(namespace)))?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let place = |item: &serde_json::Value| {
        let pod = Pod::from_answer(item.to_string().as_bytes());
        let pod = pod.map_err(|error| format!("a pod cannot be read: {error}"))?;
        let zone = pod.labels.get(ZONE).unwrap_or("none").to_owned();
        let node = pod.node.as_deref().unwrap_or("none").to_owned();
        Ok((pod.key.name.to_string(), (node, zone)))
    };
    items.iter().map(place).collect()
}
