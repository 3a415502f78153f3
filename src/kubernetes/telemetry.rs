//! Observability: the log, health checks, metrics, systemd notification and thread dumps.
//!
//! # Locks
//!
//! - [`Expiry`] guards which warning was last. The threads that look for renewed certificates take
//!   it.
//! - [`Health`] guards the list of checks. Threads that add a check, `http-N` and `systemd` take
//!   it.
//! - [`logging`] (`limit`) guards how much each place in the code has logged. Every logging thread
//!   takes it.
//! - [`metrics::Computed`] guards the sources of values that are computed at scrape time. `main`
//!   adds them. `http-N` copies them, and calls them after it has released the lock.
//! - [`systemd`] guards whether systemd knows that the daemon is ready. `systemd` sets it, `signal`
//!   reads it.

pub mod logging;
pub mod metrics;
pub mod systemd;
pub mod threads;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};

use crate::stdx::thread::catch_panic;
use crate::stdx::tls::{Certificate, certificates};

// Named health checks. Each check belongs to one or more probes: the pages `/healthz`, `/livez`
// and `/readyz`, and the watchdog.
//
// Each part of the daemon adds its own checks. A check reads known state and never waits,
// because it runs on the thread of a page or of the watchdog. `manager::health_checks` documents
// each check and its threshold.

/// A set of checks with a common consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Healthz,
    /// Would a restart help? For the kubelet's liveness probe and systemd's watchdog.
    Livez,
    /// Could the daemon sync, or take over, at once? For the kubelet's readiness probe.
    Readyz,
}

impl Probe {
    /// The name of the probe's page, which is also the label `type` of its metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthz => "healthz",
            Self::Livez => "livez",
            Self::Readyz => "readyz",
        }
    }
}

/// The result of a check: healthy, or a sentence that describes the failure.
pub type Finding = Result<(), String>;

/// All checks of the daemon. Shared by `Arc`; any thread may add checks at any time.
#[derive(Default)]
pub struct Health {
    checks: RwLock<Vec<Arc<Check>>>,
}

struct Check {
    name: String,
    probes: Vec<Probe>,
    find: Box<dyn Fn() -> Finding + Send + Sync>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    pub name: String,
    /// The result; `None` if the check was excluded.
    pub finding: Option<Finding>,
}

impl Health {
    /// Adds a check under a name that is valid in a path. `find` must not block.
    pub fn add(
        &self,
        name: &str,
        probes: &[Probe],
        find: impl Fn() -> Finding + Send + Sync + 'static,
    ) {
        let check = Arc::new(Check {
            name: name.to_owned(),
            probes: probes.to_vec(),
            find: Box::new(find),
        });
        self.checks.write().push(check);
    }

    /// Runs all checks of a probe except the excluded ones, in the order of addition.
    pub fn ask(&self, probe: Probe, is_excluded: impl Fn(&str) -> bool) -> Vec<Finished> {
        let checks = self.of(probe).into_iter();
        let finished = checks.map(|check| Finished {
            name: check.name.clone(),
            finding: (!is_excluded(&check.name)).then(|| check.run(probe)),
        });
        finished.collect()
    }

    /// Runs one check; returns `None` if the probe has no check of this name.
    pub fn ask_one(&self, probe: Probe, name: &str) -> Option<Finding> {
        let checks = self.of(probe);
        let check = checks.iter().find(|check| check.name == name)?;
        Some(check.run(probe))
    }

    pub fn first_failure(&self, probe: Probe) -> Option<(String, String)> {
        let all = self.ask(probe, |_| false).into_iter();
        let mut failed = all.filter_map(|check| Some((check.name, check.finding?.err()?)));
        failed.next()
    }

    /// Clones the checks, so that no check runs under the lock.
    fn of(&self, probe: Probe) -> Vec<Arc<Check>> {
        let checks = self.checks.read();
        let of_probe = checks.iter().filter(|check| check.probes.contains(&probe));
        of_probe.cloned().collect()
    }
}

impl Check {
    fn run(&self, probe: Probe) -> Finding {
        let finding = catch_panic(|| (self.find)())
            .unwrap_or_else(|message| Err(format!("the check panicked: {message}")));
        let results = &metrics::global().healthchecks;
        results.observe(&self.name, probe.name(), finding.is_ok());
        finding
    }
}

