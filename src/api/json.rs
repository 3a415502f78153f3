//! Helpers to decode API objects, in which `null` may replace any absent field.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::interner::Interner;
use super::owner_reference::ControllerRef;
use super::uid::Uid;

/// Decodes `null` as the default.
pub(super) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Decodes the name of an object, which is never empty: protobuf has no other way to write none.
pub(super) fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'de, str>, D::Error> {
    #[derive(Deserialize)]
    struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
    let Name(name) = Name::deserialize(deserializer)?;
    if name.is_empty() {
        return Err(D::Error::custom("empty name"));
    }
    Ok(name)
}

/// The fields of one entry of `metadata.ownerReferences` that the controller reads.
#[derive(Debug, Deserialize)]
pub(super) struct OwnerReferenceJson<'a> {
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(default)]
    uid: Uid,
    #[serde(default)]
    controller: Option<bool>,
}

/// The first reference with `controller: true`.
pub(super) fn controller_of(
    references: Option<Vec<OwnerReferenceJson<'_>>>,
    interner: &mut Interner,
) -> Option<std::sync::Arc<ControllerRef>> {
    let is_controller = |reference: &OwnerReferenceJson<'_>| reference.controller == Some(true);
    let reference = references?.into_iter().find(is_controller)?;
    let (kind, name) = (
        interner.text(&reference.kind),
        std::sync::Arc::from(&*reference.name),
    );
    Some(interner.owner(ControllerRef {
        kind,
        name,
        uid: reference.uid,
    }))
}
