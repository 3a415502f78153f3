//! The commands: each function runs one command to its end. `main` calls them on the main thread.
//!
//! # Locks
//!
//! [`signals`] guards the callbacks for SIGHUP. `main` sets them, `signal` runs them.

mod explain;
mod features;
mod logs;
mod output;
mod rbac;
mod serving;
pub mod signals;
#[cfg(feature = "devserver")]
mod stand_in;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cache::encoding;
use crate::cli::RunArgs;
use crate::cli::flags::{
    ClientArgs, ContentType, ControllerArgs, GATES, OptInArgs, WATCH_LIST_CLIENT,
};
use crate::client::{ClientConfig, ConfigError, ConfigSource};
use crate::controller;
use crate::leader_election::{LeaderElectionOptions, identity};
use crate::manager::{Manager, ManagerOptions, StartError};
use crate::serving::{Pages, Serving, ServingError, debug};
use crate::stdx::build;
use crate::stdx::stop::{Cause, Stop};
use crate::telemetry::health::Health;
use crate::telemetry::metrics;
use crate::telemetry::systemd;

use self::rbac::rights_options;
pub use explain::explain;
pub use logs::{reread_levels, sources, start_log, tell_ignored};
pub use output::print;
pub use rbac::rbac;
#[cfg(feature = "devserver")]
pub use stand_in::stand_in;

/// Maximum wait for the thread `systemd`, which sends a last notification at the stop.
const SYSTEMD_WITHIN: Duration = Duration::from_secs(5);

/// Hint after the error that no API server is configured.
const WITHOUT_CLUSTER: &str = if cfg!(feature = "devserver") {
    "\nwithout a cluster, try: replicaset-controller demo"
} else {
    ""
};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No source names an API server.
    #[error("{0}{hint}", hint = WITHOUT_CLUSTER)]
    NoConfig(ConfigError),
    /// The configuration of the API server is not valid.
    #[error("{0}")]
    Config(ConfigError),
    /// The controller cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The dev server cannot start.
    #[error("cannot start the dev server")]
    DevServer(#[source] std::io::Error),
    /// Another program listens on the dev server's port.
    #[error(
        "{0} is in use, perhaps by kubectl proxy or another dev server: choose another port with \
         --port (--port=0 takes a free one), or stop the other program"
    )]
    DevServerInUse(SocketAddr),
    /// The HTTP servers cannot start.
    #[error("cannot serve health, metrics and debug pages")]
    Serving(#[source] ServingError),
    /// A file is not valid or cannot be read.
    #[error("{0}")]
    Files(String),
    /// An argument is not valid.
    #[error("{0}")]
    Usage(String),
    /// The object does not exist, or the server did not answer.
    #[error("cannot explain {what}")]
    Explain {
        /// The object, and the server that was asked.
        what: String,
        /// Why the server did not answer.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// `dev --save` cannot write the state.
    #[error("cannot write {}", path.display())]
    Save {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// Standard output cannot be written.
    #[error("cannot write to standard output")]
    Output(#[source] std::io::Error),
    /// A chapter of `demo` failed.
    #[error("{0}")]
    Demo(String),
    /// A part of the daemon failed. The manager has logged it.
    #[error("the daemon failed: {0}")]
    Failed(String),
    /// Threads did not end within the shutdown timeout.
    #[error("these threads did not end within the shutdown timeout: {0}")]
    Stuck(String),
}

impl RunError {
    /// True if the log says it already.
    pub fn is_logged(&self) -> bool {
        matches!(self, Self::Failed(_)) && log::log_enabled!(log::Level::Error)
    }

    /// True if the mistake is in the arguments or the configuration.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoConfig(_)
                | Self::Config(_)
                | Self::Files(_)
                | Self::Usage(_)
                | Self::Serving(ServingError::Certificates(_))
        )
    }
}

impl From<ConfigError> for RunError {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::NotFound(_) => Self::NoConfig(error),
            error => Self::Config(error),
        }
    }
}

