//! The proof that a new leader owes before it acts: that both caches are as new as its take-over.
//! Plain data without lock, clock or I/O; [`act::verify`](crate::controller::act) queries the API
//! server.
//!
//! A standby runs its watches to keep the caches warm, but enqueues no keys: without workers the
//! queue would grow by every ReplicaSet that ever existed. The new leader syncs every ReplicaSet
//! once.
//!
//! The watches may not have shown the previous leader's last writes yet. A sync that acted on such
//! a cache would create the same pods again. So the first sync with something to do queries the API
//! server for its current versions, until a query succeeds, and each ReplicaSet delays its first
//! action until both caches have reached those versions. A quiet watch learns its position only
//! about once a minute, so within that minute the sync compares with the API server instead: one
//! GET and one LIST for each ReplicaSet with something to do. Each cache is compared with a version
//! of its own resource, because versions of two resources need not share a history.

use super::positions::Versions;

/// The proof owed for all ReplicaSets together. Initially there is none.
#[derive(Debug, Default)]
pub struct TakeOver {
    /// The positions that the caches must reach to be as new as the take-over; empty while unknown.
    /// `None` once they have reached them.
    unproven: Option<Versions>,
}

impl TakeOver {
    /// Requires a new proof, with positions yet unknown.
    pub fn need_proof(&mut self) {
        self.unproven = Some(Versions::default());
    }

    /// True if no proof is owed.
    pub fn is_proven(&self) -> bool {
        self.unproven.is_none()
    }

    /// True if the positions that the caches must reach are still unknown.
    pub fn lacks_target(&self) -> bool {
        self.unproven == Some(Versions::default())
    }

    /// Sets the positions that the caches must reach, unless they are set.
    pub fn set_target(&mut self, target: Versions) {
        if self.lacks_target() {
            self.unproven = Some(target);
        }
    }

    /// Records that the caches have reached `cached`. Returns true if that completes the proof.
    pub fn prove(&mut self, cached: &Versions) -> bool {
        // An empty version never blocks, so it must not prove anything either.
        let is_reached = |Versions { pods, replica_sets }: &Versions| {
            !pods.is_empty()
                && !replica_sets.is_empty()
                && cached.pods.is_as_new_as(pods)
                && cached.replica_sets.is_as_new_as(replica_sets)
        };
        let is_proof = self.unproven.as_ref().is_some_and(is_reached);
        if is_proof {
            self.unproven = None;
        }
        is_proof
    }
}

#[cfg(test)]
mod tests {
    use super::TakeOver;
    use crate::controller::memory::positions::Versions;

    fn versions(pods: &str, replica_sets: &str) -> Versions {
        Versions {
            pods: pods.into(),
            replica_sets: replica_sets.into(),
        }
    }

    #[test]
    fn the_target_is_set_once_and_only_if_a_proof_is_owed() {
        let mut take_over = TakeOver::default();
        take_over.set_target(versions("20", "20"));
        assert!(take_over.is_proven() && !take_over.lacks_target());
        take_over.need_proof();
        assert!(!take_over.is_proven() && take_over.lacks_target());
        take_over.set_target(versions("10", "10"));
        take_over.set_target(versions("20", "20"));
        assert!(take_over.prove(&versions("10", "10")));
        assert!(take_over.is_proven() && !take_over.prove(&versions("10", "10")));
    }

    #[test]
    fn empty_versions_prove_nothing() {
        for (pods, replica_sets) in [("", ""), ("10", ""), ("", "10")] {
            let mut take_over = TakeOver::default();
            take_over.need_proof();
            take_over.set_target(versions(pods, replica_sets));
            assert!(!take_over.prove(&versions("20", "20")));
        }
    }
}
