//! A control plane that belongs to one test, for tests whose daemon or kube-controller-manager
//! controls all namespaces.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use nix::sys::signal::Signal;
use replicaset_controller::client::{ClientConfig, ConfigSource};
use replicaset_controller::stdx::stop::Stop;

use super::api::{Api, Kind};
use crate::tidy::root;

/// A control plane for one test. It stops when its standard input is closed.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    process: Child,
    input: Option<ChildStdin>,
    variables: BTreeMap<String, String>,
    audit_log: PathBuf,
    folder: tempfile::TempDir,
}

impl ControlPlane {
    /// True if the tests run against the real control plane, and it was built with a
    /// kube-controller-manager.
    pub(crate) fn has_controller_manager() -> bool {
        let bin = env::var_os("CONTROL_PLANE_BIN").map(PathBuf::from);
        bin.is_some_and(|bin| bin.join("kube-controller-manager").exists())
    }

    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// [`start`](Self::start) with additional flags of the API server, separated by blanks.
    pub(crate) fn start_with(flags: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let audit_log = folder.path().join("audit.log");
        let mut process = Command::new(root().join("tests/control-plane/run.sh"))
            .args(["sh", "-c", "env; echo; cat"])
            .env("CONTROL_PLANE_AUDIT_LOG", &audit_log)
            .env("KUBE_APISERVER_FLAGS", flags)
            .env_remove("KCM_CONTROLLERS")
            .env_remove("RUN_KCM")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("run.sh runs");
        let output = BufReader::new(process.stdout.take().expect("standard output is piped"));
        let lines = output
            .lines()
            .map_while(Result::ok)
            .take_while(|line| !line.is_empty());
        let variables = lines.filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        Self {
            variables: variables.collect(),
            input: process.stdin.take(),
            process,
            audit_log,
            folder,
        }
    }

    /// A variable that `run.sh` sets for its command.
    pub(crate) fn variable(&self, name: &str) -> &str {
        let value = self.variables.get(name);
        value.unwrap_or_else(|| panic!("run.sh does not set {name}"))
    }

    /// The path of a file of `run.sh`, such as a log or a key.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.variable("CONTROL_PLANE_DIR"))
    }

    /// A folder of the test, which lives as long as the control plane.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn audit_log(&self) -> &Path {
        &self.audit_log
    }

    /// Requests in the namespace `default`, as the administrator.
    pub(crate) fn api(&self, stop: &Stop) -> Api {
        let config = ClientConfig::load(&ConfigSource {
            kubeconfig: Some(self.variable("CONTROL_PLANE_ADMIN_KUBECONFIG").into()),
            ..ConfigSource::default()
        });
        let config = config.expect("a valid kubeconfig");
        Api::new(&config, "default", Kind::ReplicaSets, stop)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.input.take());
        self.process
            .wait()
            .expect("run.sh exits at the end of its input");
    }
}

/// A kube-controller-manager. Drop kills it.
#[derive(Debug)]
pub(crate) struct KubeControllerManager {
    child: Child,
    log: PathBuf,
}

impl KubeControllerManager {
    /// Starts the process with these flags. Its log is `kcm-NUMBER.log`.
    pub(crate) fn start(plane: &ControlPlane, number: usize, flags: &[&str]) -> Self {
        let log = plane.folder.path().join(format!("kcm-{number}.log"));
        let output = File::create(&log).expect("a file for the log");
        let binary = Path::new(plane.variable("CONTROL_PLANE_BIN")).join("kube-controller-manager");
        let child = Command::new(binary)
            .arg(format!(
                "--kubeconfig={}",
                plane.variable("CONTROL_PLANE_ADMIN_KUBECONFIG")
            ))
            .arg(format!(
                "--service-account-private-key-file={}",
                plane.file("service-account.key")
            ))
            .arg(format!("--root-ca-file={}", plane.file("ca.crt")))
            .args([
                "--secure-port=0",
                "--kube-api-qps=200",
                "--kube-api-burst=200",
            ])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .expect("kube-controller-manager runs");
        Self { child, log }
    }

    /// Ignores case: before 1.35 most messages began with a small letter.
    pub(crate) fn has_logged(&self, what: &str) -> bool {
        std::fs::read_to_string(&self.log)
            .unwrap_or_default()
            .to_ascii_lowercase()
            .contains(&what.to_ascii_lowercase())
    }

    /// Sends a signal that ends the process, and waits for the end.
    pub(crate) fn signal(&mut self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process id");
        let id = nix::unistd::Pid::from_raw(id);
        nix::sys::signal::kill(id, signal).expect("the process exists");
        self.child.wait().expect("the process can be reaped");
    }
}

impl Drop for KubeControllerManager {
    fn drop(&mut self) {
        // The process may have exited already.
        self.child.kill().unwrap_or_default();
        self.child.wait().expect("the process can be reaped");
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            log::error!("kube-controller-manager logged:\n{log}");
        }
    }
}
