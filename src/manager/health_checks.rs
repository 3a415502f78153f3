//! Health by progress: the checks and the reason for each threshold. The manager adds the checks at
//! startup; the threads `http-*` and `systemd` run them. The checks hold weak references. A check
//! whose subject is gone, because the daemon has stopped, passes.
//!
//! | check | `/healthz` | `/readyz` | `/livez` |
//! |---|---|---|---|
//! | `<controller>`: its threads run | ✓ | | ✓ |
//! | `<controller>-workers`: no sync takes too long; for `/livez`: none is stuck | ✓ | | ✓ |
//! | `<controller>-queue`: no key waits too long, except keys with large work | ✓ | | |
//! | `watch-*`: lists or watches arrive that can be read | ✓ | ✓ | |
//! | `informer-sync`: all first lists are complete | after 10 min | ✓ | |
//! | `threads`: the threads shared by all controllers run | ✓ | | ✓ |
//! | `leaderElection`: the leader renews; only with leader election | ✓ | | |
//!
//! A warm standby is ready and healthy: its workers hold no key, and its queue stays empty.
//!
//! An unreachable API server never fails `/livez`: a restart would not fix the outage, and the
//! daemon would lose its caches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ManagerOptions;
use super::controller_instance::Shared;
use super::engine::Engine;
use crate::api::{ObjectKey, WorkloadKind};
use crate::cache::pods::CacheStats;
use crate::client::LIST_TIMEOUT;
use crate::leader_election::LeaderElectionHealth;
use crate::stdx::stop::{Latch, Stop};
use crate::stdx::thread::Liveness;
use crate::telemetry::{Finding, Health, Probe};
use crate::workqueue::{InProgress, WorkQueue};

/// A watch receives bookmarks about once a minute, and the reflector lists again if it has heard
/// nothing for five minutes (`cache::list_watch`). One more minute of silence means that it did
/// not, or that there is nothing to read in the list.
const SILENCE_MAX: Duration = Duration::from_mins(6);

/// API servers restart one by one, and a load balancer or the next retry reaches another one within
/// seconds; back-off grows to 30 s. A longer failure is an outage.
const OUTAGE_MAX: Duration = Duration::from_mins(1);

/// Before this, `/healthz` tolerates incomplete lists, since it often serves as a liveness probe: a
/// list may take this long.
const START_MAX: Duration = LIST_TIMEOUT;

/// Limit for the age of the oldest key. Keys wait while workers sync other keys; back-off and
/// throttle add to that, so the check adds the throttle's time. Users notice a ReplicaSet that no
/// worker syncs for five minutes. Waits for a permit are exempt: large syncs wait for each other's
/// pods, which can take hours, and the workers' check covers syncs that hang.
const WAIT_MAX: Duration = Duration::from_mins(5);

/// A sync is a few requests of at most a minute each, plus as many creates or deletes as the
/// throttle admits.
const SYNC_MAX: Duration = Duration::from_mins(5);

/// After this time without an ended write of a pod a sync is hardly waiting for the API server: one
/// request with all its retries ends within 22 minutes (ten retries after a minute each, and a
/// minute for each response), and a sync sends few reads and writes of the status in a row.
const STUCK_AFTER: Duration = Duration::from_hours(1);

/// Adds the checks of a controller. `throttled`: how long its rate limit may delay one sync.
pub(super) fn add_engine(engine: &Engine, throttled: Duration, shared: &Shared<'_>) {
    let (controller, threads) = (engine.names.controller, engine.liveness());
    add_checks(
        controller,
        &engine.queue,
        threads,
        throttled,
        shared.health,
        shared.stop,
    );
}

