//! Refused creates in the memory: the holds of ReplicaSets, and the queues in front of quotas.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hold::Hold;
use super::quota_queue::{INTERVAL_MIN, QuotaQueue, Ticket};
use super::{Memories, Memory, State};
use crate::api::{ObjectKey, ReplicaSet};
use crate::controller::decide::refusal::Refusal;
use crate::stdx::hash::HashMap;

/// The queues of all namespaces. A queue disappears with its last ReplicaSet.
#[derive(Debug, Default)]
pub(super) struct QuotaQueues {
    by_namespace: HashMap<Arc<str>, Vec<(Arc<str>, QuotaQueue)>>,
    n_queues: u32,
    last_ticket: Ticket,
    /// Refused tries of all queues together in each second; 0 for no limit.
    tries_per_second: f64,
}

/// A ReplicaSet whose creates are held back, for `explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBack {
    /// The last refusal.
    pub refusal: Refusal,
    /// Refusals of this kind in a row.
    pub n_refusals: u32,
    /// Time since the first of them.
    pub since: Duration,
    /// Time until the next try, if nothing ends the wait earlier.
    pub remaining: Duration,
    /// Its position in the queue of a quota, if that was asked for.
    pub position: Option<QueuePosition>,
}

/// A ReplicaSet's position in the queue of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition {
    /// ReplicaSets that try before it.
    pub n_before: usize,
    /// ReplicaSets in the queue.
    pub len: usize,
    /// Time until the next of them tries.
    pub next_try_in: Duration,
}

/// How a ReplicaSet leaves the queue of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// Its creates were accepted.
    Accepted,
    /// It needs no create, so the next one tries at once.
    NeedsNone,
    /// Something else than this quota refused its create.
    Otherwise,
}

impl QuotaQueues {
    pub(super) fn new(tries_per_second: f64) -> Self {
        Self {
            tries_per_second,
            ..Self::default()
        }
    }

    fn of(&mut self, namespace: &str) -> &mut [(Arc<str>, QuotaQueue)] {
        let queues = self.by_namespace.get_mut(namespace);
        queues.map_or(&mut [], Vec::as_mut_slice)
    }

    /// The queue that the ReplicaSet `key` with this hold waits in.
    fn queue_of(&mut self, key: &ObjectKey, hold: &Hold) -> Option<&mut QuotaQueue> {
        let Refusal::Quota(quota) = &hold.refusal else {
            return None;
        };
        let queue = self
            .of(&key.namespace)
            .iter_mut()
            .find(|(name, _)| name == quota);
        queue.map(|(_, queue)| queue)
    }

    fn queue_of_quota(
        &mut self,
        namespace: &Arc<str>,
        quota: &Arc<str>,
        now: Instant,
    ) -> &mut QuotaQueue {
        let queues = self.by_namespace.entry(Arc::clone(namespace)).or_default();
        let index = queues.iter().position(|(name, _)| name == quota);
        let index = index.unwrap_or_else(|| {
            self.n_queues += 1;
            queues.push((Arc::clone(quota), QuotaQueue::new(now)));
            queues.len() - 1
        });
        &mut queues[index].1
    }

    /// The time in which the budget of each queue grows by one refused try.
    fn interval(&self) -> Duration {
        let seconds = f64::from(self.n_queues) / self.tries_per_second;
        let longest = Duration::from_hours(1);
        Duration::try_from_secs_f64(seconds)
            .map_or(INTERVAL_MIN, |it| it.clamp(INTERVAL_MIN, longest))
    }

