//! Cuts the JSON body of a list into its items without ever holding more than one of them.
//!
//! Used by [`decode`](super::decode) on a watch thread. A scanner that knows only strings, escapes
//! and depth finds where an item ends in a read buffer; whether the item is valid JSON is for its
//! decoder to say, which so sees every byte once and from memory (decoding straight from a reader
//! takes more than twice as long). What stands around the items is read here: `kind`, and
//! `metadata`, before or after them.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;
use std::ops::Range;

use serde::Deserialize;

use super::decode::{ListMetadata, StreamError};
use super::read_buffer::ReadBuffer;

/// The items of one list body.
pub(super) struct JsonItems<R> {
    body: ReadBuffer<R>,
    place: Place,
    value_bytes_max: usize,
    kind: Option<String>,
    metadata: ListMetadata,
}

/// Where in the body the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the opening brace.
    Start,
    /// Before a member or the closing brace.
    Members { is_first: bool },
    /// Before an item or the closing bracket.
    Items { is_first: bool },
    /// After the closing brace.
    End,
}

#[derive(Deserialize)]
struct MetadataJson<'a> {
    #[serde(rename = "resourceVersion", borrow)]
    resource_version: Option<Cow<'a, str>>,
    #[serde(rename = "continue", borrow)]
    continue_token: Option<Cow<'a, str>>,
}

impl<R: Read> JsonItems<R> {
    /// Reads a list from `body`. No value in it may be longer than `value_bytes_max`.
    pub(super) fn new(body: R, value_bytes_max: usize) -> Self {
        Self {
            body: ReadBuffer::new(body),
            place: Place::Start,
            value_bytes_max,
            kind: None,
            metadata: ListMetadata::default(),
        }
    }

    /// The next item as it stands in the body; `None` after the last, when the body has been read
    /// to its closing brace. Blocks until the item has arrived; the body's read ends the wait.
    ///
    /// # Errors
    /// [`StreamError`] if the body breaks off or is not a list. The reader is of no use after that.
    pub(super) fn next_item(&mut self) -> Result<Option<&[u8]>, StreamError> {
        loop {
            match self.place {
                Place::Start => {
                    self.expect(b'{')?;
                    self.place = Place::Members { is_first: true };
                }
                Place::Members { is_first } => {
                    if self.is_at_end_of(b'}', is_first)? {
                        self.place = Place::End;
                    } else {
                        self.member()?;
                    }
                }
                Place::Items { is_first } => {
                    if self.is_at_end_of(b']', is_first)? {
                        self.place = Place::Members { is_first: false };
                    } else {
                        self.place = Place::Items { is_first: false };
                        let item = self.value()?;
                        return Ok(Some(self.body.get(item)));
                    }
                }
                Place::End => return Ok(None),
            }
        }
    }

    /// `kind` of the list, as far as the body has been read.
    pub(super) fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    /// `metadata` of the list; complete after the last item.
    pub(super) fn metadata(&self) -> &ListMetadata {
        &self.metadata
    }

    /// Reads one member up to its end, or up to the first item.
    fn member(&mut self) -> Result<(), StreamError> {
        self.place = Place::Members { is_first: false };
        let key = self.value()?;
        let key: Cow<'_, str> = serde_json::from_slice(self.body.get(key))?;
        let key = key.into_owned();
        self.expect(b':')?;
        if key == "items" && self.peek()? == b'[' {
            self.body.take(1);
            self.place = Place::Items { is_first: true };
            return Ok(());
        }
        let value = self.value()?;
        let value = self.body.get(value);
        match key.as_str() {
            "items" if value != b"null" => {
                return Err(StreamError::Malformed("items is no array".to_owned()));
            }
            "kind" => self.kind = serde_json::from_slice(value)?,
            "metadata" => {
                let metadata: MetadataJson<'_> = serde_json::from_slice(value)?;
                self.metadata = ListMetadata {
                    resource_version: (*metadata.resource_version.unwrap_or_default()).into(),
                    continue_token: metadata.continue_token.unwrap_or_default().into_owned(),
                };
            }
            _ => {}
        }
        Ok(())
    }

