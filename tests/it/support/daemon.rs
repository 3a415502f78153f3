//! The daemon under test: as threads of this process ([`Daemon`]), or as a separate process that a
//! test can signal and kill ([`DaemonProcess`]).

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use replicaset_controller::api::WorkloadKind;
use replicaset_controller::client::ClientConfig;
use replicaset_controller::http_server;
use replicaset_controller::http_server::ResponseBody;
use replicaset_controller::manager::{ControllerInstance, Manager, ManagerOptions};
use replicaset_controller::serving::Pages;
use replicaset_controller::stdx::stop::{Cause, Stop};
use replicaset_controller::telemetry::Health;

use super::waiting::{PATIENCE, Waiting};

/// The daemon as threads of this process. Drop stops it, joins its threads and fails the test if it
/// had stopped for another reason.
pub(crate) struct Daemon {
    /// `None` once stopped.
    manager: Option<Manager>,
    stop: Stop,
}

impl Daemon {
    pub(crate) fn start(config: &ClientConfig, options: &ManagerOptions) -> Self {
        let stop = Stop::new();
        let health = Health::default();
        let manager = Manager::start(config, options, &health, &stop);
        let manager = manager.expect("the configuration is valid");
        Self {
            manager: Some(manager),
            stop,
        }
    }

    /// The controller of this kind. Panics if the daemon does not run one.
    pub(crate) fn instance(&self, kind: &WorkloadKind) -> &ControllerInstance {
        let manager = self.manager.as_ref().expect("the daemon is not stopped");
        manager
            .instance(kind)
            .expect("the daemon controls this kind")
    }

    /// The body of the page at this path, without HTTP.
    pub(crate) fn page(&self, path: &str) -> String {
        let pages = Pages::default();
        let manager = self.manager.as_ref().expect("the daemon is not stopped");
        manager.add_pages(&pages);
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query = query.split('&').filter_map(|pair| pair.split_once('='));
        let request = http_server::Request {
            path: path.to_owned(),
            query: query
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            ..http_server::Request::default()
        };
        match pages.answer(&request).body {
            ResponseBody::Whole(body) => String::from_utf8(body).expect("pages are UTF-8"),
            other => panic!("{path} returned {other:?}"),
        }
    }

    /// Stops the daemon as SIGTERM does, joins its threads, and returns why it stopped. The joins
    /// are bounded by `ManagerOptions::stop_within`.
    pub(crate) fn stop(&mut self) -> Result<Cause, String> {
        let requested = Cause::Requested("the test stops the daemon".to_owned());
        self.stop.stop(requested.clone());
        match self.manager.take() {
            Some(manager) => manager.wait(),
            None => Ok(requested),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let result = self.stop();
        if std::thread::panicking() {
            log::error!("the daemon ended with {result:?}");
        } else {
            assert!(
                matches!(result, Ok(Cause::Requested(_))),
                "the daemon ended with {result:?}"
            );
        }
    }
}

/// The binary as a separate process, its output and log in temporary files. Drop kills it.
#[derive(Debug)]
pub(crate) struct DaemonProcess {
    child: Child,
    output: tempfile::NamedTempFile,
    log: tempfile::NamedTempFile,
}

/// Flags that most tests need: no leader election, and no HTTPS port, as all tests would share the
/// default one.
const DEFAULT_FLAGS: [&str; 2] = ["--leader-elect=false", "--secure-port=0"];

/// The arguments with [`DEFAULT_FLAGS`] before the first flag, so that the test's own flags win.
fn with_default_flags<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    match arguments {
        [first, rest @ ..] if *first == "run" => [&[*first][..], &DEFAULT_FLAGS, rest].concat(),
        [first, ..] if first.starts_with('-') => [&DEFAULT_FLAGS, arguments].concat(),
        _ => arguments.to_vec(),
    }
}

const BINARY: &str = env!("CARGO_BIN_EXE_replicaset-controller");

/// A command in an environment that names no cluster.
fn without_cluster(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("HOME", "/nonexistent");
    command
}

impl DaemonProcess {
    /// Starts `replicaset-controller` with these arguments in an environment that names no cluster.
    /// Leader election and HTTPS are off unless the arguments turn them on.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// [`start`](Self::start) with additional environment variables.
    pub(crate) fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = without_cluster(BINARY);
        command.args(with_default_flags(arguments));
        command.envs(environment.iter().copied());
        Self::spawn(command)
    }

    /// [`start`](Self::start) by a shell in this folder. The script ends with `exec "$@"`, so that
    /// the process becomes the daemon.
    pub(crate) fn start_by(script: &str, folder: &Path, arguments: &[&str]) -> Self {
        let mut command = without_cluster("/bin/sh");
        command.args(["-c", script, "sh", BINARY]);
        command.args(with_default_flags(arguments));
        command.current_dir(folder);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let output = tempfile::NamedTempFile::new().expect("a file for the output");
        let stdout = File::create(output.path()).expect("a file for the output");
        let log = tempfile::NamedTempFile::new().expect("a file for the log");
        let stderr = File::create(log.path()).expect("a file for the log");
        let child = command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .expect("the binary runs");
        Self { child, output, log }
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output so far.
    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(self.output.path()).expect("readable output")
    }

    /// Its standard error, which is the log, so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).expect("a readable log")
    }

    /// Sends SIGKILL and waits for the process to exit.
    pub(crate) fn kill(&mut self) {
        // The process may have exited already.
        self.child.kill().unwrap_or_default();
        self.child.wait().expect("the process can be reaped");
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(id), signal).expect("the process exists");
    }

    /// Waits for the process to exit by itself. The test fails after [`PATIENCE`].
    #[track_caller]
    pub(crate) fn exit(&mut self) -> ExitStatus {
        let status = self.ended();
        status.unwrap_or_else(|| panic!("still running after {PATIENCE:?}"))
    }

    /// Waits for the process to exit by itself; `None` after [`PATIENCE`].
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let waiting = Waiting::new(&Stop::new());
        let process = RefCell::new(self);
        waiting.within(|| process.borrow_mut().try_wait().is_some());
        process.into_inner().try_wait()
    }

    /// The exit status, `None` while the process runs.
    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the process can be reaped")
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            log::error!("the process {} logged:\n{}", self.id(), self.log());
        }
    }
}
