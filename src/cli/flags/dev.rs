//! The commands that need no cluster, and their flags. Built with the feature `devserver` only.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use log::LevelFilter;

use super::{ClientArgs, ControllerArgs, LogArgs};
use crate::cli::duration::parse_duration;

/// The commands that run on the stand-in for a cluster.
#[derive(Clone, Debug, Subcommand)]
pub enum StandInCommand {
    /// Run an in-memory API server with a simulated kubelet and the controller, until stopped.
    Dev(DevArgs),
    /// Show the controller at work, chapter by chapter; exit code 0 if all came out as told.
    Demo(DemoArgs),
}

impl StandInCommand {
    /// Its flags of the log.
    pub fn log(&self) -> &LogArgs {
        match self {
            Self::Dev(args) => &args.log,
            Self::Demo(args) => &args.log,
        }
    }

    /// The log's level unless its flags raise it.
    pub fn log_level(&self) -> LevelFilter {
        match self {
            // Its own lines say what changes.
            Self::Dev(_) => LevelFilter::Warn,
            // The demo tells its story on standard output; the log would only talk over it, and of
            // failures that are part of the story.
            Self::Demo(_) => LevelFilter::Error,
        }
    }

    /// True if it runs until it is stopped.
    pub fn is_daemon(&self) -> bool {
        matches!(self, Self::Dev(_))
    }
}

/// Flags of `dev`.
#[derive(Args, Clone, Debug)]
// The limit is there to spare a cluster, and here is none.
#[command(mut_arg("kube_api_qps", |arg| arg.default_value("0")))]
// Nobody else controls anything here.
#[command(mut_arg("controllers", |arg| arg.default_value("*")))]
pub struct DevArgs {
    /// Port to listen at; 0 means any free one.
    #[arg(long, value_name = "PORT", default_value_t = 8001)]
    pub port: u16,

    /// Listen at this address instead of 127.0.0.1. Whoever reaches it may do everything.
    #[arg(long, value_name = "ADDRESS")]
    pub insecure_listen: Option<IpAddr>,

    /// Host names that the server accepts beside localhost and the address listened at. Others are
    /// refused: a web page can make its own name resolve to this machine.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub accept_hosts: Vec<String>,

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

    /// How requests are sent.
    #[command(flatten)]
    pub client: ClientArgs,

    /// What the controllers do.
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
