//! The received bytes of a connection that no request has used yet, and how the server takes heads,
//! lines and bodies out of them. The server scans each byte a bounded number of times. A client
//! that never ends its request occupies a bounded buffer.

use std::io::{self, Read};

use super::head::{BAD_REQUEST, BodyLength, HEAD_TOO_LARGE, StatusLine, chunk_length};

/// Maximum bytes of a request's head. Go's default is 1 MiB; clients of an API server need far
/// less.
const HEAD_BYTES_MAX: usize = 32 * 1024;

const READ_BYTES: usize = 8 * 1024;

/// Maximum bytes of the line before a chunk, which begins with at most 16 digits.
const CHUNK_LINE_BYTES_MAX: usize = 256;

/// Maximum bytes of all trailer lines after the last chunk.
const TRAILER_BYTES_MAX: usize = 4 * 1024;

/// Body bytes beyond the kept ones that the server reads and drops before it gives up (Go
/// `net/http/server.go:maxPostHandlerReadBytes`).
const DROPPED_BYTES_MAX: usize = 256 * 1024;

#[derive(Debug)]
pub(super) enum ReadError {
    /// The client broke the grammar; the server sends this status line.
    Rejected(StatusLine),
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<StatusLine> for ReadError {
    fn from(status: StatusLine) -> Self {
        Self::Rejected(status)
    }
}

/// The received bytes and how far requests have used them.
#[derive(Debug, Default)]
pub(super) struct Received {
    bytes: Vec<u8>,
    used: usize,
    /// The number of unused bytes already scanned for the end of a head.
    scanned: usize,
}

/// A request body and how much of it the server kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) kept: Vec<u8>,
    n_dropped: usize,
    /// True if the server has read the whole body, so the next bytes are those of the next request.
    pub(super) is_read_to_its_end: bool,
}

impl Received {
    pub(super) fn is_empty(&self) -> bool {
        self.unused().is_empty()
    }

    /// Blocks for more bytes and returns their number; 0 if the client sends no more.
    pub(super) fn receive(&mut self, source: &mut impl Read) -> io::Result<usize> {
        self.bytes.drain(..self.used);
        self.used = 0;
        let before = self.bytes.len();
        if self.bytes.capacity() == before {
            self.bytes.reserve_exact(READ_BYTES);
        }
        let capacity = (self.bytes.capacity() - before).min(READ_BYTES);
        self.bytes.resize(before + capacity, 0);
        let length = match source.read(&mut self.bytes[before..]) {
            // A client that disconnects without TLS `close_notify` counts as closed. The server
            // drops its incomplete request without a response.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            length => length,
        };
        self.bytes.truncate(before + *length.as_ref().unwrap_or(&0));
        length
    }

    /// Takes the next head with its empty line; `None` while the head is incomplete.
    pub(super) fn take_head(&mut self) -> Result<Option<Vec<u8>>, StatusLine> {
        // Some clients send an empty line after a body.
        while self.scanned == 0 && self.unused().starts_with(b"\r\n") {
            self.consume(2);
        }
        let unused = self.unused();
        // One read may bring more bytes than a head may have, so the search ends at the maximum.
        let end = unused.len().min(HEAD_BYTES_MAX);
        for at in self.scanned..end {
            if unused[at] != b'\n' {
                continue;
            }
            let lines = &unused[..=at];
            // Rejected, since parsers disagree on whether a bare LF ends a line: a proxy might see
            // other requests in the same bytes.
            if !lines.ends_with(b"\r\n") {
                return Err(BAD_REQUEST);
            }
            if lines.ends_with(b"\r\n\r\n") {
                let head = lines.to_vec();
                self.consume(head.len());
                return Ok(Some(head));
            }
        }
        if unused.len() > HEAD_BYTES_MAX {
            return Err(HEAD_TOO_LARGE);
        }
        // A single CR may be the first half of an empty line, which the next call skips.
        self.scanned = if unused == b"\r" { 0 } else { end };
        Ok(None)
    }

    /// Reads a body and keeps up to `kept_max` bytes of it. Stops reading a body that is much
    /// longer than that.
    pub(super) fn read_body(
        &mut self,
        source: &mut impl Read,
        length: BodyLength,
        kept_max: usize,
    ) -> Result<Body, ReadError> {
        let mut body = Body::default();
        match length {
            BodyLength::Bytes(length) => {
                body.is_read_to_its_end = self.copy(source, length, &mut body, kept_max)?;
            }
            BodyLength::Chunked => loop {
                let line = self.line(source, CHUNK_LINE_BYTES_MAX)?;
                let length = chunk_length(&line)?;
                if length == 0 {
                    self.skip_trailer(source)?;
                    body.is_read_to_its_end = true;
                    break;
                }
                if !self.copy(source, length, &mut body, kept_max)? {
                    break;
                }
                if !self.line(source, 0)?.is_empty() {
                    return Err(BAD_REQUEST.into());
                }
            },
        }
        Ok(body)
    }

