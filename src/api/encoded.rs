//! An encoded object with its media type.

/// The media type that every API server supports.
pub const JSON: &str = "application/json";

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Its encoding.
    pub media_type: &'static str,
    /// The bytes.
    pub bytes: Vec<u8>,
}