    fn next_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        self.last_ticket
    }

    /// Takes a ReplicaSet whose hold ends out of its queue.
    pub(super) fn leave(&mut self, key: &ObjectKey, hold: &Hold, left: Left, now: Instant) {
        let interval = self.interval();
        let Some(queue) = self.queue_of(key, hold) else {
            return;
        };
        queue.leave(hold.ticket);
        match left {
            Left::Accepted => queue.accepted(now),
            Left::Otherwise if hold.until <= now => queue.refused(interval, now),
            Left::Otherwise | Left::NeedsNone => {}
        }
        if queue.is_empty() {
            self.drop_empty(&key.namespace);
        }
    }

    fn drop_empty(&mut self, namespace: &str) {
        if let Some(queues) = self.by_namespace.get_mut(namespace) {
            let n_before = queues.len();
            queues.retain(|(_, queue)| !queue.is_empty());
            self.n_queues -= u32::try_from(n_before - queues.len()).unwrap_or_default();
            if queues.is_empty() {
                self.by_namespace.remove(namespace);
            }
        }
    }
}

impl Memories {
    /// Holds back the creates of `rs` after this refusal with its message. Returns how long, if
    /// nothing ends the hold earlier.
    pub fn hold_back(&self, rs: &ReplicaSet, refusal: Refusal, message: String) -> Duration {
        let now = self.clock.now();
        let mut state = self.lock();
        let State {
            records, queues, ..
        } = &mut *state;
        let memory = records.entry(rs.key.clone());
        let memory = memory.or_insert_with(|| Memory::of(&rs.uid));
        if memory.owner != rs.uid {
            // Another ReplicaSet of this name has come meanwhile.
            return Duration::ZERO;
        }
        let earlier = memory.hold.take();
        let mut hold = Hold::after(earlier.as_deref(), rs, (refusal, message), now);
        let earlier = earlier.filter(|earlier| {
            let is_same = earlier.refusal == hold.refusal;
            if !is_same {
                queues.leave(&rs.key, earlier, Left::Otherwise, now);
            }
            is_same
        });
        if let Refusal::Quota(quota) = &hold.refusal {
            let interval = queues.interval();
            let next = queues.next_ticket();
            let queue = queues.queue_of_quota(&rs.key.namespace, quota, now);
            hold.ticket = match &earlier {
                Some(earlier) if earlier.until > now => earlier.ticket,
                Some(earlier) => {
                    queue.leave(earlier.ticket);
                    queue.refused(interval, now);
                    next
                }
                None => next,
            };
            queue.join(hold.ticket, rs.key.clone());
        }
        let wait = hold.until.saturating_duration_since(now);
        memory.hold = Some(Box::new(hold));
        wait
    }

    /// Ends the hold of `rs`, because it needs no create, or because the last one met no refusal of
    /// a known kind.
    pub fn end_hold(&self, rs: &ReplicaSet, needs_none: bool) {
        let now = self.clock.now();
        let mut state = self.lock();
        let State {
            records, queues, ..
        } = &mut *state;
        let memory = records.get_mut(&rs.key);
        let memory = memory.filter(|memory| memory.owner == rs.uid);
        if let Some(hold) = memory.and_then(|memory| memory.hold.take()) {
            let left = match hold.n {
                _ if needs_none => Left::NeedsNone,
                0 => Left::Accepted,
                _ => Left::Otherwise,
            };
            queues.leave(&rs.key, &hold, left, now);
        }
    }

    /// Records an event that may free quota in `namespace`: of `quota`, or of any with `None`.
    /// Returns false if no ReplicaSet waits for that.
    pub fn wake_queues(&self, namespace: &str, quota: Option<&str>) -> bool {
        let now = self.clock.now();
        let mut state = self.lock();
        let interval = state.queues.interval();
        let mut any = false;
        for (name, queue) in state.queues.of(namespace) {
            if quota.is_none_or(|quota| **name == *quota) {
                queue.wake(interval, now);
                any = true;
            }
        }
        any
    }

