//! Creating pods.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::manage::pod_key;
use crate::api::{Pod, ReplicaSet, ResourceVersion, Selector, Uid};
use crate::batches::slow_start_batch;
use crate::controller::decide::{Decision, Facts};
use crate::controller::memory::Memory;
use crate::controller::memory::pod_names::{self, PodNames};
use crate::controller::memory::positions::Resource;
use crate::controller::{ReplicaSetController, SyncError, outcome_of};
use crate::stdx::activity;
use crate::telemetry::metrics::controller::Outcome;
use crate::writes::WriteError;

/// Names tried for one pod before its creation counts as failed
/// (apiserver `pkg/registry/generic/registry/store.go:maxNameGenerationCreateAttempts`).
const NAMES_TRIED_MAX: usize = 8;

impl ReplicaSetController {
    /// Creates `count` pods, fewer if some have come meanwhile. Blocks until every request was answered.
    ///
    /// # Errors
    /// The first error that came in.
    pub(super) fn create_pods(
        &self,
        facts: &Facts<'_>,
        decision: &Decision,
        count: usize,
    ) -> Result<(), SyncError> {
        let (rs, selector) = (facts.rs, facts.selector);
        let names = self.choose_names(rs, selector, count)?;
        // ORDER: names are chosen before pods are counted once more. A create of unknown outcome may
        // have shown up since the sync looked at its pods; its name is not repeated then, so the pod
        // has to count.
        let arrived = self.count_arrived(rs, selector, &decision.active);
        let (names, left_over) = names.split_at(count - arrived.min(count));
        self.give_back(rs, left_over, PodNames::untried);
        self.create_all(rs, names)
    }

    fn create_all(&self, rs: &ReplicaSet, names: &[Arc<str>]) -> Result<(), SyncError> {
        let count = names.len();
        if count == 0 {
            return Ok(());
        }
        // ORDER: every name is expected before the first request, since a pod may come back through
        // the watch before the answer to its create.
        self.expect(rs, names.iter().cloned(), []);
        self.note_first_request(rs);
        let tried: Vec<AtomicBool> = names.iter().map(|_| AtomicBool::new(false)).collect();
        let _batches = activity::enter("waits for batches of creates", count);
        let (created, result) = slow_start_batch(count, &*self.batches, &|index| {
            tried[index].store(true, Ordering::Relaxed);
            self.create_pod(rs, &names[index])
        });
        // What was not tried are the last ones, since batches are begun in order.
        let n_tried = tried.iter().filter(|it| it.load(Ordering::Relaxed)).count();
        let skipped = &names[n_tried..];
        self.own_writes(rs, |writes| {
            for name in skipped {
                writes.creation_failed(name);
            }
        });
        self.give_back(rs, skipped, PodNames::untried);
        self.log_batch(rs, "created", (created, count), &result);
        result.map_err(SyncError::Write)
    }

    /// How many pods of `rs` the cache shows that are not among `active`.
    fn count_arrived(&self, rs: &ReplicaSet, selector: &Selector, active: &[Arc<Pod>]) -> usize {
        let known: HashSet<&Uid> = active.iter().map(|pod| &pod.uid).collect();
        let pods = self.cache.pods_owned_by(&self.owner_key(rs));
        let has_arrived = |pod: &&Arc<Pod>| {
            pod.is_active() && selector.matches(&pod.labels) && !known.contains(&pod.uid)
        };
        pods.iter().filter(has_arrived).count()
    }

    /// Names whose fate is unknown come first: repeating those cannot make a second pod.
    fn choose_names(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        count: usize,
    ) -> Result<Vec<Arc<str>>, SyncError> {
        let mut names = self.creations_to_repeat(rs, selector, count)?;
        let is_known = |name: &str| {
            self.cache.pod(&pod_key(rs, name)).is_some()
                || names.iter().any(|known| **known == *name)
        };
        let more = count - names.len();
        let fresh = pod_names::take(more, |count| self.draw_names(rs, count), is_known);
        names.extend(fresh);
        Ok(names)
    }

    fn draw_names(&self, rs: &ReplicaSet, count: usize) -> Vec<Arc<str>> {
        let draw = |memory: &mut Memory| memory.names.draw(rs, count);
        self.memories.with(&rs.key, &rs.uid, draw)
    }

