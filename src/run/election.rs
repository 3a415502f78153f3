//! Turns the flags of leader election into the manager's options: the Lease and the identity.

use super::RunError;
use crate::cli::RunArgs;
use crate::cli::flags::ControllerName;
use crate::leader_election::migration::LeaderMigrationConfiguration;
use crate::leader_election::{LeaderElectionOptions, identity};

/// Returns the options, or `None` without leader election.
///
/// # Errors
/// [`RunError::LeaderElection`] with all mistakes.
pub(super) fn leader_election(args: &RunArgs) -> Result<Option<LeaderElectionOptions>, RunError> {
    let flags = &args.leader_election;
    if !flags.leader_elect {
        return Ok(None);
    }
    let namespace = flags.resource_namespace(args.api.namespace.as_deref());
    let mut problems = Vec::new();
    let name = lease_name(args).unwrap_or_else(|problem| {
        problems.push(problem);
        flags.leader_elect_resource_name.clone()
    });
    let options = LeaderElectionOptions {
        lease_duration: flags.leader_elect_lease_duration,
        renew_deadline: flags.leader_elect_renew_deadline,
        retry_period: flags.leader_elect_retry_period,
        ..LeaderElectionOptions::new(identity(), namespace, &name)
    };
    let numbers = options.problems().into_iter();
    problems.extend(numbers.map(|problem| problem.to_string()));
    if problems.is_empty() {
        return Ok(Some(options));
    }
    Err(RunError::LeaderElection(problems.join("\n")))
}

/// Returns the Lease's name: that of the flag, or that of the leader migration configuration.
///
/// # Errors
/// A message if the leader migration configuration is not valid.
pub(super) fn lease_name(args: &RunArgs) -> Result<String, String> {
    let flags = &args.leader_election;
    if !flags.enable_leader_migration {
        return Ok(flags.leader_elect_resource_name.clone());
    }
    let Some(path) = &flags.leader_migration_config else {
        // DIFFERS: upstream has a default configuration, which names cloud controllers only.
        return Err("--enable-leader-migration needs --leader-migration-config".to_owned());
    };
    let configuration = LeaderMigrationConfiguration::read(path).map_err(|it| it.to_string())?;
    let controllers = args.controller.enabled();
    let controllers: Vec<&str> = controllers
        .into_iter()
        .map(ControllerName::as_str)
        .collect();
    let lease = configuration.lease_for(&controllers);
    let lease = lease.map_err(|it| it.to_string())?;
    Ok(lease.map_or_else(|| flags.leader_elect_resource_name.clone(), str::to_owned))
}
