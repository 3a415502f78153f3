//! Watches in JSON: one message per line.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::{
    Decode, Decoded, Frame, INITIAL_EVENTS_END, OBJECT_BYTES_MAX, ReadWatch, StreamError,
    check_names,
};
use super::json_object::{Head, read_object};
use crate::api::Status;
use crate::api::interner::Interner;

/// Size of the read buffer, in bytes: several usual messages.
const BUFFER_BYTES: usize = 32 << 10;

/// A line longer than this, in bytes, does not leave its memory behind.
const KEPT_LINE_BYTES_MAX: usize = 1 << 20;

/// The body of a watch in JSON.
pub(super) struct JsonWatch {
    body: BufReader<Box<dyn Read + Send>>,
    /// The current line, kept for its memory.
    line: Vec<u8>,
}

#[derive(Deserialize)]
struct FrameJson<'a> {
    #[serde(rename = "type", borrow)]
    type_: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// How the three kinds of change begin, as API servers write them.
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
        // The last line of a body that has ended may lack nothing but the line feed.
        let is_whole = n == 0
            || self.line.ends_with(b"\n")
            || serde_json::from_slice::<FrameJson<'_>>(&self.line).is_ok();
        if is_whole {
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

impl fmt::Debug for JsonWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_bytes = self.line.len();
        f.debug_struct("JsonWatch")
            .field("n_line_bytes", &n_bytes)
            .finish_non_exhaustive()
    }
}

fn read_frame<T: Decode>(
    line: &[u8],
    interner: &mut Interner,
) -> Result<Frame<T::Object>, StreamError> {
    if let Some(frame) = read_usual_frame::<T>(line, interner) {
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

/// Reads a change that is written as API servers write it. Where the object begins and ends is then
/// known beforehand, and it is looked at once instead of twice.
fn read_usual_frame<T: Decode>(line: &[u8], interner: &mut Interner) -> Option<Frame<T::Object>> {
    let starts = |(prefix, change): &(&[u8], ChangeType)| {
        let rest = line.strip_prefix(*prefix)?;
        Some((rest.strip_suffix(b"}")?, *change))
    };
    let (object, change) = PREFIXES.iter().find_map(starts)?;
    let kind = object.strip_prefix(br#"{"kind":""#)?;
    kind.strip_prefix(T::KIND.as_bytes())?.strip_prefix(b"\"")?;
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

/// An object without a kind is taken for what was asked for.
fn foreign_kind<T: Decode>(head: &Head<'_>) -> Option<Frame<T::Object>> {
    let kind = head.kind.as_deref()?;
    (kind != T::KIND).then(|| Frame::Foreign(format!("an object of kind {kind:?}")))
}

#[cfg(test)]
mod tests;
