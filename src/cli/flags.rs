//! The one table of flags: name, unit, default and help.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use super::duration::parse_duration;

/// The ReplicaSet controller of Kubernetes as a daemon of its own.
///
/// Watches ReplicaSets and pods, creates, deletes, adopts and releases pods until each ReplicaSet owns
/// as many as it wants, and writes its status. Without a command it runs against the cluster that the
/// flags, $KUBECONFIG, ~/.kube/config or the pod it runs in name.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "replicaset-controller",
    version,
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
    Run(RunArgs),
    /// Run an in-memory API server with a simulated kubelet and the controller, until stopped.
    Dev(DevArgs),
    /// Show the controller at work, chapter by chapter; exit code 0 if all came out as told.
    Demo(DemoArgs),
}

/// Flags of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Kubeconfig file; default $KUBECONFIG, then ~/.kube/config, then the pod's own account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Address of the API server; overrides the one in the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,

    /// Context of the kubeconfig; default its current context.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Control only this namespace, which needs no cluster-wide rights; default all.
    #[arg(long, value_name = "NAME", value_parser = parse_namespace)]
    pub namespace: Option<String>,

    /// Flags that every command that runs a controller has.
    #[command(flatten)]
    pub controller: ControllerArgs,

    /// Flags of the log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Flags of the controller itself.
#[derive(Args, Clone, Debug)]
pub struct ControllerArgs {
    /// Requests per second to the API server, events counted apart; 0 or less means no limit.
    #[arg(long, value_name = "N", default_value_t = 20.0, allow_negative_numbers = true,
        value_parser = parse_qps)]
    pub kube_api_qps: f32,

    /// Requests that may go out at once before --kube-api-qps holds them back.
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub kube_api_burst: u32,

    /// ReplicaSets that are synced at the same time.
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub concurrent_replicaset_syncs: u16,

    /// Pods that are created or deleted at the same time, over all ReplicaSets.
    #[arg(long, value_name = "N", default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub batch_parallelism: u16,

    /// Every object is looked at again after this long to twice as long, even if nothing changed.
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = parse_duration)]
    pub min_resync_period: Duration,
}

/// Flags of the log.
#[derive(Args, Clone, Debug, Default)]
pub struct LogArgs {
    /// How much to log: -v for each event, -vv for each request, or a number as klog's. RUST_LOG wins.
    #[arg(short = 'v', long = "v", value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "4", action = clap::ArgAction::Append)]
    pub verbosity: Vec<u8>,
}

/// Flags of `dev`.
#[derive(Args, Clone, Debug)]
// The limit is there to spare a cluster, and here is none.
#[command(mut_arg("kube_api_qps", |arg| arg.default_value("0")))]
pub struct DevArgs {
    /// Port to listen at; 0 means any free one.
    #[arg(long, value_name = "PORT", default_value_t = 8001)]
    pub port: u16,

    /// Listen at this address instead of 127.0.0.1. Whoever reaches it may do everything.
    #[arg(long, value_name = "ADDRESS")]
    pub insecure_listen: Option<IpAddr>,

    /// Write a kubeconfig that names this server.
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,

    /// Load the objects of this YAML or JSON file, or of a folder of them; may be repeated.
    #[arg(long, value_name = "FILE|DIR")]
    pub data: Vec<PathBuf>,

    /// Write the state back to the one file of --data at the end, which need not be there at first.
    #[arg(long, requires = "data")]
    pub save: bool,

    /// Serve the API without a controller, for trying out another one.
    #[arg(long)]
    pub no_controller: bool,

    /// Leave pods as they are, without scheduler and nodes.
    #[arg(long)]
    pub no_kubelet: bool,

    /// How many nodes are simulated.
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=5000))]
    pub nodes: u16,

    /// How long a simulated pod takes to become Ready.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub pod_ready_after: Duration,

    /// Flags that every command that runs a controller has.
    #[command(flatten)]
    pub controller: ControllerArgs,

    /// Flags of the log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Flags of `demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Go without pauses for the eye, as for CI.
    #[arg(long)]
    pub fast: bool,

    /// Flags of the log.
    #[command(flatten)]
    pub log: LogArgs,
}

impl LogArgs {
    /// klog's number: up to 3 is info, 4 and 5 are debug, everything above is trace. Repeating `-v`
    /// adds up.
    pub fn level(&self) -> log::LevelFilter {
        match self
            .verbosity
            .iter()
            .fold(0_u8, |sum, v| sum.saturating_add(*v))
        {
            0..=3 => log::LevelFilter::Info,
            4..=5 => log::LevelFilter::Debug,
            _ => log::LevelFilter::Trace,
        }
    }
}

fn parse_qps(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(qps) if qps.is_finite() => Ok(qps),
        _ => Err("expected a number of requests per second".to_owned()),
    }
}

/// RFC 1123 label, as the API server asks of a namespace's name.
fn parse_namespace(text: &str) -> Result<String, String> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_valid = (1..=63).contains(&text.len())
        && text.chars().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    if is_valid {
        Ok(text.to_owned())
    } else {
        Err("expected lower-case letters, digits and '-', at most 63 characters".to_owned())
    }
}
