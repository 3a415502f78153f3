//! Which encoding is asked for, and which one came.
//!
//! Used by the [`reflector`](super::reflector) on a watch thread. What is read follows from the
//! answer's `Content-Type`, so that another encoding is another reader and another entry in
//! [`ACCEPT`]. JSON always works.

use std::io::Read;

use super::decode::{Decode, ReadList, ReadWatch, StreamError};
use super::json_frames::JsonWatch;
use super::json_list::JsonList;

/// What is asked for, best first.
pub const ACCEPT: &str = "application/json";

/// A reader for a list of this content type.
///
/// # Errors
/// [`StreamError::ContentType`] if it is none of [`ACCEPT`].
pub fn read_list<T: Decode>(
    content_type: &str,
    body: Box<dyn Read + Send>,
) -> Result<Box<dyn ReadList<T>>, StreamError> {
    match media_type(content_type).as_str() {
        "application/json" => Ok(Box::new(JsonList::new(body))),
        _ => Err(StreamError::ContentType(content_type.to_owned())),
    }
}

/// A reader for a watch of this content type.
///
/// # Errors
/// [`StreamError::ContentType`] if it is none of [`ACCEPT`].
pub fn read_watch<T: Decode>(
    content_type: &str,
    body: Box<dyn Read + Send>,
) -> Result<Box<dyn ReadWatch<T>>, StreamError> {
    match media_type(content_type).as_str() {
        "application/json" => Ok(Box::new(JsonWatch::new(body))),
        _ => Err(StreamError::ContentType(content_type.to_owned())),
    }
}

/// `application/json` of `application/json;stream=watch`.
fn media_type(content_type: &str) -> String {
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().to_ascii_lowercase()
}
