//! What the oracles know of one process: what it has read, and what it has sent.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::objects::{Kind, Object};
use super::view::{Rejected, View};

/// Time in which a process ends that has seen that the store went back.
const ENDS_WITHIN: Duration = Duration::from_secs(40);

/// What the oracles know of one process.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    pub(super) view: View,
    /// Names of pods that this process has sent a create for that may have an effect.
    pub(super) created: BTreeSet<String>,
    /// Names of pods whose creates were undone when the store went back.
    pub(super) undone: BTreeSet<String>,
    /// The versions that were undone with them.
    pub(super) undone_versions: Range<u64>,
    /// UIDs of ReplicaSets whose status this process has written.
    pub(super) wrote_statuses: BTreeSet<String>,
    /// Those of them whose status was undone with them before the process's cache showed it, and
    /// has not been written by it since: its next list shows what the cache has.
    pub(super) undone_statuses: BTreeSet<String>,
    /// What this process has sent deletes for, by UID.
    pub(super) deleted: BTreeMap<String, Deletes>,
    /// The store's revision when this process acquired the Lease; `None` while it does not hold it.
    pub(super) acquired_at: Option<u64>,
    /// When it sent the first request of the last write of the Lease that it knows to have
    /// succeeded.
    pub(super) renewed_at: Option<Duration>,
    /// When it sent the first request for the Lease since.
    pub(super) renews_since: Option<Duration>,
    /// The ReplicaSets and selectors that it has read past its caches since.
    pub(super) read_live: BTreeSet<String>,
    /// The store went back, and this process has not listed these kinds again.
    pub(super) rewound: BTreeSet<Kind>,
    /// The turn at which it had last listed all of them.
    followed_at: u64,
    /// When it read a list older than its cache.
    must_end_since: Option<Duration>,
}

impl Knowledge {
    /// The store goes back from a revision to an earlier one: what this process has written may be
    /// undone, as were the statuses of these ReplicaSets, and what was there at its failover may
    /// have another revision.
    pub(super) fn rewind(&mut self, from: u64, revision: u64, undone: &[Arc<Object>]) {
        for rs in undone {
            let uid = rs.value["metadata"]["uid"].as_str().unwrap_or_default();
            let seen = self.view.newest(rs.kind, &rs.name);
            let is_seen = seen.is_some_and(|seen| seen.value["status"] == rs.value["status"]);
            if !is_seen && self.wrote_statuses.contains(uid) {
                self.undone_statuses.insert(uid.to_owned());
            }
        }
        self.acquired_at = self.acquired_at.map(|at| at.min(revision));
        self.rewound = [Kind::Pod, Kind::ReplicaSet].into();
        self.undone.append(&mut self.created);
        let first = match &self.undone_versions {
            undone if undone.is_empty() => revision,
            undone => undone.start.min(revision),
        };
        self.undone_versions = first + 1..self.undone_versions.end.max(from + 1);
        let deletes = self.deleted.values_mut();
        deletes.for_each(Deletes::were_undone);
    }

    /// True if a list at this revision is older than the process's cache of that kind: the process
    /// must end, and its cache stays as it is.
    pub(super) fn reads_older(&mut self, kind: Kind, revision: u64, now: Duration) -> bool {
        let is_older = revision < self.view.revision(kind);
        if is_older {
            self.must_end_since.get_or_insert(now);
        }
        is_older
    }

    /// True if the process must have ended by now.
    pub(super) fn outlives_its_cache(&self, now: Duration) -> bool {
        let since = self.must_end_since;
        since.is_some_and(|since| now > since + ENDS_WITHIN)
    }

    /// The process has listed a kind, in this turn.
    pub(super) fn listed(&mut self, kind: Kind, turn: u64) {
        if !self.rewound.remove(&kind) {
            return;
        }
        if kind == Kind::Pod {
            // Versions come twice now, so they do not prove that the pod has left the one that a
            // delete named. The process may repeat it all the same.
            self.deleted
                .values_mut()
                .for_each(Deletes::pods_were_listed);
        }
        if self.rewound.is_empty() {
            self.followed_at = turn;
        }
    }

    /// True if a sync that began at this turn could have read what the store has lost.
    pub(super) fn may_be_lost(&self, since: u64) -> bool {
        !self.rewound.is_empty() || since <= self.followed_at
    }

