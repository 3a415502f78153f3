//! Flags of leader election.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::api::duration::parse_duration;
use crate::cli::values::{parse_bool, parse_namespace, parse_object_name};

/// Default namespace of the Lease without `--leader-elect-resource-namespace` and `--namespace`
/// (kubernetes `pkg/controller/apis/config/v1alpha1/defaults.go`).
pub const LEASE_NAMESPACE: &str = "kube-system";

/// Flags of leader election.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderElectionArgs {
    /// Write only while holding the Lease, so that several daemons can run and one leads.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = true, default_missing_value = "true", value_parser = parse_bool,
        action = clap::ArgAction::Set)]
    pub leader_elect: bool,

    /// Another daemon can take the Lease if the leader has not renewed it for this time.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_duration,
        hide_short_help = true)]
    pub leader_elect_lease_duration: Duration,

    /// The leader gives up and exits if it could not renew the Lease for this time.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration,
        hide_short_help = true)]
    pub leader_elect_renew_deadline: Duration,

    /// Pause between two attempts to acquire or renew the Lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration,
        hide_short_help = true)]
    pub leader_elect_retry_period: Duration,

    /// Resource that serves as the lock.
    #[arg(
        long,
        value_name = "KIND",
        value_enum,
        default_value = "leases",
        hide_short_help = true
    )]
    pub leader_elect_resource_lock: ResourceLock,

    /// Name of the Lease.
    // DIFFERS: upstream's default is `kube-controller-manager`. With that Lease this daemon would
    // put a whole kube-controller-manager on standby.
    #[arg(long, value_name = "NAME", default_value = "replicaset-controller",
        value_parser = parse_object_name, hide_short_help = true)]
    pub leader_elect_resource_name: String,

    /// Namespace of the Lease; default --namespace, else kube-system.
    #[arg(long, value_name = "NAME", value_parser = parse_namespace, hide_short_help = true)]
    pub leader_elect_resource_namespace: Option<String>,

    /// Refused. --leader-elect-resource-name names a Lease shared with kube-controller-manager.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = false, default_missing_value = "true", value_parser = parse_bool,
        action = clap::ArgAction::Set, hide = true)]
    pub enable_leader_migration: bool,

    /// Refused. --leader-elect-resource-name names a Lease shared with kube-controller-manager.
    #[arg(long, value_name = "FILE", hide = true)]
    pub leader_migration_config: Option<PathBuf>,
}

/// Resource that serves as the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ResourceLock {
    /// Lease, the only lock that Kubernetes still supports.
    Leases,
}

impl LeaderElectionArgs {
    /// The namespace of the Lease of a daemon that controls `namespace` (`None` for all).
    pub fn resource_namespace<'a>(&'a self, namespace: Option<&'a str>) -> &'a str {
        let given = self.leader_elect_resource_namespace.as_deref();
        given.or(namespace).unwrap_or(LEASE_NAMESPACE)
    }
}