    /// Returns the keys of `namespace` to queue, each with its delay: ReplicaSets that accepted
    /// creates permit, and the next of each queue. `processed` is the key that a worker has just
    /// processed: if its time had come, it is the next one's turn, whatever became of that sync.
    pub fn take_turns(
        &self,
        namespace: &str,
        processed: Option<&ObjectKey>,
    ) -> Vec<(ObjectKey, Duration)> {
        let mut due = Vec::new();
        let now = self.clock.now();
        let mut state = self.lock();
        let interval = state.queues.interval();
        let State {
            records, queues, ..
        } = &mut *state;
        let mut last_ticket = queues.last_ticket;
        for (_, queue) in queues.of(namespace) {
            let had_its_turn = queue.due <= now && queue.head().map(|(_, key)| key) == processed;
            if had_its_turn && rotate(queue, records, &mut last_ticket).is_some() {
                queue.pass_turn(interval, now);
            }
            for _ in 0..mem::take(&mut queue.credit) {
                if let Some((key, hold)) = rotate(queue, records, &mut last_ticket)
                    && hold.until > now
                {
                    hold.until = now;
                    due.push((key, Duration::ZERO));
                }
            }
            if let Some(key) = queue.arm() {
                let hold = records.get_mut(&key).and_then(|it| it.hold.as_mut());
                if let Some(hold) = hold {
                    hold.until = hold.until.min(queue.due);
                }
                due.push((key, queue.due.saturating_duration_since(now)));
            }
        }
        queues.last_ticket = last_ticket;
        due
    }

    /// Returns the hold of `rs` while it lasts. Its position in the queue of a quota costs time in
    /// proportion to the length of the queue.
    pub fn hold_of(&self, rs: &ReplicaSet, with_position: bool) -> Option<HeldBack> {
        let now = self.clock.now();
        let mut state = self.lock();
        let State {
            records, queues, ..
        } = &mut *state;
        let memory = records.get(&rs.key)?;
        let hold = memory.hold.as_deref().filter(|_| memory.owner == rs.uid)?;
        let remaining = hold.remaining(rs.generation, now)?;
        let queue = queues.queue_of(&rs.key, hold).filter(|_| with_position);
        let position = queue.map(|queue| QueuePosition {
            n_before: queue.n_before(hold.ticket),
            len: queue.len(),
            next_try_in: queue.due.saturating_duration_since(now),
        });
        Some(HeldBack {
            refusal: hold.refusal.clone(),
            n_refusals: hold.n,
            since: now.saturating_duration_since(hold.since),
            remaining,
            position,
        })
    }

    /// Number of ReplicaSets that are held back, by [`Refusal::kind`].
    pub fn n_held_back(&self) -> [usize; Refusal::KINDS.len()] {
        let state = self.lock();
        let mut counts = [0; Refusal::KINDS.len()];
        let holds = state.records.values().filter_map(|it| it.hold.as_ref());
        for hold in holds {
            counts[hold.refusal.kind()] += 1;
        }
        counts
    }
}

impl Memory {
    /// True if the API server refused the last create, whether or not a sync may try again.
    pub fn has_hold(&self) -> bool {
        self.hold.is_some()
    }

    /// The message of the refusal for which creates are held back.
    pub fn refusal(&self) -> Option<&str> {
        self.hold.as_ref().map(|hold| &*hold.message)
    }

    /// Refusals of one kind in a row.
    pub fn n_refusals(&self) -> u32 {
        self.hold.as_ref().map_or(0, |hold| hold.n)
    }

    /// How long creates at `generation` are held back; `None` if a sync may create.
    pub fn held_back(&self, generation: i64, now: Instant) -> Option<Duration> {
        self.hold.as_ref()?.remaining(generation, now)
    }
}

/// Moves the head to the end. Returns it with its hold.
fn rotate<'a>(
    queue: &mut QuotaQueue,
    records: &'a mut HashMap<ObjectKey, Memory>,
    last_ticket: &mut Ticket,
) -> Option<(ObjectKey, &'a mut Hold)> {
    let (ticket, key) = queue.head()?;
    let key = key.clone();
    queue.leave(ticket);
    *last_ticket += 1;
    queue.join(*last_ticket, key.clone());
    let hold = records.get_mut(&key)?.hold.as_deref_mut()?;
    hold.ticket = *last_ticket;
    Some((key, hold))
}

#[cfg(test)]
mod tests;
