//! The daemon's process, and what it uses.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// The systemd unit, whose environment configures how glibc returns memory.
const UNIT: &str = include_str!("../../../config/replicaset-controller.service");

/// CPU time of a second in which the daemon counts as idle.
const IDLE_CPU: f64 = 0.01;

/// How long the daemon must be idle before its memory counts as settled.
const IDLE_SECONDS: usize = 10;

/// A running daemon. Drop kills it.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) started: Instant,
}

/// What the daemon uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// CPU time so far, in seconds.
    pub(crate) cpu: f64,
    /// Resident memory, and its peak so far, in MiB.
    pub(crate) resident: f64,
    pub(crate) peak: f64,
}

impl Daemon {
    pub(crate) fn start(program: &Path, kubeconfig: &Path) -> Result<Self, String> {
        let variables = UNIT
            .lines()
            .filter_map(|line| line.strip_prefix("Environment="))
            .flat_map(str::split_whitespace)
            .filter_map(|variable| variable.split_once('='));
        let mut command = Command::new(program);
        command
            .arg("run")
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args([
                "--kube-api-qps=0",
                "--leader-elect=false",
                "--secure-port=0",
            ])
            .envs(variables)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let started = Instant::now();
        let child = command.spawn();
        let child = child.map_err(|error| format!("{}: {error}", program.display()))?;
        Ok(Self { child, started })
    }

    pub(crate) fn usage(&self) -> Result<Usage, String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        // A zombie has no memory.
        let mebibytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            let number = line.and_then(|line| line.split_whitespace().next());
            let number = number.and_then(|number| number.parse::<f64>().ok());
            number
                .map(|kibibytes| kibibytes / 1024.0)
                .ok_or("the daemon has exited")
        };
        Ok(Usage {
            cpu: self.cpu()?,
            resident: mebibytes("VmRSS:")?,
            peak: mebibytes("VmHWM:")?,
        })
    }

    /// CPU time so far, in seconds, with that of threads that have ended.
    pub(crate) fn cpu(&self) -> Result<f64, String> {
        let pid = i32::try_from(self.child.id()).map_err(|error| error.to_string())?;
        let time = clock_getcpuclockid(Pid::from_raw(pid)).and_then(clock_gettime);
        let time = time.map_err(|error| format!("no CPU time of the daemon: {error}"))?;
        Ok(Duration::from(time).as_secs_f64())
    }

    /// CPU time of the thread with this name, in seconds.
    pub(crate) fn cpu_of_thread(&self, name: &str) -> Result<f64, String> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let tasks = fs::read_dir(&tasks).map_err(|error| format!("{tasks}: {error}"))?;
        for task in tasks.flatten() {
            let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            if read("comm").trim() == name {
                let schedstat = read("schedstat");
                let nanoseconds = schedstat
                    .split(' ')
                    .next()
                    .and_then(|it| it.parse::<f64>().ok());
                return Ok(nanoseconds.unwrap_or_default() / 1e9);
            }
        }
        Err(format!("the daemon has no thread {name}"))
    }

    /// Waits until the daemon has been idle for a while.
    pub(crate) fn wait_idle(&self) -> Result<(), String> {
        let mut n_idle = 0;
        let mut before = self.cpu()?;
        while n_idle < IDLE_SECONDS {
            pause(Duration::from_secs(1));
            let now = self.cpu()?;
            n_idle = if now - before < IDLE_CPU {
                n_idle + 1
            } else {
                0
            };
            before = now;
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The process may have exited already.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

pub(crate) fn pause(time: Duration) {
    let end = Instant::now() + time;
    // A parked thread may wake early.
    while let Some(remaining) = end.checked_duration_since(Instant::now()) {
        park_timeout(remaining);
    }
}
