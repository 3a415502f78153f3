//! Decides which orphans a ReplicaSet adopts and which pods it releases. Pure (kubernetes
//! `pkg/controller/controller_ref_manager.go:BaseControllerRefManager.ClaimObject`).

use crate::api::{Pod, ReplicaSet, Selector};

/// The claim of a ReplicaSet on one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The ReplicaSet controls the pod and keeps it.
    Keep,
    /// The pod has another controller, or the ReplicaSet cannot claim it.
    Ignore,
    /// The pod has no controller and matches the selector.
    Adopt,
    /// The ReplicaSet controls the pod, but the selector no longer matches.
    Release,
}

/// Returns the claim of `rs` on `pod`, judged by the two objects alone.
pub fn claim_of(rs: &ReplicaSet, selector: &Selector, pod: &Pod) -> Claim {
    let matches = selector.matches(&pod.labels);
    match &pod.controller {
        Some(controller) if controller.uid != rs.uid => Claim::Ignore,
        Some(_) if matches => Claim::Keep,
        // A ReplicaSet under deletion releases nothing: the garbage collector handles its pods.
        Some(_) if rs.is_terminating() => Claim::Ignore,
        Some(_) => Claim::Release,
        None if rs.is_terminating() || !matches || pod.is_terminating() => Claim::Ignore,
        None if pod.key.namespace != rs.key.namespace && !rs.key.namespace.is_empty() => {
            Claim::Ignore
        }
        None => Claim::Adopt,
    }
}
