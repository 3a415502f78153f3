//! Deletes: preconditions, grace periods, finalizers, collections, garbage collection.

use std::time::Instant;

use serde_json::{Value, json};

use super::rig::{PODS, REPLICA_SETS, Rig, check_error, names, owner, pod, uid};
use crate::DevServerOptions;
use crate::garbage::COLLECTED_AFTER;

fn preconditions(name: &str, value: &str) -> Value {
    json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {name: value}})
}

#[test]
fn a_delete_of_another_uid_or_version_is_a_conflict() {
    let rig = Rig::new();
    let pod = rig.create_pod("p");
    let zero = "00000000-0000-0000-0000-000000000000";
    let path = format!("{PODS}/p");
    let response = rig.delete(&path, &preconditions("uid", zero));
    let message = format!(
        "Operation cannot be fulfilled on Pod \"p\": the UID in the precondition ({zero}) does \
         not match the UID in record ({}). The object might have been deleted and then recreated",
        uid(&pod)
    );
    check_error(&response, 409, "Conflict", &message);
    assert_eq!(response.1["details"], json!({"name": "p", "kind": "Pod"}));
    assert_eq!(
        rig.delete(&path, &preconditions("resourceVersion", "1")).0,
        409
    );
    let (code, gone) = rig.delete(&path, &preconditions("uid", &uid(&pod)));
    assert_eq!(
        (code, &gone["metadata"]["deletionGracePeriodSeconds"]),
        (200, &json!(0))
    );
    let response = rig.delete(&path, &json!({}));
    check_error(&response, 404, "NotFound", "pods \"p\" not found");
}

#[test]
fn m_22_a_scheduled_pod_stays_for_its_grace_period() {
    let rig = Rig::new();
    rig.create_scheduled_pod("p");
    let path = format!("{PODS}/p");
    let (code, begun) = rig.delete(&path, &json!({}));
    assert_eq!(
        (code, &begun["metadata"]["deletionGracePeriodSeconds"]),
        (200, &json!(30))
    );
    assert!(begun["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(begun["metadata"]["generation"], json!(2));
    assert_eq!(rig.delete(&path, &json!({})), (200, begun));
    assert_eq!(rig.delete(&path, &json!({"gracePeriodSeconds": 0})).0, 200);
    assert_eq!(rig.get(&path).0, 404);
}

#[test]
fn a_grace_period_may_be_longer_than_any_clock_counts() {
    let rig = Rig::new();
    rig.create_scheduled_pod("p");
    let forever = json!({"gracePeriodSeconds": i64::MAX});
    let (code, begun) = rig.delete(&format!("{PODS}/p"), &forever);
    assert_eq!(
        (code, &begun["metadata"]["deletionGracePeriodSeconds"]),
        (200, &json!(i64::MAX))
    );
}

#[test]
fn m_08_m_21_finalizers_hold_an_object() {
    let rig = Rig::new();
    for (collection, name) in [(PODS, "p"), (REPLICA_SETS, "web")] {
        let mut object = match name {
            "p" => rig.create_pod("p"),
            _ => rig.create_replica_set("web", 1),
        };
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        let path = format!("{collection}/{name}");
        rig.ok("PUT", &path, &object);
        let mut held = rig.delete(&path, &json!({})).1;
        assert!(held["metadata"]["deletionTimestamp"].is_string());
        assert_eq!(held["metadata"]["finalizers"], json!(["example.com/hold"]));
        let more = json!({"metadata": {"finalizers": ["example.com/more"]}});
        assert_eq!(rig.patch(&path, &more).0, 422);
        held["metadata"]["finalizers"] = json!([]);
        let from = rig.server.version();
        let mut watch = rig.watch(collection, &format!("resourceVersion={from}"));
        assert_eq!(rig.send("PUT", &path, &held).0, 200);
        assert_eq!(rig.get(&path).0, 404);
        // The DELETED event carries the stored object.
        let last = watch.next().expect("a frame");
        assert_eq!(last["type"], json!("DELETED"));
        let finalizers = &last["object"]["metadata"]["finalizers"];
        assert_eq!(finalizers, &json!(["example.com/hold"]));
    }
}

#[test]
fn a_replica_set_delete_is_immediate_and_returns_status() {
    let rig = Rig::new();
    let web = rig.create_replica_set("web", 1);
    let (code, status) = rig.delete(&format!("{REPLICA_SETS}/web"), &json!({}));
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": "web", "group": "apps", "kind": "replicasets", "uid": uid(&web)},
    });
    assert_eq!((code, status), (200, expected));
}

