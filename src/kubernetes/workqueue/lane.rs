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

    /// Returns the first key of the next tenant for which `may_take` is true, and the number under
    /// which it waits.
    pub fn first(&self, may_take: impl Fn(Tenant, &K) -> bool) -> Option<(Tenant, u64, &K)> {
        let mut firsts = self.turns.values().filter_map(|tenant| {
            let (number, key) = self.tenants[tenant].keys.first_key_value()?;
            Some((*tenant, *number, key))
        });
        firsts.find(|(tenant, _, key)| may_take(*tenant, key))
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

    /// Moves the next turn of `tenant` behind those of all others. `number` is higher than all
    /// before.
    pub fn end_turn(&mut self, tenant: Tenant, number: u64) {
        if let Some(waiting) = self.tenants.get_mut(&tenant) {
            self.turns.remove(&waiting.turn);
            waiting.turn = number;
            self.turns.insert(number, tenant);
        }
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
