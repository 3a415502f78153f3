//! The two strategies of a rollout.

use super::Plan;
use crate::fenceposts::Fenceposts;
use crate::objects::Strategy;
use crate::status::is_complete;

impl Plan<'_> {
    /// Replaces old pods step by step: the new ReplicaSet grows as far as the surge allows, and
    /// only if it need not grow, the old ones shrink as far as enough pods stay available.
    pub(super) fn roll(&mut self) {
        self.create_new();
        let (d, is_created) = (self.d, self.new_hash.is_some());
        let size = self.size_of_new();
        let new = self.new.as_mut().expect("it was created above");
        // A new one is created with its size.
        if !is_created && new.replicas != size {
            return new.scale(d, size);
        }
        if !self.shrink_old() && is_complete(d, &d.status) {
            self.clean_up();
        }
    }

    /// Replaces all pods at once: the new ReplicaSet gets pods when none of the others has any.
    pub(super) fn recreate(&mut self) {
        let d = self.d;
        let mut scaled = false;
        for old in self.old.iter_mut().filter(|old| old.is_active()) {
            old.scale(d, 0);
            scaled = true;
        }
        if scaled || self.has_old_pods() {
            return;
        }
        if self.new.is_none() {
            self.create_new();
        }
        if let Some(new) = &mut self.new {
            new.scale(d, d.replicas);
        }
        if is_complete(d, &d.status) {
            self.clean_up();
        }
    }

    fn has_old_pods(&self) -> bool {
        let mut old = self.old.iter();
        old.any(|set| set.rs.status.replicas > 0 || self.view.with_pods.contains(&set.rs.uid))
    }

    /// The size that the new ReplicaSet may have now.
    pub(super) fn size_of_new(&self) -> i32 {
        let (d, total) = (self.d, self.total_replicas());
        let replicas = self.new.as_ref().map_or(0, |new| new.replicas);
        if replicas >= d.replicas || d.strategy == Strategy::Recreate {
            return d.replicas;
        }
        let max_total = d.replicas.saturating_add(Fenceposts::of(d).max_surge);
        let free = (max_total - total).max(0);
        replicas + free.min(d.replicas - replicas)
    }

    /// Scales old ReplicaSets down: first by the pods that are not available, which harms nobody,
    /// then by others while enough stay. Returns true if it did.
    ///
    /// Pods of the new ReplicaSet that are not available yet count against the limit. Otherwise a
    /// broken revision would take the place of a working one.
    fn shrink_old(&mut self) -> bool {
        let d = self.d;
        let min_available = d.replicas - Fenceposts::of(d).max_unavailable;
        let new = self.new.as_ref();
        let missing = new.map_or(0, |new| new.replicas - new.lasting());
        let mut spare = self.total_replicas() - min_available - missing;
        if spare <= 0 {
            return false;
        }
        let before = self.total_replicas();
        for old in self.old.iter_mut().filter(|old| old.is_active()) {
            let unavailable = (old.replicas - old.lasting()).min(spare);
            old.scale(d, old.replicas - unavailable);
            spare -= unavailable;
        }
        let available: i32 = self.sets().map(super::Set::lasting).sum();
        let mut spare = (available - min_available).max(0);
        for old in self.old.iter_mut().filter(|old| old.is_active()) {
            let healthy = old.replicas.min(spare);
            old.scale(d, old.replicas - healthy);
            spare -= healthy;
        }
        self.total_replicas() < before
    }
}
