//! The commands that need no cluster, and their flags. Only with the feature `devserver`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use log::LevelFilter;

use super::controller::ControllerItem;
use super::{ClientArgs, ControllerArgs, LogArgs, OptInArgs};
use crate::api::compact_timestamp::parse_duration;
use crate::cli::number;

/// The commands that run on the dev server.
#[derive(Clone, Debug, Subcommand)]
pub enum LocalCommand {
    /// Run an in-memory API server, a simulated kubelet and the controller until stopped.
    Dev(Box<DevArgs>),
    /// Run a self-checking demonstration without a cluster.
    Demo(DemoArgs),
}

impl LocalCommand {
    /// The log flags of the command.
    pub fn log(&self) -> &LogArgs {
        match self {
            Self::Dev(args) => &args.log,
            Self::Demo(args) => &args.log,
        }
    }

    /// The default log level.
    pub fn log_level(&self) -> LevelFilter {
        match self {
            // `dev` prints changes itself.
            Self::Dev(_) => LevelFilter::Warn,
            // Some chapters of `demo` provoke failures, which the log would report.
            Self::Demo(_) => LevelFilter::Error,
        }
    }

    /// True if the command runs until it is stopped.
    pub fn is_daemon(&self) -> bool {
        matches!(self, Self::Dev(_))
    }
}

/// Help of `--controllers`, whose `*` means all here.
const CONTROLLERS: &str = "Controllers to run: * (all), NAME, -NAME (not that one): replicaset, \
                           replicationcontroller, deployment; simulated: job, statefulset, \
                           daemonset, endpointslice, disruption";

/// The simulated controllers of the dev server, which this module does not know.
pub const SIMULATED: [&str; 5] = [
    "job-controller",
    "statefulset-controller",
    "daemonset-controller",
    "endpointslice-controller",
    "disruption-controller",
];

/// Flags of `dev`.
#[derive(Args, Clone, Debug)]
// The limit protects an API server that others use; this one has no other users.
#[command(mut_arg("kube_api_qps", |arg| arg.default_value("0").hide_short_help(true)))]
// No other controller runs here.
#[command(mut_arg("controllers", |arg| arg.default_value("*").help(CONTROLLERS)
    .value_parser(|text: &str| ControllerItem::parse(text, &SIMULATED))))]
#[command(mut_arg("concurrent_replicaset_syncs", |arg| arg.hide_short_help(true)))]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each flag disables a different component"
)]
pub struct DevArgs {
    /// Port of the API server; 0: any free port.
    #[arg(long, value_name = "PORT", default_value_t = 8001,
        value_parser = number::<u16>(0..=65_535))]
    pub port: u16,

    /// Listen on this address instead of 127.0.0.1. Every client has full access.
    #[arg(long, value_name = "ADDRESS")]
    pub insecure_listen: Option<IpAddr>,

    /// Host names that the API server accepts besides localhost and its address, as a defence
    /// against DNS rebinding.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub accept_hosts: Vec<String>,

    /// Write a kubeconfig for this API server; overwrites only a file that dev wrote.
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,

    /// Load objects from a YAML or JSON file, or from a directory of such files; repeatable.
    #[arg(long, value_name = "FILE|DIR")]
    pub data: Vec<PathBuf>,

    /// Save the state to the --data file at the end; the file need not exist at the start.
    #[arg(long, requires = "data")]
    pub save: bool,

    /// Stop when standard input closes.
    #[arg(long)]
    pub until_stdin_closes: bool,

    /// Do not run the controller, to try out another one.
    #[arg(long)]
    pub no_controller: bool,

    /// Do not simulate scheduler and kubelets: pods stay as they are.
    #[arg(long)]
    pub no_kubelet: bool,

    /// Do not simulate the scheduler: pods wait until another one assigns them to a node.
    #[arg(long)]
    pub no_scheduler: bool,

    /// Number of simulated nodes.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<u16>(1..=5000))]
    pub nodes: u16,

    /// Time until a simulated pod becomes Ready.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub pod_ready_after: Duration,

    #[command(flatten)]
    pub client: ClientArgs,
    #[command(flatten)]
    pub controller: ControllerArgs,
    #[command(flatten)]
    pub opt_ins: OptInArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Flags of `demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Skip the pauses, for CI.
    #[arg(long)]
    pub fast: bool,
    #[command(flatten)]
    pub log: LogArgs,
}
