//! The ReplicaSets that one quota refuses, and when which of them tries again. Plain data without
//! clock or I/O.
//!
//! Only the head of the queue tries. Once it is refused it goes to the end, and the next one tries
//! after a pause: 50 ms, doubled by each refused try up to 30 s. An event that may free quota makes
//! the next try due at once, and the pauses start over, because the API server counts the freed
//! quota some time later. Each accepted create lets two more ReplicaSets try at once.
//!
//! Refused tries have a budget: ten at once, then one in each *interval*. So events cost no more
//! than that, however many there are.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::api::ObjectKey;

/// The pause after the first refused try.
pub const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest pause, unless [`QuotaQueue::refused`] gets a longer interval.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The shortest time in which the budget grows by one refused try.
pub const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Refused tries at once after a quiet time.
const BURST: u32 = 10;

/// A position in all queues: who was refused earlier tries earlier.
pub type Ticket = u64;

/// The queue in front of one quota.
#[derive(Debug)]
pub struct QuotaQueue {
    waiting: BTreeMap<Ticket, ObjectKey>,
    /// When the head may try.
    pub due: Instant,
    /// The pause after the next refused try.
    pause: Duration,
    /// When the budget is whole again.
    whole_at: Instant,
    /// ReplicaSets that accepted creates permit in addition.
    pub credit: u32,
    /// The head that a timer brings back, and when.
    armed: Option<(Ticket, Instant)>,
}

impl QuotaQueue {
    /// An empty queue after a refusal at `now`. Quota may have become free just before it.
    pub fn new(now: Instant) -> Self {
        Self {
            waiting: BTreeMap::new(),
            due: now + PAUSE_MIN,
            pause: 2 * PAUSE_MIN,
            whole_at: now,
            credit: 0,
            armed: None,
        }
    }

    /// Adds a ReplicaSet.
    pub fn join(&mut self, ticket: Ticket, key: ObjectKey) {
        self.waiting.insert(ticket, key);
    }

    /// Removes a ReplicaSet.
    pub fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// The next ReplicaSet.
    pub fn head(&self) -> Option<(Ticket, &ObjectKey)> {
        self.waiting.first_key_value().map(|(it, key)| (*it, key))
    }

    /// The head, if no timer brings it back at [`Self::due`] yet.
    pub fn arm(&mut self) -> Option<ObjectKey> {
        let (ticket, key) = self.waiting.first_key_value()?;
        let armed = Some((*ticket, self.due));
        (self.armed != armed).then(|| {
            self.armed = armed;
            key.clone()
        })
    }

    /// Records that a create was refused whose time had come.
    pub fn refused(&mut self, interval: Duration, now: Instant) {
        self.credit = 0;
        let debt_max = (BURST - 1) * interval + PAUSE_MAX.max(interval);
        self.whole_at = (self.whole_at.max(now) + interval).min(now + debt_max);
        self.pass_turn(interval, now);
    }

    /// Lets the next ReplicaSet try after the pause if the time of the head has come.
    pub fn pass_turn(&mut self, interval: Duration, now: Instant) {
        if self.due <= now {
            self.due = now + self.pause.max(self.lack(interval, now));
            self.pause = (2 * self.pause).min(PAUSE_MAX);
        }
    }

    /// Records that a create was accepted.
    pub fn accepted(&mut self, now: Instant) {
        self.credit += 2;
        self.due = now + PAUSE_MIN;
        self.pause = 2 * PAUSE_MIN;
    }

    /// Records an event that may free quota.
    pub fn wake(&mut self, interval: Duration, now: Instant) {
        self.pause = PAUSE_MIN;
        self.due = self.due.min(now + self.lack(interval, now));
    }

    /// Number of ReplicaSets in the queue.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if no ReplicaSet waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many ReplicaSets try before this one. Visits each of them.
    pub fn n_before(&self, ticket: Ticket) -> usize {
        self.waiting.range(..ticket).count()
    }

    /// Time until the budget permits a try.
    fn lack(&self, interval: Duration, now: Instant) -> Duration {
        let debt = self.whole_at.saturating_duration_since(now);
        (debt + interval).saturating_sub(BURST * interval)
    }
}

#[cfg(test)]
mod tests;
