//! Splits the JSON body of a list into its items and holds at most one of them at a time.
//!
//! [`decode`](super::decode) uses it on a watch thread. A scanner that knows only strings, escapes
//! and depth finds the end of each item in a read buffer. The item's decoder checks whether it is
//! valid JSON, so it sees every byte once and from memory (decoding directly from a reader takes
//! more than twice as long). This file also reads the members around the items: `kind`, and
//! `metadata` before or after them.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;

use serde::Deserialize;

use super::decode::{ListMetadata, StreamError};
use super::read_buffer::ReadBuffer;

pub(super) struct JsonItems<R> {
    body: ReadBuffer<R>,
    position: Position,
    value_bytes_max: usize,
    kind: Option<String>,
    metadata: ListMetadata,
}

/// The position of the next byte in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
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
    /// Creates a reader for the list in `body`. No value in it may be longer than
    /// `value_bytes_max`.
    pub(super) fn new(body: R, value_bytes_max: usize) -> Self {
        Self {
            body: ReadBuffer::new(body),
            position: Position::Start,
            value_bytes_max,
            kind: None,
            metadata: ListMetadata::default(),
        }
    }

    /// Returns the next item's bytes; `None` after the last, once the body has been read to its
    /// closing brace. Blocks until the item has arrived; the body's read ends the wait.
    ///
    /// # Errors
    /// [`StreamError`] if the body is incomplete or not a list. The reader is unusable after that.
    pub(super) fn next_item(&mut self) -> Result<Option<&[u8]>, StreamError> {
        loop {
            match self.position {
                Position::Start => {
                    self.expect(b'{')?;
                    self.position = Position::Members { is_first: true };
                }
                Position::Members { is_first } => {
                    if self.is_at_end_of(b'}', is_first)? {
                        self.position = Position::End;
                    } else {
                        self.member()?;
                    }
                }
                Position::Items { is_first } => {
                    if self.is_at_end_of(b']', is_first)? {
                        self.position = Position::Members { is_first: false };
                    } else {
                        self.position = Position::Items { is_first: false };
                        let item = self.value()?;
                        return Ok(Some(self.body.get(item)));
                    }
                }
                Position::End => return Ok(None),
            }
        }
    }

    pub(super) fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    /// `metadata` of the list; complete after the last item.
    pub(super) fn metadata(&self) -> &ListMetadata {
        &self.metadata
    }

    /// Reads one member to its end, or to the first item.
    fn member(&mut self) -> Result<(), StreamError> {
        self.position = Position::Members { is_first: false };
        let key = self.value()?;
        let key: Cow<'_, str> = serde_json::from_slice(self.body.get(key))?;
        let key = key.into_owned();
        self.expect(b':')?;
        if key == "items" && self.peek()? == b'[' {
            self.body.take(1);
            self.position = Position::Items { is_first: true };
            return Ok(());
        }
        let value = self.value()?;
        let value = self.body.get(value);
        match key.as_str() {
            // Go encodes an empty list as `null`.
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

    /// Skips the comma before a member or an item, or the closing bracket; true for the bracket.
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

    fn expect(&mut self, expected: u8) -> Result<(), StreamError> {
        let found = self.peek()?;
        if found != expected {
            let (expected, found) = (expected as char, found as char);
            let message = format!("{found:?} where {expected:?} belongs");
            return Err(StreamError::Malformed(message));
        }
        self.body.take(1);
        Ok(())
    }

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

    /// Takes one complete value; the range is valid until the next call.
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

/// Finds the end of one JSON value that arrives in pieces.
#[derive(Debug, Default)]
struct ValueScanner {
    state: ScanState,
    /// Number of open braces and brackets.
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
    /// In a number, `true`, `false` or `null` outside any object or array.
    Scalar,
}

impl ValueScanner {
    /// Scans the next piece. Returns the length of the value's part in it if the value ends there.
    fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut offset = 0;
        while let Some(&byte) = bytes.get(offset) {
            match self.state {
                ScanState::Start => {
                    self.state = match byte {
                        b'"' => ScanState::String,
                        b'{' | b'[' => ScanState::Structure,
                        _ => ScanState::Scalar,
                    };
                    self.depth = usize::from(matches!(byte, b'{' | b'['));
                    offset += 1;
                }
                ScanState::Structure => {
                    let rest = &bytes[offset..];
                    let n = rest.iter().position(|byte| IS_STRUCTURE[*byte as usize])?;
                    offset += n + 1;
                    match rest[n] {
                        b'"' => self.state = ScanState::String,
                        b'{' | b'[' => self.depth += 1,
                        _ => self.depth -= 1,
                    }
                    if self.depth == 0 {
                        return Some(offset);
                    }
                }
                ScanState::String => {
                    let rest = &bytes[offset..];
                    let n = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
                    offset += n + 1;
                    if rest[n] == b'\\' {
                        self.state = ScanState::Escape;
                    } else if self.depth == 0 {
                        return Some(offset);
                    } else {
                        self.state = ScanState::Structure;
                    }
                }
                ScanState::Escape => {
                    self.state = ScanState::String;
                    offset += 1;
                }
                ScanState::Scalar => {
                    if is_space(byte) || matches!(byte, b',' | b']' | b'}' | b':') {
                        return Some(offset);
                    }
                    offset += 1;
                }
            }
        }
        None
    }
}

/// The bytes that are structural outside strings.
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
