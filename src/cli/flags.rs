//! The definition of all flags: name, unit, default and help. The groups that several commands
//! share are here: API server, log, pages.
//!
//! Names, defaults and meanings are kube-controller-manager's where it has the flag
//! (kubernetes `cmd/kube-controller-manager/app/options`); `DIFFERS:` marks every exception.

mod controller;
#[cfg(feature = "devserver")]
mod dev;
mod explain;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Arg, Args, Parser, Subcommand, ValueEnum};

use super::parse_bool;
use crate::cli::{number, parse_namespace, parse_qps, parse_url_path};
use crate::stdx::build;

pub use self::controller::{
    ControllerArgs, ControllerItem, ControllerName, FeatureArgs, GATES, Gate, LEASE_NAMESPACE,
    LeaderElectionArgs, OptInArgs, POD_DELETION_COST, STALE_CONTROLLER_CONSISTENCY,
    TERMINATING_REPLICAS, WATCH_LIST_CLIENT,
};
pub use self::explain::{ExplainArgs, ExplainTarget, OutputFormat, RbacArgs, ServiceAccount};

#[cfg(feature = "devserver")]
pub use self::dev::{DemoArgs, DevArgs, LocalCommand, SIMULATED};

/// The last paragraph of `--help`.
const SOURCES: &str = "\
Each flag has an environment variable, such as REPLICASET_CONTROLLER_KUBE_API_QPS for
--kube-api-qps, and a field of the --config file. A flag overrides the environment, the environment
overrides the file, and the file overrides the default. `replicaset-controller config` prints the
result.";

/// The flags of [`RunArgs`] that `-h` shows; `--help` shows all.
const SHORT_HELP: [&str; 10] = [
    "kubeconfig",
    "namespace",
    "kube_api_qps",
    "controllers",
    "concurrent_replicaset_syncs",
    "dry_run",
    "leader_elect",
    "secure_port",
    "verbosity",
    "config",
];

/// Flags of a group, which has a heading, are for `--help` only unless [`SHORT_HELP`] names them.
fn short_help(arg: Arg) -> Arg {
    let heading = arg.get_help_heading().unwrap_or_default();
    let is_short = heading.is_empty()
        || self::explain::HEADINGS.contains(&heading)
        || SHORT_HELP.contains(&arg.get_id().as_str());
    if is_short {
        arg
    } else {
        arg.hide_short_help(true)
    }
}

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
    args_conflicts_with_subcommands = true,
    mut_args(short_help),
    mut_subcommands(|command| command.mut_args(short_help))
)]
pub struct Cli {
    /// The command; `run` if absent.
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub run: RunArgs,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the controller against a cluster (the default).
    #[command(after_long_help = SOURCES)]
    Run(Box<RunArgs>),
    /// Explain a ReplicaSet: its pods and its next sync; without a name, list all that have not
    /// converged.
    #[command(after_long_help = self::explain::FORMS)]
    Explain(Box<ExplainArgs>),
    /// The commands that need no cluster.
    #[cfg(feature = "devserver")]
    #[command(flatten)]
    Local(Box<LocalCommand>),
    /// Print the effective configuration as a --config file, with the source of each value.
    Config(Box<RunArgs>),
    /// Print a completion script for a shell.
    Completions {
        /// Shell of the script.
        shell: clap_complete::Shell,
    },
    /// Print the man page.
    Man,
    /// Print the RBAC manifests for a daemon with these flags, for kubectl apply -f -.
    Rbac(Box<RbacArgs>),
    /// Print sample ReplicaSets, for kubectl apply -f -.
    Sample,
}

impl Command {
    /// True if the command runs until it is stopped.
    pub fn is_daemon(&self) -> bool {
        match self {
            Self::Run(_) => true,
            #[cfg(feature = "devserver")]
            Self::Local(command) => command.is_daemon(),
            _ => false,
        }
    }
}

/// Flags of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub api: ApiArgs,
    #[command(flatten)]
    pub client: ClientArgs,
    #[command(flatten)]
    pub controller: ControllerArgs,
    #[command(flatten)]
    pub mode: ModeArgs,
    #[command(flatten)]
    pub opt_ins: OptInArgs,
    #[command(flatten)]
    pub leader_election: LeaderElectionArgs,
    #[command(flatten)]
    pub serving: ServingArgs,
    #[command(flatten)]
    pub features: FeatureArgs,
    #[command(flatten)]
    pub log: LogArgs,
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
        action = clap::ArgAction::Set, hide_possible_values = true)]
    pub kcm_compat: bool,
}

