//! Protobuf: lists split into items that are decoded as they arrive, watches of messages with a
//! length prefix, and single objects.

use std::io;
use std::io::{BufRead, BufReader, Read};

use prost::Message;

use super::decode::{
    BUFFER_BYTES, Decode, Decoded, Frame, INITIAL_EVENTS_END, ListMetadata, OBJECT_BYTES_MAX,
    StreamError, Unread, check_names,
};
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

/// Field numbers of a list.
const METADATA: u32 = 1;
const ITEMS: u32 = 2;

/// Bytes of a message's length in big-endian order (apimachinery
/// `pkg/util/framer/framer.go:lengthDelimitedFrameReader`).
const LENGTH_BYTES: u64 = 4;

/// Maximum bytes of a varint.
const VARINT_BYTES_MAX: usize = 10;

/// Bytes of memory that are kept for the next value.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A body, and one value from it.
struct Body<R> {
    source: BufReader<R>,
    value: Vec<u8>,
    /// Bytes taken so far.
    n_taken: u64,
}

struct Head {
    tag: u32,
    /// Bytes that follow the head; zero for a number, which [`Body::head`] has already skipped.
    n_bytes: u64,
}

impl<R: Read> Body<R> {
    fn new(body: R) -> Self {
        Self {
            source: BufReader::with_capacity(BUFFER_BYTES, body),
            value: Vec::new(),
            n_taken: 0,
        }
    }

    /// True if no byte follows. Blocks until that is known; the body's own read ends the wait.
    fn has_ended(&mut self) -> Result<bool, StreamError> {
        loop {
            match self.source.fill_buf() {
                Ok(bytes) => return Ok(bytes.is_empty()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the next `n` bytes, which are valid until the next call.
    fn take(&mut self, n: u64) -> Result<&[u8], StreamError> {
        if n > OBJECT_BYTES_MAX as u64 {
            return Err(StreamError::TooLarge(OBJECT_BYTES_MAX));
        }
        self.value.clear();
        self.value.shrink_to(KEPT_BYTES_MAX);
        self.source.by_ref().take(n).read_to_end(&mut self.value)?;
        if (self.value.len() as u64) < n {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.n_taken += n;
        Ok(&self.value)
    }

    /// Takes the next field's number and length.
    fn head(&mut self) -> Result<Head, StreamError> {
        let key = self.varint()?;
        let tag = u32::try_from(key >> 3).ok();
        let tag = tag.ok_or(ProtobufError::Wire("a field without a number"))?;
        let mut n_bytes = 0;
        match key & 7 {
            0 => drop(self.varint()?),
            1 => drop(self.take(8)?),
            2 => n_bytes = self.varint()?,
            5 => drop(self.take(4)?),
            _ => return Err(ProtobufError::Wire("a field of an unknown type").into()),
        }
        Ok(Head { tag, n_bytes })
    }

    fn varint(&mut self) -> Result<u64, StreamError> {
        let mut bytes = [0; VARINT_BYTES_MAX];
        for n in 0..VARINT_BYTES_MAX {
            self.source.read_exact(&mut bytes[n..=n])?;
            self.n_taken += 1;
            if bytes[n] < 0x80 {
                break;
            }
        }
        let number = prost::encoding::decode_varint(&mut &bytes[..]);
        Ok(number.map_err(ProtobufError::from)?)
    }
}

/// Reads a list of objects of this kind, and passes each on as soon as it has arrived.
pub(super) fn read_list(
    body: impl Read,
    kind: &str,
    on_item: &mut dyn FnMut(&[u8]),
) -> Result<ListMetadata, StreamError> {
    let mut body = Body::new(body);
    if body.take(MAGIC.len() as u64)? != MAGIC {
        return Err(ProtobufError::NoEnvelope.into());
    }
    let mut metadata = ListMetadata::default();
    while !body.has_ended()? {
        let Head { tag, n_bytes } = body.head()?;
        match tag {
            Envelope::RAW => read_fields(&mut body, n_bytes, &mut metadata, on_item)?,
            Envelope::TYPE_META => {
                let found = kind_in(body.take(n_bytes)?)?;
                // Decoded as a list of pods, another kind's list would be empty.
                if found.strip_suffix("List") != Some(kind) {
                    return Err(StreamError::OtherKind(found.to_owned()));
                }
            }
            _ => drop(body.take(n_bytes)?),
        }
    }
    Ok(metadata)
}

/// Reads the list proper, which is so long.
fn read_fields<R: Read>(
    body: &mut Body<R>,
    n_bytes: u64,
    metadata: &mut ListMetadata,
    on_item: &mut dyn FnMut(&[u8]),
) -> Result<(), StreamError> {
    // The server sends these lengths, so they may be anything.
    let end = body.n_taken.saturating_add(n_bytes);
    while body.n_taken < end {
        let Head { tag, n_bytes } = body.head()?;
        if body.n_taken.saturating_add(n_bytes) > end {
            return Err(ProtobufError::Wire("a field is longer than its list").into());
        }
        let field = body.take(n_bytes)?;
        match tag {
            ITEMS => on_item(field),
            METADATA => {
                let list = ListMeta::decode(field).map_err(ProtobufError::from)?;
                *metadata = ListMetadata {
                    resource_version: (*list.resource_version).into(),
                    continue_token: list.continue_token,
                };
            }
            _ => {}
        }
    }
    Ok(())
}

/// The messages of a watch.
pub(super) struct ProtobufWatch(Body<Box<dyn Read + Send>>);

impl ProtobufWatch {
    pub(super) fn new(body: Box<dyn Read + Send>) -> Self {
        Self(Body::new(body))
    }

    pub(super) fn next_frame<T: Decode>(
        &mut self,
        interner: &mut Interner,
    ) -> Result<Option<Frame<T::Object>>, StreamError> {
        let Self(body) = self;
        if body.has_ended()? {
            return Ok(None);
        }
        let length = body.take(LENGTH_BYTES)?.iter();
        let length = length.fold(0, |length, byte| length << 8 | u64::from(*byte));
        Ok(Some(read_frame::<T>(body.take(length)?, interner)?))
    }
}

fn read_frame<T: Decode>(
    message: &[u8],
    interner: &mut Interner,
) -> Result<Frame<T::Object>, ProtobufError> {
    let (type_, object) = (last(message, TYPE)?, last(last(message, OBJECT)?, RAW)?);
    if type_ == b"ERROR" {
        return Ok(Frame::Error(Status::from_body(0, object)));
    }
    let object = Envelope::open(object)?;
    if object.kind != T::KIND {
        return Ok(Frame::of_kind(object.kind));
    }
    Ok(match &*String::from_utf8_lossy(type_) {
        "BOOKMARK" => read_bookmark(object.raw)?,
        change => Frame::of_change(change, || read_object::<T>(object.raw, interner)),
    })
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
