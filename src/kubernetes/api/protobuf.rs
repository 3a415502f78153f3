//! The Kubernetes protobuf encoding, as far as the controller reads and writes it.
//!
//! An encoded object is four magic bytes and an envelope with the kind and the object's message
//! (apimachinery `pkg/runtime/serializer/protobuf/protobuf.go`). The messages here declare only the
//! fields that the controller reads; the decoder skips all others.
//!
//! `Fields` walks over the fields of a message without copying.

pub mod meta;

use std::borrow::Cow;

use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};

pub use meta::{ListMeta, ObjectMeta, read_status};

pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error("malformed protobuf: {0}")]
    Message(#[from] prost::DecodeError),
    #[error("not Kubernetes protobuf: the prefix k8s\\0 is missing")]
    NoEnvelope,
    /// A field is malformed or truncated.
    #[error("malformed protobuf: {0}")]
    Wire(&'static str),
    #[error("{0} is missing")]
    Missing(&'static str),
}

/// The first bytes of every object in this encoding.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// Capacity for an object's kind, and for the numbers and lengths of a few fields.
const ENVELOPE_BYTES: usize = 64;

/// An object's kind and its message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `kind`, such as `Pod`.
    pub kind: &'a str,
    pub raw: &'a [u8],
}

/// Field numbers of `runtime.TypeMeta`.
mod type_meta {
    pub(super) const API_VERSION: u32 = 1;
    pub(super) const KIND: u32 = 2;
}

/// `kind` in a `runtime.TypeMeta`; empty if absent.
pub fn kind_in(type_meta: &[u8]) -> Result<&str, ProtobufError> {
    text(last(type_meta, type_meta::KIND)?)
}

impl<'a> Envelope<'a> {
    pub const TYPE_META: u32 = 1;
    pub const RAW: u32 = 2;

    /// Decodes an envelope.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ProtobufError> {
        let unknown = bytes
            .strip_prefix(&MAGIC)
            .ok_or(ProtobufError::NoEnvelope)?;
        Ok(Self {
            kind: kind_in(last(unknown, Self::TYPE_META)?)?,
            raw: last(unknown, Self::RAW)?,
        })
    }

    /// Encodes an object of this `api_version` and `kind` with its envelope. `fields` are the
    /// fields of its message by number: messages, strings or bytes.
    pub fn seal(api_version: &str, kind: &str, fields: &[(u32, &[u8])]) -> Vec<u8> {
        let n_bytes = fields.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        let mut raw = Vec::with_capacity(n_bytes + ENVELOPE_BYTES);
        for (tag, bytes) in fields {
            put_bytes(*tag, bytes, &mut raw);
        }
        Self::seal_raw(api_version, kind, &raw)
    }

    /// The same for a complete message.
    pub fn seal_raw(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let mut type_meta = Vec::with_capacity(ENVELOPE_BYTES);
        let mut sealed = Vec::with_capacity(raw.len() + ENVELOPE_BYTES);
        sealed.extend_from_slice(&MAGIC);
        put_bytes(type_meta::API_VERSION, api_version, &mut type_meta);
        put_bytes(type_meta::KIND, kind, &mut type_meta);
        put_bytes(Self::TYPE_META, type_meta, &mut sealed);
        put_bytes(Self::RAW, raw, &mut sealed);
        sealed
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    pub tag: u32,
    /// Content of a string, message or bytes field; empty for a number.
    pub bytes: &'a [u8],
    /// Value of a varint field; 0 for any other type.
    pub number: u64,
    /// The complete encoded field, including its number.
    pub whole: &'a [u8],
}

/// Iterator over the fields of a message in their order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn read(&mut self) -> Result<Field<'a>, ProtobufError> {
        let all = self.0;
        let (tag, wire_type) = decode_key(&mut self.0)?;
        let (mut bytes, mut number) = (&[][..], 0);
        match wire_type {
            WireType::LengthDelimited => {
                let length = decode_varint(&mut self.0)?;
                let split = usize::try_from(length)
                    .ok()
                    .and_then(|length| self.0.split_at_checked(length));
                (bytes, self.0) = split.ok_or(ProtobufError::Wire("a field is truncated"))?;
            }
            WireType::Varint => number = decode_varint(&mut self.0)?,
            _ => skip_field(wire_type, tag, &mut self.0, DecodeContext::default())?,
        }
        let whole = &all[..all.len() - self.0.len()];
        Ok(Field {
            tag,
            bytes,
            number,
            whole,
        })
    }
}

