//! From the flags of leader election to what the manager takes: which lease, and who we are.

use super::RunError;
use crate::cli::RunArgs;
use crate::cli::flags::ControllerName;
use crate::leader_election::migration::LeaderMigrationConfiguration;
use crate::leader_election::{LeaderElectionOptions, identity};

/// `None` if this daemon is to write without asking anybody.
///
/// # Errors
/// [`RunError::LeaderElection`] with everything that is wrong.
pub(super) fn leader_election(args: &RunArgs) -> Result<Option<LeaderElectionOptions>, RunError> {
    let flags = &args.leader_election;
    if !flags.leader_elect {
        return Ok(None);
    }
    let namespace = flags.resource_namespace(args.api.namespace.as_deref());
    let mut problems = Vec::new();
    let lease = migrated_lease(args).unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let name = lease.as_ref().unwrap_or(&flags.leader_elect_resource_name);
    let options = LeaderElectionOptions {
        lease_duration: flags.leader_elect_lease_duration,
        renew_deadline: flags.leader_elect_renew_deadline,
        retry_period: flags.leader_elect_retry_period,
        ..LeaderElectionOptions::new(identity(), namespace, name)
    };
    let numbers = options.problems().into_iter();
    problems.extend(numbers.map(|problem| problem.to_string()));
    if problems.is_empty() {
        return Ok(Some(options));
    }
    Err(RunError::LeaderElection(problems.join("\n")))
}

/// The lease that is shared with kube-controller-manager, if one is.
fn migrated_lease(args: &RunArgs) -> Result<Option<String>, String> {
    let flags = &args.leader_election;
    if !flags.enable_leader_migration {
        return Ok(None);
    }
    let Some(path) = &flags.leader_migration_config else {
        // DIFFERS: upstream has a default here, which names cloud controllers only.
        return Err("--enable-leader-migration needs --leader-migration-config".to_owned());
    };
    let configuration = LeaderMigrationConfiguration::read(path).map_err(|it| it.to_string())?;
    let controllers = args.controller.enabled();
    let controllers: Vec<&str> = controllers
        .into_iter()
        .map(ControllerName::as_str)
        .collect();
    let lease = configuration.lease_for(&controllers);
    Ok(lease.map_err(|it| it.to_string())?.map(str::to_owned))
}