    /// Creates one pod; its expectation stays exactly if the pod is there and will be seen.
    fn create_pod(&self, rs: &ReplicaSet, name: &Arc<str>) -> Result<(), WriteError> {
        let _job = activity::enter("creates a pod of", &rs.key);
        let mut name = Arc::clone(name);
        let mut tried = 1;
        loop {
            let created = self.pod_control.create_pod(rs, &name);
            self.metrics.pods_created.count(match &created {
                Ok(_) => Outcome::Success,
                Err(error) if error.is_already_exists() => Outcome::Moot,
                Err(error) => outcome_of(error),
            });
            let error = match created {
                Ok(pod) => {
                    self.creation_succeeded(rs, &name, &pod.resource_version);
                    return Ok(());
                }
                Err(error) if error.is_already_exists() => error,
                Err(error) => return self.creation_failed(rs, &name, error),
            };
            match self.live.find_pod(rs, &name) {
                Ok(Some(pod)) if pod.is_controlled_by(&rs.uid) && pod.is_active() => {
                    // An earlier create of ours has arrived after all.
                    self.creation_succeeded(rs, &name, &pod.resource_version);
                    self.observe_if_cached(rs, &name);
                    return Ok(());
                }
                Ok(_) if tried < NAMES_TRIED_MAX => name = self.rename_creation(rs, &name),
                Ok(_) => return self.creation_failed(rs, &name, error),
                Err(error) => {
                    // The pod may be ours: only the same name is safe to be tried next.
                    self.own_writes(rs, |writes| writes.creation_is_unknown(&name));
                    return self.creation_failed(rs, &name, error);
                }
            }
            tried += 1;
        }
    }

    fn creation_succeeded(&self, rs: &ReplicaSet, name: &str, version: &ResourceVersion) {
        let now = self.clock.now();
        self.memories.with(&rs.key, &rs.uid, |memory| {
            memory.own_writes.creation_answered(name, version);
            memory.positions.wrote_at(Resource::Pods, version, now);
        });
    }

    fn creation_failed(
        &self,
        rs: &ReplicaSet,
        name: &Arc<str>,
        error: WriteError,
    ) -> Result<(), WriteError> {
        // Nothing more can be created there, so there is nothing to repeat. The expectation stays
        // and keeps later syncs from trying.
        if error.is_namespace_terminating() {
            let (message, at) = (error.to_string(), self.clock.wall());
            let note = |memory: &mut Memory| memory.history.note_error_for_good(message, at);
            self.memories.with(&rs.key, &rs.uid, note);
            return Ok(());
        }
        self.own_writes(rs, |writes| writes.creation_failed(name));
        if error.is_unknown() {
            self.own_writes(rs, |writes| writes.creation_is_unknown(name));
        } else if error.status().is_some() && !error.is_already_exists() {
            // ORDER: last, since another creation of this batch may take the name and expect it.
            self.give_back(rs, std::slice::from_ref(name), PodNames::refused);
        }
        Err(error)
    }

    /// Names under which nothing was stored come first next time, but for those that are repeated anyway.
    /// So whoever restarts the daemon meets the creates that are under way: they have the first names.
    ///
    /// DIFFERS: upstream has no names to repeat. The API server names the pod after the first half of
    /// admission, so its refusals have no name in them, or a new one each time.
    fn give_back(
        &self,
        rs: &ReplicaSet,
        names: &[Arc<str>],
        how: impl Fn(&mut PodNames, &Arc<str>),
    ) {
        self.memories.get(&rs.key, &rs.uid, |memory| {
            let unknown = memory.own_writes.unknown_creations();
            for name in names.iter().filter(|name| !unknown.contains(*name)) {
                how(&mut memory.names, name);
            }
        });
    }

    /// The name belongs to somebody else, or to a pod of ours that is going away.
    fn rename_creation(&self, rs: &ReplicaSet, name: &Arc<str>) -> Arc<str> {
        self.memories.with(&rs.key, &rs.uid, |memory| {
            loop {
                let mut other = memory.names.draw(rs, 1);
                let other = other.pop().expect("one name was asked for");
                if other != *name {
                    memory.own_writes.rename_creation(name, &other);
                    return other;
                }
            }
        })
    }

    /// Strikes out the creation of a pod that the cache shows already: its event may have come before
    /// the expectation was written down.
    pub(in crate::controller) fn observe_if_cached(&self, rs: &ReplicaSet, name: &str) {
        if self.cache.pod(&pod_key(rs, name)).is_some() {
            self.own_writes(rs, |writes| writes.creation_seen(name));
        }
    }
}

#[cfg(test)]
mod tests;
