//! The differences between ReplicaSets and ReplicationControllers: names, paths and forms.

use std::fmt;

use super::object_key::ObjectKey;

/// A kind of workload that the controller supports.
///
/// Upstream also runs one controller for both, behind an adapter that converts objects (kubernetes
/// `pkg/controller/replication/conversion.go`). Here the differences are fields.
#[derive(Debug, PartialEq, Eq)]
pub struct WorkloadKind {
    /// `apiVersion` in owner references and events.
    pub api_version: &'static str,
    pub kind: &'static str,
    /// Path of the API group, without a trailing slash.
    pub api_path: &'static str,
    /// Plural resource name in paths.
    pub resource: &'static str,
    /// Singular resource name, for the log.
    pub singular: &'static str,
    /// kubectl's short name, for thread names.
    pub short_name: &'static str,
    /// Name of the controller in `--controllers`
    /// (kubernetes `cmd/kube-controller-manager/names/controller_names.go`).
    pub controller: &'static str,
    /// The stock ClusterRole with the controller's permissions.
    pub cluster_role: &'static str,
    /// `source.component` of the events.
    pub component: &'static str,
    /// Name of the work queue.
    pub queue: &'static str,
    /// Form of `spec.selector`.
    pub selector: SelectorForm,
    /// Whether `status.terminatingReplicas` exists.
    pub has_terminating_replicas: bool,
    /// Whether pods of sibling ReplicaSets, which have the same controller, influence the choice of
    /// the pods to delete.
    pub ranks_by_siblings: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorForm {
    /// `matchLabels` and `matchExpressions`.
    LabelSelector,
    /// A map of labels, with the meaning of `matchLabels`.
    Labels,
}

pub const REPLICA_SET: WorkloadKind = WorkloadKind {
    api_version: "apps/v1",
    kind: "ReplicaSet",
    api_path: "/apis/apps/v1",
    resource: "replicasets",
    singular: "replicaset",
    short_name: "rs",
    controller: "replicaset-controller",
    cluster_role: "system:controller:replicaset-controller",
    component: "replicaset-controller",
    queue: "replicaset",
    selector: SelectorForm::LabelSelector,
    has_terminating_replicas: true,
    ranks_by_siblings: true,
};

/// The ReplicationController of `v1`
/// (kubernetes `pkg/controller/replication/replication_controller.go:NewReplicationManager`).
pub const REPLICATION_CONTROLLER: WorkloadKind = WorkloadKind {
    api_version: "v1",
    kind: "ReplicationController",
    api_path: "/api/v1",
    resource: "replicationcontrollers",
    singular: "replicationcontroller",
    short_name: "rc",
    controller: "replicationcontroller-controller",
    cluster_role: "system:controller:replication-controller",
    component: "replication-controller",
    queue: "replicationmanager",
    selector: SelectorForm::Labels,
    has_terminating_replicas: false,
    // Upstream's index of siblings holds ReplicaSets only, so it finds none here.
    ranks_by_siblings: false,
};

pub const ALL: [&WorkloadKind; 2] = [&REPLICA_SET, &REPLICATION_CONTROLLER];

impl WorkloadKind {
    /// The log's value for the key `object`: `replicaset=namespace/name`.
    pub fn named<'a>(&self, key: &'a ObjectKey) -> impl fmt::Display + use<'a> {
        let singular = self.singular;
        fmt::from_fn(move |f| write!(f, "{singular}={key}"))
    }

    /// What the names of its threads begin with: nothing for ReplicaSets, otherwise the short name,
    /// as in `rc-sync-0`.
    pub fn thread_prefix(&self) -> &'static str {
        if *self == REPLICA_SET { "" } else { "rc-" }
    }

    /// The API group; empty for the core group.
    pub fn group(&self) -> &'static str {
        let group = self.api_version.split_once('/');
        group.map_or("", |(group, _)| group)
    }

    /// Path of the collection in one namespace, or in all namespaces with `None`.
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
        collection_path(self.api_path, self.resource, namespace)
    }
}

/// Path of a namespaced collection in one namespace, or in all namespaces with `None`.
pub fn collection_path(api_path: &str, resource: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{api_path}/namespaces/{namespace}/{resource}"),
        None => format!("{api_path}/{resource}"),
    }
}
