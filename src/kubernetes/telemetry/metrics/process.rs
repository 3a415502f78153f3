//! Metrics of the process: build information and feature gates as constant series (component-base
//! `metrics/version.go` and `metrics/prometheus/feature/metrics.go`), panics, dropped log lines,
//! and the kernel's counters under the usual names of Prometheus clients (client_golang
//! `prometheus/process_collector.go`); events, leader election, and the results of health checks.

use std::fs;
use std::path::Path;

use k8s_openapi::apimachinery::pkg::version::Info;
use nix::sys::resource::{Resource, getrlimit};
use prometheus::core::Collector as _;
use prometheus::{IntCounterVec, IntGaugeVec};

use super::{Computed, Registry, whole};
use crate::stdx::thread::panics_total;
use crate::stdx::{build, stderr};
use crate::telemetry::threads::{Stat, page_size, seconds};

/// Reads one value from the kernel.
type Value = fn() -> Option<f64>;

#[rustfmt::skip]
const COUNTERS: [(&str, &str, Value); 5] = [
    ("replicaset_controller_panics_total",
     "Caught panics: in single syncs, whose keys are requeued, and in threads, which stop the daemon.",
     || Some(whole(panics_total()))),
    ("replicaset_controller_log_dropped_total",
     "Lines of the log that were dropped because standard error was not writable.",
     || Some(whole(stderr::dropped_total()))),
    ("process_cpu_seconds_total",
     "Total user and system CPU time spent in seconds.",
     || stat(|stat| Some(seconds(stat.user + stat.system)))),
    ("process_network_receive_bytes_total",
     "Number of bytes received by the process over the network.", || network("InOctets")),
    ("process_network_transmit_bytes_total",
     "Number of bytes sent by the process over the network.", || network("OutOctets")),
];

#[rustfmt::skip]
const GAUGES: [(&str, &str, Value); 7] = [
    ("process_open_fds",
     "Number of open file descriptors.",
     || Some(whole(fs::read_dir("/proc/self/fd").ok()?.count() as u64))),
    ("process_max_fds",
     "Maximum number of open file descriptors.", || limit(Resource::RLIMIT_NOFILE)),
    ("process_virtual_memory_bytes",
     "Virtual memory size in bytes.", || stat(|stat| Some(whole(stat.virtual_memory)))),
    ("process_virtual_memory_max_bytes",
     "Maximum amount of virtual memory available in bytes.", || limit(Resource::RLIMIT_AS)),
    ("process_resident_memory_bytes",
     "Resident memory size in bytes.",
     || stat(|stat| Some(whole(stat.resident_memory * page_size()?)))),
    ("process_start_time_seconds",
     "Start time of the process since unix epoch in seconds.", start_time),
    ("process_threads",
     "Number of OS threads in the process.", || stat(|stat| Some(whole(stat.n_threads)))),
];

pub(super) fn register(registry: &Registry) {
    for (name, help, value) in COUNTERS {
        let family = registry.computed_counters(name, help, &[]);
        family.register(&[], value);
    }
    for (name, help, value) in GAUGES {
        let family = registry.computed_gauges(name, help, &[]);
        family.register(&[], value);
    }
}

/// The start time of the process in seconds since 1970, for `/metrics` and `/metrics/slis`; `None`
/// if `/proc` cannot be read.
pub(super) fn start_time() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let boot = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    let boot: u64 = boot.parse().ok()?;
    stat(|stat| Some(whole(boot) + seconds(stat.started)))
}

fn stat(of: impl FnOnce(&Stat) -> Option<f64>) -> Option<f64> {
    of(&Stat::read(Path::new("/proc/self")).ok()?)
}

/// The soft limit; the largest number if there is none.
fn limit(of: Resource) -> Option<f64> {
    getrlimit(of).ok().map(|(soft, _)| whole(soft))
}

/// A counter of the process' network namespace: the value for `name` in the two `IpExt:` lines of
/// names and values.
fn network(name: &str) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/net/netstat").ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(known, _)| *known == name)?.1.parse().ok()
}

#[rustfmt::skip]
const KUBERNETES_LABELS: &[&str] = &[
    "major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version",
    "compiler", "platform",
];

