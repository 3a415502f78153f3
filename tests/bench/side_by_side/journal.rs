//! What becomes of lost pods in the statuses of their owners, as the watches of the benchmark show
//! it.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use replicaset_controller::api::{Pod, ReplicaSet, ResourceVersion, Uid};

/// What was seen of some ReplicaSets and their pods. The API server numbers all changes in one row,
/// so two watches can be put in order.
#[derive(Default)]
pub(crate) struct Journal {
    owners: HashMap<String, Owner>,
    /// Pods that somebody is about to delete.
    doomed: HashSet<Uid>,
    losses: Vec<Loss>,
}

#[derive(Default)]
struct Owner {
    /// Living pods, and whether they are Ready.
    living: HashMap<Uid, bool>,
    /// In the order of their versions.
    pods: Vec<(u64, Counts)>,
    /// In the order of their versions.
    statuses: Vec<(u64, Counts, Instant)>,
}

/// Pods, and Ready ones.
type Counts = (i32, i32);

/// A Ready pod that was deleted.
struct Loss {
    owner: String,
    version: u64,
    seen: Instant,
}

impl Journal {
    /// Notes that this pod will be deleted by somebody who has no right to.
    pub(crate) fn doom(&mut self, pod: Uid) {
        self.doomed.insert(pod);
    }

    /// Takes one event of a pod.
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
        if is_lost && self.doomed.remove(&pod.uid) {
            self.losses.push(Loss {
                owner: (*controller.name).to_owned(),
                version,
                seen: Instant::now(),
            });
        }
    }

    /// Takes one event of a ReplicaSet.
    pub(crate) fn on_replica_set(&mut self, rs: &ReplicaSet) {
        let owner = self.owners.entry((*rs.key.name).to_owned()).or_default();
        let counts = (rs.status.replicas, rs.status.ready_replicas);
        let version = number(&rs.resource_version);
        owner.statuses.push((version, counts, Instant::now()));
    }

    /// How many Ready pods were deleted so far.
    pub(crate) fn n_losses(&self) -> usize {
        self.losses.len()
    }

    /// For each loss how long it took, in milliseconds, until a status showed it: one that says
    /// what was true at some time between the loss and the status. `None` if no status does.
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
            let (_, _, told) = owner.statuses.iter().find(shows)?;
            let took = told.saturating_duration_since(loss.seen);
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
