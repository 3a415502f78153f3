//! What stands round every object: magic bytes, and `runtime.Unknown`
//! (apimachinery `pkg/runtime/generated.proto`).

use prost::Message;

use super::ProtobufError;
use super::wire::{Fields, put_bytes};

/// How everything in this encoding begins.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// An object's kind and its own message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `kind`, such as `Pod`.
    pub kind: String,
    /// The object's message.
    pub raw: &'a [u8],
}

/// `runtime.TypeMeta`.
#[derive(Clone, PartialEq, Message)]
pub struct TypeMeta {
    /// `apiVersion`.
    #[prost(string, tag = "1")]
    pub api_version: String,
    /// `kind`.
    #[prost(string, tag = "2")]
    pub kind: String,
}

impl<'a> Envelope<'a> {
    /// Number of the field `typeMeta`.
    pub const TYPE_META: u32 = 1;
    /// Number of the field `raw`.
    pub const RAW: u32 = 2;

    /// Takes an object out of its envelope.
    ///
    /// # Errors
    /// If there is none, or it is cut off.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ProtobufError> {
        let unknown = bytes
            .strip_prefix(&MAGIC)
            .ok_or(ProtobufError::NoEnvelope)?;
        let mut envelope = Self::default();
        for field in Fields::of(unknown) {
            let field = field?;
            match field.tag {
                Self::TYPE_META => envelope.kind = TypeMeta::decode(field.bytes)?.kind,
                Self::RAW => envelope.raw = field.bytes,
                _ => {}
            }
        }
        Ok(envelope)
    }

    /// The bytes of an object of this `api_version` and `kind` in its envelope.
    pub fn seal(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = TypeMeta {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        let mut bytes = Vec::with_capacity(raw.len() + 64);
        bytes.extend_from_slice(&MAGIC);
        prost::encoding::message::encode(Self::TYPE_META, &type_meta, &mut bytes);
        put_bytes(Self::RAW, raw, &mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{Envelope, ProtobufError};

    #[test]
    fn what_is_sealed_can_be_opened() {
        let bytes = Envelope::seal("v1", "Pod", b"\x0a\x00");
        let envelope = Envelope::open(&bytes).expect("an envelope");
        assert_eq!((&*envelope.kind, envelope.raw), ("Pod", &b"\x0a\x00"[..]));
        assert_eq!(
            Envelope::open(b"{\"kind\":\"Pod\"}"),
            Err(ProtobufError::NoEnvelope)
        );
    }
}