families! {
    pub struct BuildMetrics {
        /// [BETA] A metric with a constant '1' value labeled by major, minor, git version, git
        /// commit, git tree state, build date, Go version, and compiler from which Kubernetes was
        /// built, and platform on which it is running.
        kubernetes: IntGaugeVec = gauges("kubernetes_build_info", KUBERNETES_LABELS);
        /// A constant 1, labeled by the version and the commit of this daemon.
        pub(super) own: IntGaugeVec
            = gauges("replicaset_controller_build_info", &["version", "commit"]);
        /// [BETA] This metric records the data about the stage and enablement of a k8s feature.
        pub feature_enabled: IntGaugeVec = gauges("kubernetes_feature_enabled", &["name", "stage"]);
    }
}

impl BuildMetrics {
    /// Sets the reported Kubernetes version and replaces an earlier one. Before the first call the
    /// series does not exist.
    ///
    /// DIFFERS: upstream reports its own version, which equals the API server's except during
    /// upgrades. This daemon's own version would confuse alerts that compare the versions of all
    /// components.
    pub fn set_kubernetes_version(&self, version: &Info) {
        let (major, minor, git_version) = (&version.major, &version.minor, &version.git_version);
        let platform = build::platform();
        #[rustfmt::skip]
        let values = [major, minor, git_version, "", "", "", "", "rustc", &platform];
        self.kubernetes.reset();
        self.kubernetes.with_label_values(&values).set(1);
    }

    /// The reported version of Kubernetes, such as `v1.37.2`, once it is set.
    pub fn kubernetes_version(&self) -> Option<String> {
        let families = self.kubernetes.collect();
        let labels = families.first()?.get_metric().first()?.get_label();
        let version = labels.iter().find(|label| label.name() == "git_version")?;
        Some(version.value().to_owned())
    }
}

families! {
    /// Computed from the recorders' own counters.
    pub struct EventFamilies {
        /// Events by outcome: sent to the API server, filtered because there were too many about
        /// one object, failed, or dropped because the queue was full.
        pub events: Computed
            = computed_counters("replicaset_controller_events_total", &["name", "outcome"]);
    }
}

families! {
    /// Leader election (component-base `metrics/prometheus/clientgo/leaderelection/metrics.go`).
    /// Like upstream, a process is no master from when it joins the election.
    pub struct LeaderElectionMetrics {
        /// [ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates
        /// backup, 1 indicates master. 'name' is the string used to identify the lease. Please make
        /// sure to group by name.
        pub master_status: IntGaugeVec = gauges("leader_election_master_status", &["name"]);
        /// [ALPHA] Total number of slow path exercised in renewing leader leases. 'name' is the
        /// string used to identify the lease. Please make sure to group by name.
        pub slowpath: IntCounterVec = counters("leader_election_slowpath_total", &["name"]);
    }
}

families! {
    /// Results of health checks, rendered only by `/metrics/slis` (component-base
    /// `metrics/prometheus/slis/metrics.go`).
    pub struct HealthcheckMetrics {
        /// [ALPHA] Start time of the process since unix epoch in seconds.
        pub(super) start_time: Computed = computed_gauges("process_start_time_seconds", &[]);
        /// [STABLE] This metric records the result of a single healthcheck.
        healthcheck: IntGaugeVec = gauges("kubernetes_healthcheck", &["name", "type"]);
        /// [STABLE] This metric records the results of all healthcheck.
        healthchecks_total: IntCounterVec
            = counters("kubernetes_healthchecks_total", &["name", "type", "status"]);
    }
}

impl HealthcheckMetrics {
    /// Records the result of the check `name` at the endpoint `type_` (`healthz`, `livez` or
    /// `readyz`).
    pub fn observe(&self, name: &str, type_: &str, is_healthy: bool) {
        let result = self.healthcheck.with_label_values(&[name, type_]);
        result.set(i64::from(is_healthy));
        let status = if is_healthy { "success" } else { "error" };
        let total = self
            .healthchecks_total
            .with_label_values(&[name, type_, status]);
        total.inc();
    }

    /// Resets all results, like DELETE of `/metrics/slis`.
    pub fn reset(&self) {
        self.healthcheck.reset();
        self.healthchecks_total.reset();
    }
}
