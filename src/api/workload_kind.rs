//! What differs between a ReplicaSet and its twin, the ReplicationController: names and paths.

/// One kind of workload that the engine can control.
#[derive(Debug, PartialEq, Eq)]
pub struct WorkloadKind {
    /// `apiVersion` in owner references and events.
    pub api_version: &'static str,
    /// `kind` in owner references and events.
    pub kind: &'static str,
    /// Path of the API group on the server, without a trailing slash.
    pub api_path: &'static str,
    /// Plural resource name in paths.
    pub resource: &'static str,
    /// What kubectl calls it for short; in names of threads.
    pub short_name: &'static str,
    /// `source.component` of the events.
    pub component: &'static str,
    /// Name of the work queue.
    pub queue: &'static str,
}

/// The ReplicaSet of `apps/v1`.
pub const REPLICA_SET: WorkloadKind = WorkloadKind {
    api_version: "apps/v1",
    kind: "ReplicaSet",
    api_path: "/apis/apps/v1",
    resource: "replicasets",
    short_name: "rs",
    component: "replicaset-controller",
    queue: "replicaset",
};

impl WorkloadKind {
    /// Name of the thread that does `what` for this kind: bare for ReplicaSets, else behind the short
    /// name, as in `rc-sync-0`.
    pub fn thread_name(&self, what: &str) -> String {
        if *self == REPLICA_SET {
            what.to_owned()
        } else {
            format!("{}-{what}", self.short_name)
        }
    }

    /// Path of the collection, in one namespace or (with `None`) in all.
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
        collection_path(self.api_path, self.resource, namespace)
    }
}

/// Path of a namespaced collection, in one namespace or (with `None`) in all.
pub fn collection_path(api_path: &str, resource: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{api_path}/namespaces/{namespace}/{resource}"),
        None => format!("{api_path}/{resource}"),
    }
}