/// A certificate in use. The metric ends with the value.
#[derive(Debug)]
pub struct Expiry {
    name: String,
    begin: SystemTime,
    end: SystemTime,
    /// The last warning, so that each is logged once.
    warned: Mutex<Option<Phase>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Less than a tenth of the lifetime is left.
    Near,
    Over,
}

impl Expiry {
    /// The first certificate in `pem`, for `usage`: `client` or `serving`. `None` if it cannot be
    /// read. Warns if its end is near.
    pub fn of(usage: &str, file: Option<&Path>, pem: &[u8]) -> Option<Arc<Self>> {
        let certificates = certificates("", pem).ok()?;
        let validity = Certificate::parse(&certificates[0]).ok()?.validity?;
        let file = file.map_or_else(String::new, |file| file.display().to_string());
        let expiry = Self::new(usage, &file, validity);
        expiry.warn_if_due();
        Some(expiry)
    }

    fn new(usage: &str, file: &str, (begin, end): (SystemTime, SystemTime)) -> Arc<Self> {
        let name = format!("the {usage} certificate {file}");
        let expiry = Arc::new(Self {
            name: name.trim_end().to_owned(),
            begin,
            end,
            warned: Mutex::default(),
        });
        let shown = Arc::downgrade(&expiry);
        let seconds = move || Some(metrics::seconds_until(shown.upgrade()?.end));
        let metrics = &metrics::global().credentials;
        metrics
            .certificate_ttl
            .register_beside(&[usage, file], seconds);
        expiry
    }

    /// Logs a warning when the end is near, and when it has come.
    pub fn warn_if_due(&self) {
        if let Some(warning) = self.warning(SystemTime::now()) {
            log::warn!("{warning}");
        }
    }

    fn warning(&self, now: SystemTime) -> Option<String> {
        let lifetime = self.end.duration_since(self.begin).unwrap_or_default();
        let left = self.end.duration_since(now).unwrap_or_default();
        let phase = if left.is_zero() {
            Phase::Over
        } else if left < lifetime / 10 {
            Phase::Near
        } else {
            return None;
        };
        let before = self.warned.lock().replace(phase);
        if before == Some(phase) {
            return None;
        }
        let (name, end) = (&self.name, Timestamp::try_from(self.end).ok()?);
        let verb = if phase == Phase::Over {
            "has expired"
        } else {
            "expires"
        };
        Some(format!("{name} {verb} at {end:.0}: renew it"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{Expiry, Health, Probe};
    use crate::telemetry::metrics;

    #[test]
    fn each_probe_runs_its_checks_and_a_panic_is_a_failure() {
        let health = Health::default();
        health.add("good", &[Probe::Healthz, Probe::Livez], || Ok(()));
        health.add("bad", &[Probe::Healthz], || panic!("on purpose"));
        assert_eq!(health.first_failure(Probe::Livez), None);
        assert!(health.ask(Probe::Readyz, |_| false).is_empty());
        let (name, why) = health.first_failure(Probe::Healthz).expect("one is bad");
        assert_eq!(
            (name.as_str(), why.as_str()),
            ("bad", "the check panicked: on purpose")
        );
        let excluded = health.ask(Probe::Healthz, |name| name == "bad");
        assert_eq!(excluded[1].finding, None);
        assert_eq!(health.ask_one(Probe::Livez, "bad"), None);
    }

    #[test]
    fn the_end_of_a_certificate_is_a_metric_and_a_warning_ahead() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let expiry = Expiry::new("client", "/a.crt", (at(1000), at(2000)));
        // That of another kubeconfig must not hide the first one's end.
        let other = Expiry::new("client", "/a.crt", (at(1000), at(1 << 40)));
        let name =
            "replicaset_controller_certificate_ttl_seconds{file=\"/a.crt\",usage=\"client\"}";
        let value = || {
            let metrics = metrics::global().render();
            let line = metrics.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<f64>().ok()
        };
        assert!(value().is_some_and(|seconds| seconds < -1e9));
        assert_eq!(expiry.warning(at(1899)), None);
        let near = "the client certificate /a.crt expires at 1970-01-01T00:33:20Z: renew it";
        assert_eq!(expiry.warning(at(1901)).as_deref(), Some(near));
        assert_eq!(expiry.warning(at(1902)), None, "once");
        let over = near.replace("expires", "has expired");
        assert_eq!(expiry.warning(at(2000)), Some(over));
        drop(expiry);
        assert!(value().is_some_and(|seconds| seconds > 1e9));
        drop(other);
        assert_eq!(value(), None);
    }
}
