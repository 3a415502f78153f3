//! A cluster for one test: the dev server, or the real control plane at `CONTROL_PLANE_URL`, with a
//! namespace of its own, and the daemon limited to that namespace.
//!
//! On both servers the daemon's requests pass a recorder and a fault layer
//! ([`TestCluster::faults`]). The test's own requests bypass them.

use std::env;
use std::net::ToSocketAddrs;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use replicaset_controller::api::ResourceVersion;
use replicaset_controller::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use replicaset_controller::cache::Cache;
use replicaset_controller::cache::decode::ContentType;
use replicaset_controller::client::{ClientConfig, ConfigSource, Request};
use replicaset_controller::devserver;
use replicaset_controller::devserver::{
    Action, ApiCall, DevServer, DevServerOptions, Faults, Handler, KubeletOptions, Matcher,
    Recorded, Recorder, Rule, RuleHandle,
};
use replicaset_controller::http_server::Server;
use replicaset_controller::manager::ManagerOptions;
use replicaset_controller::stdx::stop::{Cause, Stop};
use serde_json::{Value, json};

use super::api::{Api, Kind};
use super::daemon::{Daemon, DaemonProcess};
use super::forward::Forward;
use super::objects::{name, new_pod, number_at, text_at};
use super::waiting::{PATIENCE, Waiting};

/// Guards the real control plane, which all tests share. Most tests lock it shared; a test whose
/// daemon controls all namespaces locks it exclusively.
static CLUSTER: RwLock<()> = RwLock::new(());

/// Requests that a failing test logs at most, the newest ones.
const REQUESTS_LOGGED_MAX: usize = 300;

/// How the daemon reaches the real control plane. On the dev server it is always `Recorded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Through the recorder and the faults.
    Recorded,
    /// Directly, over TLS with a client certificate.
    Certificate,
    /// Directly, over TLS with a bearer token.
    Token,
}

/// How to set up a [`TestCluster`].
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Whether the daemon controls all namespaces.
    pub(crate) all_namespaces: bool,
    /// How the daemon reaches the API server.
    pub(crate) access: Access,
    /// The workload kind under test. The daemon controls both kinds.
    pub(crate) workload: Kind,
    /// Whether the dev server simulates nodes, so that pods become ready.
    pub(crate) has_nodes: bool,
    /// The daemon's options. [`TestCluster::with`] sets the namespace.
    pub(crate) options: ManagerOptions,
}

impl Setup {
    /// The default setup, with this workload kind under test.
    pub(crate) fn about(workload: Kind) -> Self {
        Self {
            workload,
            ..Self::default()
        }
    }

    /// Makes the daemon read and write JSON instead of protobuf.
    pub(crate) fn in_json(mut self) -> Self {
        self.options.content_type = ContentType::Json;
        self
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            all_namespaces: false,
            access: Access::Recorded,
            workload: Kind::ReplicaSets,
            has_nodes: false,
            options: ManagerOptions {
                controllers: vec![&REPLICA_SET, &REPLICATION_CONTROLLER],
                kube_api_qps: 0.0,
                batch_parallelism: 8,
                stop_within: PATIENCE,
                ..ManagerOptions::default()
            },
        }
    }
}

/// The test's lock on [`CLUSTER`]. Empty on the dev server, which belongs to one test.
#[derive(Default)]
struct Guard {
    shared: Option<RwLockReadGuard<'static, ()>>,
    alone: Option<RwLockWriteGuard<'static, ()>>,
}

/// The server behind the fault layer.
enum Backend {
    Dev { server: DevServer, _front: Server },
    Real { _proxy: Server },
}

/// A cluster for one test; see the module. It derefs to [`Api`] and repeats [`Waiting`]'s methods.
pub(crate) struct TestCluster {
    // ORDER: drops the daemon first, then the servers, then the lock on the cluster.
    daemon: Option<Daemon>,
    backend: Backend,
    faults: Faults,
    api: Api,
    waiting: Waiting,
    /// The API server and the credentials for the daemon.
    config: ClientConfig,
    /// The same as arguments for the binary.
    arguments: Vec<String>,
    options: ManagerOptions,
    /// INVARIANT: trips only at the end of the test, or when a server's thread panics.
    stop: Stop,
    _guard: Guard,
}

