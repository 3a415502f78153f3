//! Measures how long a status takes to show a lost pod, from the events of the benchmark's watches.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use replicaset_controller::api::{Pod, ReplicaSet, ResourceVersion, Uid};

/// Events of ReplicaSets and their pods. All resources share one sequence of resource versions, so
/// the events of two watches can be ordered.
#[derive(Default)]
pub(crate) struct Journal {
    owners: HashMap<String, Owner>,
    /// Pods that the benchmark is about to delete.
    victims: HashSet<Uid>,
    losses: Vec<Loss>,
}

#[derive(Default)]
struct Owner {
    /// Living pods, `true` if Ready.
    living: HashMap<Uid, bool>,
    /// Pod counts after each event, in the order of their versions.
    pods: Vec<(u64, Counts)>,
    /// Counts in each status and when it was observed, in the order of their versions.
    statuses: Vec<(u64, Counts, Instant)>,
}

/// Number of pods, and of Ready pods.
type Counts = (i32, i32);

/// A deleted Ready pod.
struct Loss {
    owner: String,
    version: u64,
    observed: Instant,
}

impl Journal {
    /// Records that the benchmark is about to delete this pod. Only such pods count as losses.
    pub(crate) fn add_victim(&mut self, pod: Uid) {
        self.victims.insert(pod);
    }

    /// Records an event of a pod.
    pub(crate) fn on_pod(&mut self, pod: &Pod, is_gone: bool) {
        let Some(controller) = &pod.controller else {
            return;
        };
        let owner = self
            .owners
            .entry((*controller.name).to_owned())
            .or_default();
        let before = if is_gone || !pod.is_active() {
            owner.living.remove(&pod.uid)
        } else {
            owner.living.insert(pod.uid.clone(), pod.is_ready)
        };
        let version = number(&pod.resource_version);
        let n_ready = owner.living.values().filter(|is_ready| **is_ready).count();
        let counts = (count(owner.living.len()), count(n_ready));
        owner.pods.push((version, counts));
        let is_lost = before == Some(true) && !owner.living.contains_key(&pod.uid);
        if is_lost && self.victims.remove(&pod.uid) {
            self.losses.push(Loss {
                owner: (*controller.name).to_owned(),
                version,
                observed: Instant::now(),
            });
        }
    }

    /// Records an event of a ReplicaSet.
    pub(crate) fn on_replica_set(&mut self, rs: &ReplicaSet) {
        let owner = self.owners.entry((*rs.key.name).to_owned()).or_default();
        let counts = (rs.status.replicas, rs.status.ready_replicas);
        let version = number(&rs.resource_version);
        owner.statuses.push((version, counts, Instant::now()));
    }

    /// Number of losses so far.
    pub(crate) fn n_losses(&self) -> usize {
        self.losses.len()
    }

    /// For each loss, the time in milliseconds until a status showed it: a status whose counts held
    /// at some time between the loss and the status. `None` if there is no such status.
    pub(crate) fn latencies(&self) -> Vec<Option<f64>> {
        let of = |loss: &Loss| {
            let owner = &self.owners[&loss.owner];
            let begin = owner
                .pods
                .partition_point(|(version, _)| *version < loss.version);
            let shows = |(version, counts, _): &&(u64, Counts, Instant)| {
                let mut since = owner.pods[begin..].iter();
                since.any(|(at, then)| at < version && then == counts)
            };
            let (_, _, shown) = owner.statuses.iter().find(shows)?;
            let took = shown.saturating_duration_since(loss.observed);
            Some(took.as_secs_f64() * 1000.0)
        };
        self.losses.iter().map(of).collect()
    }
}

fn number(version: &ResourceVersion) -> u64 {
    version.to_string().parse().unwrap_or(0)
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
