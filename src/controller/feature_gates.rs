//! Feature gates of Kubernetes that change what the controller does, for those that can be switched
//! off.

/// What is on; all of it by default, as upstream (kubernetes `pkg/features/kube_features.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// `PodDeletionCost`: the deletion cost of pods counts when some have to go.
    pub pod_deletion_cost: bool,
    /// `DeploymentReplicaSetTerminatingReplicas`: a ReplicaSet's status counts terminating pods;
    /// off, it has no such number.
    pub terminating_replicas: bool,
    /// `StaleControllerConsistencyReplicaSet`: a sync waits until the cache shows what was written
    /// before. Off, only expectations keep a sync from acting twice.
    pub stale_controller_consistency: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            pod_deletion_cost: true,
            terminating_replicas: true,
            stale_controller_consistency: true,
        }
    }
}

#[cfg(test)]
mod tests;
