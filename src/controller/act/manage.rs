//! Creates and deletes pods (kubernetes `pkg/controller/replicaset/replica_set.go:manageReplicas`).

use std::sync::atomic::{AtomicUsize, Ordering};

use log::Level;

use super::Writer;
use crate::api::{ArcStr, ObjectKey, Pod, ReplicaSet, ResourceVersion, Uid};
use crate::batches::{Jobs, SLOW_START_INITIAL_BATCH_SIZE, slow_start_batch};
use crate::controller::act::describe_batch;
use crate::controller::decide::deletion_order::age_ratios;
use crate::controller::decide::optional::respects_marks;
use crate::controller::decide::plan::Plan;
use crate::controller::decide::{Step, View};
use crate::controller::memory::own_writes::{self, Returned};
use crate::controller::memory::positions::Resource;
use crate::controller::{SyncError, outcome_of};
use crate::stdx::{thread, turns};
use crate::telemetry::metrics::controller::WriteOutcome;
use crate::writes::WriteError;

/// Names tried for one pod before its creation counts as failed
/// (apiserver `pkg/registry/generic/registry/store.go:maxNameGenerationCreateAttempts`).
const NAMES_TRIED_MAX: usize = 8;

/// Deletes of one pod that one sync sends at most, each for a newer version.
const DELETE_TRIES_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deleted {
    Success,
    /// The pod was terminating or gone.
    Gone,
    /// The pod has changed since it was chosen, so another sync must choose again.
    Superseded,
}

pub(super) fn outcome_of_delete(deleted: &Result<Deleted, WriteError>) -> WriteOutcome {
    match deleted {
        Ok(Deleted::Success) => WriteOutcome::Success,
        Ok(Deleted::Gone | Deleted::Superseded) => WriteOutcome::NotNeeded,
        Err(error) => outcome_of(error),
    }
}

impl Writer {
    /// Creates or deletes pods according to `step`. Blocks until every request has ended.
    pub(in crate::controller) fn manage_replicas(
        &self,
        view: &View<'_>,
        step: &Step,
    ) -> Result<(), SyncError> {
        match step.plan {
            Plan::Create(count) if step.acts() => self.create_pods(view, step, count),
            Plan::Delete(_) if step.acts() => self.delete_pods(view, step),
            Plan::Create(_) | Plan::Delete(_) | Plan::Nothing => Ok(()),
        }
    }

    /// Creates `count` pods. Names of creates with an unknown outcome come first, because retrying
    /// those cannot create a second pod. Blocks until every request has ended.
    fn create_pods(&self, view: &View<'_>, step: &Step, count: usize) -> Result<(), SyncError> {
        let rs = view.rs;
        let is_in_cache = |name: &&ArcStr| !step.retry.contains(name);
        self.own_writes(rs, |writes| {
            for name in view.record.unknown_creations.iter().filter(is_in_cache) {
                writes.creation_seen(name);
            }
        });
        let mut names = step.retry.clone();
        names.truncate(count);
        let choose = |count| self.own_writes(rs, |writes| writes.choose_names(rs, count));
        // ORDER: a pod of its own that came after the plan takes up the create of its name, which
        // finds it. With another name it would be one pod too many.
        let is_taken = |name: &str| {
            let pod = ObjectKey::new(rs.key.namespace.clone(), name);
            let cached = self.cache.pods.get(&pod);
            cached.is_some_and(|pod| !pod.is_controlled_by(&rs.uid) || view.lists(&pod))
        };
        let names = own_writes::take(names, count, choose, is_taken);
        // ORDER: every name is expected before the first request, because the watch may show a pod
        // before the response to its create arrives.
        self.expect(rs, names.iter().cloned(), []);
        // A point at which simulations may interleave another thread.
        turns::reached("create: expected, before the first request");
        self.note_first_request(rs);
        let n_tried = AtomicUsize::new(0);
        let _batches = thread::enter("waits for batches of creates", count);
        let create = |index: usize| {
            n_tried.fetch_add(1, Ordering::Relaxed);
            self.create_pod(rs, &names[index])
        };
        let first = SLOW_START_INITIAL_BATCH_SIZE;
        let result = self.run_batch(rs, Plan::Create(count), first, &create);
        // Batches run in order, so the unsent names are the last ones.
        self.own_writes(rs, |writes| {
            for name in &names[n_tried.into_inner()..] {
                writes.creation_failed(name, Some(Returned::Untried));
            }
        });
        result
    }

