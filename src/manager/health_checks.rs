//! Health by progress: which checks there are, and why each has the threshold that it has. Called while
//! the manager starts; the checks are asked on the threads `http-*` and `systemd`, and what they look at
//! is gone when the daemon has stopped, which no check calls a failure.
//!
//! | check | `/healthz` | `/readyz` | `/livez` |
//! |---|---|---|---|
//! | `<controller>`: its threads run | ✓ | | ✓ |
//! | `<controller>-workers`: no sync takes too long | ✓ | | only much later |
//! | `<controller>-queue`: no key waits too long but those with large work | ✓ | | |
//! | `watch-*`: the API server is heard | ✓ | ✓ | |
//! | `informer-sync`: everything has been listed | after a while | ✓ | |
//! | `threads`: what all controllers share runs | ✓ | | ✓ |
//! | `leaderElection`: who leads renews; only with an election | ✓ | | |
//!
//! A standby that is warm is ready and well: its workers have no key, and its queue collects none.
//!
//! An API server that is away never makes `/livez` fail: a restart would not bring it back, but lose
//! the caches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ManagerOptions;
use super::watch_source::Reachability;
use crate::api::{ObjectKey, WorkloadKind};
use crate::cache::Cache;
use crate::cache::stats::CacheStats;
use crate::leader_election::LeaderElectionHealth;
use crate::stdx::stop::Stop;
use crate::stdx::thread::Liveness;
use crate::telemetry::health::{Finding, Health, Probe};
use crate::workqueue::WorkQueue;

/// A watch brings bookmarks about once a minute, and one that is silent for five minutes is replaced
/// (`client::ClientOptions::watch_silence_timeout`). One that is silent a minute longer has not been
/// replaced either.
const SILENCE_MAX: Duration = Duration::from_mins(6);

/// API servers are replaced one by one, and a load balancer or the next try finds another within
/// seconds; back-off goes up to 30 s. What takes longer is an outage.
const OUTAGE_MAX: Duration = Duration::from_mins(1);

/// Before that, `/healthz` does not mind that lists are incomplete, since many use it as a liveness
/// probe: a streamed list may take ten minutes (`client::ClientOptions::list_timeout`).
const START_MAX: Duration = Duration::from_mins(10);

/// The oldest key: keys wait while many others are worked on, which is what the back-off and the
/// throttle are for, and what the throttle takes is added. But a ReplicaSet that nobody looks at
/// for five minutes is what users notice. Keys with large work do not count: they wait for each
/// other's pods, which can take hours, and that syncs end is what the workers' check looks at.
const WAIT_MAX: Duration = Duration::from_mins(5);

/// A sync is a few requests of at most a minute each, and as many creates or deletes as the throttle
/// lets through.
const SYNC_MAX: Duration = Duration::from_mins(5);

/// After that a sync does not wait for an API server any more: one request with all its repetitions ends
/// within 22 minutes (ten of them after a minute each, and a minute for each answer).
const STUCK_AFTER: Duration = Duration::from_mins(30);

/// Adds the checks of one controller.
pub(super) fn add_controller(
    kind: &'static WorkloadKind,
    queue: &Arc<WorkQueue<ObjectKey>>,
    threads: Vec<Liveness>,
    options: &ManagerOptions,
    health: &Health,
    stop: &Stop,
) {
    let stopping = stop.clone();
    let probes = [Probe::Healthz, Probe::Livez];
    health.add(kind.component, &probes, move || {
        all_run(&threads, &stopping)
    });

    let throttled = throttled_time(kind, options);
    let workers = format!("{}-workers", kind.component);
    for (probe, limit) in [(Probe::Healthz, SYNC_MAX), (Probe::Livez, STUCK_AFTER)] {
        let (queue, limit) = (Arc::downgrade(queue), limit + throttled);
        health.add(&workers, &[probe], move || match queue.upgrade() {
            Some(queue) => within("a sync takes", queue.in_progress().longest, limit),
            None => Ok(()),
        });
    }

    let (queue, limit) = (Arc::downgrade(queue), WAIT_MAX + throttled);
    let waits = format!("{}-queue", kind.component);
    health.add(&waits, &[Probe::Healthz], move || match queue.upgrade() {
        Some(queue) => within("a key waits", queue.longest_wait(), limit),
        None => Ok(()),
    });
}

/// Adds the check of one watch, under the name of its thread.
pub(super) fn add_watch(
    health: &Health,
    thread: &str,
    reachability: &Arc<Reachability>,
    stats: &Arc<CacheStats>,
) {
    let (reachability, stats) = (Arc::clone(reachability), Arc::clone(stats));
    health.add(thread, &[Probe::Healthz, Probe::Readyz], move || {
        if let Some((outage, why)) = reachability.outage()
            && outage > OUTAGE_MAX
        {
            let seconds = outage.as_secs();
            return Err(format!("no list or watch for {seconds} s already: {why}"));
        }
        within("nothing was heard", stats.silence(), SILENCE_MAX)
    });
}