#[test]
fn n_07_a_collection_is_deleted_by_its_labels() {
    let rig = Rig::new();
    rig.create_pod("a");
    rig.create_pod("b");
    let mut other = pod("c");
    other["metadata"]["labels"] = json!({"app": "other"});
    rig.ok("POST", PODS, &other);
    let (code, list) = rig.delete(&format!("{PODS}?labelSelector=app=web"), &json!({}));
    assert_eq!((code, names(&list)), (200, vec!["a", "b"]));
    assert_eq!(names(&rig.get(PODS).1), ["c"]);
}

fn rig_with_garbage_collection() -> (Rig, String) {
    let rig = Rig::with(&DevServerOptions {
        garbage_collection: true,
        ..DevServerOptions::default()
    });
    let web = uid(&rig.create_replica_set("web", 2));
    for name in ["a", "b"] {
        let mut pod = pod(name);
        pod["metadata"]["ownerReferences"] = json!([owner("web", &web)]);
        rig.ok("POST", PODS, &pod);
    }
    rig.create_pod("foreign");
    (rig, web)
}

#[test]
fn dependents_are_deleted_with_their_owner() {
    for policy in ["Background", "Foreground"] {
        let (rig, _) = rig_with_garbage_collection();
        let options = json!({"propagationPolicy": policy});
        rig.delete(&format!("{REPLICA_SETS}/web"), &options);
        rig.collected(|rig| names(&rig.get(PODS).1) == ["foreign"]);
        assert_eq!(rig.get(&format!("{REPLICA_SETS}/web")).0, 404, "{policy}");
    }
}

/// In a cluster the collector sees the delete in a watch, so dependents stay until then.
#[test]
fn dependents_are_deleted_shortly_after_their_owner() {
    let (rig, web) = rig_with_garbage_collection();
    // The collector checks new pods in order. Once it has deleted this one, it has checked all.
    let mut lost = pod("lost");
    lost["metadata"]["ownerReferences"] = json!([owner("missing", &web)]);
    rig.ok("POST", PODS, &lost);
    rig.collected(|rig| rig.get(&format!("{PODS}/lost")).0 == 404);
    let from = rig.server.version();
    let mut watch = rig.watch(PODS, &format!("resourceVersion={from}"));
    let sent = Instant::now();
    let options = json!({"propagationPolicy": "Foreground"});
    rig.delete(&format!("{REPLICA_SETS}/web"), &options);
    watch.next().expect("a pod is deleted");
    assert!(sent.elapsed() >= COLLECTED_AFTER);
}

#[test]
fn new_dependents_of_a_deleted_owner_are_deleted() {
    let (rig, web) = rig_with_garbage_collection();
    let mut deployment = owner("missing", &web);
    deployment["kind"] = json!("Deployment");
    let mut unknown = deployment.clone();
    unknown["kind"] = json!("Rollout");
    for (name, owner, stays) in [
        ("late", owner("web", "before"), false),
        ("lost", owner("missing", &web), false),
        ("good", owner("web", &web), true),
        ("deployed", deployment, false),
        ("unknown", unknown, true),
    ] {
        let mut pod = pod(name);
        pod["metadata"]["ownerReferences"] = json!([owner]);
        rig.ok("POST", PODS, &pod);
        let is_there = |rig: &Rig, name: &str| rig.get(&format!("{PODS}/{name}")).0 == 200;
        if stays {
            // The collector checks later pods later.
            let mut lost = self::pod("after");
            lost["metadata"]["ownerReferences"] = json!([self::owner("missing", &web)]);
            rig.ok("POST", PODS, &lost);
            rig.collected(|rig| !is_there(rig, "after"));
            assert!(is_there(&rig, name), "{name}");
        } else {
            rig.collected(|rig| !is_there(rig, name));
        }
    }
}

#[test]
fn a_dependent_stays_as_long_as_one_owner_keeps_it() {
    let (rig, web) = rig_with_garbage_collection();
    let mut second = owner("db", &uid(&rig.create_replica_set("db", 1)));
    second["controller"] = json!(false);
    let mut gone = second.clone();
    gone["uid"] = json!("before");
    let mut shared = pod("shared");
    shared["metadata"]["ownerReferences"] = json!([owner("web", &web), gone, second]);
    rig.ok("POST", PODS, &shared);
    let n_owners = |rig: &Rig| {
        let pod = rig.get(&format!("{PODS}/shared")).1;
        pod["metadata"]["ownerReferences"].as_array().map(Vec::len)
    };
    rig.collected(|rig| n_owners(rig) == Some(2));
    let options = json!({"propagationPolicy": "Foreground"});
    rig.delete(&format!("{REPLICA_SETS}/web"), &options);
    rig.collected(|rig| rig.get(&format!("{REPLICA_SETS}/web")).0 == 404);
    assert_eq!(n_owners(&rig), Some(1));
    rig.delete(&format!("{REPLICA_SETS}/db"), &json!({}));
    rig.collected(|rig| rig.get(&format!("{PODS}/shared")).0 == 404);
}