/// Flags of the API server and the namespace.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "API server")]
pub struct ApiArgs {
    /// Kubeconfig file; default $KUBECONFIG, then ~/.kube/config, then the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Address of the API server; overrides the server of the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,

    /// Context of the kubeconfig; default its current context.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Control this namespace only; with --secure-port=0 needs no cluster-wide permission. Default
    /// all namespaces.
    #[arg(long, value_name = "NAME", value_parser = parse_namespace)]
    pub namespace: Option<String>,
}

/// Flags of rate limit and encoding of requests.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "API server")]
pub struct ClientArgs {
    /// Maximum requests per second to the API server, events counted separately; 0 or less: no
    /// limit.
    #[arg(long, value_name = "N", default_value_t = 20.0, allow_negative_numbers = true,
        value_parser = parse_qps)]
    pub kube_api_qps: f32,

    /// Maximum burst of requests before --kube-api-qps applies.
    #[arg(long, value_name = "N", default_value_t = 30,
        value_parser = number::<u32>(0..=u32::MAX.into()))]
    pub kube_api_burst: u32,

    /// Content type of lists, watches, new pods and statuses.
    #[arg(
        long,
        value_name = "TYPE",
        value_enum,
        default_value = "application/vnd.kubernetes.protobuf"
    )]
    pub kube_api_content_type: ContentType,
}

/// Content type of objects on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ContentType {
    /// JSON.
    #[value(name = "application/json")]
    Json,
    /// Protobuf in the envelope of Kubernetes.
    #[value(name = "application/vnd.kubernetes.protobuf")]
    Protobuf,
}

/// Flags of the log.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// Log verbosity: -v logs each event, -vv each request; or klog's number. $RUST_LOG overrides
    /// it, also for single modules.
    #[arg(short = 'v', long = "v", value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "4", action = clap::ArgAction::Append,
        value_parser = number::<u8>(0..=255))]
    pub verbosity: Vec<u8>,

    /// Format of the log.
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub logging_format: LoggingFormat,
}

/// Format of a log record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LoggingFormat {
    /// One line of text per record.
    #[default]
    Text,
    /// One JSON object per line, with klog's field names.
    Json,
}

impl LogArgs {
    /// Verbosity as in klog; repeated `-v` add up.
    pub fn verbosity(&self) -> u8 {
        let all = self.verbosity.iter();
        all.fold(0, |sum, v| sum.saturating_add(*v))
    }
}

/// Flags of the HTTP servers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Serving")]
pub struct ServingArgs {
    /// Address of the HTTPS server.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,

    /// Port of the HTTPS server for health, metrics and debug endpoints; 0: no HTTPS server.
    #[arg(long, value_name = "PORT", default_value_t = 10257,
        value_parser = number::<u16>(0..=65_535))]
    pub secure_port: u16,

    /// Port of a plain HTTP server on 127.0.0.1 with the same endpoints, read-only and without
    /// authentication; 0: no HTTP server.
    #[arg(long, value_name = "PORT", default_value_t = 0, value_parser = number::<u16>(0..=65_535))]
    pub insecure_port: u16,

    /// Host names that the plain HTTP server accepts besides localhost and 127.0.0.1, as a defence
    /// against DNS rebinding.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub accept_hosts: Vec<String>,

    /// Certificate chain of the HTTPS server; default a self-signed certificate in memory.
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// Private key of --tls-cert-file.
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,

    /// Minimum TLS version of the HTTPS server.
    #[arg(
        long,
        value_name = "VERSION",
        value_enum,
        default_value = "VersionTLS12"
    )]
    pub tls_min_version: TlsVersion,

    /// Certificate authorities that authenticate client certificates.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// Kubeconfig for TokenReviews; default the cluster of --kubeconfig.
    #[arg(long, value_name = "FILE")]
    pub authentication_kubeconfig: Option<PathBuf>,

    /// Kubeconfig for SubjectAccessReviews; default the cluster of --kubeconfig.
    #[arg(long, value_name = "FILE")]
    pub authorization_kubeconfig: Option<PathBuf>,

    /// Paths that anyone can read without authentication; a trailing * matches any suffix.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez", value_parser = parse_url_path)]
    pub authorization_always_allow_paths: Vec<String>,

    /// Serve the endpoints below /debug/.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = true, default_missing_value = "true", value_parser = parse_bool,
        action = clap::ArgAction::Set)]
    pub profiling: bool,
}

/// A version of TLS. DIFFERS: kube-controller-manager also accepts 1.0 and 1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[value(name = "VersionTLS12")]
    Tls12,
    /// TLS 1.3.
    #[value(name = "VersionTLS13")]
    Tls13,
}
