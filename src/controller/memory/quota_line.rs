//! The ReplicaSets that one quota refuses, and when which of them tries again. Plain data without
//! lock, clock or I/O.
//!
//! At each *turn* the line permits the next ReplicaSet to try: a probe. A refused probe stops the
//! line for a pause: 50 ms, doubled by each further one up to 30 s, so a full quota costs one
//! request in 30 s however many wait. A sign that the quota may have room *wakes* the line: the
//! next probe is due at once, and the pauses start over, because the API server counts the room
//! some time after the sign. Each accepted probe permits two more ReplicaSets, until one is
//! refused.
//!
//! After a sign the oldest ReplicaSet has three tries, because the first one may come before the
//! room is counted, and the place is its own. Otherwise each one goes once before any goes twice,
//! signs or not: those that need more than is free, or whose pods another scope of the quota
//! counts, do not block the others.

use std::collections::BTreeSet;
use std::mem;
use std::time::{Duration, Instant};

use crate::api::{CompactTimestamp, ObjectKey};

/// The pause after the first refused probe, and the least time between two turns.
pub const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest pause.
pub const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Within this time after a sign of room, further signs give the oldest ReplicaSet no more tries.
/// Otherwise one that never fits would be the only one to probe while pods end all the time.
const OLDEST_PAUSE: Duration = Duration::from_secs(2);

/// Tries of the oldest ReplicaSet after a sign, before others go.
const OLDEST_TRIES: u32 = 3;

/// A ReplicaSet in the line; ordered by age, then by key.
pub type Place = (Option<CompactTimestamp>, ObjectKey);

/// The line in front of one quota.
#[derive(Debug)]
pub struct QuotaLine {
    /// Those that have not probed in this round.
    waiting: BTreeSet<Place>,
    /// Those that have.
    tried: BTreeSet<Place>,
    /// The last sign that gave the oldest its tries.
    oldest_at: Instant,
    /// How many of them it has used.
    n_oldest_tries: u32,
    last_turn: Instant,
    /// When the next turn is due.
    pub next_turn: Instant,
    /// The pause after the next turn.
    pause: Duration,
    /// ReplicaSets that accepted probes permit in addition.
    credit: usize,
    /// False from a refused probe to the next turn.
    doubles: bool,
    /// The key that the queue's timer brings back for the next turn, and when.
    armed: Option<(ObjectKey, Instant)>,
}

impl QuotaLine {
    /// An empty line after a refusal at `now`. It starts as if woken: a sign may have come before
    /// the refusal, and before the quota counted it.
    pub fn new(now: Instant) -> Self {
        Self {
            waiting: BTreeSet::new(),
            tried: BTreeSet::new(),
            oldest_at: now,
            n_oldest_tries: 0,
            last_turn: now,
            next_turn: now + PAUSE_MIN,
            pause: 2 * PAUSE_MIN,
            credit: 0,
            doubles: true,
            armed: None,
        }
    }

    /// Adds a refused ReplicaSet. `was_permitted` tells whether it was a probe of this line; any
    /// other refusal leaves the rhythm as it is.
    pub fn refused(&mut self, place: Place, was_permitted: bool) {
        if was_permitted {
            self.credit = 0;
            self.doubles = false;
        }
        if !self.tried.contains(&place) {
            self.waiting.insert(place);
        }
    }

    /// Removes a ReplicaSet. If it gives its turn away, the next one goes at once; if its probe was
    /// accepted, two go.
    pub fn leave(&mut self, place: &Place, gives_turn: bool, is_accepted: bool, now: Instant) {
        self.waiting.remove(place);
        self.tried.remove(place);
        if is_accepted {
            self.wake(now);
            // The room is counted.
            self.n_oldest_tries = OLDEST_TRIES;
        }
        if gives_turn && self.doubles {
            self.credit += if is_accepted { 2 } else { 0 };
            self.next_turn = now;
        }
    }

    /// Notes a sign that the quota may have room.
    pub fn wake(&mut self, now: Instant) {
        self.pause = PAUSE_MIN;
        self.next_turn = self.next_turn.min(now.max(self.last_turn + PAUSE_MIN));
        if now >= self.oldest_at + OLDEST_PAUSE {
            self.oldest_at = now;
            self.n_oldest_tries = 0;
        }
    }

    /// Returns the ReplicaSets that may try now; none before [`Self::next_turn`].
    pub fn turn(&mut self, now: Instant) -> Vec<ObjectKey> {
        if now < self.next_turn {
            return Vec::new();
        }
        self.last_turn = now;
        self.next_turn = now + self.pause;
        self.pause = (2 * self.pause).min(PAUSE_MAX);
        self.doubles = true;
        if self.waiting.is_empty() {
            self.waiting = mem::take(&mut self.tried);
        }
        let credit = mem::take(&mut self.credit);
        if credit == 0 && self.n_oldest_tries < OLDEST_TRIES {
            self.n_oldest_tries += 1;
            return self.oldest_tries().into_iter().collect();
        }
        let count = credit.max(1);
        let mut permitted = Vec::new();
        while permitted.len() < count
            && let Some(place) = self.waiting.pop_first()
        {
            permitted.push(place.1.clone());
            self.tried.insert(place);
        }
        permitted
    }

    /// Returns the oldest ReplicaSet, which has probed in this round with the last of its tries.
    fn oldest_tries(&mut self) -> Option<ObjectKey> {
        let first = self.waiting.first().into_iter().chain(self.tried.first());
        let oldest = first.min()?.clone();
        if self.n_oldest_tries == OLDEST_TRIES && self.waiting.remove(&oldest) {
            self.tried.insert(oldest.clone());
        }
        Some(oldest.1)
    }

    /// Returns the key that the queue must bring back for the next turn, unless one is on its way.
    /// `processed` is the key that a worker has just processed, so its timer may be used up.
    pub fn arm(&mut self, processed: Option<&ObjectKey>, now: Instant) -> Option<ObjectKey> {
        let is_armed = self
            .armed
            .as_ref()
            .is_some_and(|(key, at)| *at > now && *at <= self.next_turn && processed != Some(key));
        if is_armed {
            return None;
        }
        let (_, key) = self.waiting.first().or_else(|| self.tried.first())?;
        self.armed = Some((key.clone(), self.next_turn));
        Some(key.clone())
    }

    /// Number of ReplicaSets in the line.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.tried.len()
    }

    /// True if no ReplicaSet waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many ReplicaSets probe before this one. Visits each of them.
    pub fn n_before(&self, place: &Place) -> usize {
        let n_before = |places: &BTreeSet<Place>| places.range(..place).count();
        if self.tried.contains(place) {
            self.waiting.len() + n_before(&self.tried)
        } else {
            n_before(&self.waiting)
        }
    }
}

#[cfg(test)]
mod tests;
