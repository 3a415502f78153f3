//! Group H: a sync waits until the cache shows the own writes, and is woken then.

use std::sync::Arc;

use super::{at, fixture, two_ready};
use crate::api::{Pod, ReplicaSet, ResourceVersion, Uid};
use crate::cache::CacheEvent;
use crate::controller::memory::history::SyncEnd;
use crate::controller::memory::positions::Resource;
use crate::controller::testing::{
    Fixture, key, owned_pod, pod, ready_pod, replica_set, with_status,
};
use crate::writes::WrittenPod;

#[test]
fn h_15_h_21_nothing_is_sent_until_own_writes_show() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 3));
    fixture.deliver_replica_set(rs.clone());
    fixture.queued();
    fixture.deliver_bookmarks("10", "");
    fixture.writes.on_create(|call, _| {
        Some(Ok(WrittenPod {
            resource_version: ResourceVersion::new(&(11 + call).to_string()),
            ..WrittenPod::default()
        }))
    });
    fixture.sync_ok("web");
    let created = fixture.writes.created();
    fixture.assert_counts(3, 0, 0);
    fixture.writes.take();

    for touch in 2..5 {
        let mut touched = at(&touch.to_string(), rs.clone());
        touched.generation = touch;
        fixture.deliver_replica_set(touched);
        assert_eq!(fixture.queued(), ["default/web"]);
        assert_eq!(fixture.sync("web").expect("no error"), SyncEnd::TooEarly);
    }
    assert_eq!(fixture.writes.take(), []);

    for (version, name) in [
        ("11", &created[0]),
        ("12", &created[1]),
        ("13", &created[2]),
    ] {
        fixture.deliver_pod(Pod {
            resource_version: version.into(),
            ..owned_pod(name, &rs)
        });
        assert_eq!(fixture.queued(), ["default/web"], "the pod's owner");
        if version != "13" {
            assert_eq!(fixture.sync("web").expect("no error"), SyncEnd::TooEarly);
        }
    }
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 0);
    assert_eq!(fixture.writes.status_updates()[0].replicas, 3);
}

/// A controller that has created one pod under version 11 and written its status under version 21,
/// has skipped one sync, and has an empty queue.
fn too_early() -> (Fixture, ReplicaSet) {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    fixture.deliver_replica_set(rs.clone());
    fixture.deliver_bookmarks("10", "20");
    fixture.writes.on_create(|_, _| {
        Some(Ok(WrittenPod {
            resource_version: "11".into(),
            ..WrittenPod::default()
        }))
    });
    fixture
        .writes
        .on_update_status(|rs, status| Some(Ok(at("21", with_status(rs, status.clone())))));
    fixture.sync_ok("web");
    assert_eq!(fixture.sync("web").expect("no error"), SyncEnd::TooEarly);
    fixture.queued();
    fixture.writes.take();
    (fixture, rs)
}

#[test]
fn a_version_from_a_bookmark_wakes_the_key() {
    let (fixture, rs) = too_early();
    fixture.cache_silently(None, [owned_pod("a", &rs)]);
    fixture.deliver_bookmarks("11", "");
    assert_eq!(
        fixture.queued(),
        [""; 0],
        "the ReplicaSets are still behind"
    );
    fixture.deliver_bookmarks("", "20");
    assert_eq!(fixture.queued(), [""; 0]);
    fixture.deliver_bookmarks("", "22");
    assert_eq!(fixture.queued(), ["default/web"]);
    fixture.sync_verified("web");
    fixture.queued();
    fixture.deliver_bookmarks("12", "23");
    assert_eq!(fixture.queued(), [""; 0], "woken once");
}

#[test]
fn a_version_from_foreign_pods_wakes_the_key() {
    let (fixture, _) = too_early();
    fixture.deliver_replica_set(at("21", {
        let mut other = replica_set("other", 0);
        other.replicas = 0;
        other
    }));
    assert_eq!(fixture.queued(), ["default/other"]);
    let mut foreign = pod("foreign");
    foreign.labels = [("type", "other")].into_iter().collect();
    foreign.resource_version = "11".into();
    fixture.deliver_pod(foreign.clone());
    assert_eq!(fixture.queued(), ["default/web"]);
    // The created pod is not in the cache: it has come and gone, as the API server confirms.
    fixture.sync_verified("web");
    fixture.assert_counts(1, 0, 0);
}

#[test]
fn b_11_a_late_response_does_not_block_a_recreated_owner() {
    let (fixture, old) = (Fixture::new(), replica_set("web", 1));
    fixture.deliver_replica_set(old.clone());
    fixture.deliver_bookmarks("10", "20");
    fixture.sync_ok("web");
    fixture.assert_counts(1, 0, 0);
    fixture.deliver_replica_set_deleted(old.clone());
    let mut new = replica_set("web", 1);
    new.uid = Uid::new("uid-of-the-next-one");
    fixture.deliver_replica_set(at("22", new));
    fixture.wrote_at(&old, Resource::Pods, "11");
    fixture.sync_ok("web");
    fixture.assert_counts(2, 0, 0);
}

