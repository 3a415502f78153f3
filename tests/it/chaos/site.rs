//! What all rounds share: a control plane with a kube-controller-manager that runs Deployments,
//! collects garbage and counts quotas, and the daemons that rounds start on it.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError, RwLock};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use replicaset_controller::client::Request;
use replicaset_controller::stdx::stop::Stop;
use serde_json::json;

use super::audit;
use crate::support::{
    Api, ControlPlane, DaemonProcess, Kind, KubeControllerManager, PlainPort, Relay, Waiting,
    new_pod,
};

/// The users of the daemons, and the variables with their kubeconfigs.
const USERS: [(&str, &str); 2] = [
    (
        "replicaset-controller",
        "CONTROL_PLANE_CONTROLLER_KUBECONFIG",
    ),
    (
        "replicaset-controller-token",
        "CONTROL_PLANE_TOKEN_KUBECONFIG",
    ),
];

pub(super) struct Site {
    pub(super) plane: ControlPlane,
    pub(super) api: Api,
    pub(super) waiting: Waiting,
    /// Locked shared by a round whose faults meet only its own daemons, else exclusively.
    pub(super) everything: RwLock<()>,
    manager: Mutex<KubeControllerManager>,
    _policy: tempfile::NamedTempFile,
}

impl Site {
    pub(super) fn start() -> Self {
        let policy = tempfile::NamedTempFile::new().expect("a file for the policy");
        std::fs::write(policy.path(), audit::POLICY).expect("a writable file");
        let path = policy.path().display();
        // The chronicle reads etcd's values.
        let json = "--storage-media-type=application/json";
        let flags = format!("--audit-policy-file={path} --audit-log-maxsize=100000 {json}");
        let plane = ControlPlane::start_with(&flags);
        let stop = Stop::new();
        let api = plane.api(&stop);
        let site = Self {
            manager: Mutex::new(start_manager(&plane)),
            waiting: Waiting::new(&stop),
            plane,
            api,
            everything: RwLock::new(()),
            _policy: policy,
        };
        site.grant_leases();
        site
    }

