//! The Kubernetes protobuf encoding, as far as the controller reads and writes it.
//!
//! An encoded object is four magic bytes and an envelope with the kind and the object's message
//! (apimachinery `pkg/runtime/serializer/protobuf/protobuf.go`). The messages here declare only the
//! fields that the controller reads; the decoder skips all others.

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

/// Why bytes are not the expected message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// A message is malformed.
    #[error("malformed protobuf: {0}")]
    Message(#[from] prost::DecodeError),
    /// The magic bytes are missing.
    #[error("protobuf without Kubernetes' envelope")]
    NoEnvelope,
    /// A field is malformed or truncated.
    #[error("malformed protobuf: {0}")]
    Wire(&'static str),
    /// A mandatory field is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
}