#[test]
fn a_key_that_does_not_wait_is_not_woken() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    fixture.deliver_replica_set(rs.clone());
    fixture.deliver_bookmarks("10", "20");
    fixture.writes.on_create(|_, _| {
        Some(Ok(WrittenPod {
            resource_version: "11".into(),
            ..WrittenPod::default()
        }))
    });
    fixture.sync_ok("web");
    let name = fixture.writes.created().remove(0);
    fixture.deliver_pod(Pod {
        resource_version: "11".into(),
        ..owned_pod(&name, &rs)
    });
    fixture.queued();
    fixture.deliver_bookmarks("12", "21");
    assert_eq!(fixture.queued(), [""; 0]);
}

#[test]
fn a_recreated_replica_set_waits_for_no_old_writes() {
    let (fixture, old) = too_early();
    let mut new = at("30", old.clone());
    new.uid = "uid-new".into();
    fixture.deliver_replica_set(new.clone());
    assert_eq!(fixture.written(&old), None);
    assert_eq!(fixture.queued(), ["default/web"]);
    fixture.sync_ok("web");
    fixture.assert_counts(1, 0, 0);
    assert_eq!(fixture.written(&new).expect("a record").pods, "11".into());
}

#[test]
fn h_18_a_deleted_replica_set_does_not_wait() {
    let (fixture, rs) = too_early();
    let mut stale = rs.clone();
    stale.uid = "uid-older".into();
    let event = CacheEvent::Deleted(Arc::new(stale));
    fixture.controller.handle_replica_set_event(&event);
    assert!(fixture.written(&rs).is_some(), "another UID was deleted");
    fixture.deliver_replica_set_deleted(rs.clone());
    assert_eq!(fixture.written(&rs), None);
    fixture.sync_ok("web");
}

#[test]
fn h_16_a_sync_waits_for_its_recorded_writes() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, [pod("orphan")]);
    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    let version = |version: &str| ResourceVersion::new(version);
    fixture.writes.on_create(move |_, _| {
        Some(Ok(WrittenPod {
            resource_version: version("12"),
            ..WrittenPod::default()
        }))
    });
    fixture.writes.on_patch(move |_, _| {
        Some(Ok(WrittenPod {
            resource_version: version("11"),
            controller: Some("uid-web".into()),
        }))
    });
    fixture
        .writes
        .on_update_status(|rs, status| Some(Ok(at("21", with_status(rs, status.clone())))));
    fixture.sync_ok("web");
    let written = fixture.written(&rs);
    let written = written.expect("a record");
    assert_eq!(
        (written.pods, written.replica_sets),
        ("12".into(), "21".into())
    );
}

#[test]
fn h_16_deletes_and_equal_statuses_are_not_waited_for() {
    let mut rs = replica_set("web", 1);
    rs.status = two_ready();
    let fixture = fixture(&rs, [ready_pod("a", &rs), ready_pod("b", &rs)]);
    fixture.sync_ok("web");
    fixture.assert_counts(0, 1, 0);
    let written = fixture.written(&rs);
    assert_eq!(written, None);
}

#[test]
fn h_21_a_slow_replica_set_watch_makes_no_second_status() {
    let (fixture, _) = too_early();
    fixture.deliver_bookmarks("15", "");
    for _ in 0..5 {
        assert_eq!(fixture.sync("web").expect("no error"), SyncEnd::TooEarly);
    }
    assert_eq!(fixture.writes.take(), []);
}

#[test]
fn too_early_neither_ends_nor_prolongs_a_back_off() {
    let (fixture, _) = too_early();
    fixture.queue.add_rate_limited(key("web"));
    fixture.process(&key("web"));
    assert_eq!(fixture.queue.num_requeues(&key("web")), 1);
}

#[test]
fn h_20_the_cache_version_is_what_a_sync_waits_for() {
    let (fixture, rs) = (Fixture::new(), replica_set("web", 1));
    for (version, deleted) in [("5", false), ("6", false), ("7", true)] {
        let pod = Pod {
            resource_version: version.into(),
            ..owned_pod("a", &rs)
        };
        if deleted {
            fixture.deliver_pod_deleted(pod);
        } else {
            fixture.deliver_pod(pod);
        }
        assert_eq!(fixture.cache.pods.resource_version(), version.into());
    }
    fixture.deliver_bookmarks("9", "");
    assert_eq!(fixture.cache.pods.resource_version(), "9".into());
}
