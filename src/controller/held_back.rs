//! Creates that the API server refused: the sync holds back further ones until something may have
//! cured the refusal ([`Refusal`]). Everything else of a sync goes on.
//!
//! A ReplicaSet in front of a quota stands in a line with all others of its namespace that this
//! quota refuses ([`quota_line`](super::memory::quota_line)). Handlers wake the line, and the
//! worker serves it after each sync of a key of that namespace, so a timer of one key drives it.

use std::time::Duration;

use super::decide::Decision;
use super::decide::plan::Plan;
use super::decide::refusal::Refusal;
use super::decide::status::Failure;
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
        // Something else than the refusal keeps this sync from creating, so the turn in a quota's
        // line goes to the next ReplicaSet.
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
            Err(SyncError::Write(error)) if self.options.retry_backoff != RetryBackoff::Kcm => {
                let Some(refusal) = Refusal::of(&error) else {
                    self.memories.end_hold(rs, false);
                    return Err(SyncError::Write(error));
                };
                let is_of_quota = matches!(refusal, Refusal::Quota(_));
                let retry_in = self.memories.hold_back(rs, refusal, error.to_string());
                // ORDER: the line stands before the watch's first list comes, which may wake it.
                if is_of_quota {
                    self.quota_watch.request();
                }
                return Err(SyncError::HeldBack { error, retry_in });
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
        Some(self.failure(Plan::Create(1), message))
    }

    pub(super) fn failure(&self, plan: Plan, message: String) -> Failure {
        Failure {
            plan,
            message,
            at: self.clock.wall(),
        }
    }

    /// Notes that `quota` of `namespace` may have room, or with `None` that any may.
    pub(super) fn wake_quota_lines(&self, namespace: &str, quota: Option<&str>) {
        if self.memories.wake_lines(namespace, quota) {
            self.serve_quota_lines(namespace, None);
        }
    }

    /// Enqueues the ReplicaSets of `namespace` whose turn to try it is, and the keys that bring the
    /// next turns. `processed` is the key that a worker has just processed.
    pub(super) fn serve_quota_lines(&self, namespace: &str, processed: Option<&ObjectKey>) {
        if self.memories.is_standby() {
            return;
        }
        for (key, delay) in self.memories.take_turns(namespace, processed) {
            self.queue.add_after(key, delay);
        }
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

#[cfg(test)]
mod tests;
