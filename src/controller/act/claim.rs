//! Whose pods are they: adopting orphans, releasing strangers
//! (kubernetes `pkg/controller/controller_ref_manager.go:PodControllerRefManager`).

use std::cell::OnceCell;

use serde::Serialize;

use crate::api::{ControllingReference, Pod, ReplicaSet, Uid};
use crate::controller::decide::plan::Plan;
use crate::controller::decide::{Decision, Facts};
use crate::controller::error::SyncError;
use crate::controller::memory::positions::Resource;
use crate::controller::{ReplicaSetController, error, outcome_of};
use crate::stdx::hash::HashSet;
use crate::telemetry::metrics::controller::{ByOutcome, Outcome};
use crate::writes::{PatchedPod, WriteError};

impl ReplicaSetController {
    /// Patches owner references, so that the pods of `decision` belong to the ReplicaSet. Returns what is
    /// to be done after that: a pod that has gone instead of being adopted does not count. Blocks for the
    /// patches, one after the other.
    ///
    /// # Errors
    /// All failed patches together; the remaining pods were tried all the same.
    pub(in crate::controller) fn claim_pods(
        &self,
        facts: &Facts<'_>,
        decision: Decision,
    ) -> Result<Decision, SyncError> {
        if decision.adopt.is_empty() && decision.release.is_empty() {
            return Ok(decision);
        }
        let rs = facts.rs;
        let can_adopt = OnceCell::new();
        let (mut n_adopted, mut n_released) = (0_usize, 0_usize);
        let mut errors: Vec<WriteError> = Vec::new();
        let mut gone: HashSet<Uid> = HashSet::default();
        for pod in &decision.adopt {
            match self.adopt_pod(rs, pod, &can_adopt) {
                Ok(true) => n_adopted += 1,
                Ok(false) => drop(gone.insert(pod.uid.clone())),
                Err(error) => errors.push(error),
            }
        }
        for pod in &decision.release {
            match self.release_pod(rs, pod) {
                Ok(is_released) => n_released += usize::from(is_released),
                Err(error) => errors.push(error),
            }
        }
        if n_adopted + n_released > 0 {
            let object = self.kind.named(&rs.key);
            log::info!(object:% = object; "adopted {n_adopted} pods, released {n_released}");
        }
        match error::aggregate(errors) {
            Some(error) => Err(error),
            None if gone.is_empty() => Ok(decision),
            None => {
                let decision = facts.decide_without(&gone);
                if decision.plan != Plan::Nothing && !decision.acts {
                    // Something else is due now, which this sync has not asked for.
                    self.enqueue(&rs.key);
                }
                Ok(decision)
            }
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
        let fresh = self.live.get_replica_set(&rs.key);
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
