//! Rejected creates: the kinds of rejection, the back-off of each ReplicaSet after one, and the
//! queues of ResourceQuotas.
//!
//! During the back-off, no sync creates pods of the ReplicaSet. It ends with the next generation.
//! ReplicaSets that one quota rejects form a queue, and only its head retries. If its create is
//! accepted, the next one retries at once, otherwise after 30 s. An event that may free quota ends
//! this delay, and for the next 10 s the delays are 1.5 s, because the API server updates the
//! quota's usage some time later.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::{Memories, Memory, Records, State};
use crate::api::status::RETRY_AFTER_MAX;
use crate::api::{ArcStr, ObjectKey, ReplicaSet, Uid};
use crate::stdx::hash;
use crate::stdx::stop::Latch;
use crate::writes::WriteError;

/// The longest delay between two attempts of a quota's queue.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The shortest delay: less than two requests in a second, since a rejected create costs an event.
const PACE: Duration = Duration::from_millis(1500);

/// All queues together try once in this time, a quarter of the default `--kube-api-qps`.
const INTERVAL: Duration = Duration::from_millis(200);

/// How long the delays stay short after an event that may free quota.
const LIVELY: Duration = Duration::from_secs(10);

/// In a long queue the delays are shorter, so that each ReplicaSet has a turn within this time.
const CYCLE: Duration = Duration::from_secs(1000);

/// A ReplicaSet without a turn for this long retries anyway.
const QUOTA_WAIT: Duration = Duration::from_hours(1);

/// The longest back-off after an overload, unless the API server asks for a longer one.
pub const OVERLOAD_WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest back-off after a rejection by validation, a webhook, a policy or missing rights: no
/// event shows that these were fixed.
pub const DENIED_WAIT_MAX: Duration = Duration::from_mins(5);

/// Whether quotas are watched. Shared by all controllers and the thread `watch-quotas`.
#[derive(Debug, Default)]
pub struct QuotaWatch {
    /// Set when a quota first rejects a pod, so that other clusters need no watch.
    pub is_needed: Latch,
    pub is_open: AtomicBool,
}

/// Why the API server rejects the pods of a ReplicaSet. Errors of other kinds have upstream's
/// back-off.
///
/// DIFFERS: upstream retries after 5 ms, doubled with each failure of the key up to 1,000 s,
/// whatever the error is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// 403 of this ResourceQuota.
    Quota(ArcStr),
    /// 429, 503, a time-out, or a webhook that did not respond.
    Overload {
        /// `details.retryAfterSeconds`, or the header `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// 422, of the API server itself or of a webhook or policy.
    Invalid,
    /// 400, 403 or 413: a webhook, Pod Security or missing rights.
    Denied,
}

impl Rejection {
    pub const KINDS: [&str; 4] = ["quota", "overload", "invalid", "denied"];

    /// The kind of this failed create; `None` for errors of other kinds. The caller has handled
    /// the rejection of a terminating namespace.
    pub fn of(error: &WriteError) -> Option<Self> {
        let status = error.response()?;
        if let Some(quota) = status.rejecting_quota() {
            return Some(Self::Quota(quota.into()));
        }
        if status.is_overload() {
            let retry_after = status.requested_wait();
            return Some(Self::Overload { retry_after });
        }
        if status.is_invalid() {
            return Some(Self::Invalid);
        }
        let is_denied = matches!(status.code(), 400 | 403 | 413);
        is_denied.then_some(Self::Denied)
    }

    pub fn kind(&self) -> usize {
        match self {
            Self::Quota(_) => 0,
            Self::Overload { .. } => 1,
            Self::Invalid => 2,
            Self::Denied => 3,
        }
    }

    /// The back-off after the `n`-th consecutive rejection of this kind, if nothing ends it
    /// earlier.
    fn wait(&self, owner: &Uid, n: u32) -> Duration {
        let (first_ms, longest, least) = match self {
            Self::Quota(_) => return QUOTA_WAIT,
            Self::Invalid => (1000, DENIED_WAIT_MAX, None),
            // What a new namespace lacks, such as its service account, comes within moments.
            Self::Denied => (5, DENIED_WAIT_MAX, None),
            Self::Overload { retry_after } => (5, OVERLOAD_WAIT_MAX, *retry_after),
        };
        let wait = Duration::from_millis(first_ms << n.saturating_sub(1).min(16));
        let least = least.unwrap_or_default().min(RETRY_AFTER_MAX);
        let most = (wait * 3 / 2).min(longest).max(least * 3 / 2);
        // By a hash, so that simulations repeat.
        let share = u16::try_from(hash(&(owner, n)) & 0xffff).unwrap_or_default();
        most * 2 / 3 + (most / 3).mul_f64(f64::from(share) / 65_536.0)
    }
}

