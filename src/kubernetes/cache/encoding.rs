//! Chooses the encoding to request and the reader for a response.
//!
//! The [`reflector`](super::reflector) uses this on a watch thread. The response's `Content-Type`
//! selects the reader, whatever the request accepted; JSON is always supported.

use std::io::Read;

use super::decode::{Decode, ReadList, ReadWatch, StreamError};
use super::json_frames::JsonWatch;
use super::json_list::JsonList;
use super::protobuf_frames::ProtobufWatch;
use super::protobuf_list::ProtobufList;
use crate::api::encoded::{JSON, JSON_WITHOUT_MANAGED_FIELDS};
use crate::api::protobuf;
use crate::stdx::escape::escaped;

/// The encoding to request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentType {
    /// JSON only.
    Json,
    /// Protobuf, and JSON from a server without protobuf. A pod takes a third of JSON's bytes and
    /// of its decoding time.
    #[default]
    Protobuf,
}

impl ContentType {
    /// The value of the `Accept` header, best encoding first. No cache keeps `managedFields`, so
    /// the request leaves them out as [`JSON_WITHOUT_MANAGED_FIELDS`] does.
    pub fn accept(self) -> &'static str {
        match self {
            Self::Protobuf => {
                "application/vnd.kubernetes.protobuf;drop=metadata.managedFields, \
                 application/json;drop=metadata.managedFields, \
                 application/vnd.kubernetes.protobuf, application/json"
            }
            Self::Json => JSON_WITHOUT_MANAGED_FIELDS,
        }
    }
}

/// Returns a reader for a list of this content type.
///
/// # Errors
/// [`StreamError::ContentType`] if it is neither of the two encodings.
pub fn read_list<T: Decode>(
    content_type: &str,
    body: Box<dyn Read + Send>,
) -> Result<Box<dyn ReadList<T>>, StreamError> {
    match media_type(content_type).as_str() {
        JSON => Ok(Box::new(JsonList::new(body))),
        protobuf::MEDIA_TYPE => Ok(Box::new(ProtobufList::new(body))),
        _ => Err(other(content_type, body)),
    }
}

/// Returns a reader for a watch of this content type.
///
/// # Errors
/// [`StreamError::ContentType`] if it is neither of the two encodings.
pub fn read_watch<T: Decode>(
    content_type: &str,
    body: Box<dyn Read + Send>,
) -> Result<Box<dyn ReadWatch<T>>, StreamError> {
    match media_type(content_type).as_str() {
        JSON => Ok(Box::new(JsonWatch::new(body))),
        protobuf::MEDIA_TYPE => Ok(Box::new(ProtobufWatch::new(body))),
        _ => Err(other(content_type, body)),
    }
}

/// The error about another content type, with what has arrived of the body: it often names the
/// proxy that sent it.
fn other(content_type: &str, mut body: Box<dyn Read + Send>) -> StreamError {
    let mut start = [0; 200];
    let n_bytes = body.read(&mut start).unwrap_or(0);
    let text = String::from_utf8_lossy(&start[..n_bytes]);
    StreamError::ContentType(content_type.to_owned(), escaped(text.trim()).into_owned())
}

/// Returns `application/json` for `application/json;stream=watch`.
fn media_type(content_type: &str) -> String {
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::ContentType;

    #[test]
    fn json_is_accepted_from_a_server_without_protobuf() {
        let all: Vec<&str> = ContentType::Protobuf.accept().split(", ").collect();
        let [first, .., last] = all[..] else {
            panic!("{all:?}");
        };
        assert!(first.starts_with("application/vnd.kubernetes.protobuf;"));
        assert_eq!(last, "application/json");
        assert!(!ContentType::Json.accept().contains("protobuf"));
    }
}
