//! Bytes to and from an API server.

pub mod error;

pub use error::ClientError;