/// Runs the controller against a cluster. Blocks until `stop` is given and all threads have ended.
///
/// # Errors
/// [`RunError::NoConfig`] if no source names an API server; otherwise the failure of the daemon.
pub fn run(args: &RunArgs, stop: &Stop) -> Result<(), RunError> {
    let config = ClientConfig::load(&ConfigSource {
        kubeconfig: args.api.kubeconfig.clone(),
        master: args.api.master.clone(),
        context: args.api.context.clone(),
    })?;
    let mut options = ManagerOptions {
        namespace: args.api.namespace.clone(),
        dry_run: args.mode.dry_run,
        self_check: Some(rights_options(args)),
        leader_election: leader_election(args),
        streams_lists: args.features.is_enabled(&WATCH_LIST_CLIENT),
        ..manager_options(&args.client, &args.controller, &args.opt_ins)
    };
    options.controller.gates = features::feature_gates(&args.features);
    let scope = args
        .api
        .namespace
        .as_deref()
        .map_or("all namespaces".to_owned(), |namespace| {
            format!("namespace {namespace}")
        });
    for gate in GATES {
        if let Some(stage) = gate.stage {
            let build = &metrics::global().build;
            build.set_feature_enabled(gate.name, stage, args.features.is_enabled(&gate));
        }
    }
    log_start(args, &options, &scope, config.server());
    let (reloaded, stopping) = (config.clone(), stop.clone());
    signals::on_reload("credentials", move || reloaded.reload(&stopping));
    signals::on_reload("log levels", reread_levels);
    serving::check_descriptors();
    let pages = serving::serving_options(args, &config)?;
    let zpages = serving::zpages(args);
    for (flag, config) in serving::own_configs(args, &pages) {
        let (config, stopping) = (config.clone(), stop.clone());
        signals::on_reload(flag, move || config.reload(&stopping));
    }
    let shown = Arc::new(Pages::default());
    let health = Arc::new(Health::new(metrics::global()));
    let serving = Serving::start(&pages, &shown, &health, zpages, stop);
    let mut serving = serving.map_err(RunError::Serving)?;
    if let Some(reload) = serving.reloader() {
        signals::on_reload("certificates of the HTTPS port", reload);
    }
    let result = match Manager::start(&config, &options, &health, stop) {
        Ok(manager) => {
            signals::stop_in_order();
            debug::add_pages(&shown);
            manager.add_pages(&shown);
            shown.set_status(manager.status(config.server().to_string()));
            let systemd = systemd::start(&health, manager.systemd_status(), stop);
            let result = finish(manager);
            let deadline = Instant::now() + SYSTEMD_WITHIN;
            let stuck = systemd.map_or(Ok(()), |thread| thread.join_until(deadline));
            result.and(stuck.map_err(RunError::Stuck))
        }
        Err(error) => Err(RunError::Start(error)),
    };
    // ORDER: the HTTP servers stop last, so that a daemon that hangs at the stop can be debugged.
    serving.stop();
    result
}

/// Returns the options, or `None` without leader election.
fn leader_election(args: &RunArgs) -> Option<LeaderElectionOptions> {
    let flags = &args.leader_election;
    // A dry run writes nothing, so it must not take the Lease from a daemon that does.
    if args.mode.dry_run || !flags.leader_elect {
        return None;
    }
    let namespace = flags.resource_namespace(args.api.namespace.as_deref());
    let name = &flags.leader_elect_resource_name;
    Some(LeaderElectionOptions {
        lease_duration: flags.leader_elect_lease_duration,
        renew_deadline: flags.leader_elect_renew_deadline,
        retry_period: flags.leader_elect_retry_period,
        ..LeaderElectionOptions::new(identity(), namespace, name)
    })
}

fn log_start(args: &RunArgs, options: &ManagerOptions, scope: &str, server: &str) {
    let controllers = options.controllers.iter().map(|kind| kind.controller);
    let controllers = controllers.collect::<Vec<_>>().join(", ");
    let qps = args.client.kube_api_qps;
    let limit = if qps > 0.0 {
        format!("{qps} qps")
    } else {
        "no limit of qps".to_owned()
    };
    log::info!(
        "replicaset-controller {}, {scope} of {server}, controllers {controllers}, {limit}",
        build::version()
    );
}

fn manager_options(
    client: &ClientArgs,
    args: &ControllerArgs,
    opt_ins: &OptInArgs,
) -> ManagerOptions {
    ManagerOptions {
        kube_api_qps: client.kube_api_qps,
        kube_api_burst: client.kube_api_burst,
        controllers: args.enabled(),
        concurrent_replicaset_syncs: args.concurrent_replicaset_syncs,
        concurrent_rc_syncs: args.concurrent_rc_syncs,
        batch_parallelism: args.batch_parallelism,
        controller: controller::Options {
            burst_replicas: args.burst_replicas,
            status_update_interval: args.status_update_interval,
            retry_backoff: args.retry_backoff,
            policy: opt_ins.policy(),
            ..controller::Options::default()
        },
        content_type: match client.kube_api_content_type {
            ContentType::Json => encoding::ContentType::Json,
            ContentType::Protobuf => encoding::ContentType::Protobuf,
        },
        min_resync_period: args.min_resync_period,
        ..ManagerOptions::default()
    }
}

fn finish(manager: Manager) -> Result<(), RunError> {
    match manager.wait().map_err(RunError::Stuck)? {
        Cause::Requested(_) => Ok(()),
        Cause::Failed(why) => Err(RunError::Failed(why)),
    }
}