/// The last rejected create of a ReplicaSet.
#[derive(Debug)]
pub(in crate::controller) struct Rejected {
    pub(super) rejection: Rejection,
    pub(in crate::controller) message: Box<str>,
    /// When the first of the consecutive rejections came.
    since: Instant,
    until: Instant,
    /// Consecutive rejections of this kind; 0 after an accepted create.
    n: u32,
    generation: i64,
}

impl Rejected {
    fn quota(&self, key: &ObjectKey) -> Option<ObjectKey> {
        match &self.rejection {
            Rejection::Quota(name) => Some(ObjectKey::new(key.namespace.clone(), name.clone())),
            _ => None,
        }
    }
}

/// Why and how long the creates of a ReplicaSet are backed off, for `explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackedOff {
    pub rejection: Rejection,
    pub n_rejections: u32,
    /// Time since the first of them.
    pub since: Duration,
    /// Time until the next attempt, if nothing ends the back-off earlier.
    pub remaining: Duration,
    /// Its position in the queue of a quota.
    pub position: Option<QueuePosition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// ReplicaSets that retry before it.
    pub n_before: usize,
    pub len: usize,
    /// Time until the next of them tries.
    pub next_try_in: Duration,
}

/// The ReplicaSets whose pods one quota rejects, in the order of their turns.
#[derive(Debug)]
pub(super) struct QuotaQueue {
    waiting: VecDeque<ObjectKey>,
    /// When the head may retry.
    due: Instant,
    paced_until: Instant,
    lively_until: Instant,
    /// The head whose key is in the work queue, and when it is due.
    armed: Option<(ObjectKey, Instant)>,
}

impl QuotaQueue {
    fn pause(&self, pace: Duration) -> Duration {
        let len = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        (CYCLE / len.max(1)).min(PAUSE_MAX).max(pace)
    }

    fn pass_turn(&mut self, pace: Duration, now: Instant) {
        let is_lively = now < self.lively_until;
        self.paced_until = now + pace;
        self.due = now + if is_lively { pace } else { self.pause(pace) };
    }

    /// Ends the head's back-off when its turn is due. Returns the head if the work queue lacks its
    /// key.
    fn arm(&mut self, records: &mut Records) -> Option<ObjectKey> {
        let head = self.waiting.front()?.clone();
        let rejected = records.get_mut(&head)?.rejected.as_mut()?;
        // Also if it is armed: a create of a new generation may have been rejected since then.
        rejected.until = rejected.until.min(self.due);
        let before = self.armed.replace((head.clone(), self.due));
        (before != self.armed).then_some(head)
    }
}

/// The shortest delay of each of `n` queues, which share a budget.
fn pace(n: usize) -> Duration {
    let n = u32::try_from(n).unwrap_or(u32::MAX);
    INTERVAL.saturating_mul(n).max(PACE)
}

impl State {
    /// Ends the wait of the ReplicaSet `key`, if it waits, and returns its last rejection. If its
    /// attempt was rejected again (`rejected_again`), its quota's next turn is due after a delay.
    pub(super) fn end_wait(
        &mut self,
        key: &ObjectKey,
        rejected_again: bool,
        now: Instant,
    ) -> Option<Box<Rejected>> {
        let last = self.records.get_mut(key)?.rejected.take()?;
        let pace = pace(self.queues.len());
        if let Some(queue) = last.quota(key).and_then(|it| self.queues.get_mut(&it)) {
            queue.waiting.retain(|it| it != key);
            if last.n == 0 {
                (queue.due, queue.lively_until) = (now, now + LIVELY);
            } else if rejected_again && last.until <= now {
                queue.pass_turn(pace, now);
            }
        }
        Some(last)
    }
}

impl Memories {
    /// Records that a sync of `rs` needs no creates, so that they need not wait.
    pub fn creates_not_needed(&self, rs: &ReplicaSet) {
        let mut state = self.state.lock();
        if state.of(&rs.key, &rs.uid).is_some() {
            state.end_wait(&rs.key, false, self.clock.now());
        }
    }

