//! The store of records, driven as by the workers and the watch threads.

mod expectations;
mod names;
mod written;

use std::sync::Arc;
use std::time::Duration;

use super::own_writes::OwnWrites;
use super::positions::{Resource, SETTLE_MAX, Versions};
use super::{Memories, SWEEP_AT_LEAST};
use crate::api::{ArcStr, ObjectKey, ReplicaSet, ResourceVersion, Uid};
use crate::controller::decide::{Doubt, May};
use crate::controller::testing::{key, replica_set};
use crate::stdx::clock::Clock;
use crate::stdx::testing::FakeClock;

/// The ReplicaSet with this key and UID.
fn of(key: &ObjectKey, owner: &Uid) -> ReplicaSet {
    let mut rs = replica_set(&key.name, 1);
    rs.key = key.clone();
    rs.uid = owner.clone();
    rs
}

/// What the expectations permit.
#[derive(Debug, PartialEq)]
enum Satisfaction {
    Satisfied,
    Open,
    Expired,
}

/// A store with a manual clock.
#[derive(Debug)]
struct Rig {
    clock: Arc<FakeClock>,
    memories: Memories,
}

impl Default for Rig {
    fn default() -> Self {
        let clock = Arc::new(FakeClock::default());
        Self {
            memories: Memories::new(Arc::clone(&clock) as Arc<_>, true, Arc::default()),
            clock,
        }
    }
}

impl Rig {
    fn own_writes<R>(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        change: impl FnOnce(&mut OwnWrites) -> R,
    ) -> Option<R> {
        self.memories
            .get(&of(key, owner), |memory| change(&mut memory.own_writes))
    }

    fn expect(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        creations: impl IntoIterator<Item = ArcStr>,
        deletions: impl IntoIterator<Item = Uid>,
    ) {
        let now = self.clock.now();
        self.memories.with(&of(key, owner), |memory| {
            memory.own_writes.expect(creations, deletions, now);
        });
    }

    fn expect_creations(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        names: impl IntoIterator<Item = ArcStr>,
    ) {
        self.expect(key, owner, names, []);
    }

    fn expect_deletions(&self, key: &ObjectKey, owner: &Uid, pods: impl IntoIterator<Item = Uid>) {
        self.expect(key, owner, [], pods);
    }

    fn creation_seen(&self, key: &ObjectKey, owner: &Uid, name: &str) {
        self.own_writes(key, owner, |writes| writes.creation_seen(name));
    }

    fn deletion_seen(&self, key: &ObjectKey, owner: &Uid, pod: &Uid) {
        self.own_writes(key, owner, |writes| writes.deletion_seen(pod));
    }

    fn satisfaction(&self, key: &ObjectKey, owner: &Uid) -> Satisfaction {
        let now = self.clock.now();
        match self.own_writes(key, owner, |writes| writes.may(now)) {
            None | Some(May::Act) => Satisfaction::Satisfied,
            Some(May::Report(Some(_))) => Satisfaction::Open,
            Some(May::Verify(Doubt::Unseen)) => Satisfaction::Expired,
            Some(other) => panic!("{other:?}"),
        }
    }

    fn open(&self, key: &ObjectKey, owner: &Uid) -> Option<(usize, usize)> {
        let open = |writes: &mut OwnWrites| writes.since.map(|_| writes.n_expected());
        self.own_writes(key, owner, open).flatten()
    }

    fn wrote_at(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        resource: Resource,
        version: &ResourceVersion,
    ) {
        let now = self.clock.now();
        self.memories.with(&of(key, owner), |memory| {
            memory.positions.wrote_at(resource, version, now);
        });
    }

    fn written(&self, key: &ObjectKey, owner: &Uid) -> Option<Versions> {
        let written = self.memories.get(&of(key, owner), |memory| {
            memory.positions.written().cloned()
        });
        written.flatten()
    }

    fn may(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        cached: impl Fn() -> Versions,
    ) -> (Option<Resource>, May) {
        let view = self.memories.capture(key, cached);
        if view.owner.as_ref().is_some_and(|it| it != owner) {
            self.forget(key, view.owner.as_ref());
        }
        let view = view.of_owner(owner);
        (view.lagging, view.may)
    }

    fn advanced(&self, cached: impl Fn() -> Versions) -> Vec<ObjectKey> {
        self.memories.advanced(cached)
    }

    fn forget(&self, key: &ObjectKey, owner: Option<&Uid>) {
        self.memories.forget(key, owner);
    }

    fn n_records(&self) -> usize {
        self.memories.state.lock().records.len()
    }

