//! The stores: the events of each change, and indexes that always equal a scan.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::{Collector, Group, Indexed, Store, UnreadKey};
use crate::api::interner::Interner;
use crate::api::{
    CompactTimestamp, ControllerRef, Labels, ObjectKey, OwnerKey, Pod, PodPhase, ReplicaSet,
    ResourceVersion, Uid,
};
use crate::cache::{Cache, CacheEvent};

fn pod(name: &str, version: &str) -> Pod {
    Pod {
        key: ObjectKey::new("default", name),
        uid: Uid::new(name),
        resource_version: version.into(),
        ..Pod::default()
    }
}

fn owned(name: &str, version: &str, owner: &str) -> Pod {
    let controller = ControllerRef {
        kind: "ReplicaSet".into(),
        name: owner.into(),
        uid: Uid::new(owner),
    };
    Pod {
        controller: Some(Arc::new(controller)),
        ..pod(name, version)
    }
}

fn list(pods: &[(&str, &str)]) -> Vec<Arc<Pod>> {
    let pods = pods.iter();
    pods.map(|(name, version)| Arc::new(pod(name, version)))
        .collect()
}

/// `add p1@1`, `update p1@1 p1@2` or `delete p1@1`.
fn render(event: &CacheEvent<Pod>) -> String {
    let state = |pod: &Pod| format!("{}@{}", pod.key.name, pod.resource_version);
    match event {
        CacheEvent::Added(new) => format!("add {}", state(new)),
        CacheEvent::Updated { old, new } => format!("update {} {}", state(old), state(new)),
        CacheEvent::Deleted(last) => format!("delete {}", state(last)),
    }
}

#[track_caller]
fn check_replace(before: &[(&str, &str)], listed: &[(&str, &str)], expected: &[&str]) {
    let store = Store::new();
    store.replace(list(before), &[], &"5".into());
    let events = store.replace(list(listed), &[], &"9".into());
    assert_eq!(events.iter().map(render).collect::<Vec<_>>(), expected);
    assert_eq!(store.resource_version(), "9".into());
    check_indexes(&store);
}

#[test]
fn j_23_a_relist_delivers_tombstones_first_then_list_order() {
    check_replace(&[], &[("p1", "1")], &["add p1@1"]);
    check_replace(
        &[("p1", "1"), ("p3", "3")],
        &[],
        &["delete p1@1", "delete p3@3"],
    );
    check_replace(
        &[("p1", "1"), ("p2", "2"), ("p3", "3")],
        &[("p4", "7"), ("p2", "6"), ("p1", "5")],
        &[
            "delete p3@3",
            "add p4@7",
            "update p2@2 p2@6",
            "update p1@1 p1@5",
        ],
    );
    check_replace(&[("p1", "1")], &[("p1", "1")], &[]);
}

#[test]
fn j_24_a_relist_delivers_only_missed_changes() {
    check_replace(
        &[("p1", "1"), ("p2", "2")],
        &[("p1", "1"), ("p2", "8"), ("p3", "9")],
        &["update p2@2 p2@8", "add p3@9"],
    );
}

#[test]
fn the_store_has_a_relist_before_its_events() {
    let store = Store::new();
    store.replace(list(&[("p1", "1")]), &[], &"1".into());
    let events = store.replace(list(&[("p2", "2")]), &[], &"2".into());
    assert_eq!(events.len(), 2);
    assert!(store.get(&ObjectKey::new("default", "p1")).is_none());
    assert!(store.get(&ObjectKey::new("default", "p2")).is_some());
}

#[test]
fn another_uid_under_the_same_name_is_an_update() {
    let store = Store::new();
    store.apply(pod("p1", "1"));
    let again = Pod {
        uid: Uid::new("other"),
        ..pod("p1", "4")
    };
    let events = store.replace(vec![Arc::new(again)], &[], &"4".into());
    assert_eq!(
        events.iter().map(render).collect::<Vec<_>>(),
        ["update p1@1 p1@4"]
    );
    check_indexes(&store);
}

#[test]
fn d_06_an_update_to_the_same_version_has_no_event() {
    let store = Store::new();
    assert!(store.apply(pod("p1", "1")).is_some());
    assert!(store.apply(pod("p1", "1")).is_none());
    assert!(store.apply(pod("p1", "2")).is_some());
}