impl TestCluster {
    /// A cluster with an empty namespace, and no daemon yet.
    pub(crate) fn start() -> Self {
        Self::with(Setup::default())
    }

    /// A cluster with an empty namespace, and a daemon that controls it.
    pub(crate) fn running() -> Self {
        Self::running_with(Setup::default())
    }

    /// [`start`](Self::start) with this workload kind under test.
    pub(crate) fn start_for(workload: Kind) -> Self {
        Self::with(Setup::about(workload))
    }

    /// [`running`](Self::running) with this workload kind under test.
    pub(crate) fn running_for(workload: Kind) -> Self {
        Self::running_with(Setup::about(workload))
    }

    /// [`with`](Self::with), then starts the daemon.
    pub(crate) fn running_with(setup: Setup) -> Self {
        let mut cluster = Self::with(setup);
        cluster.start_daemon();
        cluster
    }

    /// A cluster with this setup, and no daemon yet.
    pub(crate) fn with(setup: Setup) -> Self {
        start_log();
        let namespace = format!("it-{:016x}", fastrand::u64(..));
        let stop = Stop::new();
        let parts = if Self::is_real() {
            start_real(&setup, &stop)
        } else {
            start_dev(&setup, &stop)
        };
        let all_namespaces = setup.all_namespaces;
        let mut options = setup.options;
        options.namespace = (!all_namespaces).then(|| namespace.clone());
        let cluster = Self {
            daemon: None,
            backend: parts.backend,
            faults: parts.faults,
            api: Api::new(&parts.admin, &namespace, setup.workload, &stop),
            waiting: Waiting::new(&stop),
            config: parts.config,
            arguments: parts.arguments,
            options,
            stop,
            _guard: parts.guard,
        };
        cluster.create_namespace(&namespace);
        cluster
    }

    /// True if the tests run against the real control plane.
    pub(crate) fn is_real() -> bool {
        env::var_os("CONTROL_PLANE_URL").is_some()
    }

    /// Creates a namespace with a default service account, so that pods can be created in it.
    pub(crate) fn create_namespace(&self, namespace: &str) {
        let object = json!({"metadata": {"name": namespace}});
        self.api.create(Kind::Namespaces, &object);
        let account = json!({"metadata": {"name": "default"}});
        let api = self.api.in_namespace(namespace);
        api.create(Kind::ServiceAccounts, &account);
        // Admission reads service accounts from its own cache, which may lag behind.
        let probe = Request::post(api.collection(Kind::Pods))
            .query("dryRun", "All")
            .body("application/json", new_pod("probe").to_string());
        if Self::is_real() {
            self.waiting
                .eventually("pods can be created", || api.send(&probe).is_ok());
        }
    }

    /// Starts the daemon. A test may run several, one after the other.
    pub(crate) fn start_daemon(&mut self) {
        assert!(self.daemon.is_none(), "the daemon runs already");
        self.daemon = Some(Daemon::start(&self.config, &self.options));
    }

    /// Starts the daemon with `url` as its API server.
    pub(crate) fn start_daemon_at(&mut self, url: &str) {
        assert!(self.daemon.is_none(), "the daemon runs already");
        let config = ClientConfig::plain(url);
        self.daemon = Some(Daemon::start(&config, &self.options));
    }

    /// Serves the API on another address, through the recorder and the fault layer. `wrap` may put
    /// a handler in front of them. Dropping the [`Server`] closes the port.
    pub(crate) fn open_door(
        &self,
        address: impl ToSocketAddrs,
        wrap: impl FnOnce(Faults) -> Arc<dyn Handler>,
    ) -> Server {
        let handler = wrap(self.faults.clone());
        devserver::serve(address, handler, &self.stop).expect("the address is free")
    }

    /// Waits until the daemon's caches have synced and it has one open watch per resource.
    #[track_caller]
    pub(crate) fn synced(&self) {
        self.eventually("the caches have synced", || self.cache().has_synced());
        for resource in ["pods", self.workload().plural()] {
            let watches = Matcher::verb("watch", resource);
            self.eventually("one open watch per resource", || {
                self.faults.n_watches(&watches) == 1
            });
        }
    }

