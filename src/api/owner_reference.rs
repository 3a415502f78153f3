//! Who owns an object: the one reference with `controller: true`.

use std::sync::Arc;

use super::object_key::ObjectKey;
use super::uid::Uid;

/// The first owner reference of an object that has `controller: true`.
///
/// Its API version is left out because ownership is decided by kind, name and UID alone
/// (kubernetes `pkg/controller/replicaset:resolveControllerRef`).
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
    /// The namespace of owner and owned.
    pub namespace: Arc<str>,
    /// What the owned object's reference says.
    pub owner: ControllerRef,
}

impl OwnerKey {
    /// The key under which the pods of `owner`, an object of `kind` with `uid`, are found.
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
