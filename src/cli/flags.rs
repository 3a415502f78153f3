//! The definition of all flags: name, unit, default and help. One file for each group of `--help`.
//!
//! Names, defaults and meanings are kube-controller-manager's where it has the flag
//! (kubernetes `cmd/kube-controller-manager/app/options`); `DIFFERS:` marks every exception.

mod api;
mod controller;
#[cfg(feature = "devserver")]
mod dev;
mod explain;
mod features;
mod leader_election;
mod log;
mod opt_ins;
mod rbac;
mod serving;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use self::api::{ApiArgs, ClientArgs, ContentType};
pub use self::controller::{ControllerArgs, ControllerItem};
#[cfg(feature = "devserver")]
pub use self::dev::{DemoArgs, DevArgs, StandInCommand};
pub use self::explain::{ExplainArgs, ExplainTarget, OutputFormat};
pub use self::features::{
    FeatureArgs, GATES, Gate, POD_DELETION_COST, STALE_CONTROLLER_CONSISTENCY,
    TERMINATING_REPLICAS, WATCH_LIST_CLIENT,
};
pub use self::leader_election::{LEASE_NAMESPACE, LeaderElectionArgs, ResourceLock};
pub use self::log::{LogArgs, LoggingFormat, VmodulePattern, level_of};
pub use self::opt_ins::OptInArgs;
pub use self::rbac::{RbacArgs, ServiceAccount};
pub use self::serving::{ServingArgs, TlsVersion};
use super::values::parse_bool;
use crate::stdx::build;

/// The end of `--help`.
const SOURCES: &str = "\
Each flag has an environment variable, such as REPLICASET_CONTROLLER_KUBE_API_QPS for
--kube-api-qps, and a field of the --config file. A flag overrides the environment, the environment
overrides the file, and the file overrides the default. `replicaset-controller config` prints the
result.";

/// The ReplicaSet controller of Kubernetes as a standalone daemon.
///
/// The daemon watches ReplicaSets and pods through the API server. It creates, deletes, adopts and
/// releases pods until each ReplicaSet owns spec.replicas pods, and writes the status. Without a
/// command it runs the controller against the cluster of --kubeconfig, $KUBECONFIG, ~/.kube/config
/// or the pod's service account.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "replicaset-controller",
    version = build::version(),
    propagate_version = true,
    args_override_self = true,
    after_long_help = SOURCES,
    override_usage = "replicaset-controller [OPTIONS] [COMMAND]",
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    /// The command; `run` if absent.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The flags of `run`, for a command line without a command.
    #[command(flatten)]
    pub run: RunArgs,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the controller against a cluster (the default).
    #[command(after_long_help = SOURCES)]
    Run(Box<RunArgs>),
    /// Explain a ReplicaSet: its pods and its next sync; without a name, list all not in step.
    #[command(after_long_help = self::explain::FORMS)]
    Explain(Box<ExplainArgs>),
    /// The commands that need no cluster.
    #[cfg(feature = "devserver")]
    #[command(flatten)]
    StandIn(Box<StandInCommand>),
    /// Print the effective configuration as a --config file, with the source of each value.
    Config(Box<RunArgs>),
    /// Print a completion script for a shell.
    Completions {
        /// Shell of the script.
        shell: clap_complete::Shell,
    },
    /// Print the man page.
    Man,
    /// Print the RBAC manifests for a daemon with these flags, as input of kubectl apply.
    Rbac(Box<RbacArgs>),
    /// Print sample ReplicaSets, as input of kubectl apply.
    Sample,
}

impl Command {
    /// True if the command runs until it is stopped.
    pub fn is_daemon(&self) -> bool {
        match self {
            Self::Run(_) => true,
            #[cfg(feature = "devserver")]
            Self::StandIn(command) => command.is_daemon(),
            _ => false,
        }
    }
}

/// Flags of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The API server and the namespace.
    #[command(flatten)]
    pub api: ApiArgs,

    /// Rate limit and encoding of requests.
    #[command(flatten)]
    pub client: ClientArgs,

    /// The controllers and their limits.
    #[command(flatten)]
    pub controller: ControllerArgs,

    /// Dry run.
    #[command(flatten)]
    pub mode: ModeArgs,

    /// Behaviour beyond upstream's.
    #[command(flatten)]
    pub opt_ins: OptInArgs,

    /// Leader election.
    #[command(flatten)]
    pub leader_election: LeaderElectionArgs,

    /// The HTTP servers.
    #[command(flatten)]
    pub serving: ServingArgs,

    /// Feature gates.
    #[command(flatten)]
    pub features: FeatureArgs,

    /// The log.
    #[command(flatten)]
    pub log: LogArgs,

    /// Sources besides the command line.
    #[command(flatten)]
    pub sources: SourceArgs,

    /// The effective value of each flag, by its name without dashes.
    #[arg(skip)]
    pub in_effect: BTreeMap<String, String>,
}

/// Dry run.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Controllers")]
pub struct ModeArgs {
    /// Write nothing to the API server and log what each sync would create or delete.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = false, default_missing_value = "true", value_parser = parse_bool,
        action = clap::ArgAction::Set, hide_possible_values = true)]
    pub dry_run: bool,
}

/// Sources besides the command line.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Configuration")]
pub struct SourceArgs {
    /// Configuration file in YAML, a KubeControllerManagerConfiguration; flags and environment
    /// override it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Accept the flags of kube-controller-manager and log those that this daemon ignores.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = false, default_missing_value = "true", value_parser = parse_bool,
        action = clap::ArgAction::Set, hide_possible_values = true, hide_short_help = true)]
    pub kcm_compat: bool,
}
