//! Writes whose outcome nobody knows: the answer was lost, or the server gave up in the middle.
//!
//! A create that may have been stored is repeated under the *same name* before any other is tried, so
//! that it cannot make a second pod; a delete that may have happened is repeated on the *same pod*
//! before another one is chosen, so that it cannot take a second one. A write stays here until its
//! outcome is known: that a repetition was refused or not even tried says nothing about the first.
//! A delete that can take no effect any more has a known outcome if the API server is asked for it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::manage::pod_key;
use super::{ReplicaSetController, SyncError};
use crate::api::{ObjectKey, Pod, ReplicaSet, Selector, Uid};
use crate::stdx::clock::Clock;

/// A delete without an answer takes no effect later than this. Counted from when we gave up on its
/// last try: the API server gives up on a request after a minute (apiserver
/// `pkg/server/config.go:RequestTimeout`), and so do we; the rest is for proxies in between.
const DELETE_ARRIVES_WITHIN: Duration = Duration::from_mins(5);

/// The unresolved writes of all ReplicaSets; shared by the workers and the watch threads.
#[derive(Debug)]
pub struct Unresolved {
    clock: Arc<dyn Clock>,
    entries: Mutex<HashMap<ObjectKey, Entry>>,
}

/// Deletes of unknown outcome.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Deletions {
    /// Those that may still take effect.
    pub under_way: Vec<Uid>,
    /// Those that have taken effect by now or never will.
    pub over: Vec<Uid>,
}

#[derive(Debug, Default)]
struct Entry {
    owner: Uid,
    creations: BTreeSet<Arc<str>>,
    /// With the time of the latest one for each pod.
    deletions: BTreeMap<Uid, Instant>,
}

