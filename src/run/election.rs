//! Turns the flags of leader election into the manager's options: the Lease and the identity.

use super::RunError;
use crate::cli::RunArgs;
use crate::leader_election::migration::{LeaderMigrationConfiguration, MigrationError};
use crate::leader_election::{LeaderElectionOptions, identity};

/// Returns the options, or `None` without leader election.
///
/// # Errors
/// [`RunError::LeaderElection`] if the leader migration configuration is not valid.
pub(super) fn leader_election(args: &RunArgs) -> Result<Option<LeaderElectionOptions>, RunError> {
    let flags = &args.leader_election;
    if !flags.leader_elect {
        return Ok(None);
    }
    let namespace = flags.resource_namespace(args.api.namespace.as_deref());
    let name = lease_name(args)?;
    Ok(Some(LeaderElectionOptions {
        lease_duration: flags.leader_elect_lease_duration,
        renew_deadline: flags.leader_elect_renew_deadline,
        retry_period: flags.leader_elect_retry_period,
        ..LeaderElectionOptions::new(identity(), namespace, &name)
    }))
}

/// Returns the Lease's name: that of the flag, or that of the leader migration configuration.
///
/// # Errors
/// [`RunError::LeaderElection`] if the leader migration configuration is not valid.
pub(super) fn lease_name(args: &RunArgs) -> Result<String, RunError> {
    let flags = &args.leader_election;
    // The checks of the flags refuse this file without --enable-leader-migration, and vice versa.
    let Some(path) = &flags.leader_migration_config else {
        return Ok(flags.leader_elect_resource_name.clone());
    };
    let refused = |error: MigrationError| RunError::LeaderElection(error.to_string());
    let configuration = LeaderMigrationConfiguration::read(path).map_err(refused)?;
    let controllers = args.controller.enabled().into_iter();
    let controllers: Vec<&str> = controllers.map(|kind| kind.controller).collect();
    let lease = configuration.lease_for(&controllers);
    let lease = lease.map_err(refused)?;
    Ok(lease.map_or_else(|| flags.leader_elect_resource_name.clone(), str::to_owned))
}
