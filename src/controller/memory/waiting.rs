//! Which keys wait for the caches to come to a version, in the order of those versions, so that an event
//! that wakes nobody costs the same whether a few wait or very many. Plain data without lock or I/O.

use std::collections::BTreeSet;

use super::positions::Versions;
use crate::api::{ObjectKey, ResourceVersion};
use crate::stdx::hash::HashSet;

/// The keys that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    keys: HashSet<ObjectKey>,
    /// By pods, and by ReplicaSets, which version each of them waits for.
    /// INVARIANT: each of `keys` stands in one of the two, at a version that it waits for or waited for.
    /// Others may stand there too.
    order: [BTreeSet<(u64, ObjectKey)>; 2],
}

impl Waiting {
    /// Notes that `key` waits for these versions.
    pub(super) fn add(&mut self, key: &ObjectKey, versions: &Versions) {
        self.keys.insert(key.clone());
        let first = number(&versions.pods);
        self.order[0].insert((first, key.clone()));
    }

    /// This key waits no longer.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.keys.remove(key);
    }

    /// How many keys wait.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The keys for which the caches have come far enough, at `cached`; they wait no longer. `written`
    /// tells what a key waits for. Looks at those keys only whose next version was reached.
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
            // What does not compare never blocks.
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

/// Where a version stands in the order; one that is no number at its beginning, so that it is
/// looked at each time.
fn number(version: &ResourceVersion) -> u64 {
    version.number().unwrap_or(0)
}
