//! Bytes of a body that have arrived and not been used yet.
//!
//! Used by the readers of lists and watches on a watch thread. Grows to the longest value that must be
//! held in one piece, which the readers bound.

use std::io::{self, Read};
use std::ops::Range;

use super::decode::StreamError;

/// First size, in bytes: several usual objects.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// A body, and what has been read of it ahead.
pub(super) struct ReadBuffer<R> {
    body: R,
    /// `start..end` has been read and not been taken.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl<R: Read> ReadBuffer<R> {
    pub(super) fn new(body: R) -> Self {
        Self {
            body,
            bytes: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
        }
    }

    /// What has arrived and not been taken.
    pub(super) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Takes `n` bytes that have arrived; the range is good for [`get`](Self::get) until the next
    /// [`fill`](Self::fill).
    pub(super) fn take(&mut self, n: usize) -> Range<usize> {
        let taken = self.start..self.start + n;
        self.start = taken.end;
        taken
    }

    /// Bytes that were taken.
    pub(super) fn get(&self, taken: Range<usize>) -> &[u8] {
        &self.bytes[taken]
    }

    /// Reads more bytes behind those that are there. Blocks until some have arrived; the body's own
    /// read ends the wait.
    ///
    /// # Errors
    /// As the body's read; an unexpected end if the body ends here.
    pub(super) fn fill(&mut self) -> Result<(), StreamError> {
        if self.has_more()? {
            return Ok(());
        }
        Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
    }

    /// Reads as [`fill`](Self::fill) does; false if the body ends here.
    ///
    /// # Errors
    /// As the body's read.
    pub(super) fn has_more(&mut self) -> Result<bool, StreamError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.bytes.len() - self.end < self.bytes.len() / 4 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            self.bytes.resize(2 * self.bytes.len(), 0);
        }
        loop {
            match self.body.read(&mut self.bytes[self.end..]) {
                Ok(n) => {
                    self.end += n;
                    return Ok(n > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Lets go of what a very long value left behind.
    pub(super) fn shrink(&mut self, bytes_max: usize) {
        if self.start == self.end && self.bytes.len() > bytes_max {
            (self.start, self.end) = (0, 0);
            self.bytes = vec![0; BUFFER_BYTES];
        }
    }
}
