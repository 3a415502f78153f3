//! Who may act when several daemons run: the lease, and leases shared with kube-controller-manager.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::duration::parse_duration;
use crate::cli::values::{parse_bool, parse_object_name};

/// Where the lease is if neither `--leader-elect-resource-namespace` nor `--namespace` says
/// (kubernetes `pkg/controller/apis/config/v1alpha1/defaults.go`).
pub const LEASE_NAMESPACE: &str = "kube-system";

/// Flags of leader election.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderElectionArgs {
    /// Act only while holding the lease, so that several may run and one acts.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = true, default_missing_value = "true", value_parser = parse_bool,
        action = clap::ArgAction::Set)]
    pub leader_elect: bool,

    /// A lease that has not been renewed for this long may be taken by another.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    pub leader_elect_lease_duration: Duration,

    /// A leader that could not renew for this long gives up and ends.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub leader_elect_renew_deadline: Duration,

    /// Pause between two tries to take or renew the lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub leader_elect_retry_period: Duration,

    /// Kind of object that is locked.
    #[arg(long, value_name = "KIND", value_enum, default_value = "leases")]
    pub leader_elect_resource_lock: ResourceLock,

    /// Name of the lease.
    // DIFFERS: kube-controller-manager's default is its own name; taking that would put a whole
    // kube-controller-manager on standby.
    #[arg(long, value_name = "NAME", default_value = "replicaset-controller",
        value_parser = parse_object_name)]
    pub leader_elect_resource_name: String,

    /// Namespace of the lease; default --namespace, else kube-system.
    #[arg(long, value_name = "NAME", value_parser = crate::cli::values::parse_namespace)]
    pub leader_elect_resource_namespace: Option<String>,

    /// Share leases with kube-controller-manager, as --leader-migration-config says.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = false, default_missing_value = "true", value_parser = parse_bool,
        action = clap::ArgAction::Set)]
    pub enable_leader_migration: bool,

    /// File with a LeaderMigrationConfiguration.
    #[arg(long, value_name = "FILE")]
    pub leader_migration_config: Option<PathBuf>,
}

/// Kind of object that is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ResourceLock {
    /// A Lease, the only kind that Kubernetes still knows.
    Leases,
}

impl LeaderElectionArgs {
    /// The namespace of the lease, if the daemon controls `namespace` (`None` for all).
    pub fn resource_namespace<'a>(&'a self, namespace: Option<&'a str>) -> &'a str {
        let given = self.leader_elect_resource_namespace.as_deref();
        given.or(namespace).unwrap_or(LEASE_NAMESPACE)
    }
}
