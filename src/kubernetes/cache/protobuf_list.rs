//! Lists in protobuf: split into items, each decoded as it arrives.

use std::io::Read;
use std::marker::PhantomData;
use std::ops::Range;

use prost::Message;

use super::decode::{Decode, Decoded, ListMetadata, OBJECT_BYTES_MAX, ReadList, StreamError};
use super::protobuf_object::read_object;
use super::read_buffer::ReadBuffer;
use crate::api::interner::Interner;
use crate::api::protobuf::envelope::kind_in;
use crate::api::protobuf::{Envelope, ListMeta, MAGIC, ProtobufError};

/// Field numbers of a list, the same for all kinds.
const METADATA: u32 = 1;
const ITEMS: u32 = 2;

/// Maximum bytes of a varint.
const VARINT_BYTES_MAX: usize = 10;

/// The body of a list in protobuf.
pub(super) struct ProtobufList<T: Decode> {
    body: ReadBuffer<Box<dyn Read + Send>>,
    position: Position,
    metadata: ListMetadata,
    resource: PhantomData<fn() -> T>,
}

/// The position of the next byte in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// At the magic bytes.
    Start,
    /// At a field of the envelope.
    Envelope,
    /// At a field of the list, which has `n_remaining` bytes left.
    List { n_remaining: u64 },
}

/// The head of a field.
struct Head {
    tag: u32,
    /// Bytes that follow the head; zero for a number, which `head` has already skipped.
    n_bytes: u64,
    n_head_bytes: u64,
}

impl<T: Decode> ProtobufList<T> {
    pub(super) fn new(body: Box<dyn Read + Send>) -> Self {
        Self {
            body: ReadBuffer::new(body),
            position: Position::Start,
            metadata: ListMetadata::default(),
            resource: PhantomData,
        }
    }

    /// Returns the next item; `None` after the last.
    fn next_item(&mut self) -> Result<Option<Range<usize>>, StreamError> {
        loop {
            match self.position {
                Position::Start => {
                    let magic = self.take(MAGIC.len() as u64)?;
                    if self.body.get(magic) != MAGIC {
                        return Err(ProtobufError::NoEnvelope.into());
                    }
                    self.position = Position::Envelope;
                }
                Position::Envelope => {
                    if self.body.unread().is_empty() && !self.body.has_more()? {
                        return Ok(None);
                    }
                    self.read_envelope_field()?;
                }
                Position::List { n_remaining: 0 } => self.position = Position::Envelope,
                Position::List { n_remaining } => {
                    if let Some(item) = self.read_list_field(n_remaining)? {
                        return Ok(Some(item));
                    }
                }
            }
        }
    }

    fn read_envelope_field(&mut self) -> Result<(), StreamError> {
        let head = self.head()?;
        match head.tag {
            Envelope::RAW => {
                self.position = Position::List {
                    n_remaining: head.n_bytes,
                };
            }
            Envelope::TYPE_META => {
                let type_meta = self.take(head.n_bytes)?;
                let kind = kind_in(self.body.get(type_meta))?;
                // Decoded as a list of pods, another kind's list would be empty.
                if kind.strip_suffix("List") != Some(T::KIND) {
                    return Err(StreamError::OtherKind(kind.to_owned()));
                }
            }
            _ => {
                self.take(head.n_bytes)?;
            }
        }
        Ok(())
    }

    fn read_list_field(&mut self, n_remaining: u64) -> Result<Option<Range<usize>>, StreamError> {
        let head = self.head()?;
        // The server sends these lengths, so they may overflow.
        let n_field = head.n_head_bytes.checked_add(head.n_bytes);
        let n_remaining = n_field.and_then(|n_field| n_remaining.checked_sub(n_field));
        let n_remaining =
            n_remaining.ok_or(ProtobufError::Wire("a field is longer than its list"))?;
        self.position = Position::List { n_remaining };
        let field = self.take(head.n_bytes)?;
        match head.tag {
            ITEMS => Ok(Some(field)),
            METADATA => {
                let metadata = ListMeta::decode(self.body.get(field));
                let metadata = metadata.map_err(ProtobufError::from)?;
                self.metadata = ListMetadata {
                    resource_version: (*metadata.resource_version).into(),
                    continue_token: metadata.continue_token,
                };
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Reads the head of a field, and the complete field if it is a number.
    fn head(&mut self) -> Result<Head, StreamError> {
        let (key, n_key) = self.varint()?;
        let tag = u32::try_from(key >> 3).ok();
        let tag = tag.ok_or(ProtobufError::Wire("a field without a number"))?;
        let (n_bytes, n_more) = match key & 7 {
            0 => (0, self.varint()?.1),
            1 => (0, self.skip(8)?),
            2 => self.varint()?,
            5 => (0, self.skip(4)?),
            _ => return Err(ProtobufError::Wire("a field of an unknown type").into()),
        };
        Ok(Head {
            tag,
            n_bytes,
            n_head_bytes: n_key + n_more,
        })
    }

    /// Reads a varint. Returns the number and its length in bytes.
    fn varint(&mut self) -> Result<(u64, u64), StreamError> {
        loop {
            let mut unread = self.body.unread();
            let n_unread = unread.len();
            let end = unread.iter().position(|byte| *byte < 0x80);
            if end.is_some() || n_unread >= VARINT_BYTES_MAX {
                let number = prost::encoding::decode_varint(&mut unread);
                let number = number.map_err(ProtobufError::from)?;
                let n = n_unread - unread.len();
                self.body.take(n);
                return Ok((number, n as u64));
            }
            self.body.fill()?;
        }
    }

    fn skip(&mut self, n: u64) -> Result<u64, StreamError> {
        self.take(n)?;
        Ok(n)
    }

    /// Takes `n` bytes as one range.
    fn take(&mut self, n: u64) -> Result<Range<usize>, StreamError> {
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        if n > OBJECT_BYTES_MAX {
            return Err(StreamError::TooLarge(OBJECT_BYTES_MAX));
        }
        while self.body.unread().len() < n {
            self.body.fill()?;
        }
        Ok(self.body.take(n))
    }
}

impl<T: Decode> ReadList<T> for ProtobufList<T> {
    fn next_object(
        &mut self,
        interner: &mut Interner,
    ) -> Result<Option<Decoded<T::Object>>, StreamError> {
        let Some(item) = self.next_item()? else {
            self.metadata.check()?;
            return Ok(None);
        };
        let item = self.body.get(item);
        Ok(Some(read_object::<T>(item, interner)))
    }

    fn metadata(&self) -> &ListMetadata {
        &self.metadata
    }
}

#[cfg(test)]
mod tests;
