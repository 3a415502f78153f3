//! The domains among which a ReplicaSet's pods spread.
//!
//! The controller may not read nodes. Since Kubernetes 1.35 pods carry the zone and the region of
//! their node as labels; for any other topology the node itself is the domain.

use std::sync::Arc;

use crate::api::{Pod, ReplicaSet};

/// The topology of a template without constraints of its own.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The topology in which each node is a domain.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// How pods divide into domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// By the value of this label. Pods without it form a domain of their own.
    Label(String),
    /// By node.
    Node,
}

impl Topology {
    /// The topology of the template's own constraints, or else the zone. By node if no pod carries
    /// the label.
    pub fn of(rs: &ReplicaSet, pods: &[Arc<Pod>]) -> Self {
        let key = rs.topology_key().unwrap_or_else(|| ZONE.to_owned());
        let is_carried = |pod: &Arc<Pod>| pod.labels.get(&key).is_some();
        if key != HOSTNAME && pods.iter().any(is_carried) {
            Self::Label(key)
        } else {
            Self::Node
        }
    }

    /// The domain of a pod.
    pub fn domain<'a>(&self, pod: &'a Pod) -> Option<&'a str> {
        match self {
            Self::Label(key) => pod.labels.get(key),
            Self::Node => pod.node.as_deref(),
        }
    }
}
