//! JSON: watches with one message per line, lists whose items are decoded each from its own slice,
//! and single objects.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::io::{BufRead, BufReader, Read};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::{
    Decode, Decoded, Frame, INITIAL_EVENTS_END, ListMetadata, OBJECT_BYTES_MAX, ReadList,
    ReadWatch, StreamError, Unread, check_names,
};
use super::json_items::JsonItems;
use super::store::UnreadKey;
use crate::api::interner::Interner;
use crate::api::{ObjectKey, ResourceVersion, Status, Uid};

/// Size of the read buffer, in bytes: several usual messages.
const BUFFER_BYTES: usize = 32 << 10;

/// The buffer of a line longer than this, in bytes, is shrunk afterwards.
const KEPT_LINE_BYTES_MAX: usize = 1 << 20;

pub(super) struct JsonWatch {
    body: BufReader<Box<dyn Read + Send>>,
    /// The current line; reading reuses its memory.
    line: Vec<u8>,
}

#[derive(Deserialize)]
struct FrameJson<'a> {
    #[serde(rename = "type", borrow)]
    type_: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The prefixes of the three kinds of change, in the form that API servers write.
const PREFIXES: [(&[u8], ChangeType); 3] = [
    (br#"{"type":"ADDED","object":"#, ChangeType::Added),
    (br#"{"type":"MODIFIED","object":"#, ChangeType::Modified),
    (br#"{"type":"DELETED","object":"#, ChangeType::Deleted),
];

#[derive(Clone, Copy, Debug)]
enum ChangeType {
    Added,
    Modified,
    Deleted,
}

impl ChangeType {
    fn of<T>(self, object: Decoded<T>) -> Frame<T> {
        match self {
            Self::Added => Frame::Added(object),
            Self::Modified => Frame::Modified(object),
            Self::Deleted => Frame::Deleted(object),
        }
    }
}

impl JsonWatch {
    pub(super) fn new(body: Box<dyn Read + Send>) -> Self {
        Self {
            body: BufReader::with_capacity(BUFFER_BYTES, body),
            line: Vec::new(),
        }
    }

    /// Reads the next line into `line`; false if the body has ended before it.
    fn read_line(&mut self) -> Result<bool, StreamError> {
        self.line.clear();
        self.line.shrink_to(KEPT_LINE_BYTES_MAX);
        let body = &mut self.body;
        let n = body
            .take(OBJECT_BYTES_MAX as u64)
            .read_until(b'\n', &mut self.line)?;
        if n == OBJECT_BYTES_MAX {
            return Err(StreamError::TooLarge(OBJECT_BYTES_MAX));
        }
        // The last line of a body that has ended is complete even without its line feed.
        let is_complete = n == 0
            || self.line.ends_with(b"\n")
            || serde_json::from_slice::<FrameJson<'_>>(&self.line).is_ok();
        if is_complete {
            Ok(n > 0)
        } else {
            Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
        }
    }
}

impl<T: Decode> ReadWatch<T> for JsonWatch {
    fn next_frame(
        &mut self,
        interner: &mut Interner,
    ) -> Result<Option<Frame<T::Object>>, StreamError> {
        while self.read_line()? {
            let line = self.line.trim_ascii();
            if !line.is_empty() {
                return read_frame::<T>(line, interner).map(Some);
            }
        }
        Ok(None)
    }
}

fn read_frame<T: Decode>(
    line: &[u8],
    interner: &mut Interner,
) -> Result<Frame<T::Object>, StreamError> {
    if let Some(frame) = read_common_frame::<T>(line, interner) {
        return Ok(frame);
    }
    let frame: FrameJson<'_> = serde_json::from_slice(line)?;
    let object = frame.object.get().as_bytes();
    let change = match &*frame.type_ {
        "ADDED" => ChangeType::Added,
        "MODIFIED" => ChangeType::Modified,
        "DELETED" => ChangeType::Deleted,
        "BOOKMARK" => return Ok(read_bookmark::<T>(object)),
        "ERROR" => return Ok(Frame::Error(Status::from_body(0, object))),
        other => return Ok(Frame::Foreign(format!("a message of type {other:?}"))),
    };
    if let Some(foreign) = foreign_kind::<T>(&serde_json::from_slice(object).unwrap_or_default()) {
        return Ok(foreign);
    }
    Ok(change.of(read_object::<T>(object, interner)))
}

/// Decodes a change in the form that API servers write. The object's position is known then, so the
/// object is parsed once instead of twice.
fn read_common_frame<T: Decode>(line: &[u8], interner: &mut Interner) -> Option<Frame<T::Object>> {
    let split = |(prefix, change): &(&[u8], ChangeType)| {
        let rest = line.strip_prefix(*prefix)?;
        Some((rest.strip_suffix(b"}")?, *change))
    };
    let (object, change) = PREFIXES.iter().find_map(split)?;
    let kind = object.strip_prefix(br#"{"kind":""#)?;
    kind.strip_prefix(T::KIND.as_bytes())?.strip_prefix(b"\"")?;
    // On an error the general path decodes the line again and keeps the object's identity.
    let object = T::from_json(object, interner).ok()?;
    Some(change.of(check_names(object)))
}

fn read_bookmark<T: Decode>(object: &[u8]) -> Frame<T::Object> {
    let head: Head<'_> = match serde_json::from_slice(object) {
        Ok(head) => head,
        Err(error) => return Frame::Foreign(format!("a bookmark that cannot be read: {error}")),
    };
    if let Some(foreign) = foreign_kind::<T>(&head) {
        return foreign;
    }
    let metadata = head.metadata.unwrap_or_default();
    let annotations = metadata.annotations.unwrap_or_default();
    Frame::Bookmark {
        resource_version: (*metadata.resource_version.unwrap_or_default()).into(),
        is_initial_events_end: annotations
            .get(INITIAL_EVENTS_END)
            .is_some_and(|v| v == "true"),
    }
}

/// Returns a foreign frame for an object of another kind. An object without a kind is accepted as
/// the requested one.
fn foreign_kind<T: Decode>(head: &Head<'_>) -> Option<Frame<T::Object>> {
    let kind = head.kind.as_deref()?;
    (kind != T::KIND).then(|| Frame::Foreign(format!("an object of kind {kind:?}")))
}

pub(super) struct JsonList {
    items: JsonItems<Box<dyn Read + Send>>,
}

impl JsonList {
    pub(super) fn new(body: Box<dyn Read + Send>) -> Self {
        Self {
            items: JsonItems::new(body, OBJECT_BYTES_MAX),
        }
    }

    /// Rejects a `Table` or another kind's list: decoded as a list of pods it would be empty.
    fn check_kind<T: Decode>(&self) -> Result<(), StreamError> {
        match self.items.kind() {
            Some(kind) if kind.strip_suffix("List") != Some(T::KIND) => {
                Err(StreamError::OtherKind(kind.to_owned()))
            }
            _ => Ok(()),
        }
    }
}

impl<T: Decode> ReadList<T> for JsonList {
    fn next_object(
        &mut self,
        interner: &mut Interner,
    ) -> Result<Option<Decoded<T::Object>>, StreamError> {
        let decoded = self
            .items
            .next_item()?
            .map(|item| read_object::<T>(item, interner));
        self.check_kind::<T>()?;
        if decoded.is_none() {
            self.items.metadata().check()?;
        }
        Ok(decoded)
    }

    fn metadata(&self) -> &ListMetadata {
        self.items.metadata()
    }
}

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

#[cfg(test)]
mod tests;