/// A server that was restored from a backup issues versions a second time.
#[test]
fn a_reissued_version_replaces_the_old_state() {
    let store = Store::new();
    store.replace(list(&[("p1", "7"), ("p2", "8")]), &[], &"20".into());
    let other = Pod {
        is_ready: true,
        ..pod("p1", "7")
    };
    let listed = vec![Arc::new(other.clone()), Arc::new(pod("p2", "8"))];
    let events = store.replace(listed, &[], &"9".into());
    assert_eq!(
        events.iter().map(render).collect::<Vec<_>>(),
        ["update p1@7 p1@7"]
    );
    assert_eq!(store.get(&other.key).as_deref(), Some(&other));
    check_indexes(&store);
}

#[test]
fn h_20_the_version_follows_events_bookmarks_and_lists() {
    let store = Store::new();
    let mut seen = vec![store.resource_version().to_string()];
    let mut note = || seen.push(store.resource_version().to_string());
    store.replace(list(&[("p1", "3")]), &[], &"10".into());
    note();
    store.apply(pod("p2", "11"));
    note();
    store.apply(pod("p1", "12"));
    note();
    store.apply_deleted(pod("p2", "13"));
    note();
    store.apply_bookmark(&"20".into());
    note();
    store.apply_deleted(pod("never-seen", "21"));
    note();
    store.apply(pod("p1", "15"));
    note();
    assert_eq!(seen, ["", "10", "11", "12", "13", "20", "21", "15"]);
}

#[test]
fn a_deletion_has_the_last_state_if_the_object_was_known() {
    let store = Store::new();
    store.apply(pod("p1", "1"));
    let event = store.apply_deleted(pod("p1", "2")).expect("it was known");
    assert_eq!(render(&event), "delete p1@2");
    assert!(store.apply_deleted(pod("p1", "2")).is_none());
}

#[test]
fn an_undecodable_object_keeps_its_last_state() {
    let store = Store::new();
    store.apply(pod("p1", "1"));
    let unread = |uid| UnreadKey {
        key: ObjectKey::new("default", "p1"),
        uid: Uid::new(uid),
    };
    let version = |text| ResourceVersion::new(text);
    assert!(
        store
            .apply_unread(&unread("p1"), &version("2"), false)
            .is_none()
    );
    assert_eq!((store.len(), store.resource_version()), (1, version("2")));
    let events = store.replace(Vec::new(), &[unread("")], &version("3"));
    assert_eq!((events.len(), store.len()), (0, 1));

    let events = store.replace(Vec::new(), &[unread("successor")], &version("4"));
    assert_eq!(
        events.iter().map(render).collect::<Vec<_>>(),
        ["delete p1@1"]
    );
    store.apply(pod("p1", "5"));
    let event = store.apply_unread(&unread("p1"), &version("6"), true);
    assert_eq!(event.as_ref().map(render).as_deref(), Some("delete p1@5"));
}

#[test]
fn the_view_finds_pods_by_owner_and_orphans_by_namespace() {
    let cache = Cache::default();
    for pod in [
        pod("free", "1"),
        owned("a-1", "2", "a"),
        owned("b-1", "3", "b"),
    ] {
        cache.pods.apply(pod);
    }
    let owner = |name: &str, uid: &str| {
        OwnerKey::new(
            "ReplicaSet",
            &ObjectKey::new("default", name),
            &Uid::new(uid),
        )
    };
    let names = |pods: Vec<Arc<Pod>>| -> Vec<String> {
        pods.iter().map(|pod| pod.key.name.to_string()).collect()
    };
    assert_eq!(names(cache.pods_owned_by(&owner("a", "a"))), ["a-1"]);
    assert!(cache.pods_owned_by(&owner("a", "another")).is_empty());
    assert_eq!(names(cache.orphans_in("default")), ["free"]);
    assert!(cache.orphans_in("elsewhere").is_empty());

    cache.pods.apply(owned("free", "4", "a"));
    assert!(cache.orphans_in("default").is_empty());
    assert_eq!(
        names(cache.pods_owned_by(&owner("a", "a"))),
        ["a-1", "free"]
    );
}

