//! The Node objects: named, Ready, and with capacity for any number of pods.

use serde_json::{Value, json};

use super::super::create::create;
use super::super::objects::meta;
use super::super::resource::Resource;
use super::super::store::State;

/// The pod capacity in a node's status; nothing enforces it.
const CAPACITY_PODS: &str = "10000";

/// The name of a node.
pub(super) fn name(number: usize) -> String {
    format!("node-{number}")
}

/// Creates the nodes that do not exist yet.
pub(super) fn create_all(state: &mut State, n_nodes: usize) {
    for number in 0..n_nodes {
        let name = name(number);
        if state.get(Resource::Nodes, &name).is_some() {
            continue;
        }
        let object = json!({
            "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            }},
            "spec": {},
        });
        match create(state, Resource::Nodes, None, object) {
            Ok(node) => {
                let mut value = node.value();
                value["status"] = status(number);
                state.put(Resource::Nodes, &name, value);
            }
            Err(error) => log::warn!("cannot create node {name}: {error:?}"),
        }
    }
}

fn status(number: usize) -> Value {
    let now = meta::now();
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": CAPACITY_PODS});
    let [.., a, b] = (number + 1).to_be_bytes();
    json!({
        "capacity": resources,
        "allocatable": resources,
        "addresses": [{"type": "InternalIP", "address": format!("192.168.{a}.{b}")}],
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady",
            "message": "a simulated kubelet is ready",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }],
        "nodeInfo": {
            "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION"), "-simulated"),
            "containerRuntimeVersion": "none", "osImage": "none", "kernelVersion": "none",
            "operatingSystem": "linux", "architecture": "simulated", "machineID": "",
            "systemUUID": "", "bootID": "", "kubeProxyVersion": "",
        },
    })
}
