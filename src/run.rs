//! The commands: each function runs one command to its end. `main` calls them on the main thread.
//!
//! # Locks
//!
//! [`signals`] guards the callbacks for SIGHUP. `main` sets them, `signal` runs them.

mod explain;
#[cfg(feature = "devserver")]
mod local;
mod logs;
mod serving;
pub mod signals;

use std::io;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::ObjectKey;
use crate::cache::decode;
use crate::cli::RunArgs;
use crate::cli::flags::{
    ClientArgs, ContentType, ControllerArgs, FeatureArgs, GATES, OptInArgs, POD_DELETION_COST,
    RbacArgs, STALE_CONTROLLER_CONSISTENCY, TERMINATING_REPLICAS, WATCH_LIST_CLIENT,
};
use crate::client::{ClientConfig, ConfigError, ConfigSource};
use crate::controller;
use crate::controller::FeatureGates;
use crate::deployment::CONTROLLER;
use crate::leader_election::{LeaderElectionOptions, identity};
use crate::manager::{Manager, ManagerOptions, StartError};
use crate::rights::manifests::{Account, SYSTEM_NAMESPACE, manifests, warning};
use crate::rights::{Grant, RightsOptions, grants, optional_grants, rbac_command};
use crate::serving::{Pages, Serving, ServingError, pages};
use crate::stdx::build;
use crate::stdx::stop::{Cause, Stop};
use crate::telemetry::{Health, metrics, systemd};

pub use explain::explain;
pub use logs::{log_ignored, reread_level, sources, start_log};

#[cfg(feature = "devserver")]
pub use local::local;

/// Maximum wait for the thread `systemd`, which sends a last notification at the stop.
const SYSTEMD_WITHIN: Duration = Duration::from_secs(5);

const WITHOUT_CLUSTER: &str = if cfg!(feature = "devserver") {
    "\nwithout a cluster, try: replicaset-controller demo"
} else {
    ""
};

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(
        "{0}{hint}",
        hint = if let ConfigError::NotFound(_) = .0 { WITHOUT_CLUSTER } else { "" }
    )]
    Config(ConfigError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot start the dev server")]
    DevServer(#[source] std::io::Error),
    #[error(
        "{0} is in use, perhaps by kubectl proxy or another dev server: choose another port with \
         --port (--port=0 takes a free one), or stop the other program"
    )]
    DevServerInUse(SocketAddr),
    #[error("cannot serve health, metrics and debug pages")]
    Serving(#[source] ServingError),
    /// A mistake in the arguments or in a file.
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
        path: PathBuf,
        source: std::io::Error,
    },
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
            Self::Config(_) | Self::Usage(_) | Self::Serving(ServingError::Certificates(_))
        )
    }
}

