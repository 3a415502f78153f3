//! What both contestants have to do.

mod latency;
mod replicas;
mod soak;

use std::time::Duration;

use crate::cluster::Cluster;
use crate::contestant::{Contestant, Process};
use crate::options::{Options, Scenario};
use crate::report::Report;
use crate::watch::Observer;

/// No single wait takes longer unless something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_mins(20);

/// How long a controller is left alone before its memory is read.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);

/// One contestant at work in one namespace.
pub(crate) struct Stage<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) contestant: &'a Contestant,
    pub(crate) options: &'a Options,
    pub(crate) report: &'a mut Report,
    pub(crate) namespace: String,
    pub(crate) observer: Observer,
}

impl Stage<'_> {
    pub(crate) fn add(&mut self, figure: &str, value: f64) {
        self.report.add(self.contestant.name, figure, value);
    }

    pub(crate) fn wants(&self, scenario: Scenario) -> bool {
        self.options.wants(scenario)
    }
}

/// Lets `contestant` do all that is wanted.
pub(crate) fn run_all(
    cluster: &Cluster,
    contestant: &Contestant,
    options: &Options,
    report: &mut Report,
) -> Result<(), String> {
    let many = [
        Scenario::ScaleUp,
        Scenario::Ready,
        Scenario::Idle,
        Scenario::Restart,
        Scenario::Churn,
        Scenario::Soak,
        Scenario::ScaleDown,
    ];
    let process = contestant.start()?;
    wait_until_it_works(cluster, &process)?;
    let mut stage = Stage {
        cluster,
        contestant,
        options,
        report,
        namespace: String::new(),
        observer: Observer::start(cluster, "default")?,
    };
    if stage.wants(Scenario::Empty) {
        replicas::empty(&mut stage, &process)?;
    }
    let mut process = process;
    if many.into_iter().any(|scenario| stage.wants(scenario)) {
        stage.enter()?;
        process = replicas::many(&mut stage, process)?;
    }
    if stage.wants(Scenario::ScaleUpOne) {
        stage.enter()?;
        replicas::one(&mut stage, &process)?;
    }
    if stage.wants(Scenario::Latency) {
        stage.enter()?;
        latency::idle(&mut stage)?;
    }
    if stage.wants(Scenario::LatencyBusy) {
        stage.enter()?;
        latency::busy(&mut stage)?;
    }
    process.stop()
}

impl Stage<'_> {
    /// Goes on in a namespace that nobody has used.
    fn enter(&mut self) -> Result<(), String> {
        self.namespace = self.cluster.new_namespace()?;
        self.observer = Observer::start(self.cluster, &self.namespace)?;
        Ok(())
    }
}

/// A controller works when it has made a pod.
fn wait_until_it_works(cluster: &Cluster, process: &Process) -> Result<(), String> {
    process.usage()?;
    let namespace = cluster.new_namespace()?;
    let observer = Observer::start(cluster, &namespace)?;
    crate::workloads::create(cluster, &namespace, "first", 1)?;
    observer.wait("a first pod", Duration::from_mins(2), |state| {
        state
            .replica_sets
            .get("first")
            .is_some_and(|counts| counts.replicas == 1)
    })?;
    crate::workloads::scale(cluster, &namespace, "first", 0)?;
    observer.wait("no pod", PATIENCE, |state| {
        state.sums().replicas == 0 && state.pods.is_empty()
    })?;
    crate::workloads::delete_all(cluster, &namespace)
}
