//! Rejected creates. After one, a sync postpones further creates until one may succeed
//! ([`Rejection`]); everything else continues. ReplicaSets that one quota rejects wait in that
//! quota's queue ([`Memories`](super::memory::Memories)); event handlers and the worker let its
//! head retry.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::act::Writer;
use super::decide::plan::Plan;
use super::decide::status::Failure;
use super::decide::{May, Step, View};
use super::memory::Memory;
use super::memory::rejections::{BackedOff, Rejection};
use super::{Core, SyncError};
use crate::api::{ObjectKey, ReplicaSet, RetryBackoff};
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
            Err(SyncError::Batch { error, .. })
                if self.options.retry_backoff != RetryBackoff::Kcm =>
            {
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

    /// The failure that the status reports while creates of `rs` wait: upstream would try, fail and
    /// report it.
    pub(super) fn lasting_failure(&self, rs: &ReplicaSet, step: &Step) -> Option<Failure> {
        let creates_later = matches!(step.plan, Plan::Create(_)) && !step.acts();
        if !creates_later && !matches!(step.may, May::Report(_)) {
            return None;
        }
        let message = |it: &mut Memory| Some(it.rejected.as_ref()?.message.to_string());
        let message = self.memories.get(rs, message);
        let message = message.flatten()?;
        Some(self.failure(Plan::Create(1), &message))
    }

    pub(super) fn failure(&self, plan: Plan, message: &str) -> Failure {
        let (message, at) = (bounded(message), self.clock.wall());
        Failure { plan, message, at }
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
        self.memories.backed_off(&*self.cache.replica_set(key)?)
    }
}

#[cfg(test)]
mod tests;