impl From<ConfigError> for RunError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// Runs the controller against a cluster. Blocks until `stop` is given and all threads have ended.
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
    options.controller.gates = feature_gates(&args.features);
    let scope = args
        .api
        .namespace
        .as_deref()
        .map_or("all namespaces".to_owned(), |namespace| {
            format!("namespace {namespace}")
        });
    for gate in GATES {
        if let Some(stage) = gate.stage {
            let gates = &metrics::global().build.feature_enabled;
            let is_enabled = args.features.is_enabled(&gate);
            gates
                .with_label_values(&[gate.name, stage])
                .set(i64::from(is_enabled));
        }
    }
    log_start(args, &options, &scope, config.server());
    let (reloaded, stopping) = (config.clone(), stop.clone());
    signals::on_reload("credentials", move || reloaded.reload(&stopping));
    signals::on_reload("log level", reread_level);
    serving::check_descriptors();
    let pages = serving::serving_options(args, &config)?;
    let zpages = serving::zpages(args);
    for (flag, config) in serving::own_configs(args, &pages) {
        let (config, stopping) = (config.clone(), stop.clone());
        signals::on_reload(flag, move || config.reload(&stopping));
    }
    let shown = Arc::new(Pages::default());
    let health = Arc::new(Health::default());
    let serving = Serving::start(&pages, &shown, &health, zpages, stop);
    let mut serving = serving.map_err(RunError::Serving)?;
    if let Some(reload) = serving.reloader() {
        signals::on_reload("certificates of the HTTPS port", reload);
    }
    let result = match Manager::start(&config, &options, &health, stop) {
        Ok(manager) => {
            signals::stop_in_order();
            pages::add_pages(&shown);
            manager.add_pages(&shown);
            shown.set_status(manager.status(config.server().to_string()));
            shown.set_objects(manager.objects());
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
    let deployments = options.deployments.then_some(CONTROLLER);
    let controllers = controllers
        .chain(deployments)
        .collect::<Vec<_>>()
        .join(", ");
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
        deployments: args.runs_deployments(),
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
            ContentType::Json => decode::ContentType::Json,
            ContentType::Protobuf => decode::ContentType::Protobuf,
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

fn feature_gates(args: &FeatureArgs) -> FeatureGates {
    FeatureGates {
        pod_deletion_cost: args.is_enabled(&POD_DELETION_COST),
        terminating_replicas: args.is_enabled(&TERMINATING_REPLICAS),
        stale_controller_consistency: args.is_enabled(&STALE_CONTROLLER_CONSISTENCY),
    }
}

/// Writes `text` to standard output. A closed pipe is not a failure.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    seen_enough(written)
}

/// Returns the name under which this process was started, for hints that a person can type.
#[cfg(feature = "devserver")]
fn program() -> String {
    let name = std::env::args_os().next().unwrap_or_default();
    match name.into_string() {
        Ok(name) if !name.is_empty() => name,
        _ => "replicaset-controller".to_owned(),
    }
}

/// Turns the error of a closed pipe into success: the reader has seen enough.
fn seen_enough(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Default name of the daemon's ServiceAccount.
const ACCOUNT: &str = "replicaset-controller";

/// Prints the manifests that grant an account the permissions for these flags.
pub fn rbac(args: &RbacArgs) -> Result<(), RunError> {
    let options = rights_options(&args.run);
    let mut granted = grants(&options);
    if args.watch_quotas {
        granted.extend(optional_grants(&options));
    }
    let account = match (&args.user, &args.service_account) {
        (Some(user), _) => Account::User(user.clone()),
        (None, Some(account)) => Account::ServiceAccount {
            namespace: account.namespace.clone(),
            name: account.name.clone(),
        },
        (None, None) => Account::ServiceAccount {
            namespace: default_namespace(&options, &granted),
            name: ACCOUNT.to_owned(),
        },
    };
    let mut command = rbac_command(&options);
    if args.user.is_some() || args.service_account.is_some() {
        command = format!("{command} {}", account.flag());
    }
    if args.watch_quotas {
        command.push_str(" --watch-quotas");
    }
    let text = format!(
        "# Permissions of a daemon with these flags; printed by\n#   {command}\n{}{}",
        warning(&granted, &account),
        manifests(&granted, &account),
    );
    print(&text).map_err(RunError::Output)
}

/// Permissions outside the namespace need an account that its users cannot run pods as.
fn default_namespace(options: &RightsOptions, granted: &[Grant]) -> String {
    let stays_inside = granted.iter().all(|grant| grant.namespace.is_some());
    let inside = options.namespace.as_deref().filter(|_| stays_inside);
    inside.unwrap_or(SYSTEM_NAMESPACE).to_owned()
}

/// Returns the permissions that the daemon needs with these flags.
fn rights_options(args: &RunArgs) -> RightsOptions {
    let namespace = args.api.namespace.as_deref();
    let election = &args.leader_election;
    let lease = election.leader_elect.then(|| {
        let name = &*election.leader_elect_resource_name;
        ObjectKey::new(election.resource_namespace(namespace), name)
    });
    // With both kubeconfigs set, other accounts send all reviews.
    let asks_itself = args.serving.authentication_kubeconfig.is_none()
        || args.serving.authorization_kubeconfig.is_none();
    RightsOptions {
        namespace: namespace.map(str::to_owned),
        workloads: args.controller.enabled(),
        deployments: args.controller.runs_deployments(),
        lease,
        delegated_auth: args.serving.secure_port != 0 && asks_itself,
        dry_run: args.mode.dry_run,
    }
}

#[cfg(test)]
mod tests {
    use super::{FeatureArgs, FeatureGates, feature_gates};

    #[test]
    fn each_flag_switches_its_own_gate() {
        let all = FeatureGates::default();
        let of = |name: &str| {
            let setting = format!("{name}=false").parse().expect("it can be switched");
            let feature_gates = vec![setting];
            super::feature_gates(&FeatureArgs { feature_gates })
        };
        let feature_args = FeatureArgs {
            feature_gates: Vec::new(),
        };
        assert_eq!(feature_gates(&feature_args), all);
        let pod_deletion_cost = false;
        assert_eq!(
            of("PodDeletionCost"),
            FeatureGates {
                pod_deletion_cost,
                ..all
            }
        );
        let terminating_replicas = false;
        assert_eq!(
            of("DeploymentReplicaSetTerminatingReplicas"),
            FeatureGates {
                terminating_replicas,
                ..all
            }
        );
        let stale_controller_consistency = false;
        assert_eq!(
            of("StaleControllerConsistencyReplicaSet"),
            FeatureGates {
                stale_controller_consistency,
                ..all
            }
        );
    }
}
