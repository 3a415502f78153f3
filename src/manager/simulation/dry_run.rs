//! A dry run beside the daemons: it reads what they read, and in the end nothing is left that it
//! would do.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::cluster::name_of;
use super::http::Request;
use super::objects::{Kind, Object, controller_of, is_terminating};
use super::plan::Action;
use super::world::{Event, State, World};
use crate::controller::dry_run::DryRun;

/// Pods that a ReplicaSet gets and loses again; no history has a smaller burst.
const N_PODS: i64 = 2;

/// What a run of many histories must have had, too.
pub(super) const COMPARED: &str = "scale-down beside a dry run";

/// Time for a change and for what follows.
const SETTLES_WITHIN: Duration = Duration::from_mins(1);

impl World {
    /// Scales ReplicaSets up and down again after everything came to rest.
    ///
    /// PROPERTY P42: Without faults, a dry run that watches the leader has no pods left to create,
    /// delete, adopt or release in the end.
    ///
    /// PROPERTY P43: During these scale-downs no event of type `Warning` is sent, and no read but a
    /// LIST for a delete of unknown outcome, and for quotas.
    pub(super) fn scale_beside_dry_run(self: &Arc<Self>) {
        let Some(dry_run) = self.dry_run() else {
            return;
        };
        self.scale_each(N_PODS);
        let n_open = {
            let mut state = self.lock();
            state.calm_requests = Some(Vec::new());
            state.n_open_deletes()
        };
        let n_scaled = self.scale_each(-N_PODS);
        let n_left = dry_run.n_open();
        let mut state = self.lock();
        for _ in 0..n_scaled {
            state.count(COMPARED);
        }
        let differs = (n_left > 0).then(|| format!("the dry run has {n_left} decisions open"));
        let reported = state.needless(n_open).or(differs);
        if let Some(reported) = reported.filter(|_| state.wrong.is_empty()) {
            state.note(self.now(), &reported);
            state.wrong.push(reported);
        }
    }

    /// The dry run; `None` without one, if the history failed, or if the leader sees other pods or
    /// another time of day.
    fn dry_run(&self) -> Option<Arc<DryRun>> {
        let mut state = self.lock();
        let is_comparable = state.plan.has_dry_run
            && state.wrong.is_empty()
            && state.plan.clocks_are_right()
            && !state.rewinds_unnoticed();
        let daemon = state.daemons.last().filter(|_| is_comparable)?;
        let process = daemon.process;
        let running = daemon.running().as_ref().and_then(|it| it.dry_run.clone());
        let (Some(process), Some(dry_run)) = (process, running) else {
            // It may have seen a moment ago that etcd went back, and starts again.
            if state.epoch == 0 {
                state.wrong.push("the dry run does not run".to_owned());
            }
            return None;
        };
        (!state.is_rewound(process)).then_some(dry_run)
    }

    /// Gives more pods, or fewer, to the ReplicaSets that neither prefer pods, since the input's
    /// order decides which of several equal nodes they empty, nor protect them, since they may have
    /// too many at rest, and that have no delete of unknown outcome, since the leader repeats that
    /// first. Waits, and returns the number of these ReplicaSets.
    fn scale_each(self: &Arc<Self>, by: i64) -> u64 {
        let now = self.now();
        let mut n_scaled = 0;
        let mut state = self.lock();
        for set in 0..state.plan.replicas.len() {
            let rs = state.server.get(Kind::ReplicaSet, &name_of(set));
            let is_plain = |rs: &&Arc<Object>| {
                let uid = rs.value["metadata"]["uid"].as_str();
                let mut open = state.open_deletes();
                state.plan.orders[set].is_empty()
                    && state.plan.protection[set].is_none()
                    && !is_terminating(rs)
                    && !open.any(|pod| controller_of(&pod.value) == uid)
            };
            let rs = rs.filter(is_plain);
            let replicas = rs.and_then(|rs| rs.value["spec"]["replicas"].as_i64());
            if let Some(replicas) = replicas {
                let scale = Action::Scale(set, replicas + by);
                state.schedule(now, Event::Act(scale));
                n_scaled += 1;
            }
        }
        drop(state);
        self.run_until(now + SETTLES_WITHIN);
        n_scaled
    }
}

impl State {
    /// The recent requests that no scale-down needs, if there are more than the deletes of unknown
    /// outcome ask for.
    fn needless(&self, n_open: u64) -> Option<String> {
        let mut requests = self.calm_requests.iter().flatten();
        let warns = requests.any(|request| self.warns(request));
        let (n_reads, all) = self.calm_reads();
        (warns || n_reads as u64 > n_open)
            .then(|| format!("{n_open} deletes were open, but these are sent: {all:?}"))
    }

    /// The number of reads among the recent requests, and all of them.
    pub(super) fn calm_reads(&self) -> (usize, Vec<String>) {
        let requests = self.calm_requests.as_deref().unwrap_or_default();
        let n_reads = requests.iter().filter(|it| it.method == "GET").count();
        (n_reads, requests.iter().map(Request::describe).collect())
    }

    /// True for an event of the type `Warning`, or one more of its kind.
    fn warns(&self, request: &Request) -> bool {
        let event = match request.path.rsplit_once("/events") {
            Some((_, "")) => serde_json::from_slice(&request.body).unwrap_or_default(),
            Some((_, name)) => {
                let stored = self.server.get(Kind::Event, name.trim_start_matches('/'));
                stored.map_or(Value::Null, |event| event.value.clone())
            }
            None => Value::Null,
        };
        event["type"] == "Warning"
    }
}
