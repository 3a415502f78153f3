//! Group C, the part about whole syncs and the bytes of the patches.

use std::sync::Arc;

use log::Level;
use serde_json::json;

use super::{adoption_patch, release_patch};
use crate::api::{Labels, ObjectKey, Pod, ReplicaSet};
use crate::controller::decide::Pods;
use crate::controller::decide::{Claim, claim_of};
use crate::controller::testing::{
    Fixture, Write, controller_ref, key, owned_pod, pod, read_replica_set, rejected, replica_set,
    replica_set_json, seconds_ago,
};
use crate::writes::{WriteError, WrittenPod};

/// A fixture whose API server has the same `rs` as the cache.
fn fixture(rs: &ReplicaSet, pods: impl IntoIterator<Item = Pod>) -> Fixture {
    let fixture = Fixture::new();
    fixture.cache_silently(Some(rs.clone()), pods);
    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    fixture
}

fn unlabelled(pod: Pod) -> Pod {
    Pod {
        labels: Labels::default(),
        ..pod
    }
}

/// Checks which of `pods` are claimed, and which are patched for that.
#[track_caller]
fn check_claim(rs: &ReplicaSet, pods: Vec<Pod>, claimed: &[&str], patched: &[&str]) {
    let fixture = fixture(rs, []);
    let selector = rs.selector.as_ref().expect("a valid selector");
    let pods = Pods::Listed {
        owned: pods.into_iter().map(Arc::new).collect(),
        orphans: Vec::new(),
    };
    let view = fixture.controller.view_of(rs, selector, pods);
    let gone = fixture.writer().claim_pods(&view, &view.decide());
    let ours = view.decide_without(&gone.expect("no error")).active;
    assert_eq!(
        ours.iter().map(|pod| &*pod.key.name).collect::<Vec<_>>(),
        claimed
    );
    let mut names = Vec::new();
    for write in fixture.writes.take() {
        if let Write::Patch(name, body) = write {
            let uid = &body["metadata"]["ownerReferences"][0]["uid"];
            assert_eq!(*uid, json!(rs.uid), "every patch names the owner: {body}");
            names.push(name);
        }
    }
    assert_eq!(names, patched);
}

#[test]
fn c_01_a_matching_orphan_is_adopted_another_is_not() {
    let rs = replica_set("web", 1);
    check_claim(
        &rs,
        vec![pod("p1"), unlabelled(pod("p2"))],
        &["p1"],
        &["p1"],
    );
}

#[test]
fn c_02_a_replica_set_under_deletion_adopts_nothing() {
    let mut rs = replica_set("web", 2);
    rs.deletion = Some(seconds_ago(0));
    check_claim(&rs, vec![pod("p1"), pod("p2")], &[], &[]);
}

#[test]
fn c_04_pods_of_another_owner_are_left_alone() {
    let (rs, other) = (replica_set("web", 2), replica_set("other", 2));
    let pods = vec![owned_pod("p1", &rs), owned_pod("p2", &other)];
    check_claim(&rs, pods, &["p1"], &[]);
}

#[test]
fn c_05_a_pod_that_stopped_matching_is_released() {
    let rs = replica_set("web", 2);
    let pods = vec![owned_pod("p1", &rs), unlabelled(owned_pod("p2", &rs))];
    check_claim(&rs, pods, &["p1"], &["p2"]);
}

#[test]
fn c_08_orphans_of_another_namespace_are_ignored() {
    let rs = replica_set("web", 2);
    let elsewhere = Pod {
        key: ObjectKey::new("elsewhere", "p2"),
        ..pod("p2")
    };
    check_claim(&rs, vec![pod("p1"), elsewhere], &["p1"], &["p1"]);
}

#[test]
fn c_09_a_cluster_scoped_owner_adopts_from_every_namespace() {
    let mut rs = replica_set("web", 2);
    rs.key = ObjectKey::new("", "web");
    let elsewhere = Pod {
        key: ObjectKey::new("elsewhere", "p2"),
        ..pod("p2")
    };
    check_claim(
        &rs,
        vec![pod("p1"), elsewhere],
        &["p1", "p2"],
        &["p1", "p2"],
    );
}

/// No API server stores such a ReplicaSet.
#[test]
fn an_empty_selector_releases_and_adopts_nothing() {
    let mut object = replica_set_json("web", 1);
    object["spec"]["selector"] = json!({});
    let rs = read_replica_set(&object);
    check_claim(&rs, vec![owned_pod("p1", &rs), pod("p2")], &["p1"], &[]);
    let fixture = fixture(&rs, [owned_pod("p1", &rs), pod("p2")]);
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 0);
    assert_eq!(fixture.writes.status_updates()[0].replicas, 1);
}