    /// The process has asked for these objects by name.
    pub(super) fn was_read(&mut self, objects: &[Arc<Object>]) {
        for object in objects {
            let uid = object.value["metadata"]["uid"].as_str();
            if let Some(deletes) = uid.and_then(|uid| self.deleted.get_mut(uid)) {
                deletes.pod_was_read();
            }
        }
    }

    /// The process has listed these pods past its cache, while its writes of those with these names
    /// were under way: earlier deletes of all others had no effect, and will have none. The process
    /// may repeat them all the same.
    pub(super) fn pods_were_listed(&mut self, pods: &[Arc<Object>], under_way: &BTreeSet<&str>) {
        for pod in pods.iter().filter(|pod| !under_way.contains(&*pod.name)) {
            let uid = pod.value["metadata"]["uid"].as_str();
            if let Some(deletes) = uid.and_then(|uid| self.deleted.get_mut(uid)) {
                deletes.is_pod_listed = true;
            }
        }
    }

    /// The process has an answer to a write of a pod: it had no effect.
    pub(super) fn was_rejected(&mut self, rejected: &Rejected, may_exist: bool) {
        match rejected {
            Rejected::Delete(uid, code) => {
                if let Some(deletes) = self.deleted.get_mut(uid) {
                    deletes.was_rejected(*code);
                }
            }
            // An earlier create of this name may have one.
            Rejected::Create(_) if may_exist => {}
            Rejected::Create(name) => {
                self.created.remove(name);
            }
        }
    }
}

/// The deletes of one pod that a process has sent.
#[derive(Debug, Default)]
pub(super) struct Deletes {
    /// The revision that the last one named as a condition.
    revision: Option<u64>,
    n_sent: u32,
    n_rejected: u32,
    /// Rejected because of a conflict: the pod may be gone, and another one have its name.
    n_conflicts: u32,
    /// The store went back after the last one, which may have had an effect before.
    are_undone: bool,
    /// A list has shown the pod when none of them was under way any more.
    is_pod_listed: bool,
    /// The turn at which the sync of the first one began.
    since: u64,
}

impl Deletes {
    /// A delete was sent on condition of a revision, by the sync that began at this turn.
    pub(super) fn was_sent(&mut self, revision: Option<u64>, since: u64) {
        if self.n_sent == 0 {
            self.since = since;
        }
        self.n_sent += 1;
        self.is_pod_listed = false;
        self.are_undone = false;
        self.revision = revision;
    }

    /// A delete was rejected with a code that says that it had no effect, or that the pod may be
    /// gone.
    fn was_rejected(&mut self, code: u16) {
        if code == 409 {
            self.n_conflicts += 1;
        } else {
            self.n_rejected += 1;
        }
    }

    /// The process has asked for the pod, as it does after a conflict, and it is there.
    fn pod_was_read(&mut self) {
        self.n_rejected += std::mem::take(&mut self.n_conflicts);
    }

    /// The process has listed all pods: if each was rejected, none had an effect.
    fn pods_were_listed(&mut self) {
        self.is_pod_listed |= self.n_rejected + self.n_conflicts == self.n_sent;
    }

    /// The store went back: none has an effect any more, but each may be repeated.
    pub(super) fn were_undone(&mut self) {
        self.are_undone |= self.are_open();
        self.n_rejected = self.n_sent;
        self.n_conflicts = 0;
    }

    /// True if the outcome of one of them is unknown, as long as the pod is there.
    pub(super) fn are_open(&self) -> bool {
        self.n_rejected < self.n_sent
    }

    /// True if the process may send another one: one may have had an effect, and it may not know
    /// that the store went back since.
    pub(super) fn may_be_repeated(&self) -> bool {
        self.are_open() || self.are_undone
    }

    pub(super) fn are_undone(&self) -> bool {
        self.are_undone
    }

    /// True if they are of the sync that began at this turn.
    pub(super) fn are_of(&self, since: u64) -> bool {
        self.since == since
    }

    /// True if one of them may have had an effect, or will have, on a pod that the process knows
    /// in this version at most: the API server rejects a delete on condition of a version that the
    /// pod has left.
    pub(super) fn may_count(&self, newest: u64) -> bool {
        self.are_open()
            && !self.is_pod_listed
            && self.revision.is_none_or(|revision| newest <= revision)
    }
}
