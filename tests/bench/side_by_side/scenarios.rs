//! The scenarios that both contestants run.

mod failing;
mod large_sets;
mod latency;
mod loss;
mod quota;
mod replicas;
mod small;
mod soak;

use std::time::{Duration, Instant};

use replicaset_controller::client::Request;

use crate::cluster::Cluster;
use crate::contestant::{Contestant, Process};
use crate::options::{Options, Scenario};
use crate::report::{OURS, Report, print_line};
use crate::statistics::number;
use crate::watch::{Observer, State};
use crate::workloads::{create, delete_all, pods, scale};

/// Upper bound of a single wait. A longer one is an error.
pub(crate) const PATIENCE: Duration = Duration::from_mins(20);

/// How long a controller is idle before its memory is read.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);

/// A contestant, and the namespace in which it works.
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

    /// Adds the overshoot since the last call to the report.
    pub(crate) fn add_overshoot(&mut self, what: &str) -> Result<(), String> {
        // Pods and statuses are observed by two watches, and that of pods may lag behind.
        let has_caught_up = |state: &State| state.pods.len() == state.sums().replicas;
        let condition = "as many pods as in the statuses";
        self.observer.wait(condition, PATIENCE, has_caught_up)?;
        let overshoot = self.observer.take_overshoot();
        self.add(&format!("{what}, overshoot"), number(overshoot));
        Ok(())
    }

    pub(crate) fn includes(&self, scenario: Scenario) -> bool {
        self.options.includes(scenario)
    }
}

/// Runs all selected scenarios with `contestant`.
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
    wait_until_ready(cluster, &process)?;
    let mut stage = Stage {
        cluster,
        contestant,
        options,
        report,
        namespace: String::new(),
        observer: Observer::start(cluster, "default"),
    };
    if stage.includes(Scenario::Empty) {
        replicas::empty(&mut stage, &process)?;
    }
    let mut process = process;
    if many.into_iter().any(|scenario| stage.includes(scenario)) {
        stage.enter()?;
        process = replicas::many(&mut stage, process)?;
    }
    if stage.includes(Scenario::ScaleUpOne) {
        stage.enter()?;
        replicas::one(&mut stage, &process)?;
    }
    if stage.includes(Scenario::Latency) {
        stage.enter()?;
        latency::idle(&mut stage)?;
    }
    if stage.includes(Scenario::LatencyBusy) {
        stage.enter()?;
        latency::busy(&mut stage)?;
    }
    if stage.includes(Scenario::Loss) {
        stage.enter()?;
        loss::loss(&mut stage)?;
    }
    process.stop()?;
    if stage.includes(Scenario::Small) {
        small::all(&mut stage)?;
    }
    if stage.includes(Scenario::Quota) {
        quota::all(&mut stage)?;
    }
    if stage.includes(Scenario::Failing) {
        failing::all(&mut stage)?;
    }
    if stage.includes(Scenario::LargeSets) && contestant.name == OURS {
        large_sets::all(&mut stage)?;
    }
    Ok(())
}

impl Stage<'_> {
    /// Scales these ReplicaSets, which have all their pods, to zero. Returns when the last pod was
    /// gone.
    pub(crate) fn scale_to_zero(&self, names: &[String]) -> Result<Instant, String> {
        for name in names {
            scale(self.cluster, &self.namespace, name, 0)?;
            // All pods exist already, so a further create would be an overshoot.
            self.observer.expect_pods(name, 0);
        }
        self.observer.wait("no pods", PATIENCE, State::is_empty)
    }

    /// Deletes all ReplicaSets and their pods after the controller has exited. The controller would
    /// take as long to delete the pods as to create them.
    fn tear_down(&self) -> Result<(), String> {
        delete_all(self.cluster, &self.namespace)?;
        let deadline = Instant::now() + PATIENCE;
        while !self.observer.lock().pods.is_empty() {
            if Instant::now() > deadline {
                return Err("the pods were not deleted in time".to_owned());
            }
            let all = Request::delete(pods(&self.namespace)).query("gracePeriodSeconds", "0");
            // The API server ends the deletion of a page after a minute, so retry.
            if let Err(problem) = self.cluster.delete_collection(&all) {
                print_line(&format!("  retrying the deletion: {problem}"));
            }
        }
        Ok(())
    }

    /// Switches to a fresh namespace.
    fn enter(&mut self) -> Result<(), String> {
        self.namespace = self.cluster.new_namespace()?;
        self.observer = Observer::start(self.cluster, &self.namespace);
        Ok(())
    }
}

/// Waits until the controller has created a pod.
fn wait_until_ready(cluster: &Cluster, process: &Process) -> Result<(), String> {
    process.usage()?;
    let namespace = cluster.new_namespace()?;
    let observer = Observer::start(cluster, &namespace);
    create(cluster, &namespace, "first", 1)?;
    let has_pod = |state: &State| state.sums().replicas == 1;
    observer.wait("a first pod", Duration::from_mins(2), has_pod)?;
    scale(cluster, &namespace, "first", 0)?;
    observer.wait("no pods", PATIENCE, State::is_empty)?;
    delete_all(cluster, &namespace)
}
