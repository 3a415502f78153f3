//! Saved and restored states.

use serde_json::{Value, json};

use crate::DevServerOptions;

use super::rig::{PODS, Rig, owner, pod, replica_set, uid};

fn why(rig: &Rig, documents: &[Value]) -> Vec<(usize, String)> {
    let rejected = rig.server.load(documents).expect_err("bad documents");
    let pairs = rejected.into_iter().map(|bad| (bad.index, bad.why));
    pairs.collect()
}

#[test]
fn a_dump_restores_the_state() {
    let rig = Rig::new();
    rig.ok(
        "POST",
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "shop"}}),
    );
    let set = rig.create_replica_set("web", 3);
    let mut owned = pod("web-1");
    owned["metadata"]["ownerReferences"] = json!([owner("web", &uid(&set))]);
    owned["spec"]["nodeName"] = json!("node-1");
    rig.ok("POST", PODS, &owned);
    let status = json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    assert_eq!(rig.patch(&format!("{PODS}/web-1/status"), &status).0, 200);
    rig.delete(&format!("{PODS}/web-1"), &json!({}));
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    rig.ok("POST", "/api/v1/namespaces/default/resourcequotas", &quota);
    rig.delete("/api/v1/namespaces/shop", &json!({}));

    let documents = rig.server.dump();
    let other = Rig::new();
    assert_eq!(other.server.load(&documents), Ok(()));
    assert_eq!(other.server.dump(), documents);
    let kept = other.server.object("pods", "default", "web-1");
    let kept = kept.expect("the pod is there");
    assert!(kept["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(kept["status"]["phase"], json!("Running"));
    assert!(
        documents
            .iter()
            .all(|document| document["metadata"].get("resourceVersion").is_none())
    );
}

#[test]
fn the_objects_of_every_cluster_are_not_exported() {
    let rig = Rig::with(&DevServerOptions {
        garbage_collection: true,
        ..DevServerOptions::default()
    });
    let services = "/api/v1/namespaces/default/services";
    for path in [
        &format!("{services}/kubernetes"),
        "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin",
        "/api/v1/namespaces/kube-node-lease/serviceaccounts/default",
        "/api/v1/namespaces/kube-public/configmaps/kube-root-ca.crt",
    ] {
        assert_eq!(rig.get(path).0, 200, "{path}");
    }
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slice = rig.get(&format!("{slices}/kubernetes")).1;
    let address = format!(
        "http://{}:{}",
        slice["endpoints"][0]["addresses"][0]
            .as_str()
            .unwrap_or_default(),
        slice["ports"][0]["port"]
    );
    assert_eq!(address, rig.server.url());
    assert_eq!(rig.server.dump(), [json!(null); 0]);
    let own = json!({"metadata": {"name": "kubernetes"}, "spec": {"ports": [{"port": 80}]}});
    rig.ok("POST", "/api/v1/namespaces/kube-public/services", &own);
    assert_eq!(rig.server.dump().len(), 1);
}

/// An export of ReplicaSets and pods does not contain their Deployments.
#[test]
fn loaded_objects_outlive_owners_that_were_not_loaded() {
    let rig = Rig::with(&DevServerOptions {
        garbage_collection: true,
        ..DevServerOptions::default()
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "elsewhere",
        "controller": true,
    });
    let mut set = replica_set("web", 1);
    set["metadata"]["ownerReferences"] = json!([deployment]);
    assert_eq!(rig.server.load(&[set]), Ok(()));
    // The collector checks later objects later.
    let mut lost = pod("lost");
    lost["metadata"]["ownerReferences"] = json!([owner("web", "missing")]);
    rig.ok("POST", PODS, &lost);
    rig.collected(|rig| rig.get(&format!("{PODS}/lost")).0 == 404);
    assert!(rig.server.object("replicasets", "default", "web").is_some());
}

#[test]
fn missing_fields_of_a_document_get_defaults() {
    let rig = Rig::new();
    let mut hand_written = pod("p");
    hand_written["metadata"]["namespace"] = json!("new");
    hand_written["status"] = json!({"phase": "Running"});
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "default", "labels": {"mine": "no"}},
    });
    assert_eq!(rig.server.load(&[hand_written, namespace]), Ok(()));
    let loaded = rig.server.object("pods", "new", "p").expect("the pod");
    assert_eq!(uid(&loaded).len(), 36);
    assert_eq!(loaded["status"]["phase"], json!("Running"));
    assert_eq!(loaded["spec"]["restartPolicy"], json!("Always"));
    assert!(rig.server.object("namespaces", "", "new").is_some());
    let namespace = rig.server.object("namespaces", "", "default");
    let labels = json!({"mine": "no", "kubernetes.io/metadata.name": "default"});
    assert_eq!(
        namespace.expect("it is there")["metadata"]["labels"],
        labels
    );
}

