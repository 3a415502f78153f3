//! Whether a pod has been Ready for `minReadySeconds`, and when it will have been. Pure.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::api::Pod;

/// True if the pod has been Ready for `min_ready_seconds`, the boundary included (kubernetes
/// `pkg/api/v1/pod/util.go:IsPodAvailable`).
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    pod.is_ready
        && (min_ready_seconds == 0
            || pod
                .ready_transition
                .is_some_and(|since| since.age(now).as_secs_f64() >= f64::from(min_ready_seconds)))
}

/// Returns the time until a Ready pod becomes available; `None` if it is available, or if time
/// alone does not make it so (kubernetes
/// `pkg/controller/controller_utils.go:nextPodAvailabilityCheck`).
pub fn next_pod_availability_check(
    pod: &Pod,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    if !pod.is_ready || min_ready_seconds == 0 {
        return None;
    }
    let ready_for = pod.ready_transition?.age(now);
    let missing = jiff::SignedDuration::from_secs(min_ready_seconds.into()) - ready_for;
    // No fallible conversion: it would build an error for each available pod.
    missing.is_positive().then(|| missing.unsigned_abs())
}

/// The number of available pods, and the time until the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Availability {
    /// Pods that [are available](is_available).
    pub n_available: i32,
    /// The shortest [`next_pod_availability_check`] of all
    /// (kubernetes `pkg/controller/controller_utils.go:FindMinNextPodAvailabilityCheck`).
    pub next_check: Option<Duration>,
}

impl Availability {
    /// Counts one active pod.
    pub fn add(&mut self, pod: &Pod, min_ready_seconds: i32, now: Timestamp) {
        self.n_available += i32::from(is_available(pod, min_ready_seconds, now));
        let check = next_pod_availability_check(pod, min_ready_seconds, now);
        self.next_check = self.next_check.into_iter().chain(check).min();
    }

    /// Computes the availability of these active pods.
    pub fn of(pods: &[Arc<Pod>], min_ready_seconds: i32, now: Timestamp) -> Self {
        let mut availability = Self::default();
        for pod in pods {
            availability.add(pod, min_ready_seconds, now);
        }
        availability
    }
}
