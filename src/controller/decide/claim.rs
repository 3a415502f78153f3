//! Whose pods are they: which orphans are adopted, which pods are released. Pure
//! (kubernetes `pkg/controller/controller_ref_manager.go:BaseControllerRefManager.ClaimObject`).

use crate::api::{Pod, ReplicaSet, Selector};

/// What is to be done with one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It belongs to the ReplicaSet already.
    Keep,
    /// It is somebody else's, or nothing can be done about it.
    Ignore,
    /// It belongs to nobody and matches.
    Adopt,
    /// It belongs to the ReplicaSet and does not match any more.
    Release,
}

/// What is to be done with `pod`, as far as the two objects tell.
pub fn claim_of(rs: &ReplicaSet, selector: &Selector, pod: &Pod) -> Claim {
    let matches = selector.matches(&pod.labels);
    match &pod.controller {
        Some(controller) if controller.uid != rs.uid => Claim::Ignore,
        Some(_) if matches => Claim::Keep,
        Some(_) if rs.is_terminating() => Claim::Ignore,
        Some(_) => Claim::Release,
        None if rs.is_terminating() || !matches || pod.is_terminating() => Claim::Ignore,
        None if pod.key.namespace != rs.key.namespace && !rs.key.namespace.is_empty() => {
            Claim::Ignore
        }
        None => Claim::Adopt,
    }
}