impl Unresolved {
    /// Nothing is unresolved.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            entries: Mutex::default(),
        }
    }

    /// Notes that the pod `name` may or may not have been created for `owner`.
    pub fn add_creation(&self, key: &ObjectKey, owner: &Uid, name: &Arc<str>) {
        self.with_entry(key, owner, |entry| {
            entry.creations.insert(Arc::clone(name));
        });
    }

    /// Notes that it is known now whether the pod `name` was created for `owner`.
    pub fn resolve_creation(&self, key: &ObjectKey, owner: &Uid, name: &str) {
        self.resolve(key, owner, |entry| {
            entry.creations.remove(name);
        });
    }

    /// The names to try first for `owner`.
    pub fn creations(&self, key: &ObjectKey, owner: &Uid) -> Vec<Arc<str>> {
        let entries = self.lock();
        let entry = entries.get(key).filter(|entry| entry.owner == *owner);
        entry.map_or_else(Vec::new, |entry| entry.creations.iter().cloned().collect())
    }

    /// Notes that the pod with this UID may or may not have been deleted for `owner`.
    pub fn add_deletion(&self, key: &ObjectKey, owner: &Uid, pod: &Uid) {
        let now = self.clock.now();
        self.with_entry(key, owner, |entry| {
            entry.deletions.insert(pod.clone(), now);
        });
    }

    /// Notes that it is known now whether the pod with this UID was deleted for `owner`.
    pub fn resolve_deletion(&self, key: &ObjectKey, owner: &Uid, pod: &Uid) {
        self.resolve(key, owner, |entry| {
            entry.deletions.remove(pod);
        });
    }

    /// The pods that may or may not have been deleted for `owner`.
    pub fn deletions(&self, key: &ObjectKey, owner: &Uid) -> Deletions {
        let now = self.clock.now();
        let entries = self.lock();
        let Some(entry) = entries.get(key).filter(|entry| entry.owner == *owner) else {
            return Deletions::default();
        };
        let mut deletions = Deletions::default();
        for (pod, since) in &entry.deletions {
            let is_over = now.saturating_duration_since(*since) > DELETE_ARRIVES_WITHIN;
            let list = if is_over {
                &mut deletions.over
            } else {
                &mut deletions.under_way
            };
            list.push(pod.clone());
        }
        deletions
    }

    /// Forgets everything about `key`: of `owner` only, or (with `None`) of whoever.
    pub fn clear(&self, key: &ObjectKey, owner: Option<&Uid>) {
        let mut entries = self.lock();
        if entries
            .get(key)
            .is_some_and(|entry| owner.is_none_or(|uid| entry.owner == *uid))
        {
            entries.remove(key);
        }
    }

    fn with_entry(&self, key: &ObjectKey, owner: &Uid, change: impl FnOnce(&mut Entry)) {
        let mut entries = self.lock();
        let entry = entries.entry(key.clone()).or_default();
        if entry.owner != *owner {
            *entry = Entry {
                owner: owner.clone(),
                ..Entry::default()
            };
        }
        change(entry);
    }

    fn resolve(&self, key: &ObjectKey, owner: &Uid, remove: impl FnOnce(&mut Entry)) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(key).filter(|entry| entry.owner == *owner) else {
            return;
        };
        remove(entry);
        if entry.creations.is_empty() && entry.deletions.is_empty() {
            entries.remove(key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplicaSetController {
    /// Up to `count` names whose creation is to be repeated. Blocks for one LIST if there are more: of
    /// those left out some pods may exist, so those that do have to be counted first.
    ///
    /// # Errors
    /// If the LIST fails.
    pub(super) fn creations_to_repeat(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        count: usize,
    ) -> Result<Vec<Arc<str>>, SyncError> {
        let mut names = self.unresolved.creations(&rs.key, &rs.uid);
        names.retain(|name| {
            let is_seen = self.cache.pod(&pod_key(rs, name)).is_some();
            if is_seen {
                self.unresolved.resolve_creation(&rs.key, &rs.uid, name);
            }
            !is_seen
        });
        if names.len() > count {
            let live = self.pod_control.list_pods(rs, selector)?;
            let is_ours = |pod: &&Pod| pod.is_active() && pod.is_controlled_by(&rs.uid);
            let live = live.iter().filter(is_ours);
            let live: HashSet<&Arc<str>> = live.map(|pod| &pod.key.name).collect();
            names.sort_by_key(|name| !live.contains(name));
            names.truncate(count);
        }
        Ok(names)
    }

    /// The pods of `active` whose deletion is to be repeated, those first that are gone already if not
    /// all can be among the `count` that go. Blocks for one LIST in that case, and if a deletion is so
    /// long ago that it has not happened if the pod is there: the cache alone does not tell, since it
    /// may be as old as that.
    ///
    /// # Errors
    /// If the LIST fails.
    pub(super) fn deletions_to_repeat(
        &self,
        rs: &ReplicaSet,
        selector: &Selector,
        active: &[Arc<Pod>],
        count: usize,
    ) -> Result<Vec<Uid>, SyncError> {
        let unresolved = self.unresolved.deletions(&rs.key, &rs.uid);
        let resolve = |uid: &Uid| self.unresolved.resolve_deletion(&rs.key, &rs.uid, uid);
        let active: HashSet<&Uid> = active.iter().map(|pod| &pod.uid).collect();
        let is_active = |uid: &Uid| {
            let is_active = active.contains(uid);
            if !is_active {
                resolve(uid);
            }
            is_active
        };
        let (mut uids, mut over) = (unresolved.under_way, unresolved.over);
        uids.retain(is_active);
        over.retain(is_active);
        if !over.is_empty() || uids.len() > count {
            let live = self.pod_control.list_pods(rs, selector)?;
            let live = live.iter().filter(|pod| pod.is_active());
            let live: HashSet<&Uid> = live.map(|pod| &pod.uid).collect();
            over.retain(|uid| {
                let is_live = live.contains(uid);
                if is_live {
                    resolve(uid);
                }
                !is_live
            });
            uids.extend(over);
            uids.sort_by_key(|uid| live.contains(uid));
            uids.truncate(count);
        }
        Ok(uids)
    }
}

#[cfg(test)]
mod tests;
