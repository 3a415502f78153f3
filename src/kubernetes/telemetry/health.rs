//! Named health checks. Each check belongs to one or more probes: the pages `/healthz`, `/livez`
//! and `/readyz`, and the watchdog.
//!
//! Each part of the daemon adds its own checks. A check reads known state and never waits, because
//! it runs on the thread of a page or of the watchdog. `manager::health_checks` documents each
//! check and its threshold.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use super::metrics::Metrics;
use crate::stdx::thread::catch_panic;

/// A set of checks with a common consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Does the daemon make progress? For people and alerts.
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
pub struct Health {
    checks: RwLock<Vec<Arc<Check>>>,
    metrics: &'static Metrics,
}

struct Check {
    name: String,
    probes: Vec<Probe>,
    find: Box<dyn Fn() -> Finding + Send + Sync>,
}

/// The result of one named check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The check's name.
    pub name: String,
    /// The result; `None` if the check was excluded.
    pub finding: Option<Finding>,
}

impl Health {
    /// An empty set. `metrics` counts the results.
    pub fn new(metrics: &'static Metrics) -> Self {
        Self {
            checks: RwLock::default(),
            metrics,
        }
    }

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
        let checks = self.checks.write();
        checks.unwrap_or_else(PoisonError::into_inner).push(check);
    }

    /// Runs all checks of a probe except the excluded ones, in the order of addition.
    pub fn ask(&self, probe: Probe, is_excluded: impl Fn(&str) -> bool) -> Vec<Finished> {
        let checks = self.of(probe).into_iter();
        let finished = checks.map(|check| Finished {
            name: check.name.clone(),
            finding: (!is_excluded(&check.name)).then(|| self.find(probe, &check)),
        });
        finished.collect()
    }

    /// Runs one check; returns `None` if the probe has no check of this name.
    pub fn ask_one(&self, probe: Probe, name: &str) -> Option<Finding> {
        let checks = self.of(probe);
        let check = checks.iter().find(|check| check.name == name)?;
        Some(self.find(probe, check))
    }

    /// Name and message of the first failing check of a probe.
    pub fn first_failure(&self, probe: Probe) -> Option<(String, String)> {
        let all = self.ask(probe, |_| false).into_iter();
        let mut failed = all.filter_map(|check| Some((check.name, check.finding?.err()?)));
        failed.next()
    }

    fn find(&self, probe: Probe, check: &Check) -> Finding {
        let finding = catch_panic(|| (check.find)())
            .unwrap_or_else(|message| Err(format!("the check panicked: {message}")));
        let results = &self.metrics.healthchecks;
        results.observe(&check.name, probe.name(), finding.is_ok());
        finding
    }

    /// Clones the checks, so that no check runs under the lock.
    fn of(&self, probe: Probe) -> Vec<Arc<Check>> {
        let checks = self.checks.read().unwrap_or_else(PoisonError::into_inner);
        let of_probe = checks.iter().filter(|check| check.probes.contains(&probe));
        of_probe.cloned().collect()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.checks.read().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
        f.debug_struct("Health")
            .field("checks", &names)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{Health, Probe};
    use crate::telemetry::metrics::global;

    #[test]
    fn each_probe_runs_its_checks_and_a_panic_is_a_failure() {
        let health = Health::new(global());
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
}
