//! Rejected creates: which outcomes of a sync go into the record, and what wakes the queues of
//! quotas. The rules are in [`memory::rejections`](super::memory::rejections).

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::act::Writer;
use super::decide::plan::Plan;
use super::decide::{May, Step, View};
use super::memory::rejections::{BackedOff, Rejection};
use super::{Core, SyncError};
use crate::api::{ObjectKey, RetryBackoff};
use crate::stdx::escape::bounded;
use crate::workqueue::Priority;

impl Writer {
    /// Records the outcome of a sync's creates. If the sync no longer needs to create pods, clears
    /// the rejection.
    pub(super) fn note_creates(
        &self,
        view: &View<'_>,
        step: &Step,
        managed: &Result<(), SyncError>,
    ) {
        let rs = view.rs;
        if !step.acts() || !matches!(step.plan, Plan::Create(_)) {
            // This sync creates nothing although it may: the rejection is obsolete.
            if step.may == May::Act && view.record.rejected.is_some() {
                self.memories.creates_not_needed(rs);
            }
            return;
        }
        let rejected = match managed {
            Ok(()) => None,
            Err(_) if self.options.retry_backoff == RetryBackoff::Kcm => return,
            Err(SyncError::Batch { error, .. }) => {
                Rejection::of(error).map(|it| (it, bounded(&error.to_string())))
            }
            Err(_) => return,
        };
        let is_of_quota = matches!(rejected, Some((Rejection::Quota(_), _)));
        self.memories.creates_tried(rs, rejected);
        // ORDER: the ReplicaSet is in the queue before the watch starts, whose first events wake
        // it.
        if is_of_quota {
            self.memories.quota_watch.is_needed.set();
        }
    }
}

impl Core {
    /// Records that a pod or a ReplicaSet of `namespace` may have freed quota. If quotas are
    /// watched, waits for their status instead: the API server frees quota only some time after the
    /// pod is gone.
    pub(super) fn may_free_quota(&self, namespace: &str) {
        if !self.memories.quota_watch.is_open.load(Ordering::Relaxed) {
            self.enqueue_retries(self.memories.wake(namespace, None));
        }
    }

    pub fn handle_quota_change(&self, namespace: &str, quota: &str) {
        self.enqueue_retries(self.memories.wake(namespace, Some(quota)));
    }

    pub(super) fn enqueue_retries(&self, turns: Vec<(ObjectKey, Duration)>) {
        for (key, delay) in turns {
            self.add_to_queue(&key, Priority::High, delay);
        }
    }

    pub fn backed_off_of(&self, key: &ObjectKey) -> Option<BackedOff> {
        self.memories
            .backed_off(&*self.cache.replica_sets.get(key)?)
    }
}

#[cfg(test)]
mod tests;
