//! The pod status that a kubelet writes. Pure functions on JSON trees.

use serde_json::{Value, json};

use super::super::objects::{entries, meta, number, text};
use super::super::update::set_condition;
use super::behaviour::Behaviour;

/// The status of a condition: `True`, `False`, `Unknown`, or empty without the condition.
pub(super) fn condition<'a>(pod: &'a Value, kind: &str) -> &'a str {
    let mut conditions = entries(pod, "/status/conditions").iter();
    let found = conditions.find(|condition| text(condition, "/type") == kind);
    found.map_or("", |condition| text(condition, "/status"))
}

/// The highest restart count in `list`, which is a member of the status.
pub(super) fn restarts(pod: &Value, list: &str) -> i64 {
    let statuses = entries(pod, &format!("/status/{list}")).iter();
    let counts = statuses.filter_map(|status| number(status, "/restartCount"));
    counts.max().unwrap_or(0)
}

/// The highest restart count of a sidecar; `None` if the pod has no sidecar.
pub(super) fn sidecar_restarts(pod: &Value) -> Option<i64> {
    let mut containers = entries(pod, "/spec/initContainers").iter();
    containers.find(|container| is_sidecar(container))?;
    Some(restarts(pod, "initContainerStatuses"))
}

/// Starts the containers: the pod is Running.
pub(super) fn set_started(pod: &mut Value, behaviour: &Behaviour) {
    pod["status"]["phase"] = json!("Running");
    if let Some(status) = pod["status"].as_object_mut() {
        status.remove("reason");
    }
    if pod["status"]["startTime"].is_null() {
        pod["status"]["startTime"] = json!(meta::now());
        let ip = ip_of(text(pod, "/metadata/uid"));
        pod["status"]["podIP"] = json!(ip);
        pod["status"]["podIPs"] = json!([{"ip": ip}]);
        set_condition(pod, "Initialized", "True");
    }
    set_containers(pod, behaviour, false);
}

/// Sets the two readiness conditions.
pub(super) fn set_ready(pod: &mut Value, is_ready: bool) {
    let status = if is_ready { "True" } else { "False" };
    set_condition(pod, "ContainersReady", status);
    set_condition(pod, "Ready", status);
}

/// All containers run, with at least the configured restart counts.
pub(super) fn set_containers(pod: &mut Value, behaviour: &Behaviour, is_ready: bool) {
    let running = json!({"running": {"startedAt": meta::now()}});
    write_containers(pod, behaviour, is_ready, 0, &running);
}

/// The containers have crashed once more and wait for their restart.
pub(super) fn crash(pod: &mut Value, behaviour: &Behaviour) {
    let message = "back-off restarting failed container";
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
    write_containers(pod, behaviour, false, 1, &waiting);
}

/// The containers have exited, and the pod is Failed.
pub(super) fn fail(pod: &mut Value, behaviour: &Behaviour) {
    let ended = json!({"terminated": {
        "exitCode": 1, "reason": "Error", "startedAt": text(pod, "/status/startTime"),
        "finishedAt": meta::now(),
    }});
    write_containers(pod, behaviour, false, 0, &ended);
    pod["status"]["phase"] = json!("Failed");
    set_ready(pod, false);
}

/// The node has rejected the pod, as a full node does (kubernetes
/// `pkg/kubelet/lifecycle/predicate.go:InsufficientResourceError`).
pub(super) fn reject(pod: &mut Value, now: &str) {
    let status = &mut pod["status"];
    status["phase"] = json!("Failed");
    status["reason"] = json!("OutOfpods");
    status["message"] = json!(
        "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 110, \
         capacity: 110"
    );
    status["startTime"] = json!(now);
}

/// The scheduler finds no node; the condition has the reason.
pub(super) fn set_unschedulable(pod: &mut Value) {
    set_condition(pod, "PodScheduled", "False");
    let conditions = pod["status"]["conditions"].as_array_mut();
    let mut conditions = conditions.into_iter().flatten();
    let scheduled = conditions.find(|condition| text(condition, "/type") == "PodScheduled");
    if let Some(scheduled) = scheduled {
        scheduled["reason"] = json!("Unschedulable");
        scheduled["message"] = json!("0 nodes are available: an annotation of the pod wants none.");
    }
}

fn write_containers(
    pod: &mut Value,
    behaviour: &Behaviour,
    is_ready: bool,
    more: i64,
    state: &Value,
) {
    let containers = entries(pod, "/spec/containers").iter();
    let statuses = containers.map(|container| {
        let count = restart_count(pod, "containerStatuses", container);
        let count = (count + more).max(behaviour.restarts);
        container_status(container, is_ready, count, state)
    });
    let statuses: Vec<Value> = statuses.collect();
    pod["status"]["containerStatuses"] = json!(statuses);
    let containers = entries(pod, "/spec/initContainers").iter();
    let statuses = containers.map(|container| {
        if !is_sidecar(container) {
            let done = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
            return container_status(container, true, 0, &done);
        }
        let count = restart_count(pod, "initContainerStatuses", container);
        let running = json!({"running": {"startedAt": meta::now()}});
        container_status(
            container,
            true,
            count.max(behaviour.sidecar_restarts),
            &running,
        )
    });
    let statuses: Vec<Value> = statuses.collect();
    if !statuses.is_empty() {
        pod["status"]["initContainerStatuses"] = json!(statuses);
    }
}

fn container_status(container: &Value, is_ready: bool, restarts: i64, state: &Value) -> Value {
    json!({
        "name": container["name"], "image": container["image"], "imageID": "",
        "ready": is_ready, "started": state.get("running").is_some(), "restartCount": restarts,
        "state": state,
    })
}

fn restart_count(pod: &Value, list: &str, container: &Value) -> i64 {
    let mut statuses = entries(pod, &format!("/status/{list}")).iter();
    let status = statuses.find(|status| status["name"] == container["name"]);
    let count = status.and_then(|status| number(status, "/restartCount"));
    count.unwrap_or(0)
}

fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}

/// An address in the style of a pod network. No host has it.
fn ip_of(uid: &str) -> String {
    let number = u32::from_str_radix(uid.get(..6).unwrap_or_default(), 16).unwrap_or(1);
    let [_, a, b, c] = number.to_be_bytes();
    format!("10.{a}.{b}.{c}")
}
