//! The bodies of pod requests, as pure functions.

mod json;
mod message;

use serde::Serialize;

use super::WriteError;
use crate::api::encoded::Encoded;
use crate::api::replica_set::Template;
use crate::api::{ReplicaSet, Uid, WorkloadKind};

/// The body that creates a pod called `name` from the template of `rs`: its labels, annotations,
/// finalizers and spec as the bytes that they are, in the encoding in which they came, and `rs` as the
/// one controller (kubernetes `pkg/controller/controller_utils.go:GetPodFromTemplate`).
///
/// DIFFERS: upstream leaves the name to the API server. `generateName` is set as upstream sets it,
/// because people and tools look for it, but the server uses `name`.
///
/// # Errors
/// [`WriteError::Local`] if the template has no labels or cannot be read.
pub fn create_body(
    rs: &ReplicaSet,
    kind: &WorkloadKind,
    name: &str,
) -> Result<Encoded, WriteError> {
    if rs.template_labels.is_empty() {
        return Err(WriteError::Local(
            "unable to create pods, no labels".to_owned(),
        ));
    }
    let body = match rs.template() {
        Some(Template::Protobuf(template)) => {
            message::create_body(rs, kind, name, template).map_err(|error| error.to_string())
        }
        Some(Template::Json(template)) => {
            json::create_body(rs, kind, name, template.get()).map_err(|error| error.to_string())
        }
        None => Err("there is none".to_owned()),
    };
    body.map_err(|error| WriteError::Local(format!("the pod template is unreadable: {error}")))
}

/// `generateName` of the pods of a ReplicaSet, and the beginning of their names.
pub fn generate_name(rs_name: &str) -> String {
    format!("{rs_name}-")
}

/// The body that deletes a pod only if it still has this UID.
pub fn delete_body(uid: &Uid) -> Vec<u8> {
    let options = DeleteOptionsJson {
        api_version: "v1",
        kind: "DeleteOptions",
        preconditions: PreconditionsJson { uid },
    };
    serde_json::to_vec(&options).expect("text always becomes JSON")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptionsJson<'a> {
    api_version: &'a str,
    kind: &'a str,
    preconditions: PreconditionsJson<'a>,
}

#[derive(Serialize)]
struct PreconditionsJson<'a> {
    uid: &'a Uid,
}

#[cfg(test)]
mod tests;