    /// Creates one pod. Returns false without an error in a terminating namespace. The expectation
    /// remains open there, and if the pod exists, because the watch will confirm it.
    fn create_pod(&self, rs: &ReplicaSet, name: &ArcStr) -> Result<bool, WriteError> {
        let _job = thread::enter("creates a pod of", &rs.key);
        let mut name = name.clone();
        let mut tried = 1;
        loop {
            let created = self.pod_control.create_pod(rs, &name);
            self.queue.progressed(&rs.key);
            self.metrics.pods_created.count(match &created {
                Ok(_) => WriteOutcome::Success,
                Err(error) if error.is_already_exists() => WriteOutcome::NotNeeded,
                Err(error) => outcome_of(error),
            });
            let error = match created {
                Ok(pod) => {
                    self.creation_succeeded(rs, &name, &pod.resource_version);
                    return Ok(true);
                }
                Err(error) if error.is_already_exists() => error,
                Err(error) => return self.creation_failed(rs, &name, error),
            };
            // The name is taken, by an earlier create of this daemon or by another client's pod.
            match self.live.find_pod(rs, &name) {
                Ok(Some(pod)) if pod.is_controlled_by(&rs.uid) && pod.is_active() => {
                    // An earlier create of unknown outcome succeeded.
                    self.creation_succeeded(rs, &name, &pod.resource_version);
                    return Ok(true);
                }
                // Another client's pod has the name, or one of our own that is terminating.
                Ok(_) if tried < NAMES_TRIED_MAX => {
                    name = self.own_writes(rs, |writes| writes.rename_creation(rs, &name));
                }
                Ok(_) => {
                    self.pod_control.warn_of_failed_create(rs, &error);
                    return self.creation_failed(rs, &name, error);
                }
                Err(error) => {
                    // The pod may be this daemon's own, so only the same name is safe to retry.
                    self.creation_is_unknown(rs, &name, true);
                    self.pod_control.warn_of_failed_create(rs, &error);
                    return Err(error);
                }
            }
            tried += 1;
        }
    }

    fn creation_succeeded(&self, rs: &ReplicaSet, name: &str, version: &ResourceVersion) {
        self.memories.with(rs, |memory| {
            memory.create_was_accepted();
            memory.own_writes.creation_answered(name, version);
        });
        self.wrote_at(rs, Resource::Pods, version);
    }

    /// Records a failed create. Returns `Ok(false)` for a permanent failure that must not be
    /// retried, otherwise `error`.
    fn creation_failed(
        &self,
        rs: &ReplicaSet,
        name: &ArcStr,
        error: WriteError,
    ) -> Result<bool, WriteError> {
        // As upstream: no pod can be created in a terminating namespace. The expectation stays and
        // keeps later syncs from trying.
        if error.is_namespace_terminating() {
            let (message, at) = (error.to_string(), self.clock.wall());
            self.memories
                .with(rs, |it| it.history.note_permanent_error(message, at));
            return Ok(false);
        }
        if error.is_unknown() {
            // A time-out response, or one of a proxy, does not end the request at the API server.
            let is_answered = error.response().is_some_and(|status| status.code() == 500);
            self.creation_is_unknown(rs, name, is_answered);
        } else {
            let is_rejected = error.status().is_some() && !error.is_already_exists();
            let returned = is_rejected.then_some(Returned::Rejected);
            self.own_writes(rs, |writes| writes.creation_failed(name, returned));
        }
        Err(error)
    }

