//! What has come by a connection and was not used yet, and how the heads, lines and bytes of
//! requests are taken out of it. Each byte is looked at a bounded number of times, and what is kept
//! of a client that never comes to an end has a bound.

use std::io::{self, Read};

use super::head::{BAD_REQUEST, BodyLength, HEAD_TOO_LARGE, StatusLine, chunk_length};

/// Longest head of a request; Go's default is 1 MiB, clients of an API server need far less.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Bytes that are read at once.
const READ_BYTES: usize = 8 * 1024;

/// Longest line before a chunk of a body, which begins with at most 16 digits.
const CHUNK_LINE_BYTES_MAX: usize = 256;

/// The lines behind the last chunk, together.
const TRAILER_BYTES_MAX: usize = 4 * 1024;

/// What is read and dropped of a body that is longer than what is kept
/// (Go `net/http/server.go:maxPostHandlerReadBytes`).
const DROPPED_BYTES_MAX: usize = 256 * 1024;

/// Why no more can be read.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The client has broken the grammar and is told so.
    Refused(StatusLine),
    /// The connection has.
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<StatusLine> for ReadError {
    fn from(refusal: StatusLine) -> Self {
        Self::Refused(refusal)
    }
}

/// The bytes that were received, from the first that was not used.
#[derive(Debug, Default)]
pub(super) struct Received {
    bytes: Vec<u8>,
    /// So many of them were used.
    used: usize,
    /// So many of the others were looked through for the end of a head.
    looked_at: usize,
}

/// A body as far as it is kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) kept: Vec<u8>,
    n_dropped: usize,
    /// What comes next by the connection is the next request.
    pub(super) is_read_to_its_end: bool,
}

impl Received {
    pub(super) fn is_empty(&self) -> bool {
        self.rest().is_empty()
    }

    /// Waits for more bytes, and answers how many came; 0 if the client sends no more.
    pub(super) fn receive(&mut self, source: &mut impl Read) -> io::Result<usize> {
        self.bytes.drain(..self.used);
        self.used = 0;
        let before = self.bytes.len();
        if self.bytes.capacity() == before {
            self.bytes.reserve_exact(READ_BYTES);
        }
        let room = (self.bytes.capacity() - before).min(READ_BYTES);
        self.bytes.resize(before + room, 0);
        let length = match source.read(&mut self.bytes[before..]) {
            // A client that has gone without TLS' goodbye has gone all the same; what it had begun to
            // say is not whole, and not answered.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            length => length,
        };
        self.bytes.truncate(before + *length.as_ref().unwrap_or(&0));
        length
    }

    /// Takes the next head with its empty line; `None` if it has not come to its end yet.
    pub(super) fn take_head(&mut self) -> Result<Option<Vec<u8>>, StatusLine> {
        // Some clients send an empty line behind a body.
        while self.looked_at == 0 && self.rest().starts_with(b"\r\n") {
            self.consume(2);
        }
        let rest = self.rest();
        for at in self.looked_at..rest.len() {
            if rest[at] != b'\n' {
                continue;
            }
            let lines = &rest[..=at];
            if !lines.ends_with(b"\r\n") {
                return Err(BAD_REQUEST);
            }
            if lines.ends_with(b"\r\n\r\n") {
                let head = lines.to_vec();
                self.consume(head.len());
                return Ok(Some(head));
            }
        }
        // Of an empty line before the head only the half may be there.
        self.looked_at = if rest == b"\r" { 0 } else { rest.len() };
        if self.looked_at > HEAD_BYTES_MAX {
            return Err(HEAD_TOO_LARGE);
        }
        Ok(None)
    }

    /// Reads a body to its end and keeps up to `kept_max` bytes of it. One that is much longer is
    /// left where it is.
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

    /// Takes `length` bytes into `body`; false if they are too many to be dropped.
    fn copy(
        &mut self,
        source: &mut impl Read,
        length: u64,
        body: &mut Body,
        kept_max: usize,
    ) -> io::Result<bool> {
        let mut left = length;
        while left > 0 {
            if self.is_empty() {
                self.receive_more(source)?;
            }
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            let piece = &self.rest()[..self.rest().len().min(most)];
            let n_taken = piece.len();
            let n_kept = n_taken.min(kept_max - body.kept.len());
            body.kept.extend_from_slice(&piece[..n_kept]);
            body.n_dropped += n_taken - n_kept;
            self.consume(n_taken);
            left -= n_taken as u64;
            if body.n_dropped > DROPPED_BYTES_MAX {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn skip_trailer(&mut self, source: &mut impl Read) -> Result<(), ReadError> {
        let mut left = TRAILER_BYTES_MAX;
        loop {
            let line = self.line(source, left)?;
            if line.is_empty() {
                return Ok(());
            }
            left = left.saturating_sub(line.len());
        }
    }

    /// Takes a line of at most `bytes_max` bytes, without its end.
    fn line(&mut self, source: &mut impl Read, bytes_max: usize) -> Result<Vec<u8>, ReadError> {
        loop {
            let rest = self.rest();
            let rest = &rest[..rest.len().min(bytes_max + 2)];
            if let Some(at) = rest.iter().position(|it| *it == b'\n') {
                let line = rest[..at].strip_suffix(b"\r").ok_or(BAD_REQUEST)?.to_vec();
                self.consume(at + 1);
                return Ok(line);
            }
            if rest.len() == bytes_max + 2 {
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

    fn rest(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    fn consume(&mut self, n_bytes: usize) {
        self.used += n_bytes;
        self.looked_at = 0;
        if self.is_empty() {
            // An idle connection keeps no buffer.
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
    fn chunks_are_put_together_whatever_the_pieces() {
        let text = "3;x=y\r\nabc\r\n5\r\ndefgh\r\n0\r\nTrailer: x\r\n\r\n";
        for n in [1, 2, 7, 1000] {
            let body = read(text, n, BodyLength::Chunked).expect("it is good");
            assert_eq!((&*body.kept, body.n_dropped), (&b"abcdef"[..], 2));
            assert!(body.is_read_to_its_end);
        }
    }

    #[test]
    fn chunks_that_break_the_grammar_are_refused() {
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
                    matches!(refused, Err(ReadError::Refused(BAD_REQUEST))),
                    "{text:.20} {refused:?}"
                );
            }
        }
    }

    #[test]
    fn a_body_without_end_is_left_where_it_is() {
        let text = "x".repeat(300 * 1024);
        let body = read(&text, 1000, BodyLength::Bytes(u64::MAX)).expect("it is good so far");
        assert_eq!((body.kept.len(), body.is_read_to_its_end), (6, false));
        let chunked = format!("fffffffff\r\n{text}");
        let body = read(&chunked, 1000, BodyLength::Chunked).expect("it is good so far");
        assert!(!body.is_read_to_its_end);
    }

    #[test]
    fn a_head_without_end_has_a_bound() {
        let mut received = Received::default();
        let mut endless = std::io::repeat(b'x');
        let refusal = loop {
            match received.take_head() {
                Ok(head) => assert_eq!(head, None),
                Err(refusal) => break refusal,
            }
            received.receive(&mut endless).expect("there is more");
        };
        assert!(refusal.starts_with("431 "));
        assert!(received.bytes.capacity() <= HEAD_BYTES_MAX + 2 * READ_BYTES);
        let mut bare = Received::default();
        bare.receive(&mut &b"GET / HTTP/1.1\nHost: a\n\n"[..])
            .expect("it is there");
        assert_eq!(bare.take_head(), Err(BAD_REQUEST));
    }
}
