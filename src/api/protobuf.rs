//! Kubernetes' second encoding, as far as the controller reads and writes it.
//!
//! An object on the wire is four magic bytes and an envelope that names the kind and holds the object's
//! own message (apimachinery `pkg/runtime/serializer/protobuf/protobuf.go`). The messages here have
//! only the fields that are read; everything else is skipped, known or not.

pub mod envelope;
pub mod meta;
mod parts;
mod status;
pub mod wire;

pub use envelope::{Envelope, MAGIC};
pub use meta::{ListMeta, ObjectMeta};
pub use parts::Parts;
pub use status::read_status;

/// The media type of the encoding.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Why bytes are not the message that they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// A message cannot be read.
    #[error("malformed protobuf: {0}")]
    Message(#[from] prost::DecodeError),
    /// The magic bytes are missing.
    #[error("protobuf without Kubernetes' envelope")]
    NoEnvelope,
    /// A message ends in the middle of a field.
    #[error("malformed protobuf: {0}")]
    Wire(&'static str),
    /// A field that every object has is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
}