#[test]
fn foreground_deletion_covers_later_dependents() {
    let (rig, web) = rig_with_garbage_collection();
    let held = rig.get(&format!("{PODS}/a")).1;
    let mut finalized = held.clone();
    finalized["metadata"]["finalizers"] = json!(["example.com/hold"]);
    rig.ok("PUT", &format!("{PODS}/a"), &finalized);
    let options = json!({"propagationPolicy": "Foreground"});
    rig.delete(&format!("{REPLICA_SETS}/web"), &options);
    rig.collected(|rig| rig.get(&format!("{PODS}/b")).0 == 404);
    assert_eq!(rig.get(&format!("{REPLICA_SETS}/web")).0, 200);
    let mut late = pod("late");
    late["metadata"]["ownerReferences"] = json!([owner("web", &web)]);
    rig.ok("POST", PODS, &late);
    rig.collected(|rig| rig.get(&format!("{PODS}/late")).0 == 404);
}

/// A kubelet that has not stopped a pod yet is a finalizer here.
#[test]
fn foreground_deletion_waits_for_what_blocks_it() {
    let (rig, web) = rig_with_garbage_collection();
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "top"}, "spec": {"selector": {"matchLabels": {"app": "top"}},
        "template": {"metadata": {"labels": {"app": "top"}}, "spec": pod("p")["spec"]}}});
    let top = "/apis/apps/v1/namespaces/default/deployments/top";
    let top_uid = uid(&rig.ok(
        "POST",
        "/apis/apps/v1/namespaces/default/deployments",
        &deployment,
    ));
    let mut by_top = owner("top", &top_uid);
    by_top["kind"] = json!("Deployment");
    let path = format!("{REPLICA_SETS}/web");
    let owned = json!({"metadata": {"ownerReferences": [by_top]}});
    assert_eq!(rig.patch(&path, &owned).0, 200);
    let mut loose = owner("web", &web);
    loose["blockOwnerDeletion"] = json!(false);
    for (name, owner) in [("loose", loose), ("a", owner("web", &web))] {
        let held = json!({"metadata": {
            "finalizers": ["example.com/hold"], "ownerReferences": [owner],
        }});
        if rig.get(&format!("{PODS}/{name}")).0 == 404 {
            rig.ok("POST", PODS, &pod(name));
        }
        assert_eq!(rig.patch(&format!("{PODS}/{name}"), &held).0, 200);
    }
    rig.delete(top, &json!({"propagationPolicy": "Foreground"}));
    rig.collected(|rig| rig.get(&format!("{PODS}/b")).0 == 404);
    assert_eq!((rig.get(top).0, rig.get(&path).0), (200, 200), "a is there");
    let release = json!({"metadata": {"finalizers": null}});
    assert_eq!(rig.patch(&format!("{PODS}/a"), &release).0, 200);
    rig.collected(|rig| rig.get(top).0 == 404);
    assert_eq!(rig.get(&path).0, 404);
    assert_eq!(rig.get(&format!("{PODS}/loose")).0, 200);
}

#[test]
fn orphaned_dependents_stay() {
    let (rig, _) = rig_with_garbage_collection();
    let options = json!({"propagationPolicy": "Orphan"});
    rig.delete(&format!("{REPLICA_SETS}/web"), &options);
    rig.collected(|rig| rig.get(&format!("{REPLICA_SETS}/web")).0 == 404);
    let pods = rig.get(PODS).1;
    assert_eq!(names(&pods), ["a", "b", "foreign"]);
    assert_eq!(pods["items"][0]["metadata"].get("ownerReferences"), None);
}

#[test]
fn without_a_collector_dependents_and_finalizers_stay() {
    let rig = Rig::new();
    rig.create_replica_set("web", 1);
    let options = json!({"propagationPolicy": "Foreground"});
    let (code, held) = rig.delete(&format!("{REPLICA_SETS}/web"), &options);
    assert_eq!(code, 200);
    assert_eq!(
        held["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
}

#[test]
fn a_namespace_is_deleted_with_its_contents() {
    let (rig, _) = rig_with_garbage_collection();
    rig.ok(
        "POST",
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "n"}}),
    );
    rig.ok("POST", "/api/v1/namespaces/n/pods", &pod("p"));
    rig.delete("/api/v1/namespaces/n", &json!({}));
    rig.collected(|rig| rig.get("/api/v1/namespaces/n").0 == 404);
    assert_eq!(
        names(&rig.get("/api/v1/namespaces/n/pods").1),
        Vec::<&str>::new()
    );
}
