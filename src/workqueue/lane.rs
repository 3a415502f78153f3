//! The waiting keys of one priority, in turns. Pure.

use std::collections::BTreeMap;
use std::hash::Hash;

use crate::stdx::hash::HashMap;

/// The owner of some keys, such as a hash of their namespace. Keys whose hashes collide only share
/// its turns.
pub type Tenant = u64;

/// Keys with the numbers under which they wait. The tenants take turns; the keys of one tenant are
/// first in, first out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane<K> {
    /// The tenants with waiting keys, the next one first.
    turns: BTreeMap<u64, Tenant>,
    tenants: HashMap<Tenant, Waiting<K>>,
}

/// The waiting keys of one tenant, at least one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting<K> {
    turn: u64,
    keys: BTreeMap<u64, K>,
}

impl<K> Lane<K> {
    /// Adds a key under a number that is higher than all before.
    pub fn push(&mut self, tenant: Tenant, number: u64, key: K) {
        let new = || {
            self.turns.insert(number, tenant);
            Waiting {
                turn: number,
                keys: BTreeMap::new(),
            }
        };
        let waiting = self.tenants.entry(tenant).or_insert_with(new);
        waiting.keys.insert(number, key);
    }

    /// Removes the key with this number.
    pub fn remove(&mut self, tenant: Tenant, number: u64) {
        if let Some(waiting) = self.tenants.get_mut(&tenant) {
            waiting.keys.remove(&number);
            if waiting.keys.is_empty() {
                self.turns.remove(&waiting.turn);
                self.tenants.remove(&tenant);
            }
        }
    }

    /// Returns the next tenant for which `may_take` is true.
    pub fn next(&self, may_take: impl Fn(Tenant) -> bool) -> Option<Tenant> {
        self.turns.values().copied().find(|it| may_take(*it))
    }

    /// Takes the first key of `tenant`, whose next turn then comes after those of all others.
    /// `number` is higher than all before.
    pub fn pop(&mut self, tenant: Tenant, number: u64) -> Option<K> {
        let waiting = self.tenants.get_mut(&tenant)?;
        self.turns.remove(&waiting.turn);
        let (_, key) = waiting.keys.pop_first()?;
        if waiting.keys.is_empty() {
            self.tenants.remove(&tenant);
        } else {
            waiting.turn = number;
            self.turns.insert(number, tenant);
        }
        Some(key)
    }

    /// True if no key waits.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
impl<K: Clone + Hash> Lane<K> {
    /// The keys of each tenant, the next tenant first, for models that compare states.
    pub(super) fn identity(&self) -> Vec<(Tenant, Vec<K>)> {
        let keys = |tenant: &Tenant| self.tenants[tenant].keys.values().cloned().collect();
        let turns = self.turns.values();
        turns.map(|tenant| (*tenant, keys(tenant))).collect()
    }
}

impl<K> Default for Lane<K> {
    fn default() -> Self {
        Self {
            turns: BTreeMap::new(),
            tenants: HashMap::default(),
        }
    }
}
