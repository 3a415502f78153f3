//! Pods on simulated nodes.

use serde_json::{Value, json};

use super::rig::{PODS, Rig, quick_kubelet};
use crate::DevServerOptions;

fn rig() -> Rig {
    Rig::with(&DevServerOptions {
        kubelet: Some(quick_kubelet()),
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
fn a_pod_runs_becomes_ready_and_terminates() {
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

/// A pod called `p` with these annotations, given without their prefix.
fn annotated(annotations: &[(&str, &str)]) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always"}],
    }});
    for (name, value) in annotations {
        pod["metadata"]["annotations"][format!("dev.replicaset-controller/{name}")] = json!(value);
    }
    pod
}

/// Creates the pod and waits until it is as expected.
#[track_caller]
fn check(annotations: &[(&str, &str)], is_as_expected: impl Fn(&Value) -> bool) {
    let rig = rig();
    let mut watch = rig.watch(PODS, "");
    rig.ok("POST", PODS, &annotated(annotations));
    loop {
        let frame = watch.next();
        let frame = frame.unwrap_or_else(|| panic!("{annotations:?} does not come true"));
        if is_as_expected(&frame["object"]) {
            return;
        }
    }
}

#[test]
fn annotations_set_a_pods_fate() {
    let is = |pod: &Value, phase: &str| pod["status"]["phase"] == json!(phase);
    check(&[("fate", "unscheduled")], |pod| {
        is(pod, "Pending") && condition(pod, "PodScheduled") == "False"
    });
    check(&[("fate", "pending"), ("node", "node-9")], |pod| {
        is(pod, "Pending") && pod["spec"]["nodeName"] == json!("node-9")
    });
    check(&[("fate", "rejected")], |pod| {
        is(pod, "Failed") && pod["status"]["reason"] == json!("OutOfpods")
    });
    check(&[("fate", "failed")], |pod| {
        is(pod, "Failed")
            && pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object()
    });
    check(&[("fate", "unknown")], |pod| is(pod, "Unknown"));
    check(&[("fate", "crash-loop"), ("restarts", "1")], |pod| {
        pod["status"]["containerStatuses"][0]["restartCount"] == json!(1)
    });
    check(&[("restarts", "4"), ("sidecar-restarts", "2")], |pod| {
        pod["status"]["containerStatuses"][0]["restartCount"] == json!(4)
            && pod["status"]["initContainerStatuses"][0]["restartCount"] == json!(2)
            && condition(pod, "Ready") == "True"
    });
}

#[test]
fn a_pod_without_a_node_has_an_event() {
    let rig = rig();
    rig.ok("POST", PODS, &annotated(&[("fate", "unscheduled")]));
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason%3DFailedScheduling";
    rig.collected(|rig| rig.get(events).1["items"][0]["involvedObject"]["name"] == json!("p"));
}

#[test]
fn a_running_pod_turns_unready_and_back() {
    let rig = rig();
    let mut watch = rig.watch(PODS, "");
    rig.ok("POST", PODS, &annotated(&[]));
    let mut seen = Vec::new();
    for (fate, ready) in [("", "True"), ("unready", "False"), ("", "True")] {
        let fate = json!({"metadata": {"annotations": {"dev.replicaset-controller/fate": fate}}});
        assert_eq!(rig.patch(&format!("{PODS}/p"), &fate).0, 200);
        while seen.last().is_none_or(|last| last != ready) {
            let frame = watch.next().expect("a frame");
            seen.push(condition(&frame["object"], "Ready"));
        }
    }
}

#[test]
fn a_crash_loop_is_shown_as_a_kubelet_shows_it() {
    let rig = rig();
    let mut watch = rig.watch(PODS, "");
    rig.ok("POST", PODS, &annotated(&[("fate", "crash-loop")]));
    let pod = loop {
        let pod = watch.next().expect("a frame")["object"].clone();
        if pod["status"]["containerStatuses"][0]["restartCount"] == json!(2) {
            break pod;
        }
    };
    let status = &pod["status"]["containerStatuses"][0];
    let full_name = format!(
        "p_default({})",
        pod["metadata"]["uid"].as_str().expect("a UID")
    );
    let message = format!("back-off 4s restarting failed container=c pod={full_name}");
    let waiting = json!({"reason": "CrashLoopBackOff", "message": message});
    assert_eq!(status["state"], json!({"waiting": waiting}));
    let ended = &status["lastState"]["terminated"];
    assert_eq!(
        (&ended["exitCode"], &ended["reason"]),
        (&json!(1), &json!("Error"))
    );
    for name in ["startedAt", "finishedAt", "containerID"] {
        assert!(
            ended[name].as_str().is_some_and(|text| !text.is_empty()),
            "{name}: {ended}"
        );
    }
    assert_ne!(ended["containerID"], status["containerID"]);
    let events = rig.get("/api/v1/namespaces/default/events").1["items"].clone();
    let event = &events[0];
    assert_eq!(events.as_array().map(Vec::len), Some(1), "{events}");
    let message = format!("Back-off restarting failed container c in pod {full_name}");
    let said = ["type", "reason", "message", "count"].map(|name| &event[name]);
    assert_eq!(
        said,
        [
            &json!("Warning"),
            &json!("BackOff"),
            &json!(message),
            &json!(2)
        ]
    );
    assert_eq!(
        event["involvedObject"]["fieldPath"],
        json!("spec.containers{c}")
    );
    assert_eq!(event["involvedObject"]["uid"], pod["metadata"]["uid"]);
}
