//! Creates, scales and deletes ReplicaSets, and plays the kubelet of their pods.

use std::collections::HashSet;

use replicaset_controller::api::{Status, Uid};
use replicaset_controller::client::Request;
use serde_json::json;

use crate::cluster::Cluster;
use crate::load::in_parallel;
use crate::pods::template;
use crate::watch::Observer;

/// The path of a namespace's ReplicaSets.
pub(crate) fn collection(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/replicasets")
}

/// The path of a namespace's pods.
pub(crate) fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// Creates a ReplicaSet.
pub(crate) fn create(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    replicas: usize,
) -> Result<(), String> {
    let labels = json!({"app": name});
    let object = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": template(name),
        },
    });
    cluster.post(&collection(namespace), &object).map(drop)
}

/// Sets the number of replicas through the subresource `scale`.
pub(crate) fn scale(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    replicas: usize,
) -> Result<(), String> {
    let path = format!("{}/{name}/scale", collection(namespace));
    let scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas},
    });
    let request = Request::put(path).body("application/json", scale.to_string());
    cluster.json(&request).map(drop)
}

/// Deletes all ReplicaSets of a namespace.
pub(crate) fn delete_all(cluster: &Cluster, namespace: &str) -> Result<(), String> {
    cluster.delete_collection(&Request::delete(collection(namespace)))
}

/// Patches the status of a pod as a kubelet does. A pod that is gone is no error.
pub(crate) fn patch_pod_status(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    status: &str,
) -> Result<(), String> {
    let path = format!("{}/{name}/status", pods(namespace));
    let request =
        Request::patch(path).body("application/strategic-merge-patch+json", status.to_owned());
    match cluster.client.send(&request) {
        Err(error) if error.status().is_some_and(Status::is_not_found) => Ok(()),
        result => result
            .map(drop)
            .map_err(|error| format!("{request}: {error}")),
    }
}

/// Patches the status of each observed pod that is not in `seen`, and adds it there. Returns their
/// number.
pub(crate) fn patch_new_pods(
    cluster: &Cluster,
    observer: &Observer,
    namespace: &str,
    seen: &mut HashSet<Uid>,
    status: &str,
) -> Result<usize, String> {
    let state = observer.lock();
    let fresh = state.pods.iter().filter(|(uid, _)| !seen.contains(*uid));
    let fresh: Vec<(Uid, String)> = fresh
        .map(|(uid, pod)| (uid.clone(), pod.name.clone()))
        .collect();
    drop(state);
    in_parallel(fresh.len(), |n| {
        patch_pod_status(cluster, namespace, &fresh[n].1, status)
    })?;
    let count = fresh.len();
    seen.extend(fresh.into_iter().map(|(uid, _)| uid));
    Ok(count)
}
