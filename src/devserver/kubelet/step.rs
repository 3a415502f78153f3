//! The next step of a pod, as a pure function of the pod, its execution, and the pod status that a
//! kubelet writes.

use std::time::Duration;

use serde_json::{Value, json};

use crate::body::DeleteOptions;
use crate::delete::delete;
use crate::json::{condition, entries, hash_of, is_deleting, maps_mut, number, text};
use crate::kubelet::behaviour::{Behaviour, Fate};
use crate::resource::Resource;
use crate::status_error::StatusError;
use crate::store::State;
use crate::write::{Part, set_condition};
use crate::{events, metadata, write};

/// The back-off before the first restart of a crashed container.
///
/// DIFFERS: a kubelet starts at 10 s, which is too slow for a demo.
const CRASH_PAUSE_FIRST: Duration = Duration::from_secs(1);

/// The back-off doubles per crash up to this maximum.
const CRASH_PAUSE_MAX: Duration = Duration::from_secs(30);

/// The behaviour of the simulated nodes.
#[derive(Clone, Copy, Debug)]
pub struct KubeletOptions {
    /// The number of nodes, named `node-0` and so on. At least one.
    pub n_nodes: usize,
    /// How long a pod runs before it is ready.
    pub ready_after: Duration,
    /// How long a pod takes to terminate, unless its grace period is shorter.
    pub terminate_after: Duration,
    /// Assign pods to nodes, as a scheduler does.
    pub schedules: bool,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        Self {
            n_nodes: 5,
            ready_after: Duration::from_millis(500),
            terminate_after: Duration::from_millis(200),
            schedules: true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Bind,
    MarkUnschedulable,
    Run,
    MarkReady,
    MarkUnready,
    SetRestarts,
    Crash,
    Fail,
    Reject,
    LoseNode,
    Succeed,
    Terminate,
}

/// The next step of `pod` and its delay; `None` if the pod needs a change by a client first.
pub(crate) fn next_step(pod: &Value, options: &KubeletOptions) -> Option<(Step, Duration)> {
    let behaviour = Behaviour::of(pod);
    let is_assigned = !text(pod, "/spec/nodeName").is_empty();
    if is_deleting(pod) {
        let seconds = pod["metadata"]["deletionGracePeriodSeconds"].as_u64();
        let grace = Duration::from_secs(seconds.unwrap_or(0));
        let terminate_after = behaviour.terminate_after.unwrap_or(options.terminate_after);
        // Without a grace period only finalizers hold a pod, and no kubelet removes those.
        return (is_assigned && !grace.is_zero())
            .then_some((Step::Terminate, terminate_after.min(grace)));
    }
    let at_once = |step: Step| Some((step, Duration::ZERO));
    let ready_after = behaviour.ready_after.unwrap_or(options.ready_after);
    match text(pod, "/status/phase") {
        "Pending" if !is_assigned && !options.schedules => None,
        "Pending" if !entries(pod, "/spec/schedulingGates").is_empty() => None,
        "Pending" if !is_assigned && behaviour.fate == Fate::Unscheduled => {
            let is_marked = condition(pod, "PodScheduled") == "False";
            (!is_marked).then_some((Step::MarkUnschedulable, Duration::ZERO))
        }
        "Pending" if !is_assigned => at_once(Step::Bind),
        "Pending" => match behaviour.fate {
            Fate::Rejected => at_once(Step::Reject),
            Fate::Pending | Fate::Unscheduled => None,
            _ => at_once(Step::Run),
        },
        "Running" => running_step(pod, &behaviour, ready_after),
        "Unknown" if behaviour.fate != Fate::Unknown => at_once(Step::Run),
        _ => None,
    }
}

fn running_step(
    pod: &Value,
    behaviour: &Behaviour,
    ready_after: Duration,
) -> Option<(Step, Duration)> {
    let is_ready = condition(pod, "Ready") == "True";
    let runs_well = is_ready || condition(pod, "ContainersReady") == "True";
    let restarts = restarts(pod, "containerStatuses");
    let sidecar_restarts = sidecar_restarts(pod);
    if restarts < behaviour.restarts
        || sidecar_restarts.is_some_and(|count| count < behaviour.sidecar_restarts)
    {
        return Some((Step::SetRestarts, Duration::ZERO));
    }
    match behaviour.fate {
        Fate::Failed if is_ready => Some((Step::Fail, Duration::ZERO)),
        Fate::Failed => Some((Step::Fail, ready_after)),
        Fate::Unknown => Some((Step::LoseNode, Duration::ZERO)),
        Fate::CrashLoop => Some((Step::Crash, crash_pause(restarts))),
        Fate::Unready => is_ready.then_some((Step::MarkUnready, Duration::ZERO)),
        _ if !runs_well => Some((Step::MarkReady, ready_after)),
        _ if is_ready != passes_gates(pod) => Some((Step::MarkReady, Duration::ZERO)),
        fate => ends(pod, fate).then_some((Step::Succeed, ready_after)),
    }
}

/// True if the conditions that the pod's readiness gates name are True.
fn passes_gates(pod: &Value) -> bool {
    let mut gates = entries(pod, "/spec/readinessGates").iter();
    gates.all(|gate| condition(pod, text(gate, "/conditionType")) == "True")
}

/// True for a pod whose containers end by themselves.
fn ends(pod: &Value, fate: Fate) -> bool {
    let policy = text(pod, "/spec/restartPolicy");
    matches!(policy, "Never" | "OnFailure") && fate != Fate::Running
}

fn crash_pause(restarts: i64) -> Duration {
    let doublings = u32::try_from(restarts).unwrap_or(0).min(16);
    (CRASH_PAUSE_FIRST * (1 << doublings)).min(CRASH_PAUSE_MAX)
}

/// Takes `step` if it is still the pod's next step; the pod may have changed or be gone. `node` is
/// the next node in turn.
pub(crate) fn take(
    state: &mut State,
    step: Step,
    key: &str,
    node: &str,
    options: &KubeletOptions,
) -> Result<(), StatusError> {
    let Some(object) = state.get(Resource::Pods, key).cloned() else {
        return Ok(());
    };
    let mut pod = object.value();
    if next_step(&pod, options).is_none_or(|(next, _)| next != step) {
        return Ok(());
    }
    let behaviour = Behaviour::of(&pod);
    match step {
        Step::Terminate => {
            let options = DeleteOptions {
                grace_period_seconds: Some(0),
                ..DeleteOptions::default()
            };
            return delete(state, Resource::Pods, key, &options).map(|_| ());
        }
        Step::Bind => {
            let free = schedulable(state, node, options.n_nodes);
            let node = behaviour.node.as_deref().unwrap_or(&free);
            return write::bind(state, key, &json!({"target": {"name": node}}));
        }
        Step::MarkUnschedulable => {
            set_unschedulable(&mut pod);
            warn_of_missing_node(state, &pod);
        }
        Step::Run => {
            set_started(&mut pod, &behaviour);
            set_ready(&mut pod, false);
        }
        Step::MarkReady => {
            set_containers(&mut pod, &behaviour, true);
            set_ready(&mut pod, true);
        }
        Step::MarkUnready => {
            set_containers(&mut pod, &behaviour, false);
            set_ready(&mut pod, false);
        }
        Step::SetRestarts => {
            let is_ready = condition(&pod, "Ready") == "True";
            set_containers(&mut pod, &behaviour, is_ready);
        }
        Step::Crash => {
            let is_first = condition(&pod, "Ready") == "True";
            crash(&mut pod, &behaviour);
            if is_first {
                set_ready(&mut pod, false);
            }
            warn_of_back_off(state, &pod);
        }
        Step::Fail => end(&mut pod, &behaviour, "Failed"),
        Step::Succeed => end(&mut pod, &behaviour, "Succeeded"),
        Step::Reject => reject(&mut pod, &metadata::now()),
        Step::LoseNode => {
            pod["status"]["phase"] = json!("Unknown");
            pod["status"]["reason"] = json!("NodeLost");
            set_ready(&mut pod, false);
        }
    }
    write::replace(state, Resource::Pods, &object, Part::Status, pod).map(|_| ())
}

pub(crate) fn node_name(number: usize) -> String {
    format!("node-{number}")
}

/// The node that is next in turn and not cordoned.
fn schedulable(state: &State, first: &str, n_nodes: usize) -> String {
    let is_free = |node: &String| {
        let node = state.get(Resource::Nodes, node).map(|node| node.value());
        node.is_none_or(|node| node["spec"]["unschedulable"] != true)
    };
    let number = first.rsplit('-').next().and_then(|it| it.parse().ok());
    let number: usize = number.unwrap_or(0);
    let mut all = (0..n_nodes).map(|more| node_name((number + more) % n_nodes));
    all.find(is_free).unwrap_or_else(|| first.to_owned())
}

/// The highest restart count in `list`, which is a member of the status.
pub(crate) fn restarts(pod: &Value, list: &str) -> i64 {
    let statuses = entries(pod, &format!("/status/{list}")).iter();
    let counts = statuses.filter_map(|status| number(status, "/restartCount"));
    counts.max().unwrap_or(0)
}

/// The highest restart count of a sidecar; `None` if the pod has no sidecar.
pub(crate) fn sidecar_restarts(pod: &Value) -> Option<i64> {
    let mut containers = entries(pod, "/spec/initContainers").iter();
    containers.find(|container| is_sidecar(container))?;
    Some(restarts(pod, "initContainerStatuses"))
}

/// Starts the containers: the pod is Running.
pub(crate) fn set_started(pod: &mut Value, behaviour: &Behaviour) {
    pod["status"]["phase"] = json!("Running");
    if let Some(status) = pod["status"].as_object_mut() {
        status.remove("reason");
    }
    if pod["status"]["startTime"].is_null() {
        pod["status"]["startTime"] = json!(metadata::now());
        let ip = ip_of(text(pod, "/metadata/uid"));
        pod["status"]["podIP"] = json!(ip);
        pod["status"]["podIPs"] = json!([{"ip": ip}]);
        set_condition(pod, "Initialized", "True");
    }
    set_containers(pod, behaviour, false);
}

/// Sets the two readiness conditions.
pub(crate) fn set_ready(pod: &mut Value, is_ready: bool) {
    let status = if is_ready { "True" } else { "False" };
    set_condition(pod, "ContainersReady", status);
    let status = if is_ready && passes_gates(pod) {
        "True"
    } else {
        "False"
    };
    set_condition(pod, "Ready", status);
}

/// All containers run, with at least the configured restart counts.
pub(crate) fn set_containers(pod: &mut Value, behaviour: &Behaviour, is_ready: bool) {
    let running = json!({"running": {"startedAt": metadata::now()}});
    write_containers(pod, behaviour, is_ready, 0, &running);
}

/// The containers have crashed once more and wait for their restart.
pub(crate) fn crash(pod: &mut Value, behaviour: &Behaviour) {
    let before = entries(pod, "/status/containerStatuses").to_vec();
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    write_containers(pod, behaviour, false, 1, &waiting);
    let (now, pod_name) = (metadata::now(), full_name(pod));
    for status in maps_mut(pod, "/status/containerStatuses") {
        let name = &status["name"];
        let before = before.iter().find(|before| before["name"] == *name);
        // A container that waited for its restart has run for a moment.
        let started_at = before.map_or("", |it| text(it, "/state/running/startedAt"));
        let started_at = if started_at.is_empty() {
            &now
        } else {
            started_at
        };
        let pause = crash_pause(status["restartCount"].as_i64().unwrap_or(0));
        let message = format!(
            "back-off {pause:?} restarting failed container={} pod={pod_name}",
            name.as_str().unwrap_or_default()
        );
        status["state"]["waiting"]["message"] = json!(message);
        status["lastState"] = json!({"terminated": {
            "exitCode": 1, "reason": "Error", "startedAt": started_at, "finishedAt": now,
            "containerID": before.map_or(&Value::Null, |before| &before["containerID"]),
        }});
    }
}

/// How a kubelet calls a pod.
fn full_name(pod: &Value) -> String {
    let part = |name: &str| text(&pod["metadata"], name);
    format!("{}_{}({})", part("/name"), part("/namespace"), part("/uid"))
}

/// Records an event for each container, or counts it once more (kubernetes
/// `pkg/kubelet/kuberuntime/kuberuntime_manager.go:doBackOff`).
fn warn_of_back_off(state: &mut State, pod: &Value) {
    for container in entries(pod, "/spec/containers") {
        let container = text(container, "/name");
        let full_name = full_name(pod);
        let event = json!({
            "type": "Warning", "reason": "BackOff",
            "message": format!(
                "Back-off restarting failed container {container} in pod {full_name}"
            ),
            "involvedObject": {"fieldPath": format!("spec.containers{{{container}}}")},
            "source": {"component": "kubelet", "host": pod["spec"]["nodeName"]},
        });
        events::record(state, Resource::Pods, pod, container, event);
    }
}

/// The containers have exited, and the pod is Failed or Succeeded.
pub(crate) fn end(pod: &mut Value, behaviour: &Behaviour, phase: &str) {
    let (code, reason) = match phase {
        "Failed" => (1, "Error"),
        _ => (0, "Completed"),
    };
    let ended = json!({"terminated": {
        "exitCode": code, "reason": reason, "startedAt": text(pod, "/status/startTime"),
        "finishedAt": metadata::now(),
    }});
    write_containers(pod, behaviour, false, 0, &ended);
    pod["status"]["phase"] = json!(phase);
    set_ready(pod, false);
}

/// The node has rejected the pod, as a full node does (kubernetes
/// `pkg/kubelet/lifecycle/predicate.go:InsufficientResourceError`).
pub(crate) fn reject(pod: &mut Value, now: &str) {
    let status = &mut pod["status"];
    status["phase"] = json!("Failed");
    status["reason"] = json!("OutOfpods");
    status["message"] = json!(
        "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 110, \
         capacity: 110"
    );
    status["startTime"] = json!(now);
}

/// Why the scheduler finds no node for a pod whose annotation says so.
const UNSCHEDULABLE: &str =
    "0 nodes are available: annotation dev.replicaset-controller/fate=unscheduled.";

fn warn_of_missing_node(state: &mut State, pod: &Value) {
    let event = json!({
        "type": "Warning", "reason": "FailedScheduling", "message": UNSCHEDULABLE,
        "source": {"component": "default-scheduler"},
    });
    events::record(state, Resource::Pods, pod, "", event);
}

/// The scheduler finds no node; the condition has the reason.
pub(crate) fn set_unschedulable(pod: &mut Value) {
    set_condition(pod, "PodScheduled", "False");
    let conditions = pod["status"]["conditions"].as_array_mut();
    let mut conditions = conditions.into_iter().flatten();
    let scheduled = conditions.find(|condition| text(condition, "/type") == "PodScheduled");
    if let Some(scheduled) = scheduled {
        scheduled["reason"] = json!("Unschedulable");
        scheduled["message"] = json!(UNSCHEDULABLE);
    }
}

fn write_containers(
    pod: &mut Value,
    behaviour: &Behaviour,
    is_ready: bool,
    more: i64,
    state: &Value,
) {
    let done = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
    let running = json!({"running": {"startedAt": metadata::now()}});
    for (list, statuses) in [
        ("containers", "containerStatuses"),
        ("initContainers", "initContainerStatuses"),
    ] {
        let containers = entries(pod, &format!("/spec/{list}")).iter();
        let all: Vec<Value> = containers
            .map(|container| {
                let before = status_of(pod, statuses, container);
                let so_far = number(before, "/restartCount").unwrap_or(0);
                let (is_ready, count, state) = if list == "containers" {
                    (is_ready, (so_far + more).max(behaviour.restarts), state)
                } else if is_sidecar(container) {
                    (true, so_far.max(behaviour.sidecar_restarts), &running)
                } else {
                    (true, 0, &done)
                };
                container_status(pod, container, is_ready, count, state, before)
            })
            .collect();
        if !all.is_empty() {
            pod["status"][statuses] = json!(all);
        }
    }
}

/// The status of a container; `before` is its status so far.
fn container_status(
    pod: &Value,
    container: &Value,
    is_ready: bool,
    restarts: i64,
    state: &Value,
    before: &Value,
) -> Value {
    let (uid, name) = (text(pod, "/metadata/uid"), text(container, "/name"));
    let id = json!(format!(
        "simulated://{:016x}",
        hash_of(&(uid, name, restarts))
    ));
    let mut state = state.clone();
    if let Some(ended) = state.get_mut("terminated") {
        ended["containerID"] = id.clone();
    }
    json!({
        "name": name, "image": container["image"], "imageID": "", "containerID": id,
        "ready": is_ready, "started": state.get("running").is_some(), "restartCount": restarts,
        "lastState": before.get("lastState").unwrap_or(&json!({})), "state": state,
    })
}

/// The status of a container in `list`, if it has one.
fn status_of<'a>(pod: &'a Value, list: &str, container: &Value) -> &'a Value {
    let mut statuses = entries(pod, &format!("/status/{list}")).iter();
    let status = statuses.find(|status| status["name"] == container["name"]);
    status.unwrap_or(&Value::Null)
}

fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}

/// An address in the style of a pod network. No host has it.
fn ip_of(uid: &str) -> String {
    let [.., a, b, c] = hash_of(&uid).to_be_bytes();
    format!("10.{a}.{b}.{c}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{KubeletOptions, Step, crash_pause, next_step};

    const READY_AFTER: Duration = Duration::from_secs(7);

    #[track_caller]
    fn check(fate: &str, node: &str, phase: &str, ready: &str, expected: Option<(Step, Duration)>) {
        let pod = json!({
            "metadata": {"name": "p", "annotations": {"dev.replicaset-controller/fate": fate}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
        });
        assert_eq!(next(&pod), expected, "{fate} {node} {phase} {ready}");
    }

    fn next(pod: &Value) -> Option<(Step, Duration)> {
        let options = KubeletOptions {
            ready_after: READY_AFTER,
            ..KubeletOptions::default()
        };
        next_step(pod, &options)
    }

    #[test]
    fn each_fate_has_its_steps() {
        let now = |step| Some((step, Duration::ZERO));
        let later = |step| Some((step, READY_AFTER));
        check("", "", "Pending", "", now(Step::Bind));
        check("", "n", "Pending", "", now(Step::Run));
        check("", "n", "Running", "False", later(Step::MarkReady));
        check("", "n", "Running", "True", None);
        check("", "n", "Unknown", "False", now(Step::Run));
        check("", "n", "Failed", "False", None);
        check(
            "unscheduled",
            "",
            "Pending",
            "",
            now(Step::MarkUnschedulable),
        );
        check("pending", "", "Pending", "", now(Step::Bind));
        check("pending", "n", "Pending", "", None);
        check("rejected", "n", "Pending", "", now(Step::Reject));
        check("rejected", "n", "Running", "False", later(Step::MarkReady));
        check("failed", "n", "Running", "False", later(Step::Fail));
        check("failed", "n", "Running", "True", now(Step::Fail));
        check("unknown", "n", "Running", "True", now(Step::LoseNode));
        check("unknown", "n", "Unknown", "False", None);
        check("unready", "n", "Running", "True", now(Step::MarkUnready));
        check("unready", "n", "Running", "False", None);
        let second = Some((Step::Crash, Duration::from_secs(1)));
        check("crash-loop", "n", "Running", "True", second);
    }

    #[test]
    fn a_pod_ends_by_its_restart_policy() {
        for (policy, fate, ends) in [
            ("Always", "", false),
            ("OnFailure", "", true),
            ("Never", "", true),
            ("Never", "running", false),
        ] {
            let pod = json!({
                "metadata": {"annotations": {crate::behaviour::FATE: fate}},
                "spec": {"nodeName": "n", "restartPolicy": policy}, "status": {
                    "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                },
            });
            let step = next_step(&pod, &KubeletOptions::default()).map(|(step, _)| step);
            assert_eq!(step, ends.then_some(Step::Succeed), "{policy} {fate}");
        }
    }

    #[test]
    fn without_a_scheduler_a_pod_waits_for_its_node() {
        let options = KubeletOptions {
            schedules: false,
            ..KubeletOptions::default()
        };
        let step = |node: &str| {
            let pod = json!({"spec": {"nodeName": node}, "status": {"phase": "Pending"}});
            next_step(&pod, &options).map(|(step, _)| step)
        };
        assert_eq!(step(""), None);
        assert_eq!(step("n"), Some(Step::Run));
    }

    #[test]
    fn a_pod_terminates_within_its_grace_period() {
        let pod = |seconds: u64, wanted: &str| {
            json!({
                "metadata": {
                    "deletionTimestamp": "2026-01-01T00:00:00Z",
                    "deletionGracePeriodSeconds": seconds,
                    "annotations": {"dev.replicaset-controller/terminate-after": wanted},
                },
                "spec": {"nodeName": "n"},
            })
        };
        let end = |seconds: u64| Some((Step::Terminate, Duration::from_secs(seconds)));
        assert_eq!(next(&pod(30, "20s")), end(20));
        assert_eq!(next(&pod(30, "1m")), end(30));
        assert_eq!(next(&pod(0, "20s")), None);
    }

    #[test]
    fn the_crash_back_off_doubles() {
        let pauses = [0, 1, 4, 5, 1000].map(|restarts| crash_pause(restarts).as_secs());
        assert_eq!(pauses, [1, 2, 16, 30, 30]);
    }
}