#[test]
fn c_10_bytes_of_a_release() {
    let body = release_patch(&"ss2".into(), &"ss1".into());
    assert_eq!(
        String::from_utf8_lossy(&body),
        r#"{"metadata":{"uid":"ss2","ownerReferences":[{"$patch":"delete","uid":"ss1"}]}}"#
    );
}

#[test]
fn c_11_c_12_quotes_in_uids_are_escaped() {
    let body = release_patch(&"s\"s2".into(), &"s\"s1".into());
    assert_eq!(
        String::from_utf8_lossy(&body),
        r#"{"metadata":{"uid":"s\"s2","ownerReferences":[{"$patch":"delete","uid":"s\"s1"}]}}"#
    );
}

#[test]
fn c_15_body_of_an_adoption() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [pod("p1")]);
    fixture.sync_ok("web");
    let body = fixture
        .writes
        .take()
        .into_iter()
        .find_map(|write| match write {
            Write::Patch(_, body) => Some(body.to_string()),
            _ => None,
        });
    let expected = json!({"metadata": {
        "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web",
            "controller": true, "blockOwnerDeletion": true,
        }],
        "uid": "uid-p1",
    }});
    assert_eq!(body, Some(expected.to_string()));
    assert_eq!(
        String::from_utf8_lossy(&adoption_patch(&"p1".into(), &json!({"uid": "rs"}))),
        r#"{"metadata":{"ownerReferences":[{"uid":"rs"}],"uid":"p1"}}"#
    );
}

#[test]
fn releases_come_before_adoptions() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, [pod("a"), unlabelled(owned_pod("b", &rs))]);
    fixture.writes.on_patch(|call, name| {
        let message = format!("{call} {name}");
        Some(Err(rejected(500, "InternalError", &message)))
    });
    let error = fixture.sync("web").expect_err("the patches fail");
    assert_eq!(error.to_string(), "[0 b, 1 a]");
}

#[test]
fn c_17_c_23_failed_adoptions_are_all_tried_and_end_the_sync() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, [pod("p1"), pod("p2")]);
    fixture.writes.on_patch(|call, _| {
        let message = format!("fake error {call}");
        Some(Err(rejected(500, "InternalError", &message)))
    });
    let error = fixture.sync("web").expect_err("the patches fail");
    assert_eq!(error.to_string(), "[fake error 0, fake error 1]");
    fixture.assert_counts(0, 0, 2);
    assert_eq!(fixture.writes.status_updates(), []);
    fixture.process(&key("web"));
    assert_eq!(fixture.queue.num_requeues(&key("web")), 1);
}

#[test]
fn a_23_equal_errors_are_reported_once() {
    let rs = replica_set("web", 2);
    let mut pods = vec![
        unlabelled(owned_pod("p1", &rs)),
        unlabelled(owned_pod("p2", &rs)),
    ];
    pods.push(pod("p3"));
    let fixture = fixture(&rs, pods);
    fixture
        .writes
        .on_patch(|_, _| Some(Err(rejected(500, "InternalError", "fake error"))));
    let error = fixture.sync("web").expect_err("the patches fail");
    assert_eq!(error.to_string(), "fake error");
    fixture.assert_counts(0, 0, 3);
    assert_eq!(fixture.writes.status_updates(), []);
}

#[test]
fn c_18_the_live_replica_set_decides_on_adoption() {
    let rs = replica_set("web", 2);
    let mut going = rs.clone();
    going.deletion = Some(seconds_ago(0));
    let mut another = rs.clone();
    another.uid = "uid-new".into();
    for (live, reason, level) in [
        (
            Ok(going),
            "default/web has just been deleted at 2026-01-01T00:00:00Z",
            Level::Debug,
        ),
        (
            Ok(another),
            "original ReplicaSet default/web is gone: got uid uid-new, wanted uid-web",
            Level::Debug,
        ),
        (
            Err(rejected(404, "NotFound", "it is gone")),
            "can't recheck DeletionTimestamp: it is gone",
            Level::Debug,
        ),
        (
            Err(rejected(403, "Forbidden", "no")),
            "can't recheck DeletionTimestamp: no",
            Level::Warn,
        ),
    ] {
        let fixture = fixture(&rs, [pod("p1")]);
        fixture.writes.set_live_replica_set(live);
        let error = fixture.sync("web").expect_err("no adoption");
        let expected = format!("can't adopt Pod default/p1 (uid-p1): {reason}");
        assert_eq!((error.to_string(), error.level()), (expected, level));
        fixture.assert_counts(0, 0, 0);
        assert_eq!(fixture.writes.status_updates(), []);
    }
}

