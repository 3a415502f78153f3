//! The command `rbac`, and the permissions that a command line needs. Called on the main thread.

use super::{RunError, print};
use crate::cli::flags::{RbacArgs, RunArgs};
use crate::rights::manifests::{Account, SYSTEM_NAMESPACE, manifests, warning};
use crate::rights::{Grant, LeaseName, RightsOptions, grants, optional_grants, rbac_command};

/// Default name of the daemon's ServiceAccount.
const ACCOUNT: &str = "replicaset-controller";

/// Prints the manifests that grant an account the permissions for these flags.
///
/// # Errors
/// If standard output cannot be written.
pub fn rbac(args: &RbacArgs) -> Result<(), RunError> {
    let options = rights_options(&args.run);
    let mut granted = grants(&options);
    if args.watch_quotas {
        granted.extend(optional_grants(&options));
    }
    let account = match (&args.user, &args.service_account) {
        (Some(user), _) => Account::User(user.clone()),
        (None, Some(account)) => Account::ServiceAccount {
            namespace: account.namespace.clone(),
            name: account.name.clone(),
        },
        (None, None) => Account::ServiceAccount {
            namespace: default_namespace(&options, &granted),
            name: ACCOUNT.to_owned(),
        },
    };
    let mut command = rbac_command(&options);
    if args.user.is_some() || args.service_account.is_some() {
        command = format!("{command} {}", account.flag());
    }
    if args.watch_quotas {
        command.push_str(" --watch-quotas");
    }
    let text = format!(
        "# Permissions of a daemon with these flags; printed by\n#   {command}\n{}{}",
        warning(&granted, &account),
        manifests(&granted, &account),
    );
    print(&text).map_err(RunError::Output)
}

/// Permissions outside the namespace need an account that its users cannot run pods as.
fn default_namespace(options: &RightsOptions, granted: &[Grant]) -> String {
    let stays_inside = granted.iter().all(|grant| grant.namespace.is_some());
    let inside = options.namespace.as_deref().filter(|_| stays_inside);
    inside.unwrap_or(SYSTEM_NAMESPACE).to_owned()
}

/// Returns the permissions that the daemon needs with these flags.
pub(super) fn rights_options(args: &RunArgs) -> RightsOptions {
    let namespace = args.api.namespace.as_deref();
    let election = &args.leader_election;
    let lease = election.leader_elect.then(|| LeaseName {
        namespace: election.resource_namespace(namespace).to_owned(),
        name: election.leader_elect_resource_name.clone(),
    });
    // With both kubeconfigs set, other accounts send all reviews.
    let asks_itself = args.serving.authentication_kubeconfig.is_none()
        || args.serving.authorization_kubeconfig.is_none();
    RightsOptions {
        namespace: namespace.map(str::to_owned),
        workloads: args.controller.enabled(),
        lease,
        delegated_auth: args.serving.secure_port != 0 && asks_itself,
        dry_run: args.mode.dry_run,
    }
}
