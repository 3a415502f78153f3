//! Owner references, in particular the one with `controller: true`.

use std::sync::Arc;

use serde::Serialize;

use super::object_key::ObjectKey;
use super::uid::Uid;
use super::workload_kind::WorkloadKind;

/// The first owner reference of an object that has `controller: true`.
///
/// Without its API version, because kind, name and UID alone decide ownership (kubernetes
/// `pkg/controller/replicaset:resolveControllerRef`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ControllerRef {
    /// The owner's kind, such as `ReplicaSet`.
    pub kind: Arc<str>,
    /// The owner's name, in the namespace of the owned object.
    pub name: Arc<str>,
    /// The owner's UID.
    pub uid: Uid,
}

/// Key of the index "pods by owner".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerKey {
    /// Namespace of both owner and owned object.
    pub namespace: Arc<str>,
    /// The owner in the owned object's reference.
    pub owner: ControllerRef,
}

impl OwnerKey {
    /// The key for the pods of `owner`, an object of `kind` with `uid`.
    pub fn new(kind: &str, owner: &ObjectKey, uid: &Uid) -> Self {
        Self {
            namespace: Arc::clone(&owner.namespace),
            owner: ControllerRef {
                kind: kind.into(),
                name: Arc::clone(&owner.name),
                uid: uid.clone(),
            },
        }
    }
}

/// The controller's owner reference as sent to the API server.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllingReference<'a> {
    api_version: &'a str,
    kind: &'a str,
    name: &'a str,
    uid: &'a Uid,
    controller: bool,
    block_owner_deletion: bool,
}

impl<'a> ControllingReference<'a> {
    /// The reference to the object `name` of `kind` with `uid`.
    pub fn to(kind: &WorkloadKind, name: &'a str, uid: &'a Uid) -> Self {
        Self {
            api_version: kind.api_version,
            kind: kind.kind,
            name,
            uid,
            controller: true,
            block_owner_deletion: true,
        }
    }
}
