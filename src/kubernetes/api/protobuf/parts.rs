//! Splits the messages of objects and pod templates into their parts.

use super::ProtobufError;
use super::wire::Fields;

/// The encoded parts of an object; empty where absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts<'a> {
    /// `metadata`.
    pub metadata: &'a [u8],
    /// `spec`.
    pub spec: &'a [u8],
    /// `status`; templates have none.
    pub status: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Field number of `metadata`.
    pub const METADATA: u32 = 1;
    /// Field number of `spec`.
    pub const SPEC: u32 = 2;
    /// Field number of `status`.
    pub const STATUS: u32 = 3;

    /// Splits a message into its parts.
    ///
    /// # Errors
    /// If the bytes are not a message.
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
