//! Writes whose outcome nobody knows: the answer was lost, or the server gave up in the middle.
//!
//! A create that may have been stored is repeated under the *same name* before any other is tried, so
//! that it cannot make a second pod; a delete that may have happened is repeated on the *same pod*
//! before another one is chosen, so that it cannot take a second one. A write stays here until its
//! outcome is known: that a repetition was refused or not even tried says nothing about the first.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::manage::pod_key;
use super::{ReplicaSetController, SyncError};
use crate::api::{ObjectKey, Pod, ReplicaSet, Selector, Uid};

/// The unresolved writes of all ReplicaSets; shared by the workers and the watch threads.
#[derive(Debug, Default)]
pub struct Unresolved {
    entries: Mutex<HashMap<ObjectKey, Entry>>,
}

#[derive(Debug, Default)]
struct Entry {
    owner: Uid,
    creations: BTreeSet<Arc<str>>,
    deletions: BTreeSet<Uid>,
}

impl Unresolved {
    /// Notes that the pod `name` may or may not have been created for `owner`.
    pub fn add_creation(&self, key: &ObjectKey, owner: &Uid, name: &Arc<str>) {
        self.with_entry(key, owner, |entry| entry.creations.insert(Arc::clone(name)));
    }

    /// Notes that it is known now whether the pod `name` was created for `owner`.
    pub fn resolve_creation(&self, key: &ObjectKey, owner: &Uid, name: &str) {
        self.resolve(key, owner, |entry| entry.creations.remove(name));
    }

    /// The names to try first for `owner`.
    pub fn creations(&self, key: &ObjectKey, owner: &Uid) -> Vec<Arc<str>> {
        let entries = self.lock();
        let entry = entries.get(key).filter(|entry| entry.owner == *owner);
        entry.map_or_else(Vec::new, |entry| entry.creations.iter().cloned().collect())
    }

    /// Notes that the pod with this UID may or may not have been deleted for `owner`.
    pub fn add_deletion(&self, key: &ObjectKey, owner: &Uid, pod: &Uid) {
        self.with_entry(key, owner, |entry| entry.deletions.insert(pod.clone()));
    }

    /// Notes that it is known now whether the pod with this UID was deleted for `owner`.
    pub fn resolve_deletion(&self, key: &ObjectKey, owner: &Uid, pod: &Uid) {
        self.resolve(key, owner, |entry| entry.deletions.remove(pod));
    }

    /// The pods to choose first for deletion by `owner`.
    pub fn deletions(&self, key: &ObjectKey, owner: &Uid) -> Vec<Uid> {
        let entries = self.lock();
        let entry = entries.get(key).filter(|entry| entry.owner == *owner);
        entry.map_or_else(Vec::new, |entry| entry.deletions.iter().cloned().collect())
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

    fn with_entry(&self, key: &ObjectKey, owner: &Uid, change: impl FnOnce(&mut Entry) -> bool) {
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

    fn resolve(&self, key: &ObjectKey, owner: &Uid, remove: impl FnOnce(&mut Entry) -> bool) {
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
    /// all can be among the `count` that go. Blocks for one LIST in that case.
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
        let active: HashSet<&Uid> = active.iter().map(|pod| &pod.uid).collect();
        let (mut uids, seen): (Vec<Uid>, Vec<Uid>) =
            unresolved.into_iter().partition(|uid| active.contains(uid));
        for uid in &seen {
            self.unresolved.resolve_deletion(&rs.key, &rs.uid, uid);
        }
        if uids.len() > count {
            let live = self.pod_control.list_pods(rs, selector)?;
            let live = live.iter().filter(|pod| pod.is_active());
            let live: HashSet<&Uid> = live.map(|pod| &pod.uid).collect();
            uids.sort_by_key(|uid| live.contains(uid));
            uids.truncate(count);
        }
        Ok(uids)
    }
}

#[cfg(test)]
mod tests;
