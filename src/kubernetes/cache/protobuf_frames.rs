//! Protobuf: watches of messages with a length prefix, lists split into items that are decoded as
//! they arrive, and single objects.

use std::io::Read;
use std::marker::PhantomData;
use std::ops::Range;

use prost::Message;

use super::decode::{
    Decode, Decoded, Frame, INITIAL_EVENTS_END, ListMetadata, OBJECT_BYTES_MAX, ReadList,
    ReadWatch, StreamError, Unread, check_names,
};
use super::read_buffer::ReadBuffer;
use super::store::UnreadKey;
use crate::api::interner::Interner;
use crate::api::protobuf::meta::annotations_in;
use crate::api::protobuf::{
    Envelope, Fields, ListMeta, MAGIC, ObjectMeta, Parts, ProtobufError, kind_in, last, text,
};
use crate::api::{ObjectKey, ResourceVersion, Status, Uid};

/// Field numbers of `WatchEvent` (apimachinery `pkg/apis/meta/v1/generated.proto`).
const TYPE: u32 = 1;
const OBJECT: u32 = 2;

/// Number of the only field of `RawExtension`.
const RAW: u32 = 1;

/// Bytes of a message's length in big-endian order (apimachinery
/// `pkg/util/framer/framer.go:lengthDelimitedFrameReader`).
const LENGTH_BYTES: usize = 4;

/// The buffer of a message longer than this, in bytes, is shrunk afterwards.
const KEPT_BYTES_MAX: usize = 1 << 20;

pub(super) struct ProtobufWatch<T: Decode> {
    body: ReadBuffer<Box<dyn Read + Send>>,
    resource: PhantomData<fn() -> T>,
}

impl<T: Decode> ProtobufWatch<T> {
    pub(super) fn new(body: Box<dyn Read + Send>) -> Self {
        Self {
            body: ReadBuffer::new(body),
            resource: PhantomData,
        }
    }

    /// Reads the next message; `None` if the body has ended before it.
    fn take_message(&mut self) -> Result<Option<Range<usize>>, StreamError> {
        self.body.shrink(KEPT_BYTES_MAX);
        if self.body.unread().is_empty() && !self.body.has_more()? {
            return Ok(None);
        }
        let length = loop {
            if let Some(length) = self.body.unread().first_chunk::<LENGTH_BYTES>() {
                break u32::from_be_bytes(*length) as usize;
            }
            self.body.fill()?;
        };
        if length > OBJECT_BYTES_MAX {
            return Err(StreamError::TooLarge(OBJECT_BYTES_MAX));
        }
        while self.body.unread().len() < LENGTH_BYTES + length {
            self.body.fill()?;
        }
        self.body.take(LENGTH_BYTES);
        Ok(Some(self.body.take(length)))
    }
}

impl<T: Decode> ReadWatch<T> for ProtobufWatch<T> {
    fn next_frame(
        &mut self,
        interner: &mut Interner,
    ) -> Result<Option<Frame<T::Object>>, StreamError> {
        let Some(message) = self.take_message()? else {
            return Ok(None);
        };
        Ok(Some(read_frame::<T>(self.body.get(message), interner)?))
    }
}

fn read_frame<T: Decode>(
    message: &[u8],
    interner: &mut Interner,
) -> Result<Frame<T::Object>, ProtobufError> {
    let (type_, object) = open(message)?;
    if type_ == b"ERROR" {
        return Ok(Frame::Error(Status::from_body(0, object)));
    }
    let object = Envelope::open(object)?;
    if object.kind != T::KIND {
        let description = format!("an object of kind {:?}", object.kind);
        return Ok(Frame::Foreign(description));
    }
    Ok(match type_ {
        b"ADDED" => Frame::Added(read_object::<T>(object.raw, interner)),
        b"MODIFIED" => Frame::Modified(read_object::<T>(object.raw, interner)),
        b"DELETED" => Frame::Deleted(read_object::<T>(object.raw, interner)),
        b"BOOKMARK" => read_bookmark(object.raw)?,
        other => {
            let other = String::from_utf8_lossy(other);
            Frame::Foreign(format!("a message of type {other:?}"))
        }
    })
}

/// Returns the type of a message and its object in its envelope.
fn open(message: &[u8]) -> Result<(&[u8], &[u8]), ProtobufError> {
    let (mut type_, mut object): (&[u8], &[u8]) = (&[], &[]);
    for field in Fields::of(message) {
        let field = field?;
        match field.tag {
            TYPE => type_ = field.bytes,
            OBJECT => {
                for field in Fields::of(field.bytes) {
                    let field = field?;
                    if field.tag == RAW {
                        object = field.bytes;
                    }
                }
            }
            _ => {}
        }
    }
    Ok((type_, object))
}

fn read_bookmark<T>(message: &[u8]) -> Result<Frame<T>, ProtobufError> {
    let metadata = Parts::of(message)?.metadata;
    let mut is_initial_events_end = false;
    for annotation in annotations_in(metadata) {
        let (name, value) = annotation?;
        is_initial_events_end |= name == INITIAL_EVENTS_END && value == "true";
    }
    Ok(Frame::Bookmark {
        resource_version: text(last(metadata, ObjectMeta::RESOURCE_VERSION)?)?.into(),
        is_initial_events_end,
    })
}

const METADATA: u32 = 1;
const ITEMS: u32 = 2;

/// Maximum bytes of a varint.
const VARINT_BYTES_MAX: usize = 10;

pub(super) struct ProtobufList<T: Decode> {
    body: ReadBuffer<Box<dyn Read + Send>>,
    position: Position,
    metadata: ListMetadata,
    resource: PhantomData<fn() -> T>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// At the magic bytes.
    Start,
    /// At a field of the envelope.
    Envelope,
    /// At a field of the list, which has `n_remaining` bytes left.
    List { n_remaining: u64 },
}

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

/// Decodes an object, or at least its identity if the object cannot be decoded.
pub(super) fn read_object<T: Decode>(
    message: &[u8],
    interner: &mut Interner,
) -> Decoded<T::Object> {
    let object = T::from_protobuf(message, interner).map_err(|error| unread(message, &error))?;
    check_names(object)
}

fn unread(message: &[u8], error: &ProtobufError) -> Unread {
    let metadata = Parts::of(message).unwrap_or_default().metadata;
    // Field by field, since any of the others may be the undecodable one.
    let text_of = |tag| {
        let mut fields = Fields::of(metadata).filter_map(Result::ok);
        let field = fields.find(|field| field.tag == tag);
        field.and_then(|field| field.text().ok()).unwrap_or("")
    };
    let name = text_of(ObjectMeta::NAME);
    let key = (!name.is_empty()).then(|| UnreadKey {
        key: ObjectKey::new(text_of(ObjectMeta::NAMESPACE), name),
        uid: Uid::new(text_of(ObjectMeta::UID)),
    });
    Unread {
        key,
        resource_version: ResourceVersion::new(text_of(ObjectMeta::RESOURCE_VERSION)),
        error: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
