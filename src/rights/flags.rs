//! Formats the flags of the command `rbac`. Pure.

use std::fmt::Write;

use super::RightsOptions;
use crate::api::workload_kind::REPLICA_SET;

/// Default name of the lease, and its default namespace if the daemon controls all namespaces.
const LEASE: &str = "replicaset-controller";
const LEASE_NAMESPACE: &str = "kube-system";

/// The command that prints manifests for these options: `rbac` with all flags that differ from
/// their defaults.
pub fn rbac_command(options: &RightsOptions) -> String {
    let mut text = "replicaset-controller rbac".to_owned();
    let mut add = |flag: &str, value: &str| {
        // Writing to a string cannot fail.
        write!(text, " --{flag}={value}").unwrap_or_default();
    };
    if let Some(namespace) = &options.namespace {
        add("namespace", namespace);
    }
    match options.workloads.as_slice() {
        [workload] if **workload == REPLICA_SET => {}
        [workload] => add("controllers", workload.controller),
        _ => add("controllers", "'*'"),
    }
    match &options.lease {
        None => add("leader-elect", "false"),
        Some(lease) => {
            let namespace = options.namespace.as_deref().unwrap_or(LEASE_NAMESPACE);
            if lease.namespace != namespace {
                add("leader-elect-resource-namespace", &lease.namespace);
            }
            if lease.name != LEASE {
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
    use super::super::{LeaseName, RightsOptions};
    use super::rbac_command;
    use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};

    #[track_caller]
    fn check(change: impl FnOnce(&mut RightsOptions), expected: &str) {
        let mut options = RightsOptions {
            namespace: None,
            workloads: vec![&REPLICA_SET],
            lease: Some(LeaseName {
                namespace: "kube-system".to_owned(),
                name: "replicaset-controller".to_owned(),
            }),
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
                options.lease = Some(LeaseName {
                    namespace: "kube-system".to_owned(),
                    name: "kube-controller-manager".to_owned(),
                });
            },
            " --namespace=shop --controllers=replicationcontroller-controller \
             --leader-elect-resource-namespace=kube-system \
             --leader-elect-resource-name=kube-controller-manager",
        );
    }
}
