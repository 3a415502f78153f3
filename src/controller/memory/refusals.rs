//! Refused creates in the memory: the holds of ReplicaSets, and the lines in front of quotas.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hold::Hold;
use super::quota_line::{Place, QuotaLine};
use super::{Memories, Memory, State};
use crate::api::{ObjectKey, ReplicaSet};
use crate::controller::decide::refusal::Refusal;
use crate::stdx::hash::HashMap;

/// The lines of all namespaces. A line disappears with its last ReplicaSet.
#[derive(Debug, Default)]
pub(super) struct QuotaLines(HashMap<Arc<str>, Vec<(Arc<str>, QuotaLine)>>);

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
    /// Its place in the line of a quota, if that was asked for.
    pub place: Option<LinePlace>,
}

/// A ReplicaSet's place in the line of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePlace {
    /// ReplicaSets that probe before it.
    pub n_before: usize,
    /// ReplicaSets in the line.
    pub len: usize,
    /// Time until the line's next probe.
    pub next_probe_in: Duration,
}

impl QuotaLines {
    fn of(&mut self, namespace: &str) -> impl Iterator<Item = &mut (Arc<str>, QuotaLine)> {
        self.0.get_mut(namespace).into_iter().flatten()
    }

    /// The line that the ReplicaSet `key` with this hold stands in.
    fn line_of(&mut self, key: &ObjectKey, hold: &Hold) -> Option<&mut QuotaLine> {
        let Refusal::Quota(quota) = &hold.refusal else {
            return None;
        };
        let line = self.of(&key.namespace).find(|(name, _)| name == quota);
        line.map(|(_, line)| line)
    }

    fn join(&mut self, namespace: &Arc<str>, quota: &Arc<str>, now: Instant) -> &mut QuotaLine {
        let lines = self.0.entry(Arc::clone(namespace)).or_default();
        let index = lines.iter().position(|(name, _)| name == quota);
        let index = index.unwrap_or_else(|| {
            lines.push((Arc::clone(quota), QuotaLine::new(now)));
            lines.len() - 1
        });
        &mut lines[index].1
    }

    /// Takes a ReplicaSet whose hold ends out of its line. Its turn goes to the next one if its
    /// creates were accepted or if it needs none. After another refusal the line keeps its pause:
    /// that may meet each of them.
    pub(super) fn leave(&mut self, key: &ObjectKey, hold: &Hold, needs_none: bool, now: Instant) {
        let (place, is_accepted) = (place_of(key, hold), hold.n == 0);
        if let Some(line) = self.line_of(key, hold) {
            let gives_turn = hold.is_permitted && (is_accepted || needs_none);
            line.leave(&place, gives_turn, is_accepted, now);
            if line.is_empty() {
                self.drop_empty(&key.namespace);
            }
        }
    }

    fn drop_empty(&mut self, namespace: &str) {
        if let Some(lines) = self.0.get_mut(namespace) {
            lines.retain(|(_, line)| !line.is_empty());
            if lines.is_empty() {
                self.0.remove(namespace);
            }
        }
    }
}

fn place_of(key: &ObjectKey, hold: &Hold) -> Place {
    (hold.created, key.clone())
}

impl Memories {
    /// Holds back the creates of `rs` after this refusal with its message. Returns how long, if
    /// nothing ends the hold earlier.
    pub fn hold_back(&self, rs: &ReplicaSet, refusal: Refusal, message: String) -> Duration {
        let now = self.clock.now();
        let mut state = self.lock();
        let State { records, lines, .. } = &mut *state;
        let memory = records.entry(rs.key.clone());
        let memory = memory.or_insert_with(|| Memory::of(&rs.uid));
        if memory.owner != rs.uid {
            // Another ReplicaSet of this name has come meanwhile.
            return Duration::ZERO;
        }
        let earlier = memory.hold.take();
        let hold = Hold::after(earlier.as_deref(), rs, (refusal, message), now);
        if let Some(earlier) = &earlier
            && earlier.refusal != hold.refusal
        {
            lines.leave(&rs.key, earlier, false, now);
        }
        if let Refusal::Quota(quota) = &hold.refusal {
            let is_same = |it: &Hold| it.is_permitted && it.refusal == hold.refusal;
            let was_permitted = earlier.as_deref().is_some_and(is_same);
            let line = lines.join(&rs.key.namespace, quota, now);
            line.refused(place_of(&rs.key, &hold), was_permitted);
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
        let State { records, lines, .. } = &mut *state;
        let memory = records.get_mut(&rs.key);
        let memory = memory.filter(|memory| memory.owner == rs.uid);
        if let Some(hold) = memory.and_then(|memory| memory.hold.take()) {
            lines.leave(&rs.key, &hold, needs_none, now);
        }
    }

    /// Notes a sign that quotas of `namespace` may have room: of `quota`, or of any with `None`.
    /// Returns false if no ReplicaSet waits for that.
    pub fn wake_lines(&self, namespace: &str, quota: Option<&str>) -> bool {
        let now = self.clock.now();
        let mut state = self.lock();
        let mut any = false;
        for (name, line) in state.lines.of(namespace) {
            if quota.is_none_or(|quota| **name == *quota) {
                line.wake(now);
                any = true;
            }
        }
        any
    }

    /// Returns the keys of `namespace` to queue, each with its delay: ReplicaSets whose turn it is,
    /// and for each line one that brings the next turn. `processed` is the key that a worker has
    /// just processed.
    pub fn take_turns(
        &self,
        namespace: &str,
        processed: Option<&ObjectKey>,
    ) -> Vec<(ObjectKey, Duration)> {
        let mut due = Vec::new();
        let now = self.clock.now();
        let mut state = self.lock();
        let State { records, lines, .. } = &mut *state;
        for (_, line) in lines.of(namespace) {
            for key in line.turn(now) {
                let hold = records
                    .get_mut(&key)
                    .and_then(|memory| memory.hold.as_mut());
                if let Some(hold) = hold {
                    hold.is_permitted = true;
                    due.push((key, Duration::ZERO));
                }
            }
            if let Some(key) = line.arm(processed, now) {
                due.push((key, line.next_turn.saturating_duration_since(now)));
            }
        }
        due
    }

    /// Returns the hold of `rs` while it lasts. Its place in the line of a quota costs time in
    /// proportion to the length of the line.
    pub fn hold_of(&self, rs: &ReplicaSet, with_place: bool) -> Option<HeldBack> {
        let now = self.clock.now();
        let mut state = self.lock();
        let State { records, lines, .. } = &mut *state;
        let memory = records.get(&rs.key)?;
        let hold = memory.hold.as_deref().filter(|_| memory.owner == rs.uid)?;
        let remaining = hold.remaining(rs.generation, now)?;
        let line = lines.line_of(&rs.key, hold).filter(|_| with_place);
        let place = line.map(|line| LinePlace {
            n_before: line.n_before(&place_of(&rs.key, hold)),
            len: line.len(),
            next_probe_in: line.next_turn.saturating_duration_since(now),
        });
        Some(HeldBack {
            refusal: hold.refusal.clone(),
            n_refusals: hold.n,
            since: now.saturating_duration_since(hold.since),
            remaining,
            place,
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

    /// How long creates at `generation` are held back; `None` if a sync may create.
    pub fn held_back(&self, generation: i64, now: Instant) -> Option<Duration> {
        self.hold.as_ref()?.remaining(generation, now)
    }
}

#[cfg(test)]
mod tests;
