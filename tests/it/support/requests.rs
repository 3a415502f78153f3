//! Matchers for the daemon's requests, error responses for fault rules, and recorded bodies in a
//! form that tests can compare. Pure.

use replicaset_controller::api::interner::Interner;
use replicaset_controller::api::protobuf::{Envelope, MAGIC};
use replicaset_controller::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use replicaset_controller::api::{Pod, ReplicaSet, Status, WorkloadKind};
use replicaset_controller::devserver::{Action, ApiRequest, Matcher, Recorded};
use serde_json::{Value, json};

/// Responds with this status error instead of forwarding the request.
pub(crate) fn status_error(code: u16, reason: &str, message: &str) -> Action {
    Action::reject(Status::new(code, reason, message))
}

/// Responds 403 Forbidden.
pub(crate) fn forbidden(message: &str) -> Action {
    status_error(403, "Forbidden", message)
}

/// Responds 500 InternalError.
pub(crate) fn internal_error(message: &str) -> Action {
    status_error(500, "InternalError", message)
}

/// Lists and watches of `resource`.
pub(crate) fn reads_of(resource: &str) -> Matcher {
    Matcher::verb("list", resource).or(Matcher::verb("watch", resource))
}

/// Streaming lists of `resource`: watches with `sendInitialEvents=true`.
pub(crate) fn streaming_lists_of(resource: &str) -> Matcher {
    Matcher::verb("watch", resource).and(is_streaming_list)
}

/// Watches of `resource` that continue from a resource version.
pub(crate) fn plain_watches_of(resource: &str) -> Matcher {
    Matcher::verb("watch", resource).and(|request| !is_streaming_list(request))
}

/// True if the request is a streaming list.
pub(crate) fn is_streaming_list(request: &ApiRequest) -> bool {
    request.query_value("sendInitialEvents") == "true"
}

/// The body as JSON, `null` if there is none. A protobuf body yields only kind, name and status. A
/// test that needs more makes the daemon write JSON ([`Setup::in_json`](super::Setup::in_json)).
pub(crate) fn json_body(recorded: &Recorded) -> Value {
    let body = &recorded.request.body;
    if body.starts_with(&MAGIC) {
        from_protobuf(body)
    } else {
        serde_json::from_slice(body).unwrap_or_default()
    }
}

fn from_protobuf(body: &[u8]) -> Value {
    let envelope = Envelope::open(body).expect("a protobuf envelope");
    let of_kind = |kind: &&WorkloadKind| kind.kind == envelope.kind;
    let workload = [&REPLICA_SET, &REPLICATION_CONTROLLER]
        .into_iter()
        .find(of_kind);
    let (name, status) = if let Some(kind) = workload {
        let object = ReplicaSet::from_answer(kind, body).expect("a workload");
        (object.key.name, json!(object.status))
    } else {
        let pod = Pod::from_protobuf(envelope.raw, &mut Interner::default()).expect("a pod");
        (pod.key.name, Value::Null)
    };
    json!({"kind": envelope.kind, "metadata": {"name": name}, "status": status})
}

/// The last segment of the path: the object's name in a request for a single object.
pub(crate) fn last_part(recorded: &Recorded) -> String {
    let path = recorded.request.path.as_str();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// The condition `ReplicaFailure` of a ReplicaSet's status. The test fails if there are two.
pub(crate) fn replica_failure(status: &Value) -> Option<Value> {
    let conditions = status["conditions"].as_array()?;
    let mut failures = conditions
        .iter()
        .filter(|condition| condition["type"] == "ReplicaFailure");
    let failure = failures.next().cloned();
    assert!(
        failures.next().is_none(),
        "duplicate condition in {conditions:?}"
    );
    failure
}