    fn creation_is_unknown(&self, rs: &ReplicaSet, name: &str, is_answered: bool) {
        let now = self.clock.now();
        self.own_writes(rs, |it| it.creation_is_unknown(name, is_answered, now));
    }

    fn delete_pods(&self, view: &View<'_>, step: &Step) -> Result<(), SyncError> {
        let rs = view.rs;
        let (active, pods) = (&step.active, &step.delete);
        let has_ended = |uid: &&Uid| !active.iter().any(|pod| pod.uid == **uid);
        self.own_writes(rs, |writes| {
            for uid in view.record.unknown_deletions.iter().filter(has_ended) {
                writes.deletion_resolved(uid);
            }
        });
        // ORDER: every deletion is expected before the first request, because its event may arrive
        // first.
        let uids = pods.iter().map(|pod| pod.uid.clone());
        self.expect(rs, [], uids);
        turns::reached("delete: expected, before the first request");
        self.note_first_request(rs);
        if pods.len() < active.len() {
            for ratio in age_ratios(active, pods, step.now) {
                self.metrics.sorting_deletion_age_ratio.observe(ratio);
            }
        }
        // The annotation may be set after the choice. The API server then rejects a delete of the
        // version that was chosen.
        let unchanged = respects_marks(&view.rules.policy);
        let delete = |index: usize| {
            let deleted = self.delete_pod_of(rs, &pods[index], unchanged)?;
            Ok(!matches!(deleted, Deleted::Superseded))
        };
        let _batch = thread::enter("waits for a batch of deletes", pods.len());
        self.run_batch(rs, Plan::Delete(pods.len()), pods.len(), &delete)
    }

    /// Deletes one pod, or only an `unchanged` one. Its expectation stays if and only if the watch
    /// will show the deletion.
    fn delete_pod_of(
        &self,
        rs: &ReplicaSet,
        pod: &Pod,
        unchanged: bool,
    ) -> Result<Deleted, WriteError> {
        let _job = thread::enter("deletes a pod of", &rs.key);
        let deleted = self.try_delete(rs, pod, unchanged);
        self.queue.progressed(&rs.key);
        self.metrics.pods_deleted.count(outcome_of_delete(&deleted));
        if !matches!(deleted, Ok(Deleted::Success | Deleted::Gone)) {
            if deleted.as_ref().is_err_and(WriteError::is_unknown) {
                self.deletion_is_unknown(rs, pod);
            }
            self.own_writes(rs, |writes| writes.deletion_failed(&pod.uid));
            return deleted;
        }
        // The watch may have shown the deletion before the expectation was recorded; the pod's next
        // event may be minutes away.
        let cached = self.cache.pods.get(&pod.key);
        let is_seen = !cached.is_some_and(|cached| cached.uid == pod.uid && cached.is_active());
        self.own_writes(rs, |writes| {
            writes.deletion_resolved(&pod.uid);
            if is_seen {
                writes.deletion_seen(&pod.uid);
            }
        });
        deleted
    }

    /// Sends the delete, and sends it again for a newer version if nothing has changed that the
    /// choice of this pod depends on.
    fn try_delete(
        &self,
        rs: &ReplicaSet,
        chosen: &Pod,
        unchanged: bool,
    ) -> Result<Deleted, WriteError> {
        let mut newer: Option<Pod> = None;
        let mut tries = 1;
        loop {
            let pod = newer.as_ref().unwrap_or(chosen);
            let version = unchanged.then_some(&pod.resource_version);
            let conflict = match self.pod_control.delete_pod(rs, pod, version) {
                Ok(()) => return Ok(Deleted::Success),
                // DIFFERS: upstream drops the expectation of a pod that is not found. While the
                // cache still shows that pod, its next sync may delete another one in its place.
                Err(error) if error.is_not_found() => return Ok(Deleted::Gone),
                Err(error) if error.is_conflict() => error,
                Err(error) => return Err(error),
            };
            let Some(live) = self.find_conflicting(rs, pod)? else {
                return Ok(Deleted::Gone);
            };
            // Without a change the conflict is a rejection: an admission webhook may use any code.
            let is_changed = version.is_some_and(|version| *version != live.resource_version);
            let is_superseded = is_changed && !live.differs_in_version_only(chosen);
            if is_superseded && self.await_in_cache(rs, chosen, &live) {
                return Ok(Deleted::Superseded);
            }
            if is_superseded || !is_changed || tries == DELETE_TRIES_MAX {
                self.pod_control.warn_of_failed_delete(rs, &conflict);
                return Err(conflict);
            }
            newer = Some(live);
            tries += 1;
        }
    }

