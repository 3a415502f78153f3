//! Creates that the API server refused: the sync holds back further ones until the next may succeed
//! ([`Refusal`]). Everything else of a sync goes on.
//!
//! A ReplicaSet in front of a quota waits in a queue with all others of its namespace that this
//! quota refuses ([`quota_queue`](super::memory::quota_queue)). Handlers wake the queue, and the
//! worker serves it after each sync of a key of that namespace.

use std::fmt;
use std::time::Duration;

use super::decide::Decision;
use super::decide::plan::Plan;
use super::decide::refusal::Refusal;
use super::decide::status::{Failure, bounded};
use super::freshness::Freshness;
use super::memory::Memory;
#[cfg(test)]
use super::memory::refusals::HeldBack;
use super::{ReplicaSetController, SyncError};
use crate::api::{ObjectKey, ReplicaSet, RetryBackoff};

impl ReplicaSetController {
    /// How long creates of `rs` are held back; `None` if a sync may create.
    pub(super) fn held_back(&self, rs: &ReplicaSet) -> Option<Duration> {
        let now = self.clock.now();
        let held_back = |memory: &mut Memory| memory.held_back(rs.generation, now);
        self.memories.get(&rs.key, &rs.uid, held_back).flatten()
    }

    /// Records a refused create, or ends the hold after accepted ones. Returns `managed`, with the
    /// wait if the refusal is of a known kind.
    pub(super) fn note_refusal(
        &self,
        rs: &ReplicaSet,
        decision: &Decision,
        freshness: Freshness,
        managed: Result<(), SyncError>,
    ) -> Result<(), SyncError> {
        // Something else than the refusal keeps this sync from creating, so it is the turn of the
        // next ReplicaSet in a quota's queue.
        let gives_way = matches!(freshness, Freshness::Current(Plan::Create(_)))
            && decision.plan == Plan::Nothing;
        if gives_way {
            self.memories.end_hold(rs, true);
        }
        if !decision.acts || !matches!(decision.plan, Plan::Create(_)) {
            return managed;
        }
        match managed {
            Ok(()) => self.memories.end_hold(rs, false),
            Err(SyncError::Create { batch, error })
                if self.options.retry_backoff != RetryBackoff::Kcm =>
            {
                let Some(refusal) = Refusal::of(&error) else {
                    self.memories.end_hold(rs, false);
                    return Err(SyncError::Create { batch, error });
                };
                let is_of_quota = matches!(refusal, Refusal::Quota(_));
                let message = bounded(&error.to_string());
                let retry_in = self.memories.hold_back(rs, refusal, message);
                // ORDER: the ReplicaSet is in the queue before the watch starts: its first list may
                // wake the queue.
                if is_of_quota {
                    self.quota_watch.request();
                }
                return Err(SyncError::HeldBack {
                    batch,
                    error,
                    retry_in,
                });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The failure that the status reports while creates of `rs` are held back: upstream would try,
    /// fail and report it.
    pub(super) fn lasting_failure(
        &self,
        rs: &ReplicaSet,
        decision: &Decision,
        freshness: Freshness,
    ) -> Option<Failure> {
        let is_held_back = matches!(freshness, Freshness::CountOnly(_));
        let creates_later = matches!(decision.plan, Plan::Create(_)) && !decision.acts;
        if !is_held_back && !creates_later {
            return None;
        }
        let message = |memory: &mut Memory| memory.refusal().map(str::to_owned);
        let message = self.memories.get(&rs.key, &rs.uid, message).flatten()?;
        Some(self.failure(Plan::Create(1), &message))
    }

    pub(super) fn failure(&self, plan: Plan, message: &str) -> Failure {
        Failure {
            plan,
            message: bounded(message),
            at: self.clock.wall(),
        }
    }

    /// Records that a pod or a ReplicaSet of `namespace` frees quota, perhaps. Where quotas are
    /// watched, their status alone decides: it also shows when the API server counts what was
    /// freed.
    pub(super) fn may_free_quota(&self, namespace: &str) {
        if !self.quota_watch.is_open() {
            self.wake_quota_queues(namespace, None);
        }
    }

    /// Lets the next ReplicaSet in the queue of `quota` try, or with `None` in each queue of
    /// `namespace`.
    pub(super) fn wake_quota_queues(&self, namespace: &str, quota: Option<&str>) {
        if self.memories.wake_queues(namespace, quota) {
            self.serve_quota_queues(namespace, None);
        }
    }

    /// Enqueues the ReplicaSets of `namespace` whose turn to try it is, now or later. `processed`
    /// is the key that a worker has just processed.
    pub(super) fn serve_quota_queues(&self, namespace: &str, processed: Option<&ObjectKey>) {
        if self.memories.is_standby() {
            return;
        }
        for (key, delay) in self.memories.take_turns(namespace, processed) {
            self.queue.add_after(key, delay);
        }
    }

    /// Refusals of one kind in a row that the creates of the ReplicaSet `key` met.
    pub(super) fn n_refusals(&self, key: &ObjectKey) -> u32 {
        let rs = self.cache.replica_set(key);
        let n = |rs: &ReplicaSet| self.memories.get(key, &rs.uid, |it| it.n_refusals());
        rs.and_then(|rs| n(&rs)).unwrap_or_default()
    }

    /// Describes this error of a create and when it is tried again, if a quota refuses it.
    pub(super) fn why_quota_refuses(&self, key: &ObjectKey, error: &SyncError) -> Option<String> {
        let SyncError::HeldBack { batch, error, .. } = error else {
            return None;
        };
        let held_back = self
            .memories
            .hold_of(&*self.cache.replica_set(key)?, true)?;
        let (Refusal::Quota(quota), Some(position)) = (&held_back.refusal, held_back.position)
        else {
            return None;
        };
        let message = error.to_string();
        let why = match message.split_once(", used: ") {
            Some((_, used)) => format!("is full (used: {used})"),
            None => format!("refuses pods ({message})"),
        };
        Some(format!(
            "quota \"{quota}\" {why}: {} pods missing, position {} of {}, next try in {}",
            batch.count - batch.done,
            position.n_before + 1,
            position.len,
            Milliseconds(position.next_try_in.min(held_back.remaining)),
        ))
    }

    /// Returns why and how long creates of the ReplicaSet `key` are held back.
    #[cfg(test)]
    pub fn held_back_of(&self, key: &ObjectKey) -> Option<HeldBack> {
        self.memories.hold_of(&*self.cache.replica_set(key)?, true)
    }

    /// Number of ReplicaSets whose creates are held back, by [`Refusal::KINDS`], for telemetry.
    pub fn n_held_back(&self) -> [usize; Refusal::KINDS.len()] {
        self.memories.n_held_back()
    }
}

/// Displays a time as `30s` or `1.5s`, exact to the millisecond.
pub(super) struct Milliseconds(pub(super) Duration);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(time) = self;
        let whole = time.subsec_millis() * 1_000_000;
        write!(f, "{:?}", Duration::new(time.as_secs(), whole))
    }
}

#[cfg(test)]
mod tests;
