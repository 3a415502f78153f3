//! The daemon's requests as rules mean them and as tests compare them, and refusals. Pure.

use replicaset_controller::api::interner::Interner;
use replicaset_controller::api::protobuf::{Envelope, MAGIC};
use replicaset_controller::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use replicaset_controller::api::{Pod, ReplicaSet, Status, WorkloadKind};
use replicaset_controller::devserver::{Action, ApiRequest, Matcher, Recorded};
use serde_json::{Value, json};

/// Refuses as the API server does.
pub(crate) fn refusal(code: u16, reason: &str, message: &str) -> Action {
    Action::refuse(Status::new(code, reason, message))
}

/// The refusal of a request for something that may not be done.
pub(crate) fn forbidden(message: &str) -> Action {
    refusal(403, "Forbidden", message)
}

/// A failure inside the API server.
pub(crate) fn internal_error(message: &str) -> Action {
    refusal(500, "InternalError", message)
}

/// Whatever reads a whole collection: lists, and watches that begin with one or go on from one.
pub(crate) fn reads_of(resource: &str) -> Matcher {
    Matcher::verb("list", resource).or(Matcher::verb("watch", resource))
}

/// Watches that are to begin with a list.
pub(crate) fn streamed_lists_of(resource: &str) -> Matcher {
    Matcher::verb("watch", resource).and(is_streamed_list)
}

/// Watches that go on where something else stopped.
pub(crate) fn plain_watches_of(resource: &str) -> Matcher {
    Matcher::verb("watch", resource).and(|request| !is_streamed_list(request))
}

/// True if the request asks for a watch that begins with a list.
pub(crate) fn is_streamed_list(request: &ApiRequest) -> bool {
    request.query_value("sendInitialEvents") == "true"
}

/// The body as JSON, `null` if there is none. Of one in protobuf only kind, name and status are shown;
/// a test that wants more has the daemon write JSON ([`Setup::in_json`](super::Setup::in_json)).
pub(crate) fn json_body(recorded: &Recorded) -> Value {
    let body = &recorded.request.body;
    if body.starts_with(&MAGIC) {
        from_protobuf(body)
    } else {
        serde_json::from_slice(body).unwrap_or_default()
    }
}

fn from_protobuf(body: &[u8]) -> Value {
    let envelope = Envelope::open(body).expect("an object in its envelope");
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

/// The last part of the path: for a pod's request the pod's name.
pub(crate) fn last_part(recorded: &Recorded) -> String {
    let path = recorded.request.path.as_str();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// The condition `ReplicaFailure` of a ReplicaSet's status.
pub(crate) fn replica_failure(status: &Value) -> Option<Value> {
    let conditions = status["conditions"].as_array()?;
    let mut failures = conditions
        .iter()
        .filter(|condition| condition["type"] == "ReplicaFailure");
    let failure = failures.next().cloned();
    assert!(failures.next().is_none(), "twice in {conditions:?}");
    failure
}