    /// Records a lost pod for each of these ReplicaSets.
    fn lose(&self, names: impl IntoIterator<Item = usize>) {
        for n in names {
            let (rs, now) = (replica_set(&n.to_string(), 1), self.clock.now());
            self.memories.with(&rs, |memory| {
                memory.positions.lost_pod(&"20".into(), now);
            });
        }
    }
}

#[test]
fn records_are_swept_only_when_twice_as_many_are_known() {
    let rig = Rig::default();
    let n_live = SWEEP_AT_LEAST + 1;
    rig.lose(0..n_live);
    rig.clock.advance(SETTLE_MAX);
    // A sync ends the wait for the first loss.
    let rs = replica_set("0", 1);
    rig.may(&rs.key, &rs.uid, Versions::default);
    rig.lose([0]);
    assert_eq!(rig.n_records(), n_live, "none was swept");
    let n_swept_at = 2 * (n_live - 1);
    rig.lose(n_live..n_swept_at);
    assert_eq!(rig.n_records(), n_swept_at, "none was swept");
    rig.lose(n_swept_at..2 * n_live);
    assert_eq!(rig.n_records(), n_live + 1, "the old are gone");
}

#[test]
fn a_record_in_which_something_matters_is_not_swept() {
    let rig = Rig::default();
    let owner = Uid::new("uid-web");
    rig.expect_creations(&key("web"), &owner, ["a".into()]);
    for n in 0..10 * SWEEP_AT_LEAST {
        rig.lose([n]);
        rig.clock.advance(SETTLE_MAX);
    }
    assert_eq!(rig.open(&key("web"), &owner), Some((1, 0)));
    assert!(rig.n_records() <= SWEEP_AT_LEAST);
}

#[test]
fn deleted_replica_sets_leave_no_records() {
    let rig = Rig::default();
    for n in 0..10_000 {
        let (key, owner) = (key(&n.to_string()), Uid::new(&n.to_string()));
        rig.expect_creations(&key, &owner, ["a".into()]);
        rig.wrote_at(&key, &owner, Resource::Pods, &"20".into());
        rig.may(&key, &owner, Versions::default);
        rig.forget(&key, Some(&owner));
    }
    assert_eq!(rig.n_records(), 0);
    assert!(rig.memories.state.lock().waiting.is_empty());
    rig.clock.advance(Duration::from_secs(1));
}

/// A watch thread of the pods may have read the ReplicaSet before another one took its name.
#[test]
fn a_late_event_of_an_earlier_owner_drops_no_record() {
    let clock = Arc::new(FakeClock::default());
    let memories = Memories::new(Arc::<FakeClock>::clone(&clock), true, Arc::default());
    let (key, old, new) = (
        ObjectKey::new("default", "web"),
        Uid::new("old"),
        Uid::new("new"),
    );
    memories.with(&of(&key, &new), |memory| {
        memory.own_writes.expect(["web-1".into()], [], clock.now());
    });
    assert_eq!(memories.observe(&of(&key, &old), |_| ()), None);
    assert_eq!(memories.totals().expected, (1, 0));
    assert_eq!(memories.observe(&of(&key, &new), |_| ()), Some(()));
}

fn failover_versions(pods: &str, replica_sets: &str) -> Versions {
    Versions {
        pods: pods.into(),
        replica_sets: replica_sets.into(),
    }
}

/// Whether caches at these positions complete the proof that a new leader needs.
fn is_proven(memories: &Memories, pods: &str, replica_sets: &str) -> bool {
    let view = memories.capture(&key("web"), || failover_versions(pods, replica_sets));
    !view.is_unproven
}

#[test]
fn the_target_is_set_once_and_only_if_a_proof_is_owed() {
    let Rig { memories, .. } = Rig::default();
    memories.set_target(failover_versions("20", "20"));
    assert!(is_proven(&memories, "1", "1") && !memories.lacks_target());
    memories.need_proof();
    assert!(!is_proven(&memories, "20", "20") && memories.lacks_target());
    memories.set_target(failover_versions("10", "10"));
    memories.set_target(failover_versions("20", "20"));
    assert!(!is_proven(&memories, "9", "10"));
    assert!(is_proven(&memories, "10", "10"));
    assert!(is_proven(&memories, "1", "1"), "once and for all");
}

#[test]
fn empty_versions_prove_nothing() {
    for (pods, replica_sets) in [("", ""), ("10", ""), ("", "10")] {
        let Rig { memories, .. } = Rig::default();
        memories.need_proof();
        memories.set_target(failover_versions(pods, replica_sets));
        assert!(!is_proven(&memories, "20", "20"));
    }
}
