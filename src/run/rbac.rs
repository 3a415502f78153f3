//! The command `rbac`, and the permissions that a command line needs. Called on the main thread.

use super::election::lease_name;
use super::{RunError, print};
use crate::cli::flags::{RbacArgs, RunArgs};
use crate::rights::manifests::{Account, manifests, optional_manifests};
use crate::rights::{LeaseName, RightsOptions, grants, optional_grants, rbac_command};

/// Default name of the daemon's ServiceAccount.
const ACCOUNT: &str = "replicaset-controller";

/// Prints the manifests that grant an account the permissions for these flags.
///
/// # Errors
/// If the leader migration configuration cannot be read, or standard output cannot be written.
pub fn rbac(args: &RbacArgs) -> Result<(), RunError> {
    let options = rights_options(&args.run)?;
    let account = match (&args.user, &args.service_account) {
        (Some(user), _) => Account::User(user.clone()),
        (None, Some(account)) => Account::ServiceAccount {
            namespace: account.namespace.clone(),
            name: account.name.clone(),
        },
        (None, None) => Account::ServiceAccount {
            namespace: options
                .namespace
                .clone()
                .unwrap_or_else(|| "kube-system".to_owned()),
            name: ACCOUNT.to_owned(),
        },
    };
    let account_flag = if args.user.is_some() || args.service_account.is_some() {
        format!(" {}", account.flag())
    } else {
        String::new()
    };
    let text = format!(
        "# Permissions of a daemon with these flags; printed by\n#   {}{account_flag}\n{}{}",
        rbac_command(&options),
        manifests(&grants(&options), &account),
        optional_manifests(&optional_grants(&options), &account)
    );
    print(&text).map_err(RunError::Output)
}

/// Returns the permissions that the daemon needs with these flags.
///
/// # Errors
/// If the leader migration configuration, which names the Lease, cannot be read.
pub(super) fn rights_options(args: &RunArgs) -> Result<RightsOptions, RunError> {
    let namespace = args.api.namespace.as_deref();
    let election = &args.leader_election;
    let lease = if election.leader_elect {
        Some(LeaseName {
            namespace: election.resource_namespace(namespace).to_owned(),
            name: lease_name(args)?,
        })
    } else {
        None
    };
    // With both kubeconfigs set, other accounts send all reviews.
    let asks_itself = args.serving.authentication_kubeconfig.is_none()
        || args.serving.authorization_kubeconfig.is_none();
    Ok(RightsOptions {
        namespace: namespace.map(str::to_owned),
        workloads: args.controller.enabled(),
        lease,
        delegated_auth: args.serving.secure_port != 0 && asks_itself,
        dry_run: args.mode.dry_run,
    })
}
