//! Decodes one object from JSON.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::{Decode, Decoded, Unread, check_names};
use super::store::UnreadKey;
use crate::api::interner::Interner;
use crate::api::{ObjectKey, ResourceVersion, Uid};

/// Decodes an object, or at least its identity if the object cannot be decoded.
pub(super) fn read_object<T: Decode>(json: &[u8], interner: &mut Interner) -> Decoded<T::Object> {
    let object = T::from_json(json, interner).map_err(|error| unread(json, &error))?;
    check_names(object)
}

/// The fields of a bookmark or of any other object that this file decodes itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Head<'a> {
    #[serde(borrow)]
    pub(super) kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) metadata: Option<HeadMetadata<'a>>,
}

/// The `metadata` of a bookmark.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct HeadMetadata<'a> {
    #[serde(borrow)]
    pub(super) resource_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) annotations: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
}

/// The identifying fields as raw text, since any of them may be the undecodable one.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Names<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    uid: Option<&'a RawValue>,
    #[serde(borrow)]
    resource_version: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named<'a> {
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

fn unread(json: &[u8], error: &serde_json::Error) -> Unread {
    let object: Named<'_> = serde_json::from_slice(json).unwrap_or_default();
    let metadata = object.metadata.map_or("{}", RawValue::get);
    let names: Names<'_> = serde_json::from_str(metadata).unwrap_or_default();
    let text = |field: Option<&RawValue>| -> Option<String> {
        field.and_then(|field| serde_json::from_str(field.get()).ok())
    };
    let key = text(names.name).map(|name| UnreadKey {
        key: ObjectKey::new(text(names.namespace).unwrap_or_default(), name),
        uid: Uid::new(&text(names.uid).unwrap_or_default()),
    });
    Unread {
        key,
        resource_version: ResourceVersion::new(&text(names.resource_version).unwrap_or_default()),
        error: error.to_string(),
    }
}
