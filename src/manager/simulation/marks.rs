//! The properties of ReplicaSets that opt in to protection, and of annotated pods.

use serde_json::Value;

use super::api_server::ApiServer;
use super::http::Request;
use super::objects::{Kind, condition, controller_of, is_active, target};
use super::opt_ins::Protection;
use crate::api::policy::SCALE_DOWN;

/// Annotations of protection.
const PROTECTION: &str = "replicaset-controller/scale-down-protection";
const PROTECTED_TIMEOUT: &str = "replicaset-controller/protected-timeout";

/// The annotation of a pod; empty without one.
pub(super) fn mark_of(pod: &Value) -> &str {
    let mark = &pod["metadata"]["annotations"][SCALE_DOWN];
    mark.as_str().unwrap_or_default()
}

/// True if no scale-down of an owner with protection may choose the pod.
pub(super) fn is_protected(pod: &Value) -> bool {
    mark_of(pod) == "never"
}

/// The protection that a ReplicaSet opts in to.
pub(super) fn protection_of(rs: &Value) -> Option<Protection> {
    let annotations = &rs["metadata"]["annotations"];
    let timeout = annotations[PROTECTED_TIMEOUT].as_str();
    let timeout = timeout.and_then(|timeout| timeout.strip_suffix('s')?.parse().ok());
    (annotations[PROTECTION] == "on").then_some(Protection { timeout })
}

/// PROPERTY P33: For a ReplicaSet with protection and without a timeout, no delete takes effect on
/// an active pod whose mark `never` the store has already, in a history until etcd goes back.
///
/// Judged when the request arrives.
pub(super) fn deletes_protected(server: &ApiServer, request: &Request) -> Option<String> {
    let Some((Kind::Pod, Some(name), _)) = target(&request.path) else {
        return None;
    };
    let pod = &server.get(Kind::Pod, name)?.value;
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    let rejects = |field: &str| {
        let wanted = &body["preconditions"][field];
        !wanted.is_null() && *wanted != pod["metadata"][field]
    };
    let owner = controller_of(pod)?;
    let mut owners = server.all(Kind::ReplicaSet);
    let owner = owners.find(|rs| rs.value["metadata"]["uid"] == owner)?;
    let for_ever = Some(Protection { timeout: None });
    let is_wrong = request.method == "DELETE"
        && !rejects("uid")
        && !rejects("resourceVersion")
        && is_active(pod)
        && is_protected(pod)
        && protection_of(&owner.value) == for_ever;
    is_wrong.then(|| format!("{name} is deleted after its mark was stored"))
}

/// True if a block of this ReplicaSet ends with time.
pub(super) fn waits_for_timeout(rs: &Value) -> bool {
    let has_timeout = protection_of(rs).is_some_and(|it| it.timeout.is_some());
    has_timeout && block_of(rs).is_some_and(|block| block["reason"] == "ProtectedPods")
}

/// The condition that protected pods block a scale-down.
pub(super) fn block_of(rs: &Value) -> Option<&Value> {
    condition(rs, "ScaleDownBlocked")
}
