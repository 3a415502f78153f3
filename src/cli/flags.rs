//! The one table of flags: name, unit, default and help; one file a group, as `--help` shows them.
//!
//! Names, defaults and meaning are kube-controller-manager's where it has the flag
//! (kubernetes `cmd/kube-controller-manager/app/options`); what is decided otherwise says so.

mod api;
mod controller;
#[cfg(feature = "devserver")]
mod dev;
mod explain;
mod features;
mod leader_election;
mod log;
mod rbac;
mod serving;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use self::api::{ApiArgs, ClientArgs, ContentType};
pub use self::controller::{ControllerArgs, ControllerItem, ControllerName};
#[cfg(feature = "devserver")]
pub use self::dev::{DemoArgs, DevArgs, StandInCommand};
pub use self::explain::{ExplainArgs, ExplainTarget, OutputFormat};
pub use self::features::{
    FeatureArgs, GATES, Gate, POD_DELETION_COST, STALE_CONTROLLER_CONSISTENCY, TERMINATING_REPLICAS,
};
pub use self::leader_election::{LEASE_NAMESPACE, LeaderElectionArgs, ResourceLock};
pub use self::log::{LogArgs, LoggingFormat, VmodulePattern, level_of};
pub use self::rbac::{RbacArgs, ServiceAccount};
pub use self::serving::{ServingArgs, TlsVersion};
use super::values::parse_bool;

/// Where flags are from, for `--help`.
const SOURCES: &str = "\
Each flag is also an environment variable, --kube-api-qps for example
REPLICASET_CONTROLLER_KUBE_API_QPS, and a field of the file that --config names. A flag wins over the
environment, that over the file, that over the default. `replicaset-controller config` prints what
comes of it, as such a file.";

/// The ReplicaSet controller of Kubernetes as a daemon of its own.
///
/// Watches ReplicaSets and pods, creates, deletes, adopts and releases pods until each ReplicaSet owns
/// as many as it wants, and writes its status. Without a command it runs against the cluster that the
/// flags, $KUBECONFIG, ~/.kube/config or the pod it runs in name.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "replicaset-controller",
    version,
    propagate_version = true,
    args_override_self = true,
    after_help = SOURCES,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    /// What to do; `run` if absent.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The flags of `run`, which need no command in front.
    #[command(flatten)]
    pub run: RunArgs,
}

/// What the program can do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the controller against a cluster (the default).
    #[command(after_help = SOURCES)]
    Run(Box<RunArgs>),
    /// Say why a ReplicaSet has the pods that it has, what would be done now, and which pods would go
    /// first and by which rule; from the API server, or from a running daemon.
    Explain(Box<ExplainArgs>),
    /// Commands that need no cluster.
    #[cfg(feature = "devserver")]
    #[command(flatten)]
    StandIn(Box<StandInCommand>),
    /// Print the effective configuration as YAML for --config, with where each value is from.
    Config(Box<RunArgs>),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the man page.
    Man,
    /// Print the RBAC manifests that a daemon with these flags needs, for `kubectl apply -f -`.
    Rbac(Box<RbacArgs>),
}

impl Command {
    /// True if it runs until it is stopped.
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
    /// Which cluster, and how much of it.
    #[command(flatten)]
    pub api: ApiArgs,

    /// How requests are sent.
    #[command(flatten)]
    pub client: ClientArgs,

    /// What the controllers do.
    #[command(flatten)]
    pub controller: ControllerArgs,

    /// How what is decided gets out.
    #[command(flatten)]
    pub mode: ModeArgs,

    /// Who may act when several daemons run.
    #[command(flatten)]
    pub leader_election: LeaderElectionArgs,

    /// What is served over HTTP.
    #[command(flatten)]
    pub serving: ServingArgs,

    /// Feature gates.
    #[command(flatten)]
    pub features: FeatureArgs,

    /// The log.
    #[command(flatten)]
    pub log: LogArgs,

    /// Where flags are from besides the command line.
    #[command(flatten)]
    pub sources: SourceArgs,

    /// All flags by name, without dashes, with the values that they have.
    #[arg(skip)]
    pub in_effect: BTreeMap<String, String>,
}

/// How what is decided gets out.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Controllers")]
pub struct ModeArgs {
    /// Read and decide, write nothing, and print what would be done.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = false, default_missing_value = "true", value_parser = parse_bool,
        action = clap::ArgAction::Set, hide_possible_values = true)]
    pub dry_run: bool,
}

/// Where flags are from besides the command line.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Configuration")]
pub struct SourceArgs {
    /// Configuration file in YAML, in the shape of KubeControllerManagerConfiguration. Flags and the
    /// environment win over it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Take a command line of kube-controller-manager: what does not concern this daemon is accepted,
    /// and listed once in the log as ignored.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = false, default_missing_value = "true", value_parser = parse_bool,
        action = clap::ArgAction::Set, hide_possible_values = true)]
    pub kcm_compat: bool,
}
