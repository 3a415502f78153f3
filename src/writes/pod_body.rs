//! Builds the bodies of pod requests. Pure.

mod json;
mod message;

use serde::Serialize;

use super::WriteError;
use crate::api::encoded::Encoded;
use crate::api::replica_set::Template;
use crate::api::{ReplicaSet, ResourceVersion, Uid, WorkloadKind};

/// The body that creates the pod `name` from the template of `rs`. Copies the template's labels,
/// annotations, finalizers and spec byte by byte in their original encoding, and sets `rs` as the
/// controller (kubernetes `pkg/controller/controller_utils.go:GetPodFromTemplate`).
///
/// DIFFERS: upstream lets the API server generate the name. The body sets `generateName` like
/// upstream, because people and tools search for it, but the server uses `name`.
///
/// # Errors
/// [`WriteError::Local`] if the template has no labels or is unreadable.
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
        None => Err("it is missing".to_owned()),
    };
    body.map_err(|error| WriteError::Local(format!("the pod template is unreadable: {error}")))
}

/// `generateName` of a ReplicaSet's pods, and the prefix of their names.
pub fn generate_name(rs_name: &str) -> String {
    format!("{rs_name}-")
}

/// The body that deletes a pod with this UID, and with this version unless that is `None` or empty,
/// as preconditions.
pub fn delete_body(uid: &Uid, version: Option<&ResourceVersion>) -> Vec<u8> {
    let options = DeleteOptionsJson {
        api_version: "v1",
        kind: "DeleteOptions",
        preconditions: PreconditionsJson {
            uid,
            resource_version: version.filter(|version| !version.is_empty()),
        },
    };
    serde_json::to_vec(&options).expect("strings always serialize")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptionsJson<'a> {
    api_version: &'a str,
    kind: &'a str,
    preconditions: PreconditionsJson<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PreconditionsJson<'a> {
    uid: &'a Uid,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a ResourceVersion>,
}

#[cfg(test)]
mod tests;