#[test]
fn pods_of_other_owners_are_found_but_not_counted() {
    let cache = Cache::default();
    for (kind, n_counted) in [
        ("ReplicaSet", 1),
        ("ReplicationController", 1),
        ("Job", 0),
        ("StatefulSet", 0),
    ] {
        let mut pod = owned(kind, "1", "a");
        let controller = ControllerRef {
            kind: kind.into(),
            ..ControllerRef::clone(pod.controller.as_ref().expect("an owner"))
        };
        pod.controller = Some(Arc::new(controller));
        cache.pods.apply(pod.clone());
        let owner = OwnerKey::new(kind, &ObjectKey::new("default", "a"), &Uid::new("a"));
        let n_counted_now = || cache.tally_of_pods_owned_by(&owner).iter().count();
        assert_eq!(cache.pods_owned_by(&owner).len(), 1);
        assert_eq!(n_counted_now(), n_counted, "{kind}");
        pod.resource_version = "2".into();
        cache.pods.apply(pod.clone());
        assert_eq!(n_counted_now(), n_counted, "{kind}");
        cache.pods.apply_deleted(pod);
        assert_eq!(n_counted_now(), 0, "{kind}");
    }
}

fn replica_set(namespace: &str, name: &str, controller: Option<&str>) -> ReplicaSet {
    let owners = controller
        .map(|uid| json!([{"kind": "Deployment", "name": "d", "uid": uid, "controller": true}]));
    let object = json!({
        "metadata": {"namespace": namespace, "name": name, "uid": name, "ownerReferences": owners},
        "spec": {},
    });
    let object = object.to_string();
    ReplicaSet::from_json(object.as_bytes(), &mut Interner::default()).expect("readable")
}

#[test]
fn the_view_finds_replica_sets_by_namespace_and_by_controller() {
    let cache = Cache::default();
    for (namespace, name, controller) in [
        ("n", "a", Some("d1")),
        ("n", "b", Some("d1")),
        ("n", "c", None),
        ("m", "a", Some("d2")),
    ] {
        let object = replica_set(namespace, name, controller);
        cache.replica_sets.apply(object);
    }
    let keys = |found: Vec<Arc<ReplicaSet>>| -> Vec<String> {
        found.iter().map(|object| object.key.to_string()).collect()
    };
    assert_eq!(keys(cache.replica_sets_in("n")), ["n/a", "n/b", "n/c"]);
    assert_eq!(
        keys(cache.replica_sets_controlled_by(&"d1".into())),
        ["n/a", "n/b"]
    );
    assert_eq!(
        keys(cache.replica_sets_controlled_by(&"d2".into())),
        ["m/a"]
    );
    assert!(keys(cache.replica_sets_controlled_by(&"d3".into())).is_empty());
    let key = ObjectKey::new("m", "a");
    assert!(cache.replica_sets.get(&key).is_some());

    cache.replica_sets.apply(replica_set("n", "a", Some("d2")));
    cache
        .replica_sets
        .apply_deleted(replica_set("m", "a", None));
    assert_eq!(
        keys(cache.replica_sets_controlled_by(&"d1".into())),
        ["n/b"]
    );
    assert_eq!(
        keys(cache.replica_sets_controlled_by(&"d2".into())),
        ["n/a"]
    );
    assert!(cache.replica_sets_in("m").is_empty());
    assert!(cache.replica_sets.get(&key).is_none());
    check_indexes(&cache.replica_sets);
}

/// One random change. Objects and owners are drawn from small sets, so that they collide often.
#[derive(Clone, Debug)]
enum Change {
    Upsert(u8, Option<u8>),
    Delete(u8),
    Replace(Vec<(u8, Option<u8>)>),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let object = || (0..12_u8, proptest::option::of(0..3_u8));
    let change = prop_oneof![
        6 => object().prop_map(|(name, owner)| Change::Upsert(name, owner)),
        3 => (0..12_u8).prop_map(Change::Delete),
        1 => proptest::collection::vec(object(), 0..12).prop_map(Change::Replace),
    ];
    proptest::collection::vec(change, 0..60)
}

fn random_pod(name: u8, owner: Option<u8>, version: usize) -> Pod {
    static LABELS: LazyLock<[Labels; 2]> =
        LazyLock::new(|| ["a", "b"].map(|app| [("app", app)].into_iter().collect()));
    let phases = [PodPhase::Running, PodPhase::Pending, PodPhase::Failed];
    let (name, text) = (format!("p{name}"), version.to_string());
    let pod = match owner {
        Some(owner) => owned(&name, &text, &format!("rs{owner}")),
        None => pod(&name, &text),
    };
    let labels = match version % 3 {
        // Some pods have their own labels.
        0 => [("app", &*name)].into_iter().collect(),
        _ => LABELS[usize::from(version.is_multiple_of(5))].clone(),
    };
    Pod {
        labels,
        phase: phases[version % 3],
        is_ready: version.is_multiple_of(2),
        deletion: version
            .is_multiple_of(7)
            .then(Timestamp::now)
            .map(CompactTimestamp::from),
        ..pod
    }
}

