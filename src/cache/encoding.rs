//! Which encoding is asked for, and which one came.
//!
//! Used by the [`reflector`](super::reflector) on a watch thread. What is read follows from the
//! answer's `Content-Type`, whatever was asked for. JSON always works.

use std::io::Read;

use super::decode::{Decode, ReadList, ReadWatch, StreamError};
use super::json_frames::JsonWatch;
use super::json_list::JsonList;
use super::protobuf_frames::ProtobufWatch;
use super::protobuf_list::ProtobufList;
use crate::api::protobuf;

const JSON: &str = "application/json";

/// Which encoding is asked for where an object can be read from both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentType {
    /// JSON only.
    Json,
    /// Protobuf, and JSON from a server that has none. A pod takes a third of the bytes and of the
    /// time to read.
    #[default]
    Protobuf,
}

impl ContentType {
    /// What is asked for, best first, as the header `Accept` says it.
    pub fn accept<T: Decode>(self) -> &'static str {
        match self {
            Self::Protobuf if T::PROTOBUF.is_some() => {
                "application/vnd.kubernetes.protobuf, application/json"
            }
            Self::Protobuf | Self::Json => JSON,
        }
    }
}

/// A reader for a list of this content type.
///
/// # Errors
/// [`StreamError::ContentType`] if objects of this kind cannot be read from it.
pub fn read_list<T: Decode>(
    content_type: &str,
    body: Box<dyn Read + Send>,
) -> Result<Box<dyn ReadList<T>>, StreamError> {
    match (media_type(content_type).as_str(), T::PROTOBUF) {
        (JSON, _) => Ok(Box::new(JsonList::new(body))),
        (protobuf::MEDIA_TYPE, Some(decoder)) => {
            Ok(Box::new(ProtobufList::<T>::new(body, decoder)))
        }
        _ => Err(StreamError::ContentType(content_type.to_owned())),
    }
}

/// A reader for a watch of this content type.
///
/// # Errors
/// [`StreamError::ContentType`] if objects of this kind cannot be read from it.
pub fn read_watch<T: Decode>(
    content_type: &str,
    body: Box<dyn Read + Send>,
) -> Result<Box<dyn ReadWatch<T>>, StreamError> {
    match (media_type(content_type).as_str(), T::PROTOBUF) {
        (JSON, _) => Ok(Box::new(JsonWatch::new(body))),
        (protobuf::MEDIA_TYPE, Some(decoder)) => {
            Ok(Box::new(ProtobufWatch::<T>::new(body, decoder)))
        }
        _ => Err(StreamError::ContentType(content_type.to_owned())),
    }
}

/// `application/json` of `application/json;stream=watch`.
fn media_type(content_type: &str) -> String {
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().to_ascii_lowercase()
}
