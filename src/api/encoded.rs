//! An object as it goes over the wire, and what it is written in.

/// The media type that every API server speaks.
pub const JSON: &str = "application/json";

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// What it is written in.
    pub media_type: &'static str,
    /// The bytes.
    pub bytes: Vec<u8>,
}
