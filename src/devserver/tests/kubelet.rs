//! Pods on simulated nodes.

use std::time::Duration;

use serde_json::{Value, json};

use super::rig::{PODS, Rig};
use crate::devserver::{DevServerOptions, KubeletOptions};

fn rig() -> Rig {
    Rig::with(&DevServerOptions {
        kubelet: Some(KubeletOptions {
            n_nodes: 2,
            ready_after: Duration::from_millis(20),
            terminate_after: Duration::from_millis(20),
        }),
        ..DevServerOptions::default()
    })
}

fn condition(pod: &Value, kind: &str) -> String {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == json!(kind));
    let status = found.and_then(|condition| condition["status"].as_str());
    status.unwrap_or("none").to_owned()
}

#[test]
fn a_pod_runs_becomes_ready_and_ends() {
    let rig = rig();
    let from = rig.server.version();
    let mut watch = rig.watch(PODS, &format!("resourceVersion={from}"));
    rig.create_pod("p");
    let mut seen = Vec::new();
    while seen.last().is_none_or(|(_, _, ready)| ready != "True") {
        let frame = watch.next().expect("a frame");
        let pod = &frame["object"];
        let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let (node, phase) = (
            word(&pod["spec"]["nodeName"]),
            word(&pod["status"]["phase"]),
        );
        seen.push((node, phase, condition(pod, "Ready")));
    }
    let node = seen[1].0.clone();
    assert!(node.starts_with("node-"), "{node}");
    let line = |node: &str, phase: &str, ready: &str| {
        (node.to_owned(), phase.to_owned(), ready.to_owned())
    };
    let expected = [
        line("-", "Pending", "none"),
        line(&node, "Pending", "none"),
        line(&node, "Running", "False"),
        line(&node, "Running", "True"),
    ];
    assert_eq!(seen, expected);
    let begun = rig.delete(&format!("{PODS}/p"), &json!({})).1;
    assert_eq!(begun["metadata"]["deletionGracePeriodSeconds"], json!(30));
    let mut last = Value::Null;
    while last["type"] != json!("DELETED") {
        last = watch.next().expect("a frame");
    }
}
