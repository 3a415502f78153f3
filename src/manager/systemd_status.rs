//! The status line and the readiness that the daemon reports to systemd.

use std::sync::Arc;

use super::Manager;
use crate::api::ObjectKey;
use crate::cache::Cache;
use crate::leader_election::LeaderElectionHealth;
use crate::telemetry::systemd::Daemon;
use crate::workqueue::WorkQueue;

/// The part of one controller in the status line.
struct Part {
    kind: &'static str,
    cache: Cache,
    queue: Arc<WorkQueue<ObjectKey>>,
}

impl Manager {
    /// The callbacks for the thread `systemd`. The daemon is ready once its caches have synced.
    /// That includes a standby, since it could take over at once.
    pub fn systemd_status(&self) -> Daemon {
        let parts = || {
            let parts = self.instances().iter().map(|instance| Part {
                kind: instance.kind().kind,
                cache: instance.cache().clone(),
                queue: Arc::clone(instance.queue()),
            });
            parts.collect::<Vec<_>>()
        };
        let (for_ready, for_status) = (parts(), parts());
        let election = self.leader_election_health().cloned();
        Daemon {
            is_ready: Box::new(move || for_ready.iter().all(|part| part.cache.has_synced())),
            status: Box::new(move || line(role(election.as_ref()), &for_status)),
        }
    }
}

/// This daemon's role: leading, standby, or running without leader election.
fn role(election: Option<&LeaderElectionHealth>) -> &'static str {
    match election {
        None => "running",
        Some(election) if election.is_leader() => "leading",
        Some(_) => "standby",
    }
}

/// Such as `leading; 20 ReplicaSets, 10000 pods; queue 0`.
fn line(role: &str, parts: &[Part]) -> String {
    if !parts.iter().all(|part| part.cache.has_synced()) {
        return format!("{role}; waiting for the first lists");
    }
    let objects = parts.iter().map(|part| {
        let n = part.cache.replica_sets.len();
        format!("{n} {}s, ", part.kind)
    });
    let objects: String = objects.collect();
    let n_pods = parts.first().map_or(0, |part| part.cache.pods.len());
    let n_queued: usize = parts.iter().map(|part| part.queue.len()).sum();
    format!("{role}; {objects}{n_pods} pods; queue {n_queued}")
}
