//! The commands, from their flags to their end. Called by `main` on the main thread.
//!
//! # Locks
//!
//! [`signals`] guards the callbacks for SIGHUP and SIGUSR1. `main` sets them, `signal` runs them.

mod election;
mod explain;
mod features;
mod logs;
mod output;
mod rbac;
mod serving;
pub mod signals;
#[cfg(feature = "devserver")]
mod stand_in;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::WorkloadKind;
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::cache::encoding;
use crate::cli::RunArgs;
use crate::cli::flags::{ClientArgs, ContentType, ControllerArgs, ControllerName, GATES};
use crate::client::{ClientConfig, ClientError, ConfigError, ConfigSource};
use crate::manager::{Manager, ManagerOptions, StartError};
use crate::rights::self_check::SelfCheckOptions;
use crate::rights::{grants, rbac_command};
use crate::serving::{Pages, Serving, ServingError, debug};
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

/// For the thread `systemd` to end, which says one thing more at the stop.
const SYSTEMD_WITHIN: Duration = Duration::from_secs(5);

/// What follows the complaint that no API server is named.
const WITHOUT_CLUSTER: &str = if cfg!(feature = "devserver") {
    "\nwithout a cluster at hand, try: replicaset-controller demo"
} else {
    ""
};

/// Why a command ended badly.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No API server is named anywhere.
    #[error("{0}{hint}", hint = WITHOUT_CLUSTER)]
    NoConfig(ConfigError),
    /// The configuration of the API server cannot be used.
    #[error("{0}")]
    Config(ConfigError),
    /// The configuration does not make a client.
    #[error("cannot make a client of the API server")]
    Client(#[source] ClientError),
    /// The controller cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The dev server cannot start.
    #[error("cannot start the dev server")]
    DevServer(#[source] std::io::Error),
    /// Health and metrics cannot be served.
    #[error("cannot serve health, metrics and debug pages")]
    Serving(#[source] ServingError),
    /// Files cannot be used as they are.
    #[error("{0}")]
    Files(String),
    /// Arguments that do not go together.
    #[error("{0}")]
    Usage(String),
    /// There is nothing to explain, or nobody who could be asked.
    #[error("cannot explain, asking {what}")]
    Explain {
        /// Who was asked, and for what.
        what: String,
        /// What came of it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What was to be kept is lost.
    #[error("cannot write {}", path.display())]
    Save {
        /// Where it was to be.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Standard output takes nothing.
    #[error("cannot write to standard output")]
    Output(#[source] std::io::Error),
    /// The election cannot be held like that; one line for each mistake.
    #[error("leader election: {0}")]
    LeaderElection(String),
    /// What was to be shown did not come out.
    #[error("{0}")]
    Demo(String),
    /// A part of the daemon failed; the log says which.
    #[error("the daemon failed: {0}")]
    Failed(String),
    /// Threads that did not end in time.
    #[error("these threads were still running when the time to stop was over: {0}")]
    Stuck(String),
}

impl RunError {
    /// True if the mistake is in the arguments or the configuration.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::NoConfig(_)
                | Self::Config(_)
                | Self::Files(_)
                | Self::Usage(_)
                | Self::LeaderElection(_)
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
/// [`RunError::NoConfig`] if no API server is named, otherwise what made the daemon fail.
pub fn run(args: &RunArgs, stop: &Stop) -> Result<(), RunError> {
    // A dry run must not keep others from writing.
    let leader_election = if args.mode.dry_run {
        None
    } else {
        election::leader_election(args)?
    };
    let config = ClientConfig::load(&ConfigSource {
        kubeconfig: args.api.kubeconfig.clone(),
        master: args.api.master.clone(),
        context: args.api.context.clone(),
    })?;
    let rights = rights_options(args)?;
    let options = ManagerOptions {
        namespace: args.api.namespace.clone(),
        dry_run: args.mode.dry_run,
        self_check: Some(SelfCheckOptions {
            grants: grants(&rights),
            command: rbac_command(&rights),
        }),
        leader_election,
        gates: features::feature_gates(&args.features),
        ..manager_options(&args.client, &args.controller)
    };
    let scope = args
        .api
        .namespace
        .as_deref()
        .map_or("all namespaces".to_owned(), |namespace| {
            format!("namespace {namespace}")
        });
    for gate in GATES {
        let build = &metrics::global().build;
        build.set_feature_enabled(gate.name, gate.stage, args.features.is_enabled(&gate));
    }
    let version = env!("CARGO_PKG_VERSION");
    log::info!(
        "replicaset-controller {version} for {scope} of {}",
        config.server()
    );
    let (reloaded, stopping) = (config.clone(), stop.clone());
    signals::on_reload("credentials", move || reloaded.reload(&stopping));
    signals::on_reload("log levels", reread_levels);
    signals::around_reload(systemd::reloading, systemd::reloaded);
    serving::check_descriptors();
    let pages = serving::serving_options(args, &config)?;
    let zpages = serving::zpages(args);
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
            let systemd = systemd::start(&health, manager.systemd_status(), stop);
            let result = finish(manager);
            let deadline = Instant::now() + SYSTEMD_WITHIN;
            let stuck = systemd.map_or(Ok(()), |thread| thread.join_until(deadline));
            result.and(stuck.map_err(RunError::Stuck))
        }
        Err(error) => Err(RunError::Start(error)),
    };
    // ORDER: the pages last, so that a daemon that hangs while it stops can be looked at.
    serving.stop();
    result
}

fn manager_options(client: &ClientArgs, args: &ControllerArgs) -> ManagerOptions {
    ManagerOptions {
        kube_api_qps: client.kube_api_qps,
        kube_api_burst: client.kube_api_burst,
        controllers: args.enabled().into_iter().map(kind_of).collect(),
        concurrent_replicaset_syncs: args.concurrent_replicaset_syncs,
        concurrent_rc_syncs: args.concurrent_rc_syncs,
        batch_parallelism: args.batch_parallelism,
        burst_replicas: args.burst_replicas,
        status_update_interval: args.status_update_interval,
        content_type: match client.kube_api_content_type {
            ContentType::Json => encoding::ContentType::Json,
            ContentType::Protobuf => encoding::ContentType::Protobuf,
        },
        min_resync_period: args.min_resync_period,
        ..ManagerOptions::default()
    }
}

fn kind_of(controller: ControllerName) -> &'static WorkloadKind {
    match controller {
        ControllerName::ReplicaSet => &REPLICA_SET,
        ControllerName::ReplicationController => &REPLICATION_CONTROLLER,
    }
}

fn finish(manager: Manager) -> Result<(), RunError> {
    match manager.wait().map_err(RunError::Stuck)? {
        Cause::Requested(_) => Ok(()),
        Cause::Failed(why) => Err(RunError::Failed(why)),
    }
}
