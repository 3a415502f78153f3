//! Creates pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Writer;
use crate::api::{ReplicaSet, ResourceVersion};
use crate::batches::slow_start::SLOW_START_INITIAL_BATCH_SIZE;
use crate::controller::decide::{Step, View};
use crate::controller::error::Did;
use crate::controller::memory::own_writes::Returned;
use crate::controller::memory::{Memory, own_writes};
use crate::controller::view::pod_key;
use crate::controller::{SyncError, outcome_of};
use crate::stdx::{thread, turns};
use crate::telemetry::metrics::controller::WriteOutcome;
use crate::writes::WriteError;

/// Names tried for one pod before its creation counts as failed
/// (apiserver `pkg/registry/generic/registry/store.go:maxNameGenerationCreateAttempts`).
const NAMES_TRIED_MAX: usize = 8;

impl Writer {
    /// Creates `count` pods. Names of creates with an unknown outcome come first, because retrying
    /// those cannot create a second pod. Blocks until every request has ended.
    ///
    /// # Errors
    /// The first error.
    pub(super) fn create_pods(
        &self,
        view: &View<'_>,
        step: &Step,
        count: usize,
    ) -> Result<(), SyncError> {
        let rs = view.rs;
        let shown = |name: &&Arc<str>| !step.retry.contains(name);
        self.own_writes(rs, |writes| {
            for name in view.record.unknown_creations.iter().filter(shown) {
                writes.creation_found(name);
            }
        });
        let mut names = step.retry.clone();
        names.truncate(count);
        let draw = |count| self.own_writes(rs, |writes| writes.draw(rs, count));
        let is_taken = |name: &str| self.cache.pod(&pod_key(&rs.key, name)).is_some();
        let names = own_writes::take(names, count, draw, is_taken);
        self.create_all(rs, &names)
    }

    fn create_all(&self, rs: &ReplicaSet, names: &[Arc<str>]) -> Result<(), SyncError> {
        let count = names.len();
        if count == 0 {
            return Ok(());
        }
        // ORDER: every name is expected before the first request, because the watch may show a pod
        // before the response to its create arrives.
        self.expect(rs, names.iter().cloned(), []);
        turns::reached("create: expected, before the first request");
        self.note_first_request(rs);
        let tried: Vec<AtomicBool> = names.iter().map(|_| AtomicBool::new(false)).collect();
        let _batches = thread::enter("waits for batches of creates", count);
        let create = |index: usize| {
            tried[index].store(true, Ordering::Relaxed);
            self.create_pod(rs, &names[index])
        };
        let first = SLOW_START_INITIAL_BATCH_SIZE;
        let result = self.run_batch(rs, (Did::Created, count, first), &create);
        // Batches run in order, so the unsent names are the last ones.
        let n_tried = tried.iter().filter(|it| it.load(Ordering::Relaxed)).count();
        self.own_writes(rs, |writes| {
            for name in &names[n_tried..] {
                writes.creation_failed(name, Some(Returned::Untried));
            }
        });
        result
    }

    /// Creates one pod. Its expectation stays if the pod exists, so that the watch will show it, or
    /// if its namespace terminates; returns false then.
    fn create_pod(&self, rs: &ReplicaSet, name: &Arc<str>) -> Result<bool, WriteError> {
        let _job = thread::enter("creates a pod of", &rs.key);
        let mut name = Arc::clone(name);
        let mut tried = 1;
        loop {
            let created = self.pod_control.create_pod(rs, &name);
            self.queue.progressed(&rs.key);
            self.metrics.pods_created.count(match &created {
                Ok(_) => WriteOutcome::Success,
                Err(error) if error.is_already_exists() => WriteOutcome::Moot,
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
            // The name is taken, by an earlier create of this daemon or by a foreign pod.
            match self.live.find_pod(rs, &name) {
                Ok(Some(pod)) if pod.is_controlled_by(&rs.uid) && pod.is_active() => {
                    // An earlier create of unknown outcome succeeded.
                    self.creation_succeeded(rs, &name, &pod.resource_version);
                    return Ok(true);
                }
                // A foreign pod has the name, or an own one that is terminating.
                Ok(_) if tried < NAMES_TRIED_MAX => {
                    name = self.own_writes(rs, |writes| writes.rename_creation(rs, &name));
                }
                Ok(_) => return self.creation_failed(rs, &name, error),
                Err(error) => {
                    // The pod may be this daemon's own, so only the same name is safe to retry.
                    self.own_writes(rs, |writes| writes.creation_is_unknown(&name, true));
                    return self.creation_failed(rs, &name, error);
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
        self.wrote_pod(rs, version);
    }

    /// Records a failed create. Returns false if that is for good and no failure to retry, and
    /// `error` otherwise.
    fn creation_failed(
        &self,
        rs: &ReplicaSet,
        name: &Arc<str>,
        error: WriteError,
    ) -> Result<bool, WriteError> {
        // As upstream: no pod can be created in a terminating namespace. The expectation stays and
        // keeps later syncs from trying.
        if error.is_namespace_terminating() {
            let (message, at) = (error.to_string(), self.clock.wall());
            let note = |memory: &mut Memory| memory.history.note_permanent_error(message, at);
            self.memories.with(rs, note);
            return Ok(false);
        }
        if error.is_unknown() {
            // A time-out, or a proxy in between, may answer for a request that goes on.
            let is_answered = error.response().is_some_and(|status| status.code() == 500);
            self.own_writes(rs, |writes| writes.creation_is_unknown(name, is_answered));
        } else {
            let is_refused = error.status().is_some() && !error.is_already_exists();
            let returned = is_refused.then_some(Returned::Refused);
            self.own_writes(rs, |writes| writes.creation_failed(name, returned));
        }
        Err(error)
    }
}

#[cfg(test)]
mod tests;
