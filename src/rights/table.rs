//! The rights that the daemon needs. Pure.
//!
//! A [`Grant`] is one role and where it is bound, with the rights that the daemon uses of it. Stock
//! roles, which every cluster has, may give more than that.

use crate::api::WorkloadKind;

/// What of the daemon's options decides which rights it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RightsOptions {
    /// The one namespace that is controlled; `None` for all.
    pub namespace: Option<String>,
    /// What is controlled.
    pub workloads: Vec<&'static WorkloadKind>,
    /// The lease that the leader holds; `None` without an election.
    pub lease: Option<LeaseName>,
    /// Whether the API server is asked who may read metrics and the like.
    pub delegated_auth: bool,
    /// Whether nothing is ever written.
    pub dry_run: bool,
}

/// Which lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// One role, where it is bound, and what the daemon uses of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Which role.
    pub role: Role,
    /// The namespace in which it is bound; `None` for the whole cluster.
    pub namespace: Option<String>,
    /// What goes wrong without it, after "cannot".
    pub purpose: String,
    /// False if the daemon does its work without it.
    pub is_vital: bool,
    /// What the daemon uses of it.
    pub rights: Vec<Right>,
}

/// A role that is there already, or one to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A ClusterRole that every API server with RBAC keeps up to date by itself.
    Stock(&'static str),
    /// One that holds exactly the grant's rights; what its name ends with.
    Own(&'static str),
}

/// Verbs on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, with its subresource: `replicasets/status`.
    pub resource: String,
    /// The one object that is meant; `None` for all.
    pub name: Option<String>,
    /// What may be done.
    pub verbs: &'static [&'static str],
}

impl Right {
    fn on(
        group: &'static str,
        resource: impl Into<String>,
        verbs: &'static [&'static str],
    ) -> Self {
        Self {
            group,
            resource: resource.into(),
            name: None,
            verbs,
        }
    }

    /// Resource and subresource, which is empty if there is none.
    pub fn resource_and_subresource(&self) -> (&str, &str) {
        let parts = self.resource.split_once('/');
        parts.unwrap_or((&self.resource, ""))
    }

    fn is_read(&self) -> bool {
        let mut verbs = self.verbs.iter();
        verbs.all(|verb| matches!(*verb, "get" | "list" | "watch"))
    }
}

/// Everything that the daemon needs with these options.
pub fn grants(options: &RightsOptions) -> Vec<Grant> {
    let workloads = options.workloads.iter();
    let mut grants: Vec<Grant> = workloads
        .map(|workload| workload_grant(workload, options))
        .collect();
    if let Some(lease) = options.lease.as_ref().filter(|_| !options.dry_run) {
        grants.push(lease_grant(lease));
    }
    if options.delegated_auth {
        grants.push(Grant {
            role: Role::Stock("system:auth-delegator"),
            namespace: None,
            purpose: "tell who may read metrics and debug pages".to_owned(),
            is_vital: false,
            rights: vec![
                Right::on("authentication.k8s.io", "tokenreviews", &["create"]),
                Right::on("authorization.k8s.io", "subjectaccessreviews", &["create"]),
            ],
        });
    }
    grants
}

/// What one controller does with its kind, with pods and with events
/// (kubernetes `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go`). `update` on
/// finalizers is asked for where admission protects the owner that a pod names.
fn workload_grant(workload: &'static WorkloadKind, options: &RightsOptions) -> Grant {
    let group = workload.api_version.split_once('/');
    let group = group.map_or("", |(group, _)| group);
    let resource = workload.resource;
    let mut rights = vec![
        Right::on(group, resource, &["get", "list", "watch"]),
        Right::on(group, format!("{resource}/status"), &["update"]),
        Right::on(group, format!("{resource}/finalizers"), &["update"]),
        Right::on("", "pods", &["list", "watch"]),
        Right::on("", "pods", &["create", "delete", "patch"]),
        Right::on("", "events", &["create", "patch"]),
    ];
    if options.dry_run {
        rights.retain(Right::is_read);
    }
    Grant {
        // The stock roles may write, which a shadow must not even be able to.
        role: if options.dry_run {
            Role::Own(resource)
        } else {
            Role::Stock(workload.cluster_role)
        },
        namespace: options.namespace.clone(),
        purpose: format!("control {}s", workload.kind),
        is_vital: true,
        rights,
    }
}

/// RBAC cannot limit a create to a name, so that right is on all leases of the namespace.
fn lease_grant(lease: &LeaseName) -> Grant {
    Grant {
        role: Role::Own("leader-election"),
        namespace: Some(lease.namespace.clone()),
        purpose: "take part in the leader election".to_owned(),
        is_vital: true,
        rights: vec![
            Right::on("coordination.k8s.io", "leases", &["create"]),
            Right {
                name: Some(lease.name.clone()),
                ..Right::on("coordination.k8s.io", "leases", &["get", "update"])
            },
            Right::on("", "events", &["create", "patch"]),
        ],
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Grant, LeaseName, RightsOptions, Role, grants};
    use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};

    pub(in crate::rights) fn everything() -> RightsOptions {
        RightsOptions {
            namespace: None,
            workloads: vec![&REPLICA_SET, &REPLICATION_CONTROLLER],
            lease: Some(LeaseName {
                namespace: "kube-system".to_owned(),
                name: "kube-controller-manager".to_owned(),
            }),
            delegated_auth: true,
            dry_run: false,
        }
    }

    fn roles(grants: &[Grant]) -> Vec<Role> {
        grants.iter().map(|grant| grant.role).collect()
    }

    #[test]
    fn what_is_switched_off_needs_no_rights() {
        let all = everything();
        assert_eq!(
            roles(&grants(&all)),
            [
                Role::Stock("system:controller:replicaset-controller"),
                Role::Stock("system:controller:replication-controller"),
                Role::Own("leader-election"),
                Role::Stock("system:auth-delegator"),
            ]
        );
        let little = RightsOptions {
            workloads: vec![&REPLICA_SET],
            lease: None,
            delegated_auth: false,
            ..all
        };
        assert_eq!(
            roles(&grants(&little)),
            [Role::Stock("system:controller:replicaset-controller")]
        );
    }

    #[test]
    fn a_dry_run_needs_reads_only_and_no_lease() {
        let options = RightsOptions {
            dry_run: true,
            delegated_auth: false,
            ..everything()
        };
        let grants = grants(&options);
        assert_eq!(
            roles(&grants),
            [
                Role::Own("replicasets"),
                Role::Own("replicationcontrollers")
            ]
        );
        let mut verbs = grants.iter().flat_map(|grant| &grant.rights);
        assert!(verbs.all(super::Right::is_read));
    }
}