    /// Holds back all events of the daemon's watches of `resource` until the rule is removed.
    pub(crate) fn hold_watch(&self, resource: &str) -> RuleHandle {
        let watches = Matcher::verb("watch", resource);
        self.faults.add(Rule::new(watches, Action::HoldWatch))
    }

    /// Applies `action` to the daemon's requests with this verb and resource until the rule is
    /// removed.
    pub(crate) fn fault(&self, verb: &str, resource: &str, action: Action) -> RuleHandle {
        let rule = Rule::new(Matcher::verb(verb, resource), action);
        self.faults.add(rule)
    }

    /// Stops the daemon. The test fails if the daemon had stopped for another reason.
    pub(crate) fn stop_daemon(&mut self) {
        drop(self.daemon.take().expect("the daemon runs"));
    }

    /// The running daemon.
    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("the daemon runs")
    }

    /// Starts the daemon as a separate process, with additional arguments.
    pub(crate) fn start_process(&self, arguments: &[&str]) -> DaemonProcess {
        self.start_process_with(arguments, &[])
    }

    /// [`start_process`](Self::start_process) with additional environment variables.
    pub(crate) fn start_process_with(
        &self,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> DaemonProcess {
        let mut all = vec!["run", "--kube-api-qps=0"];
        all.extend(self.arguments.iter().map(String::as_str));
        if let Some(namespace) = &self.options.namespace {
            all.extend(["--namespace", namespace]);
        }
        all.extend(arguments);
        DaemonProcess::start_with(&all, environment)
    }

    /// Arguments that connect to the API server as its administrator.
    pub(crate) fn admin_arguments(&self) -> Vec<String> {
        if !Self::is_real() {
            return self.arguments.clone();
        }
        let (_, file) = kubeconfig("CONTROL_PLANE_ADMIN_KUBECONFIG");
        vec!["--kubeconfig".to_owned(), file.display().to_string()]
    }

    /// The URL of the daemon's API server.
    pub(crate) fn url(&self) -> String {
        self.config.server().to_string()
    }

    /// Trips when the test ends, and when one of its servers fails.
    pub(crate) fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The recorder and the fault rules for the daemon's requests.
    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The daemon's requests with this verb and resource, such as `create` and `pods`.
    pub(crate) fn recorded(&self, verb: &str, resource: &str) -> Vec<Arc<Recorded>> {
        self.faults.recorder().find(verb, resource)
    }

    /// Number of requests so far that change pods or a ReplicaSet's status.
    pub(crate) fn n_writes(&self) -> usize {
        let requests = self.faults.recorder().requests();
        let is_write = |recorded: &&Arc<Recorded>| {
            let verb = recorded.request.verb();
            let resource = recorded.request.resource();
            matches!(verb, "create" | "update" | "patch" | "delete")
                && resource != "events"
                && !resource.ends_with("reviews")
        };
        requests.iter().filter(is_write).count()
    }

    /// The dev server; `None` on the real control plane.
    pub(crate) fn dev_server(&self) -> Option<&DevServer> {
        match &self.backend {
            Backend::Dev { server, .. } => Some(server),
            Backend::Real { .. } => None,
        }
    }

    /// The test's own access to the API server.
    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// Waits until the ReplicaSet's `status.replicas` equals `spec.replicas` and its status has
    /// observed the latest generation.
    #[track_caller]
    pub(crate) fn stable(&self, replica_set: &str) {
        self.eventually_eq(&format!("{replica_set} is stable"), &None, || {
            let rs = self.replica_set(replica_set);
            let wanted = (
                number_at(&rs, "/spec/replicas"),
                number_at(&rs, "/metadata/generation"),
            );
            let seen = (
                number_at(&rs, "/status/replicas"),
                number_at(&rs, "/status/observedGeneration"),
            );
            (wanted != seen).then(|| rs["status"].clone())
        });
    }

    /// Waits until the daemon's cache is as new as `object`, such as the response to an update. The
    /// watches of pods and of ReplicaSets are independent, so each kind has its own position.
    #[track_caller]
    pub(crate) fn caught_up_with(&self, kind: Kind, object: &Value) {
        let version = ResourceVersion::new(&text_at(object, "/metadata/resourceVersion"));
        let cache = self.cache();
        self.eventually("the cache has caught up", || {
            let position = match kind {
                Kind::Pods => cache.pods.resource_version(),
                _ => cache.replica_sets.resource_version(),
            };
            cache.has_synced() && position.is_as_new_as(&version)
        });
    }

    /// The cache of the daemon's controller for the kind under test.
    pub(crate) fn cache(&self) -> &Cache {
        let kind = match self.workload() {
            Kind::ReplicationControllers => &REPLICATION_CONTROLLER,
            _ => &REPLICA_SET,
        };
        &self.daemon().instance(kind).cache
    }

    /// The status updates that the daemon has sent for the kind under test.
    pub(crate) fn status_updates(&self) -> Vec<Arc<Recorded>> {
        let resource = format!("{}/status", self.workload().plural());
        self.recorded("update", &resource)
    }

    /// Deletes the test's namespace and waits until its phase is `Terminating`.
    #[track_caller]
    pub(crate) fn terminate_namespace(&self) {
        self.delete(Kind::Namespaces, self.namespace());
        self.eventually("the namespace is terminating", || {
            let namespace = self.get(Kind::Namespaces, self.namespace());
            namespace.is_some_and(|it| text_at(&it, "/status/phase") == "Terminating")
        });
    }

    /// [`Waiting::eventually`].
    #[track_caller]
    pub(crate) fn eventually(&self, what: &str, predicate: impl Fn() -> bool) {
        self.waiting.eventually(what, predicate);
    }

    /// [`Waiting::eventually_eq`].
    #[track_caller]
    pub(crate) fn eventually_eq<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        expected: &T,
        actual: impl Fn() -> T,
    ) {
        self.waiting.eventually_eq(what, expected, actual);
    }

    /// [`Waiting::holds`].
    #[track_caller]
    pub(crate) fn holds(&self, what: &str, predicate: impl Fn() -> bool) {
        self.waiting.holds(what, predicate);
    }

    /// The [`Waiting`] of this test.
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// Logs the recorded requests and the objects, for a failing test.
    fn log_state(&self) {
        let requests = self.faults.recorder().requests();
        let began = requests.first().map(|request| request.started);
        let first = requests.len().saturating_sub(REQUESTS_LOGGED_MAX);
        let line = |recorded: &Arc<Recorded>| {
            let at = began.map(|began| recorded.started.duration_since(began));
            let code = recorded
                .code()
                .map_or("-".to_owned(), |code| code.to_string());
            let request = &recorded.request;
            let body = if request.body.len() < 600 {
                recorded.body()
            } else {
                format!("{} bytes", request.body.len())
            };
            let (method, path) = (&request.method, &request.path_and_query);
            format!(
                "{:>10.3?} {code} {method} {path} {body}",
                at.unwrap_or_default()
            )
        };
        let lines: Vec<String> = requests[first..].iter().map(line).collect();
        log::error!("requests of the daemon:\n{}", lines.join("\n"));
        for kind in [
            Kind::ReplicaSets,
            Kind::ReplicationControllers,
            Kind::Pods,
            Kind::Events,
        ] {
            for object in self.api.list(kind, "") {
                log::error!("{}", brief(kind, &object));
            }
        }
    }

    /// Deletes all workloads and pods, as a later test's daemon may control all namespaces.
    fn clean_up(&self) {
        for kind in [Kind::ReplicaSets, Kind::ReplicationControllers, Kind::Pods] {
            let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
            let request = Request::delete(self.api.collection(kind))
                .body("application/json", options.to_string());
            // A busy API server may close the connection in the middle of a long deletion.
            for _ in 0..3 {
                match self.api.try_send(&request) {
                    Ok(_) => break,
                    Err(error) => log::warn!("cleaning up: {error}"),
                }
            }
        }
    }
}

