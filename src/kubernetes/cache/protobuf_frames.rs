//! Watches in protobuf: messages with a length prefix.

use std::io::Read;
use std::marker::PhantomData;
use std::ops::Range;

use super::decode::{Decode, Frame, INITIAL_EVENTS_END, OBJECT_BYTES_MAX, ReadWatch, StreamError};
use super::protobuf_object::read_object;
use super::read_buffer::ReadBuffer;
use crate::api::Status;
use crate::api::interner::Interner;
use crate::api::protobuf::meta::annotations_in;
use crate::api::protobuf::wire::{Fields, last, text};
use crate::api::protobuf::{Envelope, ObjectMeta, Parts, ProtobufError};

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

/// The body of a watch in protobuf.
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

#[cfg(test)]
mod tests;
