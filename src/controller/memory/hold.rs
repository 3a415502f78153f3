//! The wait of a ReplicaSet whose pods the API server refuses. Plain data without lock, clock or
//! I/O.
//!
//! While a hold lasts, no sync creates pods of the ReplicaSet; deletes, claims and the status go
//! on. It ends with the next generation, and in the queue of a quota at its turn.

use std::time::{Duration, Instant};

use super::history::cut;
use super::quota_queue::Ticket;
use crate::api::ReplicaSet;
use crate::controller::decide::refusal::Refusal;

/// Creates are held back after a refusal.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The last refusal.
    pub refusal: Refusal,
    /// Its message, for the status.
    pub message: Box<str>,
    /// When the first refusal of this kind in a row came.
    pub since: Instant,
    /// When the sync tries again, if nothing else ends the hold.
    pub until: Instant,
    /// Number of refusals of this kind in a row, without an accepted create in between.
    pub n: u32,
    /// The position in the queue of a quota.
    pub ticket: Ticket,
    generation: i64,
}

impl Hold {
    /// The hold after a refusal of a pod of `rs` with this message, whose hold was `earlier`.
    pub fn after(
        earlier: Option<&Self>,
        rs: &ReplicaSet,
        (refusal, message): (Refusal, String),
        now: Instant,
    ) -> Self {
        let earlier = earlier.filter(|it| it.n > 0 && it.refusal.kind() == refusal.kind());
        let n = earlier.map_or(1, |it| it.n.saturating_add(1));
        Self {
            since: earlier.map_or(now, |it| it.since),
            until: now + refusal.wait(&rs.uid, n),
            n,
            ticket: 0,
            generation: rs.generation,
            refusal,
            message: cut(message),
        }
    }

    /// How long creates of the ReplicaSet at `generation` are held back; `None` if a sync may
    /// create.
    pub fn remaining(&self, generation: i64, now: Instant) -> Option<Duration> {
        let remaining = self.until.saturating_duration_since(now);
        let lasts = self.generation == generation && !remaining.is_zero();
        lasts.then_some(remaining)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Hold;
    use crate::controller::decide::refusal::Refusal;
    use crate::controller::testing::replica_set;

    #[test]
    fn a_hold_ends_with_its_time_or_a_generation() {
        let (rs, now) = (replica_set("web", 1), Instant::now());
        let hold = Hold::after(None, &rs, (Refusal::Invalid, String::new()), now);
        let wait = hold.until - now;
        assert_eq!(hold.remaining(1, now), Some(wait));
        assert_eq!(hold.remaining(2, now), None);
        assert_eq!(hold.remaining(1, now + wait), None);
    }

    #[test]
    fn only_refusals_of_one_kind_count_together() {
        let (rs, now) = (replica_set("web", 1), Instant::now());
        let overload = Refusal::Overload { retry_after: None };
        let first = Hold::after(None, &rs, (overload.clone(), String::new()), now);
        let later = now + Duration::from_secs(1);
        let second = Hold::after(Some(&first), &rs, (overload, String::new()), later);
        assert_eq!((second.n, second.since), (2, now));
        assert!(second.until - later > first.until - now);
        let third = Hold::after(Some(&second), &rs, (Refusal::Invalid, String::new()), later);
        assert_eq!((third.n, third.since), (1, later));
    }
}
