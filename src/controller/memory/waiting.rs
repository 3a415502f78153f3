//! The keys that wait for the caches to reach a version, ordered by version, so that an event that
//! wakes no key costs the same however many keys wait. Plain data without lock or I/O.

use std::collections::BTreeSet;

use super::positions::Versions;
use crate::api::{ObjectKey, ResourceVersion};
use crate::stdx::hash::HashSet;

/// The waiting keys.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    keys: HashSet<ObjectKey>,
    /// The version that each key waits for, first by pods, then by ReplicaSets.
    ///
    /// INVARIANT: each of `keys` has an entry in one of the two, at a version that it waits or
    /// waited for. Other keys may have entries too.
    order: [BTreeSet<(u64, ObjectKey)>; 2],
}

impl Waiting {
    /// Registers `key` to wait for these versions.
    pub(super) fn add(&mut self, key: &ObjectKey, versions: &Versions) {
        self.keys.insert(key.clone());
        let first = number(&versions.pods);
        self.order[0].insert((first, key.clone()));
    }

    /// Ends the wait of this key.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.keys.remove(key);
    }

    /// Number of waiting keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Takes out the keys whose versions the caches at `cached` have reached. `written` returns the
    /// versions that a key waits for. Visits only keys whose next version was reached.
    pub(super) fn take_shown<'a>(
        &mut self,
        cached: &Versions,
        written: impl Fn(&ObjectKey) -> Option<&'a Versions>,
    ) -> Vec<ObjectKey> {
        let mut reached = Vec::new();
        for (order, cached) in self
            .order
            .iter_mut()
            .zip([&cached.pods, &cached.replica_sets])
        {
            // An incomparable position blocks no key.
            let position = cached.number().unwrap_or(u64::MAX);
            while order
                .first()
                .is_some_and(|(version, _)| *version <= position)
            {
                reached.extend(order.pop_first());
            }
        }
        let mut shown = Vec::new();
        for (_, key) in reached {
            let Some(written) = written(&key).filter(|_| self.keys.contains(&key)) else {
                self.keys.remove(&key);
                continue;
            };
            if !cached.pods.is_as_new_as(&written.pods) {
                self.order[0].insert((number(&written.pods), key));
            } else if !cached.replica_sets.is_as_new_as(&written.replica_sets) {
                self.order[1].insert((number(&written.replica_sets), key));
            } else {
                self.keys.remove(&key);
                shown.push(key);
            }
        }
        shown
    }
}

/// The place of a version in the order. A version that is no number goes first, so that each call
/// visits its key.
fn number(version: &ResourceVersion) -> u64 {
    version.number().unwrap_or(0)
}
