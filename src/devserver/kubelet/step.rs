//! What comes next for a pod, as a pure function of the pod; and doing it.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::delete::{DeleteOptions, delete};
use super::super::objects::{meta, text};
use super::super::resource::Resource;
use super::super::status_error::StatusError;
use super::super::store::State;
use super::super::update::{self, Part};
use super::KubeletOptions;
use super::behaviour::{Behaviour, Fate};
use super::pod_status;

/// The pause before the first restart of a container that crashes.
///
/// DIFFERS: a kubelet begins with 10 s; nobody who tries things out wants to wait for that.
const CRASH_PAUSE_FIRST: Duration = Duration::from_secs(1);

/// Each pause is twice the one before, up to this.
const CRASH_PAUSE_MAX: Duration = Duration::from_secs(30);

/// What is next for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Assign,
    FindNoNode,
    Run,
    BeReady,
    BeUnready,
    CountRestarts,
    Crash,
    Fail,
    Reject,
    BeLost,
    End,
}

/// What is next for `pod`, and how long after now; `None` if it stays as it is until somebody
/// changes it.
pub(super) fn next_step(pod: &Value, options: &KubeletOptions) -> Option<(Step, Duration)> {
    let behaviour = Behaviour::of(pod);
    let is_assigned = !text(pod, "/spec/nodeName").is_empty();
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        let seconds = pod["metadata"]["deletionGracePeriodSeconds"].as_u64();
        let grace = Duration::from_secs(seconds.unwrap_or(0));
        let wanted = behaviour.terminate_after.unwrap_or(options.terminate_after);
        return (is_assigned && !grace.is_zero()).then_some((Step::End, wanted.min(grace)));
    }
    let at_once = |step: Step| Some((step, Duration::ZERO));
    let ready_after = behaviour.ready_after.unwrap_or(options.ready_after);
    match text(pod, "/status/phase") {
        "Pending" if !is_assigned && behaviour.fate == Fate::Unscheduled => {
            let is_told = pod_status::condition(pod, "PodScheduled") == "False";
            (!is_told).then_some((Step::FindNoNode, Duration::ZERO))
        }
        "Pending" if !is_assigned => at_once(Step::Assign),
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
    let is_ready = pod_status::condition(pod, "Ready") == "True";
    let restarts = pod_status::restarts(pod, "containerStatuses");
    let sidecar_restarts = pod_status::sidecar_restarts(pod);
    if restarts < behaviour.restarts
        || sidecar_restarts.is_some_and(|count| count < behaviour.sidecar_restarts)
    {
        return Some((Step::CountRestarts, Duration::ZERO));
    }
    match behaviour.fate {
        Fate::Failed if is_ready => Some((Step::Fail, Duration::ZERO)),
        Fate::Failed => Some((Step::Fail, ready_after)),
        Fate::Unknown => Some((Step::BeLost, Duration::ZERO)),
        Fate::CrashLoop => Some((Step::Crash, crash_pause(restarts))),
        Fate::Unready => is_ready.then_some((Step::BeUnready, Duration::ZERO)),
        _ => (!is_ready).then_some((Step::BeReady, ready_after)),
    }
}

fn crash_pause(restarts: i64) -> Duration {
    let doublings = u32::try_from(restarts).unwrap_or(0).min(16);
    (CRASH_PAUSE_FIRST * (1 << doublings)).min(CRASH_PAUSE_MAX)
}

/// Does `step`, if it is still what comes next; the pod may have changed or gone meanwhile. `node` is
/// the one whose turn it is.
pub(super) fn take(
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
        Step::End => {
            let options = DeleteOptions {
                grace_period_seconds: Some(0),
                ..DeleteOptions::default()
            };
            return delete(state, Resource::Pods, key, &options).map(|_| ());
        }
        Step::Assign => {
            let node = behaviour.node.as_deref().unwrap_or(node);
            return update::bind(state, key, &json!({"target": {"name": node}}));
        }
        Step::FindNoNode => pod_status::set_unschedulable(&mut pod),
        Step::Run => {
            pod_status::set_started(&mut pod, &behaviour);
            pod_status::set_ready(&mut pod, false);
        }
        Step::BeReady => {
            pod_status::set_containers(&mut pod, &behaviour, true);
            pod_status::set_ready(&mut pod, true);
        }
        Step::BeUnready => {
            pod_status::set_containers(&mut pod, &behaviour, false);
            pod_status::set_ready(&mut pod, false);
        }
        Step::CountRestarts => {
            let is_ready = pod_status::condition(&pod, "Ready") == "True";
            pod_status::set_containers(&mut pod, &behaviour, is_ready);
        }
        Step::Crash => {
            let is_first = pod_status::condition(&pod, "Ready") == "True";
            pod_status::crash(&mut pod, &behaviour);
            if is_first {
                pod_status::set_ready(&mut pod, false);
            }
        }
        Step::Fail => pod_status::fail(&mut pod, &behaviour),
        Step::Reject => pod_status::reject(&mut pod, &meta::now()),
        Step::BeLost => {
            pod["status"]["phase"] = json!("Unknown");
            pod["status"]["reason"] = json!("NodeLost");
            pod_status::set_ready(&mut pod, false);
        }
    }
    update::replace(state, Resource::Pods, &object, Part::Status, pod).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::super::KubeletOptions;
    use super::{Step, crash_pause, next_step};

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
        check("", "", "Pending", "", now(Step::Assign));
        check("", "n", "Pending", "", now(Step::Run));
        check("", "n", "Running", "False", later(Step::BeReady));
        check("", "n", "Running", "True", None);
        check("", "n", "Unknown", "False", now(Step::Run));
        check("", "n", "Failed", "False", None);
        check("unscheduled", "", "Pending", "", now(Step::FindNoNode));
        check("pending", "", "Pending", "", now(Step::Assign));
        check("pending", "n", "Pending", "", None);
        check("rejected", "n", "Pending", "", now(Step::Reject));
        check("rejected", "n", "Running", "False", later(Step::BeReady));
        check("failed", "n", "Running", "False", later(Step::Fail));
        check("failed", "n", "Running", "True", now(Step::Fail));
        check("unknown", "n", "Running", "True", now(Step::BeLost));
        check("unknown", "n", "Unknown", "False", None);
        check("unready", "n", "Running", "True", now(Step::BeUnready));
        check("unready", "n", "Running", "False", None);
        let second = Some((Step::Crash, Duration::from_secs(1)));
        check("crash-loop", "n", "Running", "True", second);
    }

    #[test]
    fn a_pod_ends_within_its_grace_period() {
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
        let end = |seconds: u64| Some((Step::End, Duration::from_secs(seconds)));
        assert_eq!(next(&pod(30, "20s")), end(20));
        assert_eq!(next(&pod(30, "1m")), end(30));
        assert_eq!(next(&pod(0, "20s")), None);
    }

    #[test]
    fn crashes_come_at_growing_pauses() {
        let pauses = [0, 1, 4, 5, 1000].map(|restarts| crash_pause(restarts).as_secs());
        assert_eq!(pauses, [1, 2, 16, 30, 30]);
    }
}