fn add_checks(
    controller: &str,
    queue: &Arc<WorkQueue<ObjectKey>>,
    threads: Vec<Liveness>,
    throttled: Duration,
    health: &Health,
    stop: &Stop,
) {
    let stopping = stop.clone();
    let probes = [Probe::Healthz, Probe::Livez];
    health.add(controller, &probes, move || all_run(&threads, &stopping));

    let workers = format!("{controller}-workers");
    for probe in [Probe::Healthz, Probe::Livez] {
        // Weak, so that the check does not keep the queue alive after the stop.
        let queue = Arc::downgrade(queue);
        health.add(&workers, &[probe], move || {
            let syncs = queue.upgrade().map(|queue| queue.in_progress());
            let InProgress {
                longest,
                longest_standstill,
                ..
            } = syncs.unwrap_or_default();
            match probe {
                Probe::Livez => within(
                    "a sync has made no progress",
                    longest_standstill,
                    STUCK_AFTER + throttled,
                ),
                _ => within("a sync has been running", longest, SYNC_MAX + throttled),
            }
        });
    }

    let (queue, limit) = (Arc::downgrade(queue), WAIT_MAX + throttled);
    let check = format!("{controller}-queue");
    health.add(&check, &[Probe::Healthz], move || match queue.upgrade() {
        Some(queue) => within("a key has been queued", queue.longest_wait(), limit),
        None => Ok(()),
    });
}

/// Adds the health check of one watch, named after its thread.
pub(super) fn add_watch(health: &Health, thread: &str, stats: &Arc<CacheStats>) {
    let stats = Arc::clone(stats);
    health.add(thread, &[Probe::Healthz, Probe::Readyz], move || {
        check_watch(&stats, Instant::now())
    });
}

fn check_watch(stats: &CacheStats, now: Instant) -> Finding {
    if let Some((outage, why)) = stats.outage(now)
        && outage > OUTAGE_MAX
    {
        let seconds = outage.as_secs();
        return Err(format!(
            "lists and watches have failed for {seconds} s: {why}"
        ));
    }
    within("no data from the watch", stats.silence(now), SILENCE_MAX)
}

/// Adds the checks of the parts that all controllers share. `listed` are the first lists of
/// each controller.
pub(super) fn add_shared(
    health: &Health,
    listed: Vec<Vec<Arc<Latch>>>,
    threads: Vec<Liveness>,
    stop: &Stop,
) {
    let stopping = stop.clone();
    let probes = [Probe::Healthz, Probe::Livez];
    health.add("threads", &probes, move || all_run(&threads, &stopping));
    let (complete, started) = (listed.clone(), Instant::now());
    health.add("informer-sync", &[Probe::Readyz], move || {
        are_synced(&complete)
    });
    health.add("informer-sync", &[Probe::Healthz], move || {
        if started.elapsed() < START_MAX {
            return Ok(());
        }
        are_synced(&listed)
    });
}

/// Adds the leader election's check, under upstream's name (kubernetes
/// `cmd/kube-controller-manager/app/controllermanager.go:Run`).
pub(super) fn add_leader_election(health: &Health, election: &LeaderElectionHealth) {
    let election = election.clone();
    health.add("leaderElection", &[Probe::Healthz], move || {
        election.check()
    });
}

pub(super) fn are_synced(listed: &[Vec<Arc<Latch>>]) -> Finding {
    let is_complete = |lists: &&Vec<Arc<Latch>>| lists.iter().all(|it| it.is_set());
    let n_missing = listed.len() - listed.iter().filter(is_complete).count();
    if n_missing == 0 {
        return Ok(());
    }
    let n = listed.len();
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
    Err(format!("{what} for {seconds} s, limit {limit} s"))
}