/// Adds the checks of what all controllers share. `caches` are those that must be complete.
pub(super) fn add_shared(health: &Health, caches: Vec<Cache>, threads: Vec<Liveness>, stop: &Stop) {
    let stopping = stop.clone();
    let probes = [Probe::Healthz, Probe::Livez];
    health.add("threads", &probes, move || all_run(&threads, &stopping));
    let (listed, started) = (caches.clone(), Instant::now());
    health.add("informer-sync", &[Probe::Readyz], move || {
        are_synced(&listed)
    });
    health.add("informer-sync", &[Probe::Healthz], move || {
        if started.elapsed() < START_MAX {
            return Ok(());
        }
        are_synced(&caches)
    });
}

/// Adds the check of the election, under upstream's name
/// (kubernetes `cmd/kube-controller-manager/app/controllermanager.go:Run`).
pub(super) fn add_leader_election(health: &Health, election: &LeaderElectionHealth) {
    let election = election.clone();
    health.add("leaderElection", &[Probe::Healthz], move || {
        election.check()
    });
}

fn are_synced(caches: &[Cache]) -> Finding {
    let n_missing = caches.iter().filter(|cache| !cache.has_synced()).count();
    if n_missing == 0 {
        return Ok(());
    }
    let n = caches.len();
    Err(format!(
        "the first lists are not complete for {n_missing} of {n} controllers"
    ))
}

fn all_run(threads: &[Liveness], stop: &Stop) -> Finding {
    if stop.is_stopped() {
        return Ok(());
    }
    match threads.iter().find(|thread| thread.has_ended()) {
        Some(thread) => Err(format!("thread {} has ended", thread.name())),
        None => Ok(()),
    }
}

fn within(what: &str, time: Duration, limit: Duration) -> Finding {
    if time <= limit {
        return Ok(());
    }
    let (seconds, limit) = (time.as_secs(), limit.as_secs());
    Err(format!(
        "{what} for {seconds} s already, more than {limit} s"
    ))
}

/// How long the throttle may hold up one sync, while all workers are at their largest batches: twice
/// that, since adoptions and status updates come on top.
fn throttled_time(kind: &WorkloadKind, options: &ManagerOptions) -> Duration {
    let qps = options.kube_api_qps;
    if qps <= 0.0 {
        return Duration::ZERO;
    }
    let n_workers = u32::from(options.concurrent_syncs(kind));
    let burst = u32::try_from(options.burst_replicas).unwrap_or(u32::MAX);
    let n_requests = f64::from(n_workers.saturating_mul(burst).saturating_mul(2));
    let seconds = n_requests / f64::from(qps);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_hours(24))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{add_controller, throttled_time, within};
    use crate::api::ObjectKey;
    use crate::api::workload_kind::REPLICA_SET;
    use crate::manager::ManagerOptions;
    use crate::stdx::clock::FakeClock;
    use crate::stdx::stop::Stop;
    use crate::telemetry::health::{Health, Probe};
    use crate::telemetry::metrics;
    use crate::workqueue::WorkQueue;

    /// Large ReplicaSets wait for each other's pods, which at 20 a second can take hours. All
    /// others have a worker soon.
    #[test]
    fn only_the_wait_of_small_work_is_a_failure() {
        let (options, clock) = (ManagerOptions::default(), Arc::new(FakeClock::default()));
        let health = Health::new(metrics::global());
        let queue = Arc::new(WorkQueue::new(Arc::clone(&clock) as _));
        let stop = Stop::new();
        add_controller(&REPLICA_SET, &queue, Vec::new(), &options, &health, &stop);
        let is_well = || health.first_failure(Probe::Healthz).is_none();
        queue.add_large(ObjectKey::new("default", "giant"));
        clock.advance(Duration::from_hours(3));
        assert!(is_well());
        queue.add_low(ObjectKey::new("default", "small"));
        // Five minutes, and what the rate limit takes.
        clock.advance(Duration::from_secs(550));
        assert!(is_well());
        clock.advance(Duration::from_secs(1));
        assert!(!is_well());
    }

    #[test]
    fn the_throttle_is_allowed_for() {
        let options = ManagerOptions::default();
        // 5 workers, 500 pods each, 20 a second.
        assert_eq!(
            throttled_time(&REPLICA_SET, &options),
            Duration::from_secs(250)
        );
        assert!(within("a", Duration::from_secs(2), Duration::from_secs(1)).is_err());
    }
}
