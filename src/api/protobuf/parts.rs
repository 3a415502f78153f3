//! What objects and pod templates have in common: where their parts stand.

use super::ProtobufError;
use super::wire::Fields;

/// The parts of an object as they stand in its message; empty where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts<'a> {
    /// `metadata`.
    pub metadata: &'a [u8],
    /// `spec`.
    pub spec: &'a [u8],
    /// `status`, which a template does not have.
    pub status: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Number of `metadata`.
    pub const METADATA: u32 = 1;
    /// Number of `spec`.
    pub const SPEC: u32 = 2;
    /// Number of `status`.
    pub const STATUS: u32 = 3;

    /// Finds the parts of a message.
    ///
    /// # Errors
    /// If the bytes are no message.
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
