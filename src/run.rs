//! The three commands, from their flags to their end. Called by `main` on the main thread.

mod demo;
mod dev;
mod facts;

use crate::api::WorkloadKind;
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::cli::RunArgs;
use crate::cli::flags::{ClientArgs, ControllerArgs, ControllerName};
use crate::client::{ClientConfig, ClientError, ConfigError, ConfigSource};
use crate::manager::{Manager, ManagerOptions};
use crate::stdx::stop::{Cause, Stop};

pub use demo::demo;
pub use dev::dev;

/// Why a command ended badly.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No API server is named anywhere.
    #[error("{0}\nwithout a cluster at hand, try: replicaset-controller demo")]
    NoConfig(ConfigError),
    /// The configuration of the API server cannot be used.
    #[error("{0}")]
    Config(ConfigError),
    /// The configuration does not make a client.
    #[error("cannot make a client of the API server")]
    Client(#[source] ClientError),
    /// The dev server cannot start.
    #[error("cannot start the dev server")]
    DevServer(#[source] std::io::Error),
    /// Files cannot be used as they are.
    #[error("{0}")]
    Files(String),
    /// Nobody who asks for no writes may get writes.
    #[error("--dry-run: this build cannot run without writing")]
    NoDryRun,
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
            Self::NoConfig(_) | Self::Config(_) | Self::Files(_) | Self::NoDryRun
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
    if args.mode.dry_run {
        return Err(RunError::NoDryRun);
    }
    let config = ClientConfig::load(&ConfigSource {
        kubeconfig: args.api.kubeconfig.clone(),
        master: args.api.master.clone(),
        context: args.api.context.clone(),
    })?;
    let options = ManagerOptions {
        namespace: args.api.namespace.clone(),
        ..manager_options(&args.client, &args.controller)
    };
    let scope = args
        .api
        .namespace
        .as_deref()
        .map_or("all namespaces".to_owned(), |namespace| {
            format!("namespace {namespace}")
        });
    let version = env!("CARGO_PKG_VERSION");
    log::info!(
        "replicaset-controller {version} for {scope} of {}",
        config.server()
    );
    let manager = Manager::start(&config, &options, stop).map_err(RunError::Client)?;
    finish(manager)
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