#[test]
fn a_failed_release_is_reported_beside_a_deletion() {
    let rs = replica_set("web", 2);
    let orphans = [pod("p1"), pod("p2")];
    let fixture = fixture(&rs, orphans.clone());
    let gone = || Err(rejected(404, "NotFound", "it is gone"));
    fixture.writes.set_live_replica_set(gone());
    let error = fixture.sync("web").expect_err("no adoption");
    assert_eq!(error.level(), Level::Debug, "{error}");

    let strays = [unlabelled(owned_pod("p3", &rs))];
    let fixture = self::fixture(&rs, orphans.into_iter().chain(strays));
    fixture.writes.set_live_replica_set(gone());
    let rejection = || Err(rejected(500, "InternalError", "a hiccup"));
    fixture.writes.on_patch(move |_, _| Some(rejection()));
    let error = fixture.sync("web").expect_err("no release");
    assert_eq!(error.level(), Level::Warn, "{error}");
}

#[test]
fn one_live_read_per_sync_and_only_for_an_adoption() {
    let rs = replica_set("web", 3);
    for (pods, asked) in [
        (vec![pod("p1"), pod("p2"), pod("p3")], 1),
        (
            vec![
                owned_pod("p1", &rs),
                owned_pod("p2", &rs),
                unlabelled(owned_pod("p3", &rs)),
            ],
            0,
        ),
    ] {
        let fixture = fixture(&rs, pods);
        fixture.sync_ok("web");
        let writes = fixture.writes.take();
        let gets = writes
            .iter()
            .filter(|write| matches!(write, Write::GetReplicaSet(_)));
        assert_eq!(gets.count(), asked);
    }
}

#[test]
fn c_21_a_release_of_a_pod_that_is_gone_or_has_no_owner_is_done() {
    for (code, reason, is_done) in [
        (404, "NotFound", true),
        (422, "Invalid", true),
        (409, "Conflict", false),
        (500, "InternalError", false),
    ] {
        let rs = replica_set("web", 1);
        let pods = [owned_pod("p1", &rs), unlabelled(owned_pod("p2", &rs))];
        let fixture = fixture(&rs, pods);
        fixture
            .writes
            .on_patch(move |_, _| Some(Err(rejected(code, reason, "no"))));
        assert_eq!(fixture.sync("web").is_ok(), is_done, "{reason}");
        fixture.assert_counts(0, 0, 1);
    }
}

#[test]
fn c_22_an_orphan_that_is_gone_is_replaced() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [pod("p1")]);
    fixture
        .writes
        .on_patch(|_, _| Some(Err(rejected(404, "NotFound", "gone"))));
    fixture.sync_ok("web");
    fixture.assert_counts(1, 0, 1);
}

#[test]
fn c_22_orphans_that_are_gone_are_replaced_in_the_same_sync() {
    let rs = replica_set("web", 3);
    let pods = [owned_pod("a", &rs), owned_pod("b", &rs), pod("c"), pod("d")];
    let fixture = fixture(&rs, pods.clone());
    fixture
        .writes
        .on_patch(|_, _| Some(Err(rejected(404, "NotFound", "gone"))));
    fixture.process(&rs.key);
    fixture.assert_counts(1, 0, 2);
    for orphan in &pods[2..] {
        fixture.deliver_pod_deleted(orphan.clone());
    }
    fixture.process(&rs.key);
    fixture.assert_counts(1, 0, 2);
}

#[test]
fn c_22_a_vanished_orphan_delays_no_status() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, [pod("p1")]);
    fixture.expect(&rs, ["new".into()], []);
    fixture
        .writes
        .on_patch(|_, _| Some(Err(rejected(404, "NotFound", "gone"))));
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 1);
    assert_eq!(fixture.writes.status_updates().len(), 1);
}

/// The watch may break before it shows the adoption, and the pod may go before the next list,
/// which then shows only the deletion of an orphan.
#[test]
fn a_vanished_orphan_requeues_its_possible_adopters() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [pod("p1")]);
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 1);
    fixture.queued();
    fixture.deliver_pod_deleted(pod("p1"));
    assert_eq!(fixture.queued(), ["default/web"]);
}

/// As with a webhook that strips the references.
#[test]
fn an_adoption_without_effect_is_not_repeated_at_once() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [pod("p1")]);
    fixture.process(&rs.key);
    fixture.assert_counts(0, 0, 1);
    assert_eq!(fixture.queued(), [""; 0]);
}

