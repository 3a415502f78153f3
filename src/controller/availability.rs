//! Whether a pod has been Ready for long enough, and when it will have been. Pure.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::api::Pod;

/// True if the pod has been ready for `min_ready_seconds`, the boundary included
/// (kubernetes `pkg/api/v1/pod/util.go:IsPodAvailable`).
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    pod.is_ready
        && (min_ready_seconds == 0
            || pod.ready_transition.is_some_and(|since| {
                now.duration_since(since).as_secs_f64() >= f64::from(min_ready_seconds)
            }))
}

/// How long until a ready pod becomes available; `None` if it is, or if time alone will not make it so
/// (kubernetes `pkg/controller/controller_utils.go:nextPodAvailabilityCheck`).
pub fn next_pod_availability_check(
    pod: &Pod,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    if !pod.is_ready || min_ready_seconds == 0 {
        return None;
    }
    let ready_for = now.duration_since(pod.ready_transition?);
    let missing = jiff::SignedDuration::from_secs(min_ready_seconds.into()) - ready_for;
    Duration::try_from(missing)
        .ok()
        .filter(|missing| !missing.is_zero())
}

/// The shortest [`next_pod_availability_check`] of all pods
/// (kubernetes `pkg/controller/controller_utils.go:FindMinNextPodAvailabilityCheck`).
pub fn find_min_next_pod_availability_check(
    pods: &[Arc<Pod>],
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    let check = |pod: &Arc<Pod>| next_pod_availability_check(pod, min_ready_seconds, now);
    pods.iter().filter_map(check).min()
}
