//! One object in JSON, readable or not.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::decode::{Decode, Decoded, Unread};
use super::store::UnreadKey;
use crate::api::interner::Interner;
use crate::api::{ObjectKey, ResourceVersion, Uid};

/// Reads an object; of one that cannot be read at least what it is, if that can be read.
pub(super) fn read_object<T: Decode>(json: &[u8], interner: &mut Interner) -> Decoded<T::Object> {
    T::from_json(json, interner).map_err(|error| unread(json, &error))
}

/// What stands at the head of any object.
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

fn unread(json: &[u8], error: &serde_json::Error) -> Unread {
    // Any field may be the one that cannot be read, so nothing is taken for granted here.
    let object: Value = serde_json::from_slice(json).unwrap_or_default();
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let key = metadata["name"].as_str().map(|name| UnreadKey {
        key: ObjectKey::new(text("namespace"), name),
        uid: Uid::new(text("uid")),
    });
    Unread {
        key,
        resource_version: ResourceVersion::new(text("resourceVersion")),
        error: error.to_string(),
    }
}