    /// Takes `length` bytes into `body`. Returns false if they are too many to drop.
    fn copy(
        &mut self,
        source: &mut impl Read,
        length: u64,
        body: &mut Body,
        kept_max: usize,
    ) -> io::Result<bool> {
        let mut remaining = length;
        while remaining > 0 {
            if self.is_empty() {
                self.receive_more(source)?;
            }
            let most = usize::try_from(remaining).unwrap_or(usize::MAX);
            let piece = &self.unused()[..self.unused().len().min(most)];
            let n_taken = piece.len();
            let n_kept = n_taken.min(kept_max - body.kept.len());
            body.kept.extend_from_slice(&piece[..n_kept]);
            body.n_dropped += n_taken - n_kept;
            self.consume(n_taken);
            remaining -= n_taken as u64;
            if body.n_dropped > DROPPED_BYTES_MAX {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn skip_trailer(&mut self, source: &mut impl Read) -> Result<(), ReadError> {
        let mut remaining = TRAILER_BYTES_MAX;
        loop {
            let line = self.line(source, remaining)?;
            if line.is_empty() {
                return Ok(());
            }
            remaining = remaining.saturating_sub(line.len());
        }
    }

    /// Takes a line of at most `bytes_max` bytes, without its line ending.
    fn line(&mut self, source: &mut impl Read, bytes_max: usize) -> Result<Vec<u8>, ReadError> {
        loop {
            let unused = self.unused();
            let unused = &unused[..unused.len().min(bytes_max + 2)];
            if let Some(at) = unused.iter().position(|it| *it == b'\n') {
                let line = unused[..at]
                    .strip_suffix(b"\r")
                    .ok_or(BAD_REQUEST)?
                    .to_vec();
                self.consume(at + 1);
                return Ok(line);
            }
            if unused.len() == bytes_max + 2 {
                return Err(BAD_REQUEST.into());
            }
            self.receive_more(source)?;
        }
    }

    fn receive_more(&mut self, source: &mut impl Read) -> io::Result<()> {
        match self.receive(source)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    fn unused(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    fn consume(&mut self, n_bytes: usize) {
        self.used += n_bytes;
        self.scanned = 0;
        if self.is_empty() {
            // An idle connection holds no buffer.
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BAD_REQUEST, Body, BodyLength, HEAD_BYTES_MAX, READ_BYTES, ReadError, Received};

    /// Reads a body that comes in pieces of `n` bytes.
    fn read(text: &str, n: usize, length: BodyLength) -> Result<Body, ReadError> {
        let mut pieces = text.as_bytes();
        let mut source = std::iter::from_fn(move || {
            let (piece, rest) = pieces.split_at(n.min(pieces.len()));
            pieces = rest;
            (!piece.is_empty()).then_some(piece)
        });
        let mut source = Pieces(&mut source);
        Received::default().read_body(&mut source, length, 6)
    }

    struct Pieces<'a, 'b>(&'a mut dyn Iterator<Item = &'b [u8]>);

    impl std::io::Read for Pieces<'_, '_> {
        fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
            let piece = self.0.next().unwrap_or_default();
            bytes[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn chunks_are_joined_however_they_arrive() {
        let text = "3;x=y\r\nabc\r\n5\r\ndefgh\r\n0\r\nTrailer: x\r\n\r\n";
        for n in [1, 2, 7, 1000] {
            let body = read(text, n, BodyLength::Chunked).expect("it is good");
            assert_eq!((&*body.kept, body.n_dropped), (&b"abcdef"[..], 2));
            assert!(body.is_read_to_its_end);
        }
    }

    #[test]
    fn chunks_that_break_the_grammar_are_rejected() {
        let long = "1".repeat(1000);
        let trailer = format!("0\r\n{}", "X: y\r\n".repeat(2000));
        for text in [
            "+3\r\nabc\r\n0\r\n\r\n",
            "3\nabc\n0\n\n",
            "3\r\nabc0\r\n\r\n",
            "3\r\nabcdef",
            &long,
            &trailer,
        ] {
            for n in [1, 1000] {
                let refused = read(text, n, BodyLength::Chunked);
                assert!(
                    matches!(refused, Err(ReadError::Rejected(BAD_REQUEST))),
                    "{text:.20} {refused:?}"
                );
            }
        }
    }

    #[test]
    fn an_endless_body_is_not_read_to_its_end() {
        let text = "x".repeat(300 * 1024);
        let body = read(&text, 1000, BodyLength::Bytes(u64::MAX)).expect("it is good so far");
        assert_eq!((body.kept.len(), body.is_read_to_its_end), (6, false));
        let chunked = format!("fffffffff\r\n{text}");
        let body = read(&chunked, 1000, BodyLength::Chunked).expect("it is good so far");
        assert!(!body.is_read_to_its_end);
    }

    #[test]
    fn the_bound_of_a_head_holds_however_it_arrives() {
        for (length, is_taken) in [(HEAD_BYTES_MAX, true), (HEAD_BYTES_MAX + 1, false)] {
            let start = "GET / HTTP/1.1\r\nX: ";
            let padding = "x".repeat(length - start.len() - 4);
            let head = format!("{start}{padding}\r\n\r\n");
            for n in [1, READ_BYTES] {
                let mut received = Received::default();
                let mut pieces = head.as_bytes().chunks(n);
                let taken = loop {
                    match received.take_head() {
                        Ok(None) => {
                            let mut piece = pieces.next().expect("the head ends");
                            received.receive(&mut piece).expect("it is in memory");
                        }
                        taken => break taken,
                    }
                };
                assert_eq!(taken.is_ok(), is_taken, "{length} bytes in pieces of {n}");
            }
        }
    }

    #[test]
    fn a_head_without_end_has_a_bound() {
        let mut received = Received::default();
        let mut endless = std::io::repeat(b'x');
        let status = loop {
            match received.take_head() {
                Ok(head) => assert_eq!(head, None),
                Err(status) => break status,
            }
            received.receive(&mut endless).expect("there is more");
        };
        assert!(status.starts_with("431 "));
        assert!(received.bytes.capacity() <= HEAD_BYTES_MAX + 2 * READ_BYTES);
        let mut bare = Received::default();
        bare.receive(&mut &b"GET / HTTP/1.1\nHost: a\n\n"[..])
            .expect("it is there");
        assert_eq!(bare.take_head(), Err(BAD_REQUEST));
    }
}
