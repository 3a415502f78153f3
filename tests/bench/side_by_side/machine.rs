//! The machine of the run, and the versions of the programs.

use std::fmt;
use std::fs;
use std::process::Command;

use replicaset_controller::client::Request;
use serde::Serialize;

use crate::cluster::Cluster;

/// The machine and the versions. Unknown values are empty or 0, as no figure depends on them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    processor: String,
    n_processors: usize,
    memory_mib: u64,
    kernel: String,
    kube_apiserver: String,
    daemon: &'static str,
    /// Figures of an unoptimized build are meaningless.
    is_optimized: bool,
    /// The commit of the sources, with the suffix `-dirty` after uncommitted changes. `None`
    /// outside of a git repository.
    commit: Option<String>,
}

impl Machine {
    pub(crate) fn inspect(cluster: &Cluster) -> Result<Self, String> {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let of_processors = |field: &'static str| {
            let lines = processors.lines().filter_map(|line| line.split_once(':'));
            lines.filter(move |(name, _)| name.trim() == field)
        };
        let processor = of_processors("model name").next();
        let version = cluster.json(&Request::get("/version"))?;
        Ok(Self {
            processor: processor.map_or(String::new(), |(_, name)| name.trim().to_owned()),
            n_processors: of_processors("processor").count(),
            memory_mib: memory_kib(&read("/proc/meminfo")) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            kube_apiserver: version["gitVersion"].as_str().unwrap_or("").to_owned(),
            daemon: env!("CARGO_PKG_VERSION"),
            is_optimized: !cfg!(debug_assertions),
            commit: commit(),
        })
    }
}

fn memory_kib(meminfo: &str) -> u64 {
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|line| line.split_whitespace().next());
    total.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The result of `git describe`; `None` if the sources are not in a git repository.
fn commit() -> Option<String> {
    let git = Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "describe"])
        .args(["--always", "--dirty", "--exclude=*"])
        .output()
        .ok()?;
    let text = String::from_utf8(git.stdout).ok()?;
    (git.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} processors ({}), {} MiB, Linux {}; kube-apiserver {}; this daemon {}",
            self.n_processors,
            self.processor,
            self.memory_mib,
            self.kernel,
            self.kube_apiserver,
            self.daemon
        )?;
        if let Some(commit) = &self.commit {
            write!(formatter, " of commit {commit}")?;
        }
        if !self.is_optimized {
            write!(formatter, ", a build without optimization")?;
        }
        Ok(())
    }
}