    /// Skips the comma before a member or an item, or the bracket that closes them; true if it was
    /// the bracket.
    fn is_at_end_of(&mut self, close: u8, is_first: bool) -> Result<bool, StreamError> {
        if self.peek()? == close {
            self.body.take(1);
            return Ok(true);
        }
        if !is_first {
            self.expect(b',')?;
        }
        Ok(false)
    }

    fn expect(&mut self, wanted: u8) -> Result<(), StreamError> {
        let found = self.peek()?;
        if found != wanted {
            let (wanted, found) = (wanted as char, found as char);
            let message = format!("{found:?} where {wanted:?} belongs");
            return Err(StreamError::Malformed(message));
        }
        self.body.take(1);
        Ok(())
    }

    /// The next byte that is no white space, left where it is.
    fn peek(&mut self) -> Result<u8, StreamError> {
        loop {
            let unread = self.body.unread();
            let n_spaces = unread.iter().position(|byte| !is_space(*byte));
            if let Some(n_spaces) = n_spaces {
                let byte = unread[n_spaces];
                self.body.take(n_spaces);
                return Ok(byte);
            }
            let n_spaces = unread.len();
            self.body.take(n_spaces);
            self.body.fill()?;
        }
    }

    /// Takes one whole value; the range is good until the next call.
    fn value(&mut self) -> Result<Range<usize>, StreamError> {
        self.peek()?;
        let mut scanner = ValueScanner::default();
        let mut n_scanned = 0;
        loop {
            let unscanned = &self.body.unread()[n_scanned..];
            if let Some(n) = scanner.feed(unscanned) {
                return Ok(self.body.take(n_scanned + n));
            }
            n_scanned = self.body.unread().len();
            if n_scanned > self.value_bytes_max {
                return Err(StreamError::TooLarge(self.value_bytes_max));
            }
            self.body.fill()?;
        }
    }
}

impl<R> fmt::Debug for JsonItems<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonItems")
            .field("place", &self.place)
            .field("kind", &self.kind)
            .field("metadata", &self.metadata)
            .finish_non_exhaustive()
    }
}

/// Finds the end of one JSON value that comes in pieces.
#[derive(Debug, Default)]
struct ValueScanner {
    state: ScanState,
    /// Open braces and brackets.
    depth: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum ScanState {
    /// Before the first byte.
    #[default]
    Start,
    /// In an object or array, outside strings.
    Structure,
    /// In a string.
    String,
    /// In a string, after a backslash.
    Escape,
    /// In a number, `true`, `false` or `null` that stands alone.
    Scalar,
}

impl ValueScanner {
    /// Looks at the next piece; some number of its bytes if the value ends after so many.
    fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match self.state {
                ScanState::Start => {
                    self.state = match byte {
                        b'"' => ScanState::String,
                        b'{' | b'[' => ScanState::Structure,
                        _ => ScanState::Scalar,
                    };
                    self.depth = usize::from(matches!(byte, b'{' | b'['));
                    at += 1;
                }
                ScanState::Structure => {
                    let rest = &bytes[at..];
                    let n = rest.iter().position(|byte| IS_STRUCTURE[*byte as usize])?;
                    at += n + 1;
                    match rest[n] {
                        b'"' => self.state = ScanState::String,
                        b'{' | b'[' => self.depth += 1,
                        _ => self.depth -= 1,
                    }
                    if self.depth == 0 {
                        return Some(at);
                    }
                }
                ScanState::String => {
                    let rest = &bytes[at..];
                    let n = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
                    at += n + 1;
                    if rest[n] == b'\\' {
                        self.state = ScanState::Escape;
                    } else if self.depth == 0 {
                        return Some(at);
                    } else {
                        self.state = ScanState::Structure;
                    }
                }
                ScanState::Escape => {
                    self.state = ScanState::String;
                    at += 1;
                }
                ScanState::Scalar => {
                    if is_space(byte) || matches!(byte, b',' | b']' | b'}' | b':') {
                        return Some(at);
                    }
                    at += 1;
                }
            }
        }
        None
    }
}

/// The bytes that matter outside strings.
const IS_STRUCTURE: [bool; 256] = {
    let mut table = [false; 256];
    table[b'"' as usize] = true;
    table[b'{' as usize] = true;
    table[b'}' as usize] = true;
    table[b'[' as usize] = true;
    table[b']' as usize] = true;
    table
};

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

#[cfg(test)]
mod tests;
