//! The lists and watches of the simulation's daemon.

use std::sync::Arc;
use std::time::Duration;

use super::oracles::Waits;
use super::server::{Late, Line};
use super::{Daemon, State, World};
use crate::api::ReplicaSet;
use crate::api::workload_kind::REPLICA_SET;
use crate::cache::{Cache, CacheEvent};
use crate::controller::{Options, Parts, ReplicaSetController};
use crate::stdx::clock::Clock;
use crate::workqueue::WorkQueue;

impl World {
    /// Replaces the running daemon by a new one. Requests in progress arrive before its first list
    /// or never, except that a create may arrive later while its ReplicaSet is unchanged.
    pub(super) fn start_daemon(&self) {
        if self.lock().script.has_standby() {
            return self.failover();
        }
        self.bury_requests();
        // With or without throttled status writes.
        let interval = Duration::from_millis(250 * u64::from(self.dice(2)));
        self.list_into(self.new_daemon(interval));
        self.daemon().controller.enqueue_all();
    }

    /// Stops the watches of a standby whose caches are as new as the server.
    pub(super) fn stall_standby(&self) {
        let standby = self.new_daemon(Duration::ZERO);
        standby.controller.stand_by();
        let leader = self.lock().lead(None);
        self.list_into(standby);
        let mut state = self.lock();
        state.standby = state.lead(leader);
    }

    /// The standby takes over from the daemon, which sends nothing more.
    fn failover(&self) {
        self.bury_requests();
        let has_stalled = self.lock().standby.is_some();
        if !has_stalled {
            self.stall_standby();
        }
        let mut state = self.lock();
        state.script.stall([has_stalled; 2]);
        let standby = state.standby.take();
        state.lead(standby);
        drop(state);
        self.daemon().controller.failover();
        self.daemon().controller.enqueue_all();
    }

    fn new_daemon(&self, status_update_interval: Duration) -> Arc<Daemon> {
        let cache = Cache::default();
        let queue = Arc::new(WorkQueue::new(Arc::clone(&self.clock) as Arc<_>));
        let this = self.this.upgrade().expect("the world is alive");
        let controller = Arc::new(ReplicaSetController::new(Parts {
            kind: &REPLICA_SET,
            cache: cache.clone(),
            live: Arc::clone(&this) as Arc<_>,
            pod_control: Arc::clone(&this) as Arc<_>,
            replica_set_control: this,
            queue: Arc::clone(&queue),
            batches: Arc::clone(&self.batches) as Arc<_>,
            clock: Arc::clone(&self.clock) as Arc<_>,
            options: Options {
                burst_replicas: 10,
                status_update_interval,
                ..Options::default()
            },
            metrics: self.metrics.clone(),
            quota_watch: Arc::default(),
        }));
        Arc::new(Daemon {
            cache,
            queue,
            controller,
        })
    }

    /// Ends the requests of the daemon that stops now.
    fn bury_requests(&self) {
        let mut state = self.lock();
        state.is_killed = false;
        state.waits = Waits::default();
        let mut later = Vec::new();
        while let Some(late) = state.server.late.pop() {
            match (state.script.choose(3), late) {
                (0, late) => {
                    state.server.late.push(late);
                    state.server.see_late(self.clock.wall());
                }
                (1, Late::Create(rs, name) | Late::CreateOfKilled(rs, name)) => {
                    later.push(Late::CreateOfKilled(rs, name));
                }
                _ => {}
            }
        }
        state.server.late = later;
    }

    fn list_into(&self, daemon: Arc<Daemon>) {
        self.lock().daemon = Some(daemon);
        self.relist_replica_sets();
        self.relist_pods();
        let daemon = self.daemon();
        daemon.cache.replica_sets.set_synced();
        daemon.cache.pods.set_synced();
    }

    pub(super) fn relist_pods(&self) {
        let daemon = self.daemon();
        let mut state = self.lock();
        state.pods_seen = state.server.pod_log.len();
        let pods = state.server.pods.values().cloned().map(Arc::new).collect();
        let version = state.server.version();
        drop(state);
        for event in daemon.cache.pods.replace(pods, &[], &version) {
            daemon.controller.handle_pod_event(&event);
        }
        daemon.controller.handle_cache_advanced();
    }

    fn relist_replica_sets(&self) {
        let daemon = self.daemon();
        let mut state = self.lock();
        state.replica_sets_seen = state.server.replica_set_log.len();
        let stored = state.server.replica_sets.values();
        let replica_sets = stored.cloned().map(ReplicaSet::for_cache);
        let replica_sets = replica_sets.map(Arc::new).collect();
        let version = state.server.version();
        drop(state);
        let events = daemon
            .cache
            .replica_sets
            .replace(replica_sets, &[], &version);
        for event in events {
            daemon.controller.handle_replica_set_event(&event);
        }
        daemon.controller.handle_cache_advanced();
    }

    /// Delivers the next line of the pod watch, which has one.
    pub(super) fn deliver_pod(&self) {
        let daemon = self.daemon();
        let mut state = self.lock();
        let line = state.server.pod_log[state.pods_seen].clone();
        state.pods_seen += 1;
        drop(state);
        let owner = line.owner();
        let event = match line {
            Line::Put(pod) => daemon.cache.pods.apply(pod),
            Line::Gone(pod) => daemon.cache.pods.apply_deleted(pod),
        };
        if let Some(event) = event {
            daemon.controller.handle_pod_event(&event);
            let is_heartbeat = matches!(&event, CacheEvent::Updated { old, new }
                if new.differs_in_version_only(old));
            if let Some((key, uid)) = owner.filter(|_| !is_heartbeat) {
                self.check_loss_is_queued(&daemon, &key, &uid);
            }
        }
        daemon.controller.handle_cache_advanced();
    }

    /// As [`Self::deliver_pod`], for ReplicaSets.
    pub(super) fn deliver_replica_set(&self) {
        let daemon = self.daemon();
        let mut state = self.lock();
        let rs = state.server.replica_set_log[state.replica_sets_seen].clone();
        state.replica_sets_seen += 1;
        drop(state);
        let event = daemon.cache.replica_sets.apply(rs.for_cache());
        if let Some(event) = event {
            daemon.controller.handle_replica_set_event(&event);
            if let CacheEvent::Updated { new, .. } = &event {
                self.check_loss_is_queued(&daemon, &new.key, &new.uid);
            }
        }
        daemon.controller.handle_cache_advanced();
    }
}

impl State {
    /// Replaces the daemon and what its watches have shown. Returns the former ones.
    fn lead(
        &mut self,
        next: Option<(Arc<Daemon>, [usize; 2])>,
    ) -> Option<(Arc<Daemon>, [usize; 2])> {
        let seen = [self.pods_seen, self.replica_sets_seen];
        let (daemon, next) = next.unzip();
        [self.pods_seen, self.replica_sets_seen] = next.unwrap_or(seen);
        let before = std::mem::replace(&mut self.daemon, daemon);
        before.map(|daemon| (daemon, seen))
    }
}