/// As with `kubectl get pods -o yaml` of a cluster.
#[test]
fn accounts_and_classes_of_loaded_pods_may_be_missing() {
    let rig = Rig::new();
    let mut own = pod("own");
    own["spec"]["serviceAccount"] = json!("builder");
    own["spec"]["priorityClassName"] = json!("high");
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "high"}, "value": 7,
    });
    (own["kind"], own["apiVersion"]) = (json!("Pod"), json!("v1"));
    assert_eq!(rig.server.load(&[own, class]), Ok(()));
    let object = |plural: &str, namespace: &str, name: &str| {
        let object = rig.server.object(plural, namespace, name);
        object.expect("it is there")
    };
    object("serviceaccounts", "default", "builder");
    assert_eq!(object("priorityclasses", "", "high")["value"], json!(7));
    let kinds: Vec<Value> = rig
        .server
        .dump()
        .iter()
        .map(|it| it["kind"].clone())
        .collect();
    assert_eq!(kinds, [json!("Pod"), json!("PriorityClass")]);
}

#[test]
fn changed_objects_of_every_cluster_are_kept() {
    let options = DevServerOptions {
        garbage_collection: true,
        ..DevServerOptions::default()
    };
    let rig = Rig::with(&options);
    rig.ok(
        "POST",
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "shop"}}),
    );
    let paths = [
        "/api/v1/namespaces/default",
        "/api/v1/namespaces/default/services/kubernetes",
        "/api/v1/namespaces/shop/configmaps/kube-root-ca.crt",
        "/api/v1/namespaces/shop/serviceaccounts/default",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin",
        "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
    ];
    let of = |rig: &Rig| {
        paths.map(|path| {
            let mut object = rig.get(path).1;
            object["metadata"]["resourceVersion"].take();
            object
        })
    };
    let label = json!({"metadata": {"labels": {"mine": "yes"}}});
    for path in paths {
        assert_eq!(rig.patch(path, &label).0, 200, "{path}");
    }
    let documents = rig.server.dump();
    // And the namespace `shop`.
    assert_eq!(documents.len(), paths.len() + 1);
    let other = Rig::with(&options);
    assert_eq!(other.server.load(&documents), Ok(()));
    let (saved, mut loaded) = (of(&rig), of(&other));
    // Its address is that of each server.
    assert_ne!(saved[4]["ports"], loaded[4]["ports"]);
    loaded[4]["ports"] = saved[4]["ports"].clone();
    assert_eq!(loaded, saved);
    assert_eq!(other.server.dump().len(), documents.len());
}

#[test]
fn all_invalid_documents_are_reported() {
    let rig = Rig::new();
    let mut bad = replica_set("web", -1);
    bad["apiVersion"] = json!("apps/v1");
    let documents = [
        json!({"kind": "Pod"}),
        pod("p"),
        json!({"apiVersion": "apps/v2", "kind": "ReplicaSet"}),
        bad,
        pod("p"),
        json!({"apiVersion": "v1", "kind": "Pod"}),
    ];
    let why = why(&rig, &documents);
    let indexes: Vec<usize> = why.iter().map(|(index, _)| *index).collect();
    assert_eq!(indexes, [0, 2, 3, 4, 5], "{why:?}");
    assert_eq!(why[0].1, "an object without kind or apiVersion");
    assert_eq!(why[1].1, "ReplicaSet of apps/v2 is not served here");
    assert!(why[2].1.contains("spec.replicas"), "{why:?}");
    assert_eq!(why[3].1, "duplicate object: Pod default/p");
    assert!(why[4].1.contains("name or generateName"), "{why:?}");
    assert!(rig.server.object("pods", "default", "p").is_some());
}