    fn grant_leases(&self) {
        let group = "rbac.authorization.k8s.io";
        let metadata = json!({"name": "chaos:leases"});
        let role = json!({"metadata": metadata, "rules": [{
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "verbs": ["create", "get", "update"],
        }]});
        let subjects =
            USERS.map(|(user, _)| json!({"apiGroup": group, "kind": "User", "name": user}));
        let binding = json!({
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "chaos:leases"},
            "subjects": subjects,
        });
        for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
            let request = Request::post(format!("/apis/{group}/v1/{plural}"));
            let sent = self
                .api
                .send(&request.body("application/json", object.to_string()));
            sent.unwrap_or_else(|status| panic!("{plural}: {status}"));
        }
    }

    /// A new namespace in which pods can be created. The requests end with `stop`.
    pub(super) fn namespace(&self, name: &str, stop: &Stop) -> Api {
        self.api
            .create(Kind::Namespaces, &json!({"metadata": {"name": name}}));
        let api = self.plane.api(stop).in_namespace(name);
        api.create(
            Kind::ServiceAccounts,
            &json!({"metadata": {"name": "default"}}),
        );
        let probe = Request::post(api.collection(Kind::Pods)).query("dryRun", "All");
        let probe = probe.body("application/json", new_pod("probe").to_string());
        self.waiting
            .eventually("pods can be created", || api.send(&probe).is_ok());
        api
    }

    /// Kills a server of the control plane.
    pub(super) fn kill_server(&self, name: &str) {
        self.signal_server(name, Signal::SIGKILL);
    }

    /// Sends a signal to all processes of a server.
    pub(super) fn signal_server(&self, name: &str, signal: Signal) {
        let file = self.plane.file(&format!("{name}.pid"));
        let id = std::fs::read_to_string(file).expect("run.sh writes it");
        let id = id.trim().parse().expect("a process id");
        killpg(Pid::from_raw(id), signal).expect("it runs");
    }

    /// Starts a killed server again, on the same port with the same data.
    pub(super) fn start_server(&self, name: &str) {
        let started = Command::new(self.plane.file("start")).arg(name).status();
        assert!(started.expect("the script runs").success());
    }

    /// Copies etcd's data, of which nothing is open then.
    pub(super) fn save_etcd(&self) {
        self.kill_server("etcd");
        self.copy("etcd-data", "etcd-saved");
        self.start_server("etcd");
        self.wait_until_ready();
    }

    /// Takes etcd back to [`save_etcd`](Self::save_etcd). API server and kube-controller-manager
    /// start again, as after any restore.
    pub(super) fn restore_etcd(&self) {
        self.kill_server("kube-apiserver");
        self.kill_server("etcd");
        self.copy("etcd-saved", "etcd-data");
        self.start_server("etcd");
        self.start_server("kube-apiserver");
        self.wait_until_ready();
        let mut manager = self.manager.lock().unwrap_or_else(PoisonError::into_inner);
        *manager = start_manager(&self.plane);
    }

    fn copy(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.plane.file(name));
        let script = "rm -rf \"$2\" && cp -a \"$1\" \"$2\"";
        let copied = Command::new("sh")
            .args(["-c", script, "copy", &from, &to])
            .status();
        assert!(copied.expect("a shell").success());
    }

    /// Starts a second API server on the same etcd, with this name and an audit log of its own.
    pub(super) fn start_second(&self, name: &str) -> SocketAddr {
        let command = self.plane.file("kube-apiserver.command");
        let command = std::fs::read_to_string(command).expect("run.sh writes it");
        let reserved = PlainPort::free();
        let (first, second) = (address(self.server()), reserved.address());
        let port = |address: SocketAddr| format!("--secure-port={}", address.port());
        let log = self.plane.audit_log();
        let log = [log.to_owned(), self.second_log(name)];
        let log = log.map(|log| format!("--audit-log-path={}", log.display()));
        let command = command.replace(&port(first), &port(second));
        let command = command.replace(&log[0], &log[1]);
        std::fs::write(self.plane.file(&format!("{name}.command")), command).expect("writable");
        self.start_server(name);
        self.waiting
            .eventually("the second API server listens", || {
                TcpStream::connect(second).is_ok()
            });
        second
    }

    /// The audit log of a second API server.
    pub(super) fn second_log(&self, name: &str) -> PathBuf {
        self.plane.folder().join(format!("{name}.audit.log"))
    }

    /// Host and port of the API server.
    fn server(&self) -> &str {
        let url = self.plane.variable("CONTROL_PLANE_URL");
        url.trim_start_matches("https://")
    }

    /// Waits until the API server serves what the harness needs.
    pub(super) fn wait_until_ready(&self) {
        self.waiting.eventually("the API server is ready", || {
            self.api.try_send(&Request::get("/readyz")).is_ok()
        });
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn start_manager(plane: &ControlPlane) -> KubeControllerManager {
    // A create that is under way when its daemon dies may come after the end of its ReplicaSet.
    let controllers = "--controllers=deployment-controller,garbage-collector-controller,\
                       resourcequota-controller";
    KubeControllerManager::start(plane, 0, &[controllers, "--leader-elect=false"])
}

/// A daemon that a round starts, kills and starts again.
#[derive(Debug)]
pub(super) struct Daemon {
    arguments: Vec<String>,
    pub(super) relay: Option<Relay>,
    pub(super) process: Option<DaemonProcess>,
    pub(super) n_starts: usize,
}

impl Daemon {
    /// A daemon that connects as the user of this number, directly.
    pub(super) fn direct(site: &Site, number: usize, arguments: &[String]) -> Self {
        let file = site.plane.variable(USERS[number].1);
        Self::with(Path::new(file), None, arguments)
    }

    /// A daemon that connects through a relay of its own, which ends with `stop`.
    pub(super) fn relayed(site: &Site, number: usize, arguments: &[String], stop: &Stop) -> Self {
        let relay = Relay::start(address(site.server()), stop);
        Self::through(site, relay, number, arguments)
    }

    /// [`relayed`](Self::relayed), to the API server and a second one in turn.
    pub(super) fn between(
        site: &Site,
        second: SocketAddr,
        arguments: &[String],
        stop: &Stop,
    ) -> Self {
        let relay = Relay::between(vec![address(site.server()), second], stop);
        Self::through(site, relay, 0, arguments)
    }

    fn through(site: &Site, relay: Relay, number: usize, arguments: &[String]) -> Self {
        let file = site.plane.variable(USERS[number].1);
        let text = std::fs::read_to_string(file).expect("a readable kubeconfig");
        let text = text.replace(site.server(), &relay.address().to_string());
        let file = format!("relay-{}.kubeconfig", relay.address().port());
        let file = site.plane.folder().join(file);
        std::fs::write(&file, text).expect("a writable folder");
        Self::with(&file, Some(relay), arguments)
    }

    fn with(kubeconfig: &Path, relay: Option<Relay>, arguments: &[String]) -> Self {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let first = ["run".to_owned(), kubeconfig, "--kube-api-qps=0".to_owned()];
        Self {
            arguments: first.into_iter().chain(arguments.iter().cloned()).collect(),
            relay,
            process: None,
            n_starts: 0,
        }
    }

    /// Starts the process if it does not run.
    pub(super) fn start(&mut self) {
        let is_running = |process: &mut DaemonProcess| process.try_wait().is_none();
        if self.process.as_mut().is_some_and(is_running) {
            return;
        }
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.process = Some(DaemonProcess::start(&arguments));
        self.n_starts += 1;
    }

    /// Kills the process.
    pub(super) fn kill(&mut self) {
        drop(self.process.take());
    }

    pub(super) fn log(&self) -> String {
        let process = self.process.as_ref();
        process.map_or_else(String::new, DaemonProcess::log)
    }
}
