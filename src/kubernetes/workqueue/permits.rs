//! Permits for large work, so that some workers are always left for small work. Pure.

use std::hash::Hash;

use super::lane::{Lane, Tenant};
use crate::stdx::hash::HashMap;

/// A permit for each two workers. One tenant gets one permit less, if there are two, so that
/// its small work finds a worker within its share.
///
/// A key that asks in vain waits here until the queue hands it out again: its place survives other
/// work on the key in the meantime. Tenants take turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permits<K: Eq + Hash> {
    total: usize,
    holders: HashMap<K, Tenant>,
    waiting: Lane<K>,
    /// The keys of `waiting`.
    asked: HashMap<K, Asked>,
    last_number: u64,
}

/// A key that asked in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    tenant: Tenant,
    /// Its number in the lane.
    number: u64,
    /// The worker that asked still processes the key.
    is_processing: bool,
}

impl<K: Clone + Eq + Hash> Permits<K> {
    /// Creates the permits of this number of workers.
    pub fn new(n_workers: usize) -> Self {
        Self {
            total: n_workers.div_ceil(2),
            holders: HashMap::default(),
            waiting: Lane::default(),
            asked: HashMap::default(),
            last_number: 0,
        }
    }

    /// Gives `key` a permit until [`end`](Self::end). If none is free, or if the key has not waited
    /// yet and `others_wait`, it waits.
    pub fn take(&mut self, key: &K, tenant: Tenant, others_wait: bool) -> bool {
        self.last_number += 1;
        if !self.is_free(tenant) || others_wait && !self.is_asked_for(key) {
            let number = self.last_number;
            let asked = self.asked.entry(key.clone()).or_insert_with(|| {
                self.waiting.push(tenant, number, key.clone());
                Asked {
                    tenant,
                    number,
                    is_processing: true,
                }
            });
            asked.is_processing = true;
            return false;
        }
        if let Some(asked) = self.asked.remove(key) {
            self.waiting.remove(tenant, asked.number);
        }
        self.waiting.end_turn(tenant, self.last_number);
        self.holders.insert(key.clone(), tenant);
        true
    }

    /// Ends the work on `key`. It goes on waiting only if it has asked in this work.
    pub fn end(&mut self, key: &K) {
        self.holders.remove(key);
        match self.asked.get_mut(key) {
            Some(asked) if asked.is_processing => asked.is_processing = false,
            Some(_) => {
                if let Some(asked) = self.asked.remove(key) {
                    self.waiting.remove(asked.tenant, asked.number);
                }
            }
            None => {}
        }
    }

    /// Returns the next key that would get a permit, of those for which `may_take` is true.
    pub fn next(&self, may_take: impl Fn(Tenant, &K) -> bool) -> Option<(Tenant, &K)> {
        let next = |tenant, key: &K| self.is_free(tenant) && may_take(tenant, key);
        let (tenant, _, key) = self.waiting.first(next)?;
        Some((tenant, key))
    }

    /// True if `tenant` may have another permit.
    fn is_free(&self, tenant: Tenant) -> bool {
        let n_most = self.total.saturating_sub(1).max(1);
        self.holders.len() < self.total && self.n_held_by(tenant) < n_most
    }

    /// Number of permits that `tenant` has.
    pub fn n_held_by(&self, tenant: Tenant) -> usize {
        self.holders.values().filter(|it| **it == tenant).count()
    }

    /// True if `key` has a permit.
    pub fn has(&self, key: &K) -> bool {
        self.holders.contains_key(key)
    }

    /// True if `key` waits for a permit.
    pub fn is_asked_for(&self, key: &K) -> bool {
        self.asked.contains_key(key)
    }

    /// The keys that wait for a permit, in any order.
    pub fn waiting(&self) -> impl Iterator<Item = &K> {
        self.asked.keys()
    }
}

#[cfg(test)]
impl<K: Clone + Ord + Hash> Permits<K> {
    /// The whole state without numbers, for models that compare it.
    pub(super) fn identity(&self) -> impl Eq + Hash + use<K> {
        let mut holders: Vec<_> = self.holders.keys().cloned().collect();
        holders.sort_unstable();
        let asked = self.asked.iter();
        let mut asked: Vec<_> = asked
            .map(|(key, it)| (key.clone(), it.is_processing))
            .collect();
        asked.sort_unstable();
        (holders, asked, self.waiting.identity())
    }
}