impl Deref for TestCluster {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if failed {
            self.log_state();
        }
        // A stopping daemon finishes its requests, so no rule may hold one back.
        self.faults.clear();
        drop(self.daemon.take());
        if matches!(self.backend, Backend::Real { .. }) {
            self.clean_up();
        }
        let server_failure = self.stop.cause();
        let end = Cause::Requested("the test has ended".to_owned());
        self.stop.stop(end);
        if !failed {
            assert_eq!(server_failure, None, "the server failed");
        }
    }
}

/// Renders an object on one line.
fn brief(kind: Kind, object: &Value) -> String {
    if kind == Kind::Events {
        let text = |pointer| text_at(object, pointer);
        let (reason, name) = (text("/reason"), text("/involvedObject/name"));
        let (count, message) = (number_at(object, "/count"), text("/message"));
        return format!("event {reason} {name} x{count}: {message}");
    }
    let mut metadata = object["metadata"].clone();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("managedFields");
    }
    let name = name(object);
    format!("{kind:?} {name} {metadata} {}", object["status"])
}

/// A started server, and the configurations to connect to it.
struct Started {
    backend: Backend,
    faults: Faults,
    admin: ClientConfig,
    config: ClientConfig,
    arguments: Vec<String>,
    guard: Guard,
}

fn start_dev(setup: &Setup, stop: &Stop) -> Started {
    let options = DevServerOptions {
        kubelet: setup.has_nodes.then(KubeletOptions::default),
        ..DevServerOptions::default()
    };
    let server = DevServer::start(&options, stop).expect("a free port");
    let front = devserver::serve("127.0.0.1:0", server.handler(), stop).expect("a free port");
    Started {
        faults: server.faults().clone(),
        admin: ClientConfig::plain(&front.url()),
        config: ClientConfig::plain(&server.url()),
        arguments: vec!["--master".to_owned(), server.url()],
        backend: Backend::Dev {
            server,
            _front: front,
        },
        guard: Guard::default(),
    }
}

