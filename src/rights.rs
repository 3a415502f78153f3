//! The permissions of the daemon: one table, its rendering as [`manifests`] for the command `rbac`,
//! the [`self_check`] of each permission at startup, and the messages about missing ones.
//! Everything except the self-check is pure.
//!
//! A [`Grant`] is one role, the scope of its binding, and the permissions that the daemon uses of
//! it. Stock roles, which exist in every cluster, may grant more.

pub mod manifests;
pub mod self_check;

use std::fmt::Write;

use crate::api::workload_kind::REPLICA_SET;
use crate::api::{ObjectKey, WorkloadKind};
use crate::stdx::escape::shell_word;

pub use self::self_check::{
    DEPLOYMENTS_FORBIDDEN, PODS_FORBIDDEN, QUOTAS_FORBIDDEN, forbidden_workload,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RightsOptions {
    pub namespace: Option<String>,
    pub workloads: Vec<&'static WorkloadKind>,
    /// Whether the Deployment controller runs too.
    pub deployments: bool,
    /// The lease of the leader election; `None` without one.
    pub lease: Option<ObjectKey>,
    /// Whether the daemon delegates authentication and authorization of metrics and debug pages.
    pub delegated_auth: bool,
    pub dry_run: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub role: Role,
    /// Namespace of the binding; `None` for a cluster-wide one.
    pub namespace: Option<String>,
    /// What fails without it, in words that follow "cannot".
    pub purpose: String,
    /// False if the controllers work without it.
    pub is_vital: bool,
    pub rights: Vec<Right>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A ClusterRole that every API server with RBAC creates and maintains.
    Stock(&'static str),
    Own(&'static str),
}

/// Verbs on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource with its subresource: `replicasets/status`.
    pub resource: String,
    /// Name of a single object; `None` for all objects.
    pub name: Option<String>,
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

    /// Resource and subresource; the latter may be empty.
    pub fn resource_and_subresource(&self) -> (&str, &str) {
        let parts = self.resource.split_once('/');
        parts.unwrap_or((&self.resource, ""))
    }

    fn is_read(&self) -> bool {
        let mut verbs = self.verbs.iter();
        verbs.all(|verb| matches!(*verb, "get" | "list" | "watch"))
    }
}

pub fn grants(options: &RightsOptions) -> Vec<Grant> {
    let workloads = options.workloads.iter();
    let mut grants: Vec<Grant> = workloads
        .map(|workload| workload_grant(workload, options))
        .collect();
    if options.deployments {
        grants.push(deployment_grant(options));
    }
    // A dry run never writes, so it takes no part in the election.
    if let Some(lease) = options.lease.as_ref().filter(|_| !options.dry_run) {
        grants.push(lease_grant(lease));
    }
    if options.delegated_auth {
        grants.push(Grant {
            role: Role::Stock("system:auth-delegator"),
            namespace: None,
            purpose: "authorize readers of metrics and debug pages".to_owned(),
            is_vital: false,
            rights: vec![
                Right::on("authentication.k8s.io", "tokenreviews", &["create"]),
                Right::on("authorization.k8s.io", "subjectaccessreviews", &["create"]),
            ],
        });
    }
    grants
}

/// The grants that the daemon can do without, and asks for only when it has a use for them.
pub fn optional_grants(options: &RightsOptions) -> Vec<Grant> {
    // A dry run needs no permission to write.
    if options.dry_run {
        return Vec::new();
    }
    vec![Grant {
        role: Role::Own("quotas"),
        namespace: options.namespace.clone(),
        purpose: "notice a raised quota immediately".to_owned(),
        is_vital: false,
        rights: vec![Right::on("", "resourcequotas", &["watch"])],
    }]
}

/// The grant of one controller for its kind, for pods and for events (kubernetes
/// `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go`). Admission of owner
/// references (`blockOwnerDeletion`) requires `update` on finalizers.
fn workload_grant(workload: &'static WorkloadKind, options: &RightsOptions) -> Grant {
    let (group, resource) = (workload.group(), workload.resource);
    let rights = vec![
        Right::on(group, resource, &["get", "list", "watch"]),
        Right::on(group, format!("{resource}/status"), &["update"]),
        Right::on(group, format!("{resource}/finalizers"), &["update"]),
        Right::on("", "pods", &["list", "watch"]),
        Right::on("", "pods", &["create", "delete", "patch"]),
        Right::on("", "events", &["create", "patch"]),
    ];
    let own = Role::Own(resource);
    controller_grant(
        options,
        workload.kind,
        [own, Role::Stock(workload.cluster_role)],
        rights,
    )
}

fn deployment_grant(options: &RightsOptions) -> Grant {
    let stock = Role::Stock("system:controller:deployment-controller");
    let rights = vec![
        Right::on("apps", "deployments", &["get", "list", "watch"]),
        Right::on("apps", "deployments", &["update"]),
        Right::on("apps", "deployments/status", &["update"]),
        Right::on("apps", "deployments/finalizers", &["update"]),
        Right::on("apps", "replicasets", &["get", "list", "watch"]),
        Right::on("apps", "replicasets", &["create", "delete", "patch"]),
        Right::on("", "pods", &["list", "watch"]),
        Right::on("", "events", &["create", "patch"]),
    ];
    controller_grant(
        options,
        "Deployment",
        [Role::Own("deployments"), stock],
        rights,
    )
}

/// The stock roles allow writes, and a dry run must not be able to write.
fn controller_grant(
    options: &RightsOptions,
    kind: &str,
    [own, stock]: [Role; 2],
    mut rights: Vec<Right>,
) -> Grant {
    if options.dry_run {
        rights.retain(Right::is_read);
    }
    Grant {
        role: if options.dry_run { own } else { stock },
        namespace: options.namespace.clone(),
        purpose: format!("control {kind}s"),
        is_vital: true,
        rights,
    }
}

/// RBAC cannot restrict a create by name, so this grant allows to create any lease in the
/// namespace.
fn lease_grant(lease: &ObjectKey) -> Grant {
    Grant {
        role: Role::Own("leader-election"),
        namespace: Some(lease.namespace.to_string()),
        purpose: "take part in the leader election".to_owned(),
        is_vital: true,
        rights: vec![
            Right::on("coordination.k8s.io", "leases", &["create"]),
            Right {
                name: Some(lease.name.to_string()),
                ..Right::on("coordination.k8s.io", "leases", &["get", "update"])
            },
            Right::on("", "events", &["create", "patch"]),
        ],
    }
}

/// Name in `--controllers`.
const DEPLOYMENT_CONTROLLER: &str = "deployment-controller";

/// Default name of the lease, and its default namespace if the daemon controls all namespaces.
const LEASE: &str = "replicaset-controller";
const LEASE_NAMESPACE: &str = "kube-system";

/// The command that prints manifests for these options: `rbac` with all flags that differ from
/// their defaults.
pub fn rbac_command(options: &RightsOptions) -> String {
    let mut text = "replicaset-controller rbac".to_owned();
    let mut add = |flag: &str, value: &str| {
        // Writing to a string cannot fail.
        write!(text, " --{flag}={}", shell_word(value)).unwrap_or_default();
    };
    if let Some(namespace) = &options.namespace {
        add("namespace", namespace);
    }
    let deployments = options.deployments.then_some(DEPLOYMENT_CONTROLLER);
    match (options.workloads.as_slice(), deployments) {
        ([workload], None) if **workload == REPLICA_SET => {}
        ([_, _, ..], None) => add("controllers", "*"),
        (workloads, deployments) => {
            let names = workloads.iter().map(|workload| workload.controller);
            add(
                "controllers",
                &names.chain(deployments).collect::<Vec<_>>().join(","),
            );
        }
    }
    match &options.lease {
        None => add("leader-elect", "false"),
        Some(lease) => {
            let namespace = options.namespace.as_deref().unwrap_or(LEASE_NAMESPACE);
            if &*lease.namespace != namespace {
                add("leader-elect-resource-namespace", &lease.namespace);
            }
            if &*lease.name != LEASE {
                add("leader-elect-resource-name", &lease.name);
            }
        }
    }
    if !options.delegated_auth {
        add("secure-port", "0");
    }
    if options.dry_run {
        add("dry-run", "true");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Grant, ObjectKey, RightsOptions, Role, grants, optional_grants, rbac_command};
    use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};

    pub(in crate::rights) fn all_enabled() -> RightsOptions {
        RightsOptions {
            namespace: None,
            workloads: vec![&REPLICA_SET, &REPLICATION_CONTROLLER],
            deployments: false,
            lease: Some(ObjectKey::new("kube-system", "kube-controller-manager")),
            delegated_auth: true,
            dry_run: false,
        }
    }

    fn roles(grants: &[Grant]) -> Vec<Role> {
        grants.iter().map(|grant| grant.role).collect()
    }

    #[test]
    fn disabled_features_need_no_permissions() {
        let all = all_enabled();
        assert_eq!(
            roles(&grants(&all)),
            [
                Role::Stock("system:controller:replicaset-controller"),
                Role::Stock("system:controller:replication-controller"),
                Role::Own("leader-election"),
                Role::Stock("system:auth-delegator"),
            ]
        );
        let minimal = RightsOptions {
            workloads: vec![&REPLICA_SET],
            lease: None,
            delegated_auth: false,
            ..all
        };
        assert_eq!(
            roles(&grants(&minimal)),
            [Role::Stock("system:controller:replicaset-controller")]
        );
    }

    #[test]
    fn deployments_need_their_stock_role() {
        let options = RightsOptions {
            workloads: Vec::new(),
            deployments: true,
            lease: None,
            delegated_auth: false,
            ..all_enabled()
        };
        let stock = Role::Stock("system:controller:deployment-controller");
        assert_eq!(roles(&grants(&options)), [stock]);
        check(
            |options| options.deployments = true,
            " --controllers=replicaset-controller,deployment-controller",
        );
    }

    #[test]
    fn a_dry_run_needs_reads_only_and_no_lease() {
        let options = RightsOptions {
            dry_run: true,
            delegated_auth: false,
            deployments: true,
            ..all_enabled()
        };
        let grants = grants(&options);
        assert_eq!(
            roles(&grants),
            [
                Role::Own("replicasets"),
                Role::Own("replicationcontrollers"),
                Role::Own("deployments")
            ]
        );
        let mut verbs = grants.iter().flat_map(|grant| &grant.rights);
        assert!(verbs.all(super::Right::is_read));
        assert_eq!(optional_grants(&options), []);
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut RightsOptions), expected: &str) {
        let mut options = RightsOptions {
            namespace: None,
            workloads: vec![&REPLICA_SET],
            deployments: false,
            lease: Some(ObjectKey::new("kube-system", "replicaset-controller")),
            delegated_auth: true,
            dry_run: false,
        };
        change(&mut options);
        let expected = format!("replicaset-controller rbac{expected}");
        assert_eq!(rbac_command(&options), expected);
    }

    #[test]
    fn only_values_other_than_defaults_need_flags() {
        check(|_| {}, "");
        check(
            |options| {
                options.workloads.push(&REPLICATION_CONTROLLER);
                options.lease = None;
                options.delegated_auth = false;
                options.dry_run = true;
            },
            " --controllers='*' --leader-elect=false --secure-port=0 --dry-run=true",
        );
        check(
            |options| {
                options.workloads = vec![&REPLICATION_CONTROLLER];
                options.namespace = Some("shop".to_owned());
                options.lease = Some(ObjectKey::new("kube-system", "kube-controller-manager"));
            },
            " --namespace=shop --controllers=replicationcontroller-controller \
             --leader-elect-resource-namespace=kube-system \
             --leader-elect-resource-name=kube-controller-manager",
        );
    }
}
