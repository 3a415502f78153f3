//! What a new leader has still to prove before it acts: that both caches are as new as its take-over.
//! Plain data without lock, clock or I/O; [`take_over`](crate::controller::take_over) says why, and asks
//! the API server.

use super::positions::Versions;

/// What is still to be proven of the caches, for all ReplicaSets together. At first nothing is.
#[derive(Debug, Default)]
pub struct TakeOver {
    /// What the caches must have reached to be as new as the take-over; empty: not known yet. `None`
    /// once they have.
    unproven: Option<Versions>,
}

impl TakeOver {
    /// Nothing is proven from now on, and what would prove it is not known.
    pub fn need_proof(&mut self) {
        self.unproven = Some(Versions::default());
    }

    /// True if there is nothing left to prove.
    pub fn is_proven(&self) -> bool {
        self.unproven.is_none()
    }

    /// True if it is to be found out what the caches must reach.
    pub fn lacks_target(&self) -> bool {
        self.unproven == Some(Versions::default())
    }

    /// The caches must reach this, unless something else was noted before.
    pub fn set_target(&mut self, target: Versions) {
        if self.lacks_target() {
            self.unproven = Some(target);
        }
    }

    /// The caches have come to `cached`. True if that proves what was unproven before.
    pub fn prove(&mut self, cached: &Versions) -> bool {
        // A version that says nothing never blocks, so it must not prove anything either.
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
    fn what_must_be_reached_is_noted_once_and_only_if_there_is_something_to_prove() {
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
    fn versions_that_say_nothing_prove_nothing() {
        for (pods, replica_sets) in [("", ""), ("10", ""), ("", "10")] {
            let mut take_over = TakeOver::default();
            take_over.need_proof();
            take_over.set_target(versions(pods, replica_sets));
            assert!(!take_over.prove(&versions("20", "20")));
        }
    }
}