/// How long the throttle may delay one sync while all workers send their largest batches. The
/// factor of two covers adoptions and status updates.
pub(super) fn throttled_time(kind: &WorkloadKind, options: &ManagerOptions) -> Duration {
    let qps = options.kube_api_qps;
    if qps <= 0.0 {
        return Duration::ZERO;
    }
    let n_workers = u32::from(options.concurrent_syncs(kind));
    let burst = u32::try_from(options.controller.burst_replicas).unwrap_or(u32::MAX);
    let n_requests = f64::from(n_workers.saturating_mul(burst).saturating_mul(2));
    let seconds = n_requests / f64::from(qps);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_hours(24))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::{add_checks, check_watch, throttled_time, within};
    use crate::api::ObjectKey;
    use crate::api::workload_kind::REPLICA_SET;
    use crate::cache::pods::CacheStats;
    use crate::manager::ManagerOptions;
    use crate::stdx::stop::Stop;
    use crate::stdx::testing::FakeClock;
    use crate::telemetry::{Health, Probe};
    use crate::workqueue::Priority;
    use crate::workqueue::WorkQueue;

    /// Large ReplicaSets wait for each other's pods, which at 20 a second can take hours. Any other
    /// key gets a worker soon.
    #[test]
    fn only_keys_with_small_work_fail_the_queue_check() {
        let (options, clock) = (ManagerOptions::default(), Arc::new(FakeClock::default()));
        let health = Health::default();
        let queue = WorkQueue::new(Arc::clone(&clock) as _).with_tenants(2, |_| 0);
        let queue = Arc::new(queue);
        let stop = Stop::new();
        let throttled = throttled_time(&REPLICA_SET, &options);
        add_checks("it", &queue, Vec::new(), throttled, &health, &stop);
        let is_healthy = || health.first_failure(Probe::Healthz).is_none();
        let large = ["large", "other"].map(|name| ObjectKey::new("default", name));
        for key in &large {
            queue.add(key.clone());
            queue.get().expect("it was added");
            queue.begin_large(key);
        }
        queue.done(&large[1]);
        clock.advance(Duration::from_hours(3));
        queue.done(&large[0]);
        assert!(is_healthy());
        queue.get().expect("the other one may be large now");
        queue.done(&large[1]);
        queue.add_with(
            ObjectKey::new("default", "small"),
            Priority::Low,
            Duration::ZERO,
        );
        // Five minutes plus the throttle's time.
        clock.advance(Duration::from_secs(550));
        assert!(is_healthy());
        clock.advance(Duration::from_secs(1));
        assert!(!is_healthy());
    }

    /// An API server may reject each of many requests late: a restart would not help.
    #[test]
    fn only_a_stuck_sync_fails_livez() {
        let (options, clock) = (ManagerOptions::default(), Arc::new(FakeClock::default()));
        let health = Health::default();
        let queue = Arc::new(WorkQueue::new(Arc::clone(&clock) as _));
        let stop = Stop::new();
        let throttled = throttled_time(&REPLICA_SET, &options);
        add_checks("it", &queue, Vec::new(), throttled, &health, &stop);
        let key = ObjectKey::new("default", "web");
        queue.add(key.clone());
        queue.get().expect("it was added");
        for _ in 0..4 {
            clock.advance(Duration::from_mins(50));
            queue.progressed(&key);
        }
        assert_eq!(health.first_failure(Probe::Livez), None);
        assert!(health.first_failure(Probe::Healthz).is_some());
        clock.advance(Duration::from_mins(65));
        assert!(health.first_failure(Probe::Livez).is_some());
    }

    #[test]
    fn a_watch_fails_a_minute_after_the_last_readable_answer() {
        let (stats, start) = (CacheStats::default(), Instant::now());
        let after = |seconds| check_watch(&stats, start + Duration::from_secs(seconds));
        stats.set_outage(Some((start, "text/html: sign in".to_owned())));
        assert_eq!(after(60), Ok(()));
        let expected = "lists and watches have failed for 61 s: text/html: sign in";
        assert_eq!(after(61), Err(expected.to_owned()));
        stats.set_outage(None);
        assert_eq!(after(350), Ok(()));
        assert!(after(400).is_err());
    }

    #[test]
    fn limits_include_the_time_of_the_throttle() {
        let options = ManagerOptions::default();
        // 5 workers, 500 pods each, 20 a second.
        assert_eq!(
            throttled_time(&REPLICA_SET, &options),
            Duration::from_secs(250)
        );
        assert!(within("a", Duration::from_secs(2), Duration::from_secs(1)).is_err());
    }
}
