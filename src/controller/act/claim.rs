//! Adopts orphans and releases pods that no longer match (kubernetes
//! `pkg/controller/controller_ref_manager.go:PodControllerRefManager`).

use std::cell::OnceCell;

use serde_json::{Value, json};

use super::Writer;
use crate::api::{Pod, ReplicaSet, Uid, controlling_reference};
use crate::controller::SyncError;
use crate::controller::decide::{Step, View};
use crate::controller::memory::positions::Resource;
use crate::controller::outcome_of;
use crate::stdx::HashSet;
use crate::telemetry::metrics::controller::{ByOutcome, WriteOutcome};
use crate::writes::WriteError;

impl Writer {
    /// Patches owner references according to `step`. Returns the pods that vanished before their
    /// adoption. Blocks for the patches, one after the other.
    pub(in crate::controller) fn claim_pods(
        &self,
        view: &View<'_>,
        step: &Step,
    ) -> Result<HashSet<Uid>, SyncError> {
        let mut gone: HashSet<Uid> = HashSet::default();
        if step.adopt.is_empty() && step.release.is_empty() {
            return Ok(gone);
        }
        let rs = view.rs;
        // Upstream's `RecheckDeletionTimestamp`: one live read decides on all adoptions of this
        // sync.
        let can_adopt = OnceCell::new();
        let (mut n_adopted, mut n_released) = (0_usize, 0_usize);
        let mut errors: Vec<WriteError> = Vec::new();
        for pod in &step.release {
            match self.release_pod(rs, pod) {
                Ok(is_released) => n_released += usize::from(is_released),
                Err(error) => errors.push(error),
            }
        }
        let all_released = errors.is_empty();
        for pod in &step.adopt {
            match self.adopt_pod(rs, pod, &can_adopt) {
                Ok(true) => n_adopted += 1,
                Ok(false) => drop(gone.insert(pod.uid.clone())),
                Err(error) => errors.push(error),
            }
        }
        if n_adopted + n_released > 0 {
            let object = self.kind.named(&rs.key);
            log::info!(
                object:% = object, adopted = n_adopted, released = n_released;
                "adopted {n_adopted} pods, released {n_released}"
            );
        }
        let is_deleted = matches!(can_adopt.get(), Some(Err(SyncError::Deleted(_))));
        let is_race = is_deleted && all_released;
        match super::aggregate(errors) {
            Some(error) if is_race => Err(SyncError::Deleted(error.to_string())),
            Some(error) => Err(error),
            None => Ok(gone),
        }
    }

    fn adopt_pod(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        can_adopt: &OnceCell<Result<(), SyncError>>,
    ) -> Result<bool, WriteError> {
        if let Err(why) = can_adopt.get_or_init(|| self.can_adopt(rs)) {
            if why.is_stopped() {
                return Err(WriteError::Stopped);
            }
            let (key, uid) = (&pod.key, &pod.uid);
            let why = format!("can't adopt Pod {key} ({uid}): {why}");
            return Err(WriteError::Local(why));
        }
        let reference = controlling_reference(self.kind, &rs.key.name, &rs.uid);
        let patch = adoption_patch(&pod.uid, &json!(reference));
        self.patch(rs, pod, patch, ("adopted", &self.metrics.pods_adopted))
    }

    /// Releases one pod. Returns false if the pod is gone, has no references or was recreated, and
    /// so needs no release.
    fn release_pod(&self, rs: &ReplicaSet, pod: &Pod) -> Result<bool, WriteError> {
        let patch = release_patch(&pod.uid, &rs.uid);
        match self.patch(rs, pod, patch, ("released", &self.metrics.pods_released)) {
            // The pod has no owner references, or was recreated with another UID.
            Err(error) if error.is_invalid() => Ok(false),
            ended => ended,
        }
    }

    /// Patches a pod, records the new version, counts and logs that. Returns false if the pod is
    /// gone.
    fn patch(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        patch: Vec<u8>,
        (done, counters): (&str, &ByOutcome),
    ) -> Result<bool, WriteError> {
        let patched = self.pod_control.patch_pod(rs, pod, patch);
        self.queue.progressed(&rs.key);
        counters.count(match &patched {
            Ok(_) => WriteOutcome::Success,
            // The pod is gone, was recreated, or has changed its owner already.
            Err(error) if error.is_not_found() || error.is_invalid() => WriteOutcome::NotNeeded,
            Err(error) => outcome_of(error),
        });
        match patched {
            Ok(written) => {
                // No sync waits for a pod that ends up with another controller or none (kubernetes
                // `pkg/controller/controller_utils.go:RealPodControl.PatchPod`).
                if written.controller.as_ref() == Some(&rs.uid) {
                    self.wrote_at(rs, Resource::Pods, &written.resource_version);
                }
                let object = self.kind.named(&rs.key);
                log::debug!(object:% = object; "{done} pod {}", pod.key.name);
                Ok(true)
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Checks at the API server that `rs` still exists and is not being deleted. Runs at most once
    /// per sync, and only before an adoption, because the cache may lag behind a deletion.
    fn can_adopt(&self, rs: &ReplicaSet) -> Result<(), SyncError> {
        let fresh = match self.live.get_replica_set(&rs.key) {
            Ok(fresh) => fresh,
            Err(error) if error.is_stopped() => return Err(error.into()),
            Err(error) => {
                let why = format!("can't recheck DeletionTimestamp: {error}");
                if error.is_not_found() {
                    return Err(SyncError::Deleted(why));
                }
                return Err(WriteError::Local(why).into());
            }
        };
        let key = &rs.key;
        if fresh.uid != rs.uid {
            let (kind, got, wanted) = (self.kind.kind, &fresh.uid, &rs.uid);
            return Err(SyncError::Deleted(format!(
                "original {kind} {key} is gone: got uid {got}, wanted {wanted}"
            )));
        }
        fresh.deletion.map_or(Ok(()), |at| {
            let why = format!("{key} has just been deleted at {at}");
            Err(SyncError::Deleted(why))
        })
    }
}

// Bodies of strategic merge patches of owner references, with upstream's order of the keys. The
// pod's own UID guards against a recreated pod of the same name.

fn adoption_patch(pod: &Uid, owner: &Value) -> Vec<u8> {
    let pod = json!(pod);
    format!(r#"{{"metadata":{{"ownerReferences":[{owner}],"uid":{pod}}}}}"#).into_bytes()
}

fn release_patch(pod: &Uid, owner: &Uid) -> Vec<u8> {
    let owner = json!({"$patch": "delete", "uid": owner});
    let pod = json!(pod);
    format!(r#"{{"metadata":{{"uid":{pod},"ownerReferences":[{owner}]}}}}"#).into_bytes()
}

#[cfg(test)]
mod tests;
