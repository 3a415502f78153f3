//! The envelope of every object: magic bytes and `runtime.Unknown` (apimachinery
//! `pkg/runtime/generated.proto`).

use super::ProtobufError;
use super::wire::{Fields, field_len, put_bytes, put_head};

/// The first bytes of every object in this encoding.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// An object's kind and its message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `kind`, such as `Pod`.
    pub kind: &'a str,
    /// The object's message.
    pub raw: &'a [u8],
}

/// Field numbers of `runtime.TypeMeta`.
mod type_meta {
    pub(super) const API_VERSION: u32 = 1;
    pub(super) const KIND: u32 = 2;
}

/// `kind` in a `runtime.TypeMeta`; empty if absent.
///
/// # Errors
/// If the bytes are not a message.
pub fn kind_in(type_meta: &[u8]) -> Result<&str, ProtobufError> {
    let mut kind = "";
    for field in Fields::of(type_meta) {
        let field = field?;
        if field.tag == type_meta::KIND {
            kind = field.text()?;
        }
    }
    Ok(kind)
}

impl<'a> Envelope<'a> {
    /// Field number of `typeMeta`.
    pub const TYPE_META: u32 = 1;
    /// Field number of `raw`.
    pub const RAW: u32 = 2;

    /// Decodes an envelope.
    ///
    /// # Errors
    /// If the magic bytes are missing or the envelope is truncated.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ProtobufError> {
        let unknown = bytes
            .strip_prefix(&MAGIC)
            .ok_or(ProtobufError::NoEnvelope)?;
        let mut envelope = Self::default();
        for field in Fields::of(unknown) {
            let field = field?;
            match field.tag {
                Self::TYPE_META => envelope.kind = kind_in(field.bytes)?,
                Self::RAW => envelope.raw = field.bytes,
                _ => {}
            }
        }
        Ok(envelope)
    }

    /// Encodes an object of this `api_version` and `kind` with its envelope. `fields` are the
    /// fields of its message by number: messages, strings or bytes.
    pub fn seal(api_version: &str, kind: &str, fields: &[(u32, &[u8])]) -> Vec<u8> {
        let lengths = fields
            .iter()
            .map(|(tag, bytes)| field_len(*tag, bytes.len()));
        let mut sealed = Self::begin(api_version, kind, lengths.sum());
        for (tag, bytes) in fields {
            put_bytes(*tag, bytes, &mut sealed);
        }
        sealed
    }

    /// The same for a complete message.
    #[cfg(any(test, feature = "simulation"))]
    pub fn seal_raw(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let mut sealed = Self::begin(api_version, kind, raw.len());
        sealed.extend_from_slice(raw);
        sealed
    }

    /// Encodes everything before a message of this length, and reserves space for the message.
    fn begin(api_version: &str, kind: &str, n_bytes: usize) -> Vec<u8> {
        let type_meta_bytes = field_len(type_meta::API_VERSION, api_version.len())
            + field_len(type_meta::KIND, kind.len());
        let n_total = MAGIC.len()
            + field_len(Self::TYPE_META, type_meta_bytes)
            + field_len(Self::RAW, n_bytes);
        let mut bytes = Vec::with_capacity(n_total);
        bytes.extend_from_slice(&MAGIC);
        put_head(Self::TYPE_META, type_meta_bytes, &mut bytes);
        put_bytes(type_meta::API_VERSION, api_version, &mut bytes);
        put_bytes(type_meta::KIND, kind, &mut bytes);
        put_head(Self::RAW, n_bytes, &mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{Envelope, ProtobufError};

    #[test]
    fn a_sealed_object_can_be_opened() {
        let bytes = Envelope::seal("v1", "Pod", &[(1, b"")]);
        assert_eq!(bytes.len(), bytes.capacity(), "the capacity is exact");
        let envelope = Envelope::open(&bytes).expect("an envelope");
        assert_eq!((envelope.kind, envelope.raw), ("Pod", &b"\x0a\x00"[..]));
        assert_eq!(bytes, Envelope::seal_raw("v1", "Pod", b"\x0a\x00"));
        assert_eq!(
            Envelope::open(b"{\"kind\":\"Pod\"}"),
            Err(ProtobufError::NoEnvelope)
        );
    }
}
