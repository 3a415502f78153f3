//! What the preferences read of a pod: its domain and its node.

use std::sync::Arc;

use super::Topology;
use crate::api::Pod;
use crate::api::policy::{Preference, ScaleDownOrder};
use crate::controller::decide::deletion_context::Preferences;

/// Where pods are, as far as the preferences matter.
#[derive(Clone, Debug)]
pub struct Places {
    pub(super) order: ScaleDownOrder,
    /// `None` unless a preference is `spread`.
    topology: Option<Topology>,
}

impl Places {
    /// The places of the active pods of a ReplicaSet.
    pub fn of(pods: &[Arc<Pod>], preferences: Preferences<'_>) -> Self {
        let Preferences { order, rs } = preferences;
        let spreads = order.includes(Preference::Spread);
        Self {
            order,
            topology: spreads.then(|| Topology::of(rs, pods)),
        }
    }

    /// How pods divide into domains; `None` without `spread`.
    pub fn topology(&self) -> Option<&Topology> {
        self.topology.as_ref()
    }

    /// The domain of a pod; `None` without `spread`.
    pub(super) fn domain<'a>(&self, pod: &'a Pod) -> Option<&'a str> {
        self.topology.as_ref()?.domain(pod)
    }

    /// True if no preference distinguishes the pods.
    pub fn are_equal(&self, a: &Pod, b: &Pod) -> bool {
        let ignores_nodes = !self.order.includes(Preference::Consolidate);
        self.domain(a) == self.domain(b) && (ignores_nodes || a.node == b.node)
    }
}
