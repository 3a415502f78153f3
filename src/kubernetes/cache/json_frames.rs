//! JSON: lists whose items are decoded one by one as they arrive, watches, and single objects.
//!
//! Only servers without protobuf are read in it. So this is the simplest code, not the fastest:
//! each object is copied from the body, and then decoded from memory.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::io::{BufReader, Read};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::decode::{
    BUFFER_BYTES, Decode, Decoded, Frame, INITIAL_EVENTS_END, ListMetadata, OBJECT_BYTES_MAX,
    StreamError, Unread, check_names,
};
use super::store::UnreadKey;
use crate::api::interner::Interner;
use crate::api::{ObjectKey, ResourceVersion, Status, Uid};

/// Reads a list of objects of this kind, each of so many bytes at most, and passes each on as soon
/// as it has arrived.
pub(super) fn read_list(
    body: impl Read,
    kind: &str,
    bytes_max: usize,
    on_item: &mut dyn FnMut(&[u8]),
) -> Result<ListMetadata, StreamError> {
    let n_left = Cell::new(bytes_max);
    let mut list = List {
        expected: kind,
        other_kind: None,
        metadata: ListMetadata::default(),
        on_item: &mut |item| {
            n_left.set(bytes_max);
            on_item(item);
        },
    };
    let body = Limited {
        body: BufReader::with_capacity(BUFFER_BYTES, body),
        n_left: &n_left,
    };
    let read = serde_json::Deserializer::from_reader(body).deserialize_map(&mut list);
    if let Some(kind) = list.other_kind {
        return Err(StreamError::OtherKind(kind));
    }
    match read {
        Err(_) if n_left.get() == 0 => Err(StreamError::TooLarge(bytes_max)),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(list.metadata),
    }
}

/// A body that ends after a number of bytes, which each item sets again.
struct Limited<'a, R> {
    body: R,
    n_left: &'a Cell<usize>,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_left = self.n_left.get();
        let most = buffer.len().min(n_left);
        let n = self.body.read(&mut buffer[..most])?;
        self.n_left.set(n_left - n);
        Ok(n)
    }
}

struct List<'a> {
    expected: &'a str,
    /// The list's kind, if it is not one of the expected objects.
    other_kind: Option<String>,
    metadata: ListMetadata,
    on_item: &'a mut dyn FnMut(&[u8]),
}

impl<'de> Visitor<'de> for &mut List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list with its metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<String>()? {
            match &*name {
                "items" => members.next_value_seed(Items(self))?,
                "kind" => {
                    let kind = members.next_value::<Option<String>>()?;
                    self.other_kind =
                        kind.filter(|kind| kind.strip_suffix("List") != Some(self.expected));
                }
                "metadata" => {
                    let metadata: Option<ListMeta> = members.next_value()?;
                    let metadata = metadata.unwrap_or_default();
                    self.metadata = ListMetadata {
                        resource_version: version(metadata.resource_version),
                        continue_token: metadata.continue_.unwrap_or_default(),
                    };
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

struct Items<'a, 'b>(&'a mut List<'b>);

impl<'de> DeserializeSeed<'de> for Items<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of items")
    }

    /// Go encodes an empty list as `null`.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self(list) = self;
        if list.other_kind.is_some() {
            return Err(A::Error::custom("items of another kind"));
        }
        while let Some(item) = items.next_element::<Box<RawValue>>()? {
            (list.on_item)(item.get().as_bytes());
        }
        Ok(())
    }
}

/// The messages of a watch.
pub(super) struct JsonWatch(BufReader<Box<dyn Read + Send>>);

#[derive(Deserialize)]
struct MessageJson {
    #[serde(rename = "type")]
    type_: String,
    object: Box<RawValue>,
}

impl JsonWatch {
    pub(super) fn new(body: Box<dyn Read + Send>) -> Self {
        Self(BufReader::with_capacity(BUFFER_BYTES, body))
    }

    pub(super) fn next_frame<T: Decode>(
        &mut self,
        interner: &mut Interner,
    ) -> Result<Option<Frame<T::Object>>, StreamError> {
        let mut body = self.0.by_ref().take(OBJECT_BYTES_MAX as u64);
        // Reads no byte behind a message.
        let messages = serde_json::Deserializer::from_reader(&mut body);
        let message = messages.into_iter::<MessageJson>().next();
        if body.limit() == 0 {
            return Err(StreamError::TooLarge(OBJECT_BYTES_MAX));
        }
        let Some(message) = message.transpose()? else {
            return Ok(None);
        };
        let object = message.object.get().as_bytes();
        if message.type_ == "ERROR" {
            return Ok(Some(Frame::Error(Status::from_body(0, object))));
        }
        // An object without a kind is accepted as the requested one.
        if let Some(kind) = Head::of(object).kind.and_then(text)
            && kind != T::KIND
        {
            return Ok(Some(Frame::of_kind(&kind)));
        }
        Ok(Some(match &*message.type_ {
            "BOOKMARK" => read_bookmark(object),
            change => Frame::of_change(change, || read_object::<T>(object, interner)),
        }))
    }
}

fn read_bookmark<T>(object: &[u8]) -> Frame<T> {
    let metadata = Head::of(object).metadata.map_or("null", RawValue::get);
    let metadata: ObjectMeta = match serde_json::from_str::<Option<_>>(metadata) {
        Ok(metadata) => metadata.unwrap_or_default(),
        Err(error) => return Frame::Foreign(format!("an unreadable bookmark: {error}")),
    };
    let annotations = metadata.annotations.unwrap_or_default();
    Frame::Bookmark {
        resource_version: version(metadata.resource_version),
        is_initial_events_end: annotations
            .get(INITIAL_EVENTS_END)
            .is_some_and(|value| value == "true"),
    }
}

fn version(text: Option<String>) -> ResourceVersion {
    ResourceVersion::new(&text.unwrap_or_default())
}

/// Decodes an object, or at least its identity if the object cannot be decoded.
pub(super) fn read_object<T: Decode>(json: &[u8], interner: &mut Interner) -> Decoded<T::Object> {
    let object = T::from_json(json, interner).map_err(|error| unread(json, &error))?;
    check_names(object)
}

/// An object's head as raw text, since any part of it may be the undecodable one.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head<'a> {
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

impl<'a> Head<'a> {
    fn of(object: &'a [u8]) -> Self {
        serde_json::from_slice(object).unwrap_or_default()
    }
}

/// The identifying fields, as raw text too.
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

fn unread(json: &[u8], error: &serde_json::Error) -> Unread {
    let metadata = Head::of(json).metadata.map_or("{}", RawValue::get);
    let names: Names<'_> = serde_json::from_str(metadata).unwrap_or_default();
    let text_or_empty = |field: Option<&RawValue>| field.and_then(text).unwrap_or_default();
    let key = names.name.and_then(text).map(|name| UnreadKey {
        key: ObjectKey::new(text_or_empty(names.namespace), name),
        uid: Uid::new(&text_or_empty(names.uid)),
    });
    Unread {
        key,
        resource_version: ResourceVersion::new(&text_or_empty(names.resource_version)),
        error: error.to_string(),
    }
}

/// `None` unless it is a string.
fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

#[cfg(test)]
mod tests;