    /// Records how the creates of `rs` ended: with a rejection and its message, or otherwise, which
    /// ends its wait.
    pub fn creates_tried(&self, rs: &ReplicaSet, rejected: Option<(Rejection, String)>) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.of(&rs.key, &rs.uid).is_none() {
            return; // It is deleted.
        }
        let last = state.end_wait(&rs.key, true, now);
        let Some((rejection, message)) = rejected else {
            return;
        };
        let row = last.filter(|it| it.n > 0 && it.rejection.kind() == rejection.kind());
        let (since, n) = row.map_or((now, 1), |it| (it.since, it.n.saturating_add(1)));
        let rejected = Box::new(Rejected {
            since,
            until: now + rejection.wait(&rs.uid, n),
            n,
            generation: rs.generation,
            rejection,
            message: message.into(),
        });
        if let Some(quota) = rejected.quota(&rs.key) {
            // Quota may have become free just before the first rejection.
            let queue = state.queues.entry(quota).or_insert_with(|| QuotaQueue {
                waiting: VecDeque::new(),
                due: now + PACE,
                paced_until: now + PACE,
                lively_until: now + LIVELY,
                armed: None,
            });
            queue.waiting.push_back(rs.key.clone());
        }
        if let Some(memory) = state.of(&rs.key, &rs.uid) {
            memory.rejected = Some(rejected);
        }
    }

    /// Ends the back-off of creates that an overloaded API server has rejected without a
    /// `Retry-After`. Returns their keys.
    pub fn end_overloads(&self) -> Vec<ObjectKey> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let records = state.records.iter_mut();
        let ended = records.filter_map(|(key, memory)| {
            let rejected = memory.rejected.as_mut()?;
            if rejected.rejection != (Rejection::Overload { retry_after: None }) {
                return None;
            }
            rejected.until = now;
            Some(key.clone())
        });
        ended.collect()
    }

    /// Records an event that may free quota in `namespace`: of `quota`, or of any with `None`.
    /// Returns the keys to queue, each with its delay.
    pub fn wake(&self, namespace: &str, quota: Option<&str>) -> Vec<(ObjectKey, Duration)> {
        self.serve(namespace, |name, queue, _, now| {
            if quota.is_none_or(|quota| *name == *quota) {
                queue.lively_until = now + LIVELY;
                queue.due = queue.due.min(queue.paced_until.max(now));
            }
        })
    }

    /// Returns the keys of `namespace` to queue, each with its delay, after a worker has processed
    /// the key `processed`. If that was its turn, the turn passes to the next ReplicaSet, whatever
    /// the outcome.
    pub fn turns(&self, namespace: &str, processed: &ObjectKey) -> Vec<(ObjectKey, Duration)> {
        self.serve(namespace, |_, queue, pace, now| {
            if queue.due <= now && queue.waiting.front() == Some(processed) {
                queue.waiting.rotate_left(1);
                queue.pass_turn(pace, now);
            }
        })
    }

    fn serve(
        &self,
        namespace: &str,
        change: impl Fn(&str, &mut QuotaQueue, Duration, Instant),
    ) -> Vec<(ObjectKey, Duration)> {
        if self.is_standby() {
            return Vec::new();
        }
        let now = self.clock.now();
        let state = &mut *self.state.lock();
        let (pace, mut due) = (pace(state.queues.len()), Vec::new());
        state.queues.retain(|quota, queue| {
            if *quota.namespace == *namespace {
                change(&quota.name, queue, pace, now);
                let delay = queue.due.saturating_duration_since(now);
                due.extend(queue.arm(&mut state.records).map(|head| (head, delay)));
            }
            !queue.waiting.is_empty()
        });
        due
    }

    /// Why and how long creates of `rs` wait. The cost follows the queue of a quota.
    pub fn backed_off(&self, rs: &ReplicaSet) -> Option<BackedOff> {
        let now = self.clock.now();
        let state = self.state.lock();
        let memory = state.records.get(&rs.key).filter(|it| it.owner == rs.uid)?;
        let (generation, remaining) = memory.rejected(now)?;
        let mut remaining = remaining.filter(|_| generation == rs.generation)?;
        let rejected = memory.rejected.as_ref()?;
        let position = rejected.quota(&rs.key).and_then(|quota| {
            let queue = state.queues.get(&quota)?;
            let n_before = queue.waiting.iter().position(|it| *it == rs.key)?;
            let next_try_in = queue.due.saturating_duration_since(now);
            let pauses = u32::try_from(n_before).unwrap_or(u32::MAX);
            let pauses = queue.pause(pace(state.queues.len())).saturating_mul(pauses);
            remaining = remaining.min(next_try_in + pauses);
            Some(QueuePosition {
                n_before,
                len: queue.waiting.len(),
                next_try_in,
            })
        });
        Some(BackedOff {
            rejection: rejected.rejection.clone(),
            n_rejections: rejected.n,
            since: now.saturating_duration_since(rejected.since),
            remaining,
            position,
        })
    }
}

impl Memory {
    /// At which generation a create was rejected, and the remaining back-off at that generation.
    pub fn rejected(&self, now: Instant) -> Option<(i64, Option<Duration>)> {
        let last = self.rejected.as_ref()?;
        let remaining = last.until.saturating_duration_since(now);
        Some((last.generation, (!remaining.is_zero()).then_some(remaining)))
    }

    /// True if the API server has asked for another try of the last rejected create.
    pub fn awaits_requested_try(&self) -> bool {
        let overload = self.rejected.as_ref().map(|it| &it.rejection);
        matches!(
            overload,
            Some(Rejection::Overload {
                retry_after: Some(_)
            })
        )
    }

    /// Records that a create was accepted: a later rejection counts as the first.
    pub fn create_was_accepted(&mut self) {
        if let Some(rejected) = &mut self.rejected {
            rejected.n = 0;
        }
    }
}

#[cfg(test)]
mod tests;