/// Compares the buckets with those of a scan over all objects.
#[track_caller]
fn check_indexes<T: Indexed>(store: &Store<T>) {
    let state = store.state.read();
    let mut expected: HashMap<T::Bucket, BTreeMap<ObjectKey, *const T>> = HashMap::new();
    for object in &state.objects {
        let key = object.key();
        let found = state.get(key).expect("found by its own key");
        assert!(Arc::ptr_eq(found, object));
        for bucket in object.buckets().into_iter().flatten() {
            let objects = expected.entry(bucket).or_default();
            objects.insert(key.clone(), Arc::as_ptr(object));
        }
    }
    assert_eq!(state.indices.len(), state.objects.len());
    assert_eq!(state.buckets.len(), expected.len());
    for (bucket, Group { indices, tally }) in &state.buckets {
        // Removing every object from a correct tally empties it.
        let mut tally = tally.clone();
        for object in state.bucket(bucket) {
            object.discount(&mut tally);
        }
        assert_eq!(format!("{tally:?}"), format!("{:?}", T::Tally::default()));
        let found = state
            .bucket(bucket)
            .map(|o| (o.key().clone(), Arc::as_ptr(o)));
        assert_eq!(found.collect::<BTreeMap<_, _>>(), expected[bucket]);
        assert_eq!(indices.len(), expected[bucket].len());
    }
}

proptest! {
    #[test]
    fn indexes_equal_a_scan_after_any_history(changes in changes()) {
        let store = Store::new();
        let mut model: BTreeMap<String, Pod> = BTreeMap::new();
        for (n, change) in changes.into_iter().enumerate() {
            let n = n + 1;
            match change {
                Change::Upsert(name, owner) => {
                    let pod = random_pod(name, owner, n);
                    let is_known = model.insert(pod.key.name.to_string(), pod.clone()).is_some();
                    let event = store.apply(pod).expect("every version is new");
                    prop_assert_eq!(is_known, matches!(event, CacheEvent::Updated { .. }));
                }
                Change::Delete(name) => {
                    let pod = random_pod(name, None, n);
                    let is_known = model.remove(&*pod.key.name).is_some();
                    prop_assert_eq!(is_known, store.apply_deleted(pod).is_some());
                }
                Change::Replace(objects) => {
                    let objects = objects.into_iter().enumerate();
                    let objects: Vec<_> = objects
                        .map(|(i, (name, owner))| random_pod(name, owner, n * 1000 + i))
                        .collect();
                    model = objects.iter().map(|p| (p.key.name.to_string(), p.clone())).collect();
                    let objects = objects.into_iter().map(Arc::new).collect();
                    store.replace(objects, &[], &"1".into());
                }
            }
            check_indexes(&store);
        }
        let listed: Vec<Pod> = store.list().iter().map(|pod| Pod::clone(pod)).collect();
        let mut expected: Vec<Pod> = model.into_values().collect();
        expected.sort_by(|a, b| a.key.cmp(&b.key));
        prop_assert_eq!(listed, expected);
    }
}

#[test]
fn memory_is_released_after_a_peak() {
    let store = Store::<Pod>::new();
    let name = |n: usize| format!("p{n}");
    for n in 0..10_000 {
        store.apply(pod(&name(n), "1"));
    }
    assert!(store.state.read().indices.capacity() >= 10_000);
    for n in 10..10_000 {
        store.apply_deleted(pod(&name(n), "2"));
    }
    let state = store.state.read();
    assert!(state.objects.capacity() <= super::TABLE_MIN);
    assert!(state.indices.capacity() <= super::TABLE_MIN);
    drop(state);
    assert_eq!(store.len(), 10);
}

/// Otherwise the store would keep the state from before the list.
#[test]
fn an_object_that_becomes_readable_during_its_list_is_read() {
    let (mut collector, store) = (Collector::default(), Store::new());
    let key = ObjectKey::new("default", "a");
    collector.upsert_unread(UnreadKey {
        key: key.clone(),
        uid: Uid::new("uid-a"),
    });
    let pod = Pod {
        key,
        uid: Uid::new("uid-a"),
        ..Pod::default()
    };
    collector.upsert(pod.clone(), &store);
    assert_eq!(collector.finish(), (vec![Arc::new(pod)], Vec::new()));
}