impl<'a> Field<'a> {
    /// Content of a string, message or bytes field.
    pub fn length_delimited(&self) -> Result<&'a [u8], ProtobufError> {
        self.check_type(WireType::LengthDelimited)?;
        Ok(self.bytes)
    }

    /// Value of a varint field.
    pub fn varint(&self) -> Result<u64, ProtobufError> {
        self.check_type(WireType::Varint)?;
        Ok(self.number)
    }

    fn check_type(&self, expected: WireType) -> Result<(), ProtobufError> {
        let (_, found) = decode_key(&mut &*self.whole)?;
        if found == expected {
            return Ok(());
        }
        Err(ProtobufError::Wire("a field has another type"))
    }

    /// Content as a string.
    pub fn text(&self) -> Result<&'a str, ProtobufError> {
        text(self.bytes)
    }

    /// Content as a string; what is not UTF-8 is replaced. The API server checks no more of most
    /// texts than their length.
    pub fn lossy(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes)
    }

    /// Key and value of an entry of a string map. The value may not be UTF-8.
    pub fn entry(&self) -> Result<(&'a str, &'a [u8]), ProtobufError> {
        let (mut key, mut value) = ("", &b""[..]);
        for field in Fields::of(self.bytes) {
            let field = field?;
            match field.tag {
                1 => key = field.text()?,
                2 => value = field.bytes,
                _ => {}
            }
        }
        Ok((key, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

pub fn fields_of(
    message: &[u8],
    tag: u32,
) -> impl Iterator<Item = Result<Field<'_>, ProtobufError>> {
    let is_it = move |field: &Result<Field<'_>, _>| field.as_ref().map_or(true, |it| it.tag == tag);
    Fields::of(message).filter(is_it)
}

/// The contents of the fields with this number.
pub fn contents(message: &[u8], tag: u32) -> impl Iterator<Item = Result<&[u8], ProtobufError>> {
    fields_of(message, tag).map(|field| field?.length_delimited())
}

/// Content of the last field with this number; empty if there is none.
pub fn last(message: &[u8], tag: u32) -> Result<&[u8], ProtobufError> {
    contents(message, tag).last().unwrap_or(Ok(&[]))
}

/// The bytes as a string.
pub fn text(bytes: &[u8]) -> Result<&str, ProtobufError> {
    std::str::from_utf8(bytes).or(Err(ProtobufError::Wire("a string is not valid UTF-8")))
}

/// Appends a string, message or bytes field with this number to a message.
pub fn put_bytes(tag: u32, bytes: impl AsRef<[u8]>, message: &mut Vec<u8>) {
    let bytes = bytes.as_ref();
    encode_key(tag, WireType::LengthDelimited, message);
    encode_varint(bytes.len() as u64, message);
    message.extend_from_slice(bytes);
}

/// Appends a `true` as the field with this number.
pub fn put_true(tag: u32, message: &mut Vec<u8>) {
    encode_key(tag, WireType::Varint, message);
    encode_varint(1, message);
}

/// The encoded parts of an object; empty where absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts<'a> {
    pub metadata: &'a [u8],
    pub spec: &'a [u8],
    /// `status`; templates have none.
    pub status: &'a [u8],
}

impl<'a> Parts<'a> {
    pub const METADATA: u32 = 1;
    pub const SPEC: u32 = 2;
    pub const STATUS: u32 = 3;

    /// Splits a message into its parts.
    pub fn of(message: &'a [u8]) -> Result<Self, ProtobufError> {
        let mut parts = Self::default();
        for field in Fields::of(message) {
            let field = field?;
            match field.tag {
                Self::METADATA => parts.metadata = field.bytes,
                Self::SPEC => parts.spec = field.bytes,
                Self::STATUS => parts.status = field.bytes,
                _ => {}
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::{Envelope, Field, Fields, ProtobufError};

    #[test]
    fn a_sealed_object_can_be_opened() {
        let bytes = Envelope::seal("v1", "Pod", &[(1, b"")]);
        let envelope = Envelope::open(&bytes).expect("an envelope");
        assert_eq!((envelope.kind, envelope.raw), ("Pod", &b"\x0a\x00"[..]));
        assert_eq!(bytes, Envelope::seal_raw("v1", "Pod", b"\x0a\x00"));
        assert_eq!(
            Envelope::open(b"{\"kind\":\"Pod\"}"),
            Err(ProtobufError::NoEnvelope)
        );
    }

    #[test]
    fn numbers_are_skipped_and_bytes_are_borrowed() {
        // 1: varint 150; 2: "ab"; 3: fixed32; 4: empty.
        let message = b"\x08\x96\x01\x12\x02ab\x1d\x01\x02\x03\x04\x22\x00";
        let fields: Result<Vec<Field<'_>>, _> = Fields::of(message).collect();
        let field = |tag, number, bytes, whole| Field {
            tag,
            bytes,
            number,
            whole,
        };
        let expected = vec![
            field(1, 150, b"".as_slice(), b"\x08\x96\x01".as_slice()),
            field(2, 0, b"ab", b"\x12\x02ab"),
            field(3, 0, b"", b"\x1d\x01\x02\x03\x04"),
            field(4, 0, b"", b"\x22\x00"),
        ];
        for field in &expected {
            assert_eq!(field.varint().is_ok(), field.tag == 1);
            assert_eq!(
                field.length_delimited().is_ok(),
                [2, 4].contains(&field.tag)
            );
        }
        assert_eq!(fields, Ok(expected));
    }

    #[test]
    fn a_truncated_field_is_an_error_and_the_end() {
        let mut fields = Fields::of(b"\x12\x05ab");
        assert_eq!(
            fields.next(),
            Some(Err(ProtobufError::Wire("a field is truncated")))
        );
        assert_eq!(fields.next(), None);
    }
}
