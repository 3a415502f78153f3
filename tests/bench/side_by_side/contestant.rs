//! The two controllers, as processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::cpu::cpu_seconds;
use crate::report::{ORIGINAL, OURS};

/// How long a controller may take to exit.
const STOP_WITHIN: Duration = Duration::from_mins(1);

/// The daemon's program, which `make bench` has built. Cargo would build it for a benchmark as it
/// does for tests, with the simulation's seams.
pub(crate) const DAEMON: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../target/release/replicaset-controller"
);

/// The systemd unit. Its environment configures how glibc returns memory.
const UNIT: &str = include_str!("../../../config/replicaset-controller.service");

/// The command line of a controller.
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
}

/// A running controller. Drop kills it.
pub(crate) struct Process {
    child: Child,
    pub(crate) started: Instant,
}

/// Resource usage of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// CPU time, in seconds.
    pub(crate) cpu: f64,
    /// Resident memory, in MiB.
    pub(crate) resident: f64,
    /// Peak resident memory so far, in MiB.
    pub(crate) peak: f64,
}

impl Contestant {
    pub(crate) fn ours(kubeconfig: &Path) -> Self {
        let kubeconfig = kubeconfig.display();
        Self {
            name: OURS,
            program: DAEMON.into(),
            arguments: vec![
                "run".to_owned(),
                format!("--kubeconfig={kubeconfig}"),
                "--kube-api-qps=0".to_owned(),
                "--leader-elect=false".to_owned(),
                "--secure-port=0".to_owned(),
            ],
            environment: environment_of_unit(),
        }
    }

    pub(crate) fn original(cluster: &Cluster) -> Result<Self, String> {
        Self::of_original(cluster, "replicaset-controller")
    }

    /// The Deployment controller, which runs beside both contestants and is none itself.
    pub(crate) fn deployments(cluster: &Cluster) -> Result<Self, String> {
        Self::of_original(cluster, "deployment-controller")
    }

    /// The controller that counts what quotas have used. It runs beside both contestants.
    pub(crate) fn resource_quotas(cluster: &Cluster) -> Result<Self, String> {
        Self::of_original(cluster, "resourcequota-controller")
    }

    fn of_original(cluster: &Cluster, controller: &str) -> Result<Self, String> {
        let program = cluster.binaries.join("kube-controller-manager");
        if !program.exists() {
            return Err(format!(
                "there is no {}: unset KUBEBUILDER_ASSETS and run `make control-plane`",
                program.display()
            ));
        }
        let kubeconfig = cluster.kubeconfig.display();
        Ok(Self {
            name: ORIGINAL,
            program,
            arguments: vec![
                format!("--kubeconfig={kubeconfig}"),
                format!("--controllers={controller}"),
                "--kube-api-qps=100000".to_owned(),
                "--kube-api-burst=100000".to_owned(),
                "--leader-elect=false".to_owned(),
                "--secure-port=0".to_owned(),
            ],
            environment: Vec::new(),
        })
    }

    /// The same controller with this rate limit.
    pub(crate) fn limited(&self, qps: &str, burst: &str) -> Self {
        let is_limit = |argument: &&String| argument.starts_with("--kube-api-");
        let mut arguments: Vec<String> = self.arguments.clone();
        arguments.retain(|argument| !is_limit(&argument));
        arguments.push(format!("--kube-api-qps={qps}"));
        arguments.push(format!("--kube-api-burst={burst}"));
        Self {
            name: self.name,
            program: self.program.clone(),
            arguments,
            environment: self.environment.clone(),
        }
    }

    pub(crate) fn start(&self) -> Result<Process, String> {
        let mut command = Command::new(&self.program);
        let command = command
            .args(&self.arguments)
            .envs(self.environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let started = Instant::now();
        let child = command
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        Ok(Process { child, started })
    }
}

/// The environment variables of the systemd unit.
fn environment_of_unit() -> Vec<(&'static str, &'static str)> {
    UNIT.lines()
        .filter_map(|line| line.strip_prefix("Environment="))
        .flat_map(str::split_whitespace)
        .filter_map(|variable| variable.split_once('='))
        .collect()
}

impl Process {
    /// Its resource usage so far.
    pub(crate) fn usage(&self) -> Result<Usage, String> {
        let pid = self.child.id();
        let exited = "the controller has exited: run it by hand to see why";
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .map_err(|error| format!("{exited} ({error})"))?;
        // A zombie still has a status file, without memory fields.
        let mebibytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let kibibytes = line.and_then(|line| line.split_whitespace().next());
            let kibibytes = kibibytes.and_then(|number| number.parse::<f64>().ok());
            kibibytes
                .map(|kibibytes| kibibytes / 1024.0)
                .ok_or_else(|| exited.to_owned())
        };
        Ok(Usage {
            cpu: cpu_seconds(pid)?,
            resident: mebibytes("VmRSS:")?,
            peak: mebibytes("VmHWM:")?,
        })
    }

    /// Sends SIGTERM, and waits for the process to exit. Fails after [`STOP_WITHIN`].
    pub(crate) fn stop(mut self) -> Result<(), String> {
        let id = self.child.id();
        let sent = Command::new("kill").arg(id.to_string()).status();
        sent.map_err(|error| format!("kill: {error}"))?;
        let deadline = Instant::now() + STOP_WITHIN;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => crate::load::pause(Duration::from_millis(20)),
                Ok(Some(_)) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("the controller does not exit".to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have exited already.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}
