//! One of the two controllers, as a process.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::cpu::cpu_seconds;
use crate::report::{ORIGINAL, OURS};

/// How long a controller may take to end.
const STOP_WITHIN: Duration = Duration::from_mins(1);

/// The unit of systemd, which tells glibc how to give memory back.
const UNIT: &str = include_str!("../../../config/replicaset-controller.service");

/// How to start one of the two.
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
}

/// A running controller; killed when dropped.
pub(crate) struct Process {
    child: Child,
    pub(crate) started: Instant,
}

/// What a process has used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// CPU time, in seconds.
    pub(crate) cpu: f64,
    /// Resident memory, in MiB.
    pub(crate) resident: f64,
    /// The most of it so far, in MiB.
    pub(crate) peak: f64,
}

impl Contestant {
    pub(crate) fn ours(cluster: &Cluster) -> Self {
        let kubeconfig = cluster.kubeconfig.display();
        Self {
            name: OURS,
            program: env!("CARGO_BIN_EXE_replicaset-controller").into(),
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

    /// No contestant: what makes ReplicaSets of Deployments, for both in the same way.
    pub(crate) fn deployments(cluster: &Cluster) -> Result<Self, String> {
        Self::of_original(cluster, "deployment-controller")
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

    /// The same with a rate limit.
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
            .map_err(|error| format!("{} does not start: {error}", self.program.display()))?;
        Ok(Process { child, started })
    }
}

/// The variables that the unit sets for the daemon.
fn environment_of_unit() -> Vec<(&'static str, &'static str)> {
    UNIT.lines()
        .filter_map(|line| line.strip_prefix("Environment="))
        .flat_map(str::split_whitespace)
        .filter_map(|variable| variable.split_once('='))
        .collect()
}

impl Process {
    /// What it has used so far.
    pub(crate) fn usage(&self) -> Result<Usage, String> {
        let pid = self.child.id();
        let ended = "the controller has ended: run it by hand to see why";
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .map_err(|error| format!("{ended} ({error})"))?;
        // A process that has ended and was not waited for still has a status, without memory.
        let mebibytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let kibibytes = line.and_then(|line| line.split_whitespace().next());
            let kibibytes = kibibytes.and_then(|number| number.parse::<f64>().ok());
            kibibytes
                .map(|kibibytes| kibibytes / 1024.0)
                .ok_or_else(|| ended.to_owned())
        };
        Ok(Usage {
            cpu: cpu_seconds(pid)?,
            resident: mebibytes("VmRSS:")?,
            peak: mebibytes("VmHWM:")?,
        })
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(mut self) -> Result<(), String> {
        let id = self.child.id();
        let asked = Command::new("kill").arg(id.to_string()).status();
        asked.map_err(|error| format!("kill: {error}"))?;
        let deadline = Instant::now() + STOP_WITHIN;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => crate::load::pause(Duration::from_millis(20)),
                Ok(Some(_)) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("the controller does not end".to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already is no error.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}
