//! Helpers to decode API objects, in which `null` may replace any absent field.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use arcstr::ArcStr;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::compact_timestamp::CompactTimestamp;
use super::interner::Interner;
use super::label_selector::Labels;
use super::object_key::{ControllerRef, ResourceVersion, Uid};

/// A string, borrowed if it has no escapes. serde borrows a `Cow` only in a field of a struct, not
/// as an element of a list or map.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl AsRef<str> for Text<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Decodes a list element by element into `C`, without a `Vec` in between. `null` is an empty one.
pub(super) fn collect<'de, D, T, C>(deserializer: D) -> Result<C, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
    C: FromIterator<T>,
{
    deserializer.deserialize_option(Collector::<T, C>(PhantomData))
}

struct Collector<T, C>(PhantomData<(T, C)>);

impl<'de, T: Deserialize<'de>, C: FromIterator<T>> Visitor<'de> for Collector<T, C> {
    type Value = C;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_none<E>(self) -> Result<C, E> {
        Ok(C::from_iter([]))
    }

    fn visit_unit<E>(self) -> Result<C, E> {
        Ok(C::from_iter([]))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<C, D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<C, A::Error> {
        std::iter::from_fn(|| list.next_element().transpose()).collect()
    }
}

/// Decodes a map of strings entry by entry into `C`, without a map in between; `null` gives an
/// empty `C`.
pub(super) fn collect_map<'de, D, C>(deserializer: D) -> Result<C, D::Error>
where
    D: Deserializer<'de>,
    C: FromIterator<(Text<'de>, Text<'de>)>,
{
    deserializer.deserialize_option(MapCollector(PhantomData))
}

struct MapCollector<C>(PhantomData<C>);

impl<'de, C: FromIterator<(Text<'de>, Text<'de>)>> Visitor<'de> for MapCollector<C> {
    type Value = C;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_none<E>(self) -> Result<C, E> {
        Ok(C::from_iter([]))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<C, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<C, A::Error> {
        let mut next = || {
            let entry = map.next_entry::<Text<'de>, Option<Text<'de>>>()?;
            Ok(entry.map(|(key, value)| (key, value.unwrap_or_default())))
        };
        std::iter::from_fn(|| next().transpose()).collect()
    }
}

/// Decodes the name of an object. Rejects an empty one: in protobuf that is an absent name.
pub(super) fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Cow<'de, str>, D::Error> {
    let Text(name) = Text::deserialize(deserializer)?;
    if name.is_empty() {
        return Err(D::Error::custom("empty name"));
    }
    Ok(name)
}

/// `metadata`. `A` has the annotations that this program reads from objects of the kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "A: Deserialize<'de>"))]
pub(super) struct MetadataJson<'a, A> {
    #[serde(borrow)]
    pub(super) namespace: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "name")]
    pub(super) name: Cow<'a, str>,
    #[serde(default)]
    pub(super) uid: Uid,
    #[serde(default)]
    pub(super) resource_version: ResourceVersion,
    pub(super) generation: Option<i64>,
    #[serde(default)]
    pub(super) labels: Labels,
    pub(super) annotations: Option<A>,
    pub(super) finalizers: Option<Vec<IgnoredAny>>,
    #[serde(borrow)]
    pub(super) owner_references: Option<Vec<OwnerReferenceJson<'a>>>,
    pub(super) creation_timestamp: Option<CompactTimestamp>,
    pub(super) deletion_timestamp: Option<CompactTimestamp>,
}

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
        ArcStr::from(&*reference.name),
    );
    Some(interner.owner(ControllerRef {
        kind,
        name,
        uid: reference.uid,
    }))
}

/// The media type that every API server supports.
pub const JSON: &str = "application/json";

/// The value of an `Accept` header for JSON without `metadata.managedFields`. An API server without
/// the feature `ManagedFieldsOptOut` ignores the parameter; one that rejects its value takes the
/// clause without it.
pub const JSON_WITHOUT_MANAGED_FIELDS: &str =
    "application/json;drop=metadata.managedFields, application/json";

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    pub media_type: &'static str,
    pub bytes: Vec<u8>,
}
