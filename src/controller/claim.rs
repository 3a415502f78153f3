//! Whose pods are they: adopting orphans, releasing strangers
//! (kubernetes `pkg/controller/controller_ref_manager.go:PodControllerRefManager`).

use std::cell::OnceCell;
use std::sync::Arc;

use serde::Serialize;

use super::error::SyncError;
use super::memory::positions::Resource;
use super::{ReplicaSetController, error, outcome_of};
use crate::api::{ControllingReference, Pod, ReplicaSet, Selector, Uid};
use crate::telemetry::metrics::controller::{ByOutcome, Outcome};
use crate::writes::{PatchedPod, WriteError};

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

impl ReplicaSetController {
    /// Decides for each candidate whether it belongs to `rs`, and patches owner references to make it
    /// so. Answers the pods that belong to `rs` then. Blocks for the patches, one after the other.
    ///
    /// # Errors
    /// All failed patches together; the remaining pods were tried all the same.
    pub(super) fn claim_pods(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        candidates: Vec<Arc<Pod>>,
    ) -> Result<Vec<Arc<Pod>>, SyncError> {
        let can_adopt = OnceCell::new();
        let mut errors: Vec<WriteError> = Vec::new();
        let mut claimed = Vec::with_capacity(candidates.len());
        let (mut n_adopted, mut n_released) = (0_usize, 0_usize);
        for pod in candidates {
            let is_ours = match decide(rs, selector, &pod) {
                Claim::Keep => Ok(true),
                Claim::Ignore => Ok(false),
                Claim::Adopt => self
                    .adopt_pod(rs, &pod, &can_adopt)
                    .inspect(|is_ours| n_adopted += usize::from(*is_ours)),
                Claim::Release => self.release_pod(rs, &pod).map(|is_released| {
                    n_released += usize::from(is_released);
                    false
                }),
            };
            match is_ours {
                Ok(true) => claimed.push(pod),
                Ok(false) => {}
                Err(error) => errors.push(error),
            }
        }
        if n_adopted + n_released > 0 {
            let object = self.kind.named(&rs.key);
            log::info!(object:% = object; "adopted {n_adopted} pods, released {n_released}");
        }
        match error::aggregate(errors) {
            None => Ok(claimed),
            Some(error) => Err(error),
        }
    }

    /// True if the pod is ours now; false if it is gone.
    fn adopt_pod(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        can_adopt: &OnceCell<Result<(), String>>,
    ) -> Result<bool, WriteError> {
        if let Err(reason) = can_adopt.get_or_init(|| self.can_adopt(rs)) {
            let (key, uid) = (&pod.key, &pod.uid);
            return Err(WriteError::Local(format!(
                "can't adopt Pod {key} ({uid}): {reason}"
            )));
        }
        let patched = self.patch_and_record(rs, pod, self.adopt_patch(rs, pod));
        count(&self.metrics.pods_adopted, &patched);
        match patched {
            Ok(()) => {
                let object = self.kind.named(&rs.key);
                log::debug!(object:% = object; "adopted pod {}", pod.key.name);
                Ok(true)
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// True if the pod was released; one that is gone, has no references or was recreated needs no
    /// release.
    fn release_pod(&self, rs: &ReplicaSet, pod: &Pod) -> Result<bool, WriteError> {
        let patched = self.patch_and_record(rs, pod, release_patch(&pod.uid, &[&rs.uid]));
        count(&self.metrics.pods_released, &patched);
        match patched {
            Ok(()) => {
                let object = self.kind.named(&rs.key);
                log::debug!(object:% = object; "released pod {}", pod.key.name);
                Ok(true)
            }
            Err(error) if error.is_not_found() || error.is_invalid() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A patch that leaves the pod with another controller, or with none, is not waited for
    /// (kubernetes `pkg/controller/controller_utils.go:RealPodControl.PatchPod`).
    fn patch_and_record(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        patch: Vec<u8>,
    ) -> Result<(), WriteError> {
        let PatchedPod {
            resource_version,
            controller,
        } = self.pod_control.patch_pod(rs, pod, patch)?;
        if controller.as_ref() == Some(&rs.uid) {
            let now = self.clock.now();
            self.memories.with(&rs.key, &rs.uid, |memory| {
                memory
                    .positions
                    .wrote_at(Resource::Pods, &resource_version, now);
            });
        }
        Ok(())
    }

    /// Asks the API server, past the cache, whether `rs` is still there and alive. At most once per
    /// sync and only when a pod is to be adopted, because the cache may be the last to know.
    fn can_adopt(&self, rs: &ReplicaSet) -> Result<(), String> {
        let fresh = self.replica_set_control.get(&rs.key);
        let fresh = fresh.map_err(|error| format!("can't recheck DeletionTimestamp: {error}"))?;
        let key = &rs.key;
        if fresh.uid != rs.uid {
            let (kind, got, wanted) = (self.kind.kind, &fresh.uid, &rs.uid);
            return Err(format!(
                "original {kind} {key} is gone: got uid {got}, wanted {wanted}"
            ));
        }
        match fresh.deletion {
            Some(at) => Err(format!("{key} has just been deleted at {at}")),
            None => Ok(()),
        }
    }

    fn adopt_patch(&self, rs: &ReplicaSet, pod: &Pod) -> Vec<u8> {
        to_bytes(&Patch {
            metadata: AdoptMetadata {
                owner_references: [ControllingReference::to(self.kind, &rs.key.name, &rs.uid)],
                uid: &pod.uid,
            },
        })
    }
}

fn count(counters: &ByOutcome, patched: &Result<(), WriteError>) {
    counters.count(match patched {
        Ok(()) => Outcome::Success,
        // The pod is gone, or is another one, or has changed its owner already.
        Err(error) if error.is_not_found() || error.is_invalid() => Outcome::Moot,
        Err(error) => outcome_of(error),
    });
}

/// What is to be done with `pod`, as far as the two objects tell.
pub fn decide(rs: &ReplicaSet, selector: &Selector, pod: &Pod) -> Claim {
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

/// Body of the patch that takes owners away from a pod; its own UID guards against a pod that was
/// recreated under the same name.
fn release_patch(pod: &Uid, owners: &[&Uid]) -> Vec<u8> {
    let delete = |uid| DeleteReference {
        patch: "delete",
        uid,
    };
    to_bytes(&Patch {
        metadata: ReleaseMetadata {
            uid: pod,
            owner_references: owners.iter().copied().map(delete).collect(),
        },
    })
}

#[derive(Serialize)]
struct Patch<M> {
    metadata: M,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdoptMetadata<'a> {
    owner_references: [ControllingReference<'a>; 1],
    uid: &'a Uid,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReleaseMetadata<'a> {
    uid: &'a Uid,
    owner_references: Vec<DeleteReference<'a>>,
}

#[derive(Serialize)]
struct DeleteReference<'a> {
    #[serde(rename = "$patch")]
    patch: &'static str,
    uid: &'a Uid,
}

fn to_bytes(patch: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(patch).expect("text and flags always become JSON")
}

#[cfg(test)]
mod tests;
