//! What the daemon says of itself in one line, and when it calls itself ready: for systemd.

use std::sync::Arc;

use super::Manager;
use crate::api::ObjectKey;
use crate::cache::Cache;
use crate::telemetry::systemd::Daemon;
use crate::workqueue::WorkQueue;

/// One controller, as far as the line goes.
struct Part {
    kind: &'static str,
    cache: Cache,
    queue: Arc<WorkQueue<ObjectKey>>,
}

impl Manager {
    /// What the thread `systemd` asks. Ready are the caches once they are complete, on a standby too:
    /// it could take over at once.
    pub fn outlook(&self) -> Daemon {
        let parts = || {
            let parts = self.engines().iter().map(|engine| Part {
                kind: engine.kind().kind,
                cache: engine.cache().clone(),
                queue: Arc::clone(engine.queue()),
            });
            parts.collect::<Vec<_>>()
        };
        let (asked, shown) = (parts(), parts());
        Daemon {
            is_ready: Box::new(move || asked.iter().all(|part| part.cache.has_synced())),
            status: Box::new(move || line("running", &shown)),
        }
    }
}

/// Such as `running; 20 ReplicaSets, 10000 pods; queue 0`.
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