    fn deletion_is_unknown(&self, rs: &ReplicaSet, pod: &Pod) {
        let now = self.clock.now();
        self.own_writes(rs, |writes| writes.deletion_is_unknown(&pod.uid, now));
    }

    /// Reads a pod whose delete failed with a conflict. `None` if it is terminating or gone, or was
    /// recreated. Blocks for one LIST.
    fn find_conflicting(&self, rs: &ReplicaSet, pod: &Pod) -> Result<Option<Pod>, WriteError> {
        match self.live.find_pod(rs, &pod.key.name) {
            Ok(live) => Ok(live.filter(|live| live.uid == pod.uid && live.is_active())),
            Err(error) => {
                // The pod may be gone, so the next sync must not choose another one.
                self.deletion_is_unknown(rs, pod);
                self.pod_control.warn_of_failed_delete(rs, &error);
                Err(error)
            }
        }
    }

    /// True if the next sync will see a change: the cache has changed since the choice of `chosen`,
    /// or the sync waits for the version of `live`. Otherwise (feature gate off, or a restored etcd
    /// whose pod watch never reaches `live`) the conflict must count as a failure, so that the
    /// back-off limits repeated choices.
    fn await_in_cache(&self, rs: &ReplicaSet, chosen: &Pod, live: &Pod) -> bool {
        let version = &live.resource_version;
        // ORDER: the position is read first, so a cache that has reached `live` shows it below.
        if self.cache.pods.resource_version().is_as_new_as(version) {
            let cached = self.cache.pods.get(&chosen.key);
            return cached.is_none_or(|cached| cached.resource_version != chosen.resource_version);
        }
        let waits = self.options.gates.stale_controller_consistency;
        if waits {
            self.wrote_at(rs, Resource::Pods, version);
        }
        waits
    }

    fn run_batch(
        &self,
        rs: &ReplicaSet,
        plan: Plan,
        n_first: usize,
        write: &(dyn Fn(usize) -> Result<bool, WriteError> + Sync),
    ) -> Result<(), SyncError> {
        let wanted = plan.n_pods();
        let jobs = Jobs {
            count: wanted,
            tenant: rs.key.namespace_hash(),
        };
        let (done, result) = slow_start_batch(jobs, n_first, &*self.batches, write);
        let (level, did) = (level_of_batch(done, &result), describe_batch(plan, done));
        let object = self.kind.named(&rs.key);
        match plan {
            Plan::Delete(_) => log::log!(level, object:%, deleted = done, wanted; "{did}"),
            _ => log::log!(level, object:%, created = done, wanted; "{did}"),
        }
        result.map_err(|error| SyncError::Batch { plan, done, error })
    }

    fn note_first_request(&self, rs: &ReplicaSet) {
        let now = self.clock.now();
        let after = self.memories.get(rs, |it| it.history.note_request(rs, now));
        if let Some(after) = after.flatten() {
            self.metrics.first_request.observe(after.as_secs_f64());
        }
    }
}

/// A batch that changed nothing is worth a debug line only: the worker reports its error.
pub(super) fn level_of_batch(done: usize, result: &Result<(), WriteError>) -> Level {
    match result {
        Err(_) if done == 0 => Level::Debug,
        _ => Level::Info,
    }
}

#[cfg(test)]
mod create_tests;
#[cfg(test)]
mod delete_tests;
