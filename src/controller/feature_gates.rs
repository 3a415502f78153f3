//! The Kubernetes feature gates that change this controller's behaviour and can be switched off.

/// The enabled gates; all by default, as upstream (kubernetes `pkg/features/kube_features.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// `PodDeletionCost`: the deletion order uses the deletion cost of pods.
    pub pod_deletion_cost: bool,
    /// `DeploymentReplicaSetTerminatingReplicas`: the status counts terminating pods. Off, the
    /// field is absent.
    pub terminating_replicas: bool,
    /// `StaleControllerConsistencyReplicaSet`: a sync waits until the cache shows all own writes.
    /// Off, only expectations prevent duplicate actions.
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
