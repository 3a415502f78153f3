//! The daemon under test: its threads in this process, or the binary in a process of its own that
//! can be killed.

use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use replicaset_controller::api::WorkloadKind;
use replicaset_controller::client::ClientConfig;
use replicaset_controller::http_server::{self, ResponseBody};
use replicaset_controller::manager::{ControllerInstance, Manager, ManagerOptions};
use replicaset_controller::serving::Pages;
use replicaset_controller::stdx::stop::{Cause, Stop};
use replicaset_controller::telemetry::health::Health;
use replicaset_controller::telemetry::metrics;

use super::waiting::Waiting;

/// The daemon's threads in this process. Dropping it stops it and checks that all have ended.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// Taken when it stops.
    manager: Option<Manager>,
    stop: Stop,
}

impl Daemon {
    pub(crate) fn start(config: &ClientConfig, options: &ManagerOptions) -> Self {
        let stop = Stop::new();
        let health = Health::new(metrics::global());
        let manager = Manager::start(config, options, &health, &stop);
        let manager = manager.expect("the configuration is good");
        Self {
            manager: Some(manager),
            stop,
        }
    }

    /// Its controller of this kind.
    pub(crate) fn instance(&self, kind: &WorkloadKind) -> &ControllerInstance {
        let manager = self.manager.as_ref().expect("it was not stopped yet");
        manager.instance(kind).expect("it is controlled")
    }

    /// What its page of this path says.
    pub(crate) fn page(&self, path: &str) -> String {
        let pages = Pages::default();
        let manager = self.manager.as_ref().expect("it was not stopped yet");
        manager.add_pages(&pages);
        let request = http_server::Request {
            path: path.to_owned(),
            ..http_server::Request::default()
        };
        match pages.answer(&request).body {
            ResponseBody::Whole(body) => String::from_utf8(body).expect("text"),
            other => panic!("{path} answers {other:?}"),
        }
    }

    /// Stops it as SIGTERM does, waits until all threads have ended, and says why it stopped.
    pub(crate) fn stop(&mut self) -> Result<Cause, String> {
        let requested = Cause::Requested("the test stops it".to_owned());
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

/// The binary in a process of its own. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct DaemonProcess {
    child: Child,
    output: tempfile::NamedTempFile,
    log: tempfile::NamedTempFile,
}

/// What tests that are not about it do without: a lease, and a port that only one test could have.
const ALONE: [&str; 2] = ["--leader-elect=false", "--secure-port=0"];

/// The arguments with [`ALONE`] before the first flag, so that the test's own flags win.
fn alone<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    match arguments {
        [first, rest @ ..] if *first == "run" => [&[*first][..], &ALONE, rest].concat(),
        [first, ..] if first.starts_with('-') => [&ALONE, arguments].concat(),
        _ => arguments.to_vec(),
    }
}

impl DaemonProcess {
    /// Starts `replicaset-controller` with these arguments and nothing in the environment that
    /// names a cluster; without leader election and HTTPS, unless the arguments say otherwise.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// The same with these variables.
    pub(crate) fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let output = tempfile::NamedTempFile::new().expect("a file for the output");
        let stdout = File::create(output.path()).expect("a file for the output");
        let log = tempfile::NamedTempFile::new().expect("a file for the log");
        let stderr = File::create(log.path()).expect("a file for the log");
        let child = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
            .args(alone(arguments))
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env("HOME", "/nonexistent")
            .envs(environment.iter().copied())
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

    /// What it has said on standard output so far.
    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(self.output.path()).expect("readable output")
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).expect("a readable log")
    }

    /// SIGKILL, and waits until the process is gone.
    pub(crate) fn kill(&mut self) {
        // Gone already is as good.
        self.child.kill().unwrap_or_default();
        self.child.wait().expect("the process can be waited for");
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(id), signal).expect("the process is there");
    }

    /// Waits until the process has ended by itself; the test fails if that takes longer than `limit`.
    #[track_caller]
    pub(crate) fn exit_within(&mut self, limit: Duration) -> ExitStatus {
        let waiting = Waiting::new(&Stop::new());
        let began = Instant::now();
        loop {
            if let Some(status) = self.try_wait() {
                return status;
            }
            assert!(began.elapsed() < limit, "still running after {limit:?}");
            waiting.pause(Duration::from_millis(10));
        }
    }

    /// The exit status, once it has ended.
    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child
            .try_wait()
            .expect("the process can be waited for")
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