#[test]
fn c_24_a_replica_set_under_deletion_releases_nothing() {
    let mut rs = replica_set("web", 2);
    rs.deletion = Some(seconds_ago(0));
    let pods = vec![owned_pod("p1", &rs), unlabelled(owned_pod("p2", &rs))];
    check_claim(&rs, pods, &["p1"], &[]);
}

#[test]
fn c_26_the_api_version_of_a_reference_does_not_matter() {
    let rs = replica_set("web", 2);
    let mut pods = Vec::new();
    for version in ["v1", "v1beta1"] {
        let object = json!({
            "metadata": {
                "name": version, "namespace": "default", "uid": version,
                "labels": {"type": "production"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "o"},
                    {
                        "apiVersion": version, "kind": "ReplicaSet", "name": "web",
                        "uid": "uid-web", "controller": true,
                    },
                ],
            },
        });
        let mut interner = crate::api::interner::Interner::default();
        let pod = Pod::from_json(object.to_string().as_bytes(), &mut interner);
        pods.push(pod.expect("a readable pod"));
    }
    let fixture = fixture(&rs, pods);
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 0);
}

#[test]
fn a_pod_of_another_kind_with_our_uid_is_kept_as_upstream_does() {
    let rs = replica_set("web", 1);
    let selector = rs.selector.clone().expect("a valid selector");
    let other = Pod {
        controller: Some(controller_ref("Other", "web", "uid-web")),
        ..pod("p1")
    };
    assert_eq!(claim_of(&rs, &selector, &other), Claim::Keep);
}

#[test]
fn a_deleted_pod_is_not_adopted() {
    let rs = replica_set("web", 1);
    let going = Pod {
        deletion: Some(seconds_ago(0)),
        ..pod("p1")
    };
    check_claim(&rs, vec![going], &[], &[]);
}

#[test]
fn h_16_h_17_syncs_wait_for_stored_adoptions_only() {
    let rs = replica_set("web", 2);
    for (response, version) in [
        (
            Ok(WrittenPod {
                resource_version: "9".into(),
                controller: Some("uid-web".into()),
            }),
            "9",
        ),
        (
            Ok(WrittenPod {
                resource_version: "9".into(),
                controller: None,
            }),
            "",
        ),
        (Err(rejected(404, "NotFound", "gone")), ""),
        (Err(WriteError::unknown("lost")), ""),
    ] {
        let fixture = fixture(&rs, [pod("p1")]);
        fixture.writes.on_patch(move |_, _| Some(response.clone()));
        drop(fixture.sync("web"));
        let written = fixture.written(&rs);
        assert_eq!(written.unwrap_or_default().pods, version.into());
    }
}

/// The sync retries an adoption with a lost response; the server accepts the same patch twice.
#[test]
fn an_adoption_of_unknown_outcome_is_retried() {
    let rs = replica_set("web", 1);
    let fixture = fixture(&rs, [pod("p1")]);
    fixture
        .writes
        .on_patch(|call, _| (call == 0).then(|| Err(WriteError::unknown("lost"))));
    fixture.sync("web").expect_err("the response was lost");
    fixture.sync_ok("web");
    fixture.assert_counts(0, 0, 2);
}

#[test]
fn an_unreadable_selector_claims_nothing() {
    let mut object = replica_set_json("web", 2);
    object["spec"]["selector"] = json!({"matchExpressions": [{"key": "a", "operator": "Invalid"}]});
    let fixture = fixture(&read_replica_set(&object), [pod("p1")]);
    fixture.sync_ok("web");
    assert_eq!(fixture.writes.take(), []);
}

/// A stop is no failed sync, which would be counted and logged.
#[test]
fn a_stop_amid_the_claims_is_no_failure() {
    let rs = replica_set("web", 2);
    let fixture = fixture(&rs, [pod("a"), pod("b")]);
    fixture
        .writes
        .set_live_replica_set(Err(WriteError::Stopped));
    let error = fixture.sync("web").expect_err("the daemon stops");
    assert!(error.is_stopped(), "{error}");

    fixture.writes.set_live_replica_set(Ok(rs.clone()));
    fixture.writes.on_patch(|call, _| {
        let rejected = rejected(403, "Forbidden", "no");
        Some(Err(if call == 0 {
            rejected
        } else {
            WriteError::Stopped
        }))
    });
    let error = fixture.sync("web").expect_err("the daemon stops");
    assert!(error.is_stopped(), "{error}");
}
