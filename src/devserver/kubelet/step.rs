//! The next step of a pod, as a pure function of the pod, and its execution.

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

/// The back-off before the first restart of a crashed container.
///
/// DIFFERS: a kubelet starts at 10 s, which is too slow for a demo.
const CRASH_PAUSE_FIRST: Duration = Duration::from_secs(1);

/// The back-off doubles per crash up to this maximum.
const CRASH_PAUSE_MAX: Duration = Duration::from_secs(30);

/// A step in a pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
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
    Terminate,
}

/// The next step of `pod` and its delay; `None` if the pod needs a change by a client first.
pub(super) fn next_step(pod: &Value, options: &KubeletOptions) -> Option<(Step, Duration)> {
    let behaviour = Behaviour::of(pod);
    let is_assigned = !text(pod, "/spec/nodeName").is_empty();
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
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
        "Pending" if !is_assigned && behaviour.fate == Fate::Unscheduled => {
            let is_marked = pod_status::condition(pod, "PodScheduled") == "False";
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
    let is_ready = pod_status::condition(pod, "Ready") == "True";
    let restarts = pod_status::restarts(pod, "containerStatuses");
    let sidecar_restarts = pod_status::sidecar_restarts(pod);
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
        _ => (!is_ready).then_some((Step::MarkReady, ready_after)),
    }
}

fn crash_pause(restarts: i64) -> Duration {
    let doublings = u32::try_from(restarts).unwrap_or(0).min(16);
    (CRASH_PAUSE_FIRST * (1 << doublings)).min(CRASH_PAUSE_MAX)
}

/// Takes `step` if it is still the pod's next step; the pod may have changed or be gone. `node` is
/// the next node in turn.
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
        Step::Terminate => {
            let options = DeleteOptions {
                grace_period_seconds: Some(0),
                ..DeleteOptions::default()
            };
            return delete(state, Resource::Pods, key, &options).map(|_| ());
        }
        Step::Bind => {
            let node = behaviour.node.as_deref().unwrap_or(node);
            return update::bind(state, key, &json!({"target": {"name": node}}));
        }
        Step::MarkUnschedulable => pod_status::set_unschedulable(&mut pod),
        Step::Run => {
            pod_status::set_started(&mut pod, &behaviour);
            pod_status::set_ready(&mut pod, false);
        }
        Step::MarkReady => {
            pod_status::set_containers(&mut pod, &behaviour, true);
            pod_status::set_ready(&mut pod, true);
        }
        Step::MarkUnready => {
            pod_status::set_containers(&mut pod, &behaviour, false);
            pod_status::set_ready(&mut pod, false);
        }
        Step::SetRestarts => {
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
        Step::LoseNode => {
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