/// No daemon of another test controls all namespaces until this is dropped.
pub(crate) fn keep_from_other_daemons() -> RwLockReadGuard<'static, ()> {
    CLUSTER.read().unwrap_or_else(PoisonError::into_inner)
}

fn start_real(setup: &Setup, stop: &Stop) -> Started {
    let mut guard = Guard::default();
    if setup.all_namespaces {
        guard.alone = Some(CLUSTER.write().unwrap_or_else(PoisonError::into_inner));
    } else {
        guard.shared = Some(keep_from_other_daemons());
    }
    let (controller, file) = kubeconfig("CONTROL_PLANE_CONTROLLER_KUBECONFIG");
    let forward = Arc::new(Forward::new(&controller, stop));
    let faults = Faults::new(forward, Recorder::new(100_000), stop);
    let proxy = devserver::serve("127.0.0.1:0", Arc::new(faults.clone()), stop);
    let proxy = proxy.expect("a free port");
    let by_file = |file: PathBuf| vec!["--kubeconfig".to_owned(), file.display().to_string()];
    let (config, arguments) = match setup.access {
        Access::Recorded => {
            let arguments = vec!["--master".to_owned(), proxy.url()];
            (ClientConfig::plain(&proxy.url()), arguments)
        }
        Access::Certificate => (controller, by_file(file)),
        Access::Token => {
            let (config, file) = kubeconfig("CONTROL_PLANE_TOKEN_KUBECONFIG");
            (config, by_file(file))
        }
    };
    Started {
        backend: Backend::Real { _proxy: proxy },
        faults,
        admin: admin_config(),
        config,
        arguments,
        guard,
    }
}

/// The real control plane's administrator.
pub(crate) fn admin_config() -> ClientConfig {
    kubeconfig("CONTROL_PLANE_ADMIN_KUBECONFIG").0
}

/// Loads the kubeconfig whose path is in this variable. `tests/control-plane/run.sh` sets it.
fn kubeconfig(variable: &str) -> (ClientConfig, PathBuf) {
    let file = env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set"));
    let file = PathBuf::from(file);
    let source = ConfigSource {
        kubeconfig: Some(file.clone()),
        ..ConfigSource::default()
    };
    let config = ClientConfig::load(&source);
    (
        config.expect("the control plane's kubeconfig is valid"),
        file,
    )
}

/// Sends the daemon's log to the test's captured output, so that a failing test prints it.
fn start_log() {
    let default = env_logger::Env::default()
        .default_filter_or("replicaset_controller=debug,kubernetes=debug,devserver=debug,it=debug");
    let started = env_logger::Builder::from_env(default)
        .is_test(true)
        .try_init();
    // Another test of this process may have installed the logger first.
    started.unwrap_or_default();
}
