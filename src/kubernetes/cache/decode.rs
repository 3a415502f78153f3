//! Decoding of lists and watches, object by object.
//!
//! The [`reflector`](super::reflector) uses this on a watch thread.

use std::fmt::Debug;
use std::io;
use std::io::Read;

use serde_json::error::Category;

use super::json_frames::JsonWatch;
use super::protobuf_frames::ProtobufWatch;
use super::store::{Indexed, UnreadKey};
use super::{json_frames, protobuf_frames};
use crate::api::interner::Interner;
use crate::api::json::{JSON, JSON_WITHOUT_MANAGED_FIELDS};
use crate::api::protobuf::ProtobufError;
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::api::{Pod, ReplicaSet, ResourceVersion, Status, protobuf};
use crate::client::ClientError;
use crate::stdx::escape::escaped;

/// Maximum bytes of an object, list member or watch frame. An object in etcd has at most 1.5 MiB;
/// the limit keeps a broken server from filling the memory.
pub const OBJECT_BYTES_MAX: usize = 64 << 20;

/// Size of a read buffer, in bytes: several usual objects.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// Annotation of the bookmark that ends the initial list (apimachinery
/// `pkg/apis/meta/v1/types.go:InitialEventsAnnotationKey`).
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

pub trait Decode: Debug + Send + 'static {
    type Object: Indexed;

    const KIND: &'static str;

    /// Plural name of the resource, for logs.
    const RESOURCE: &'static str;

    /// What the metrics of its watch are labelled with. Two watches of one resource need two.
    const LABEL: &'static str = Self::RESOURCE;

    /// Decodes one object from JSON.
    fn from_json(json: &[u8], interner: &mut Interner) -> Result<Self::Object, serde_json::Error>;

    /// Decodes one object from its protobuf message, without the envelope. Watches of other kinds
    /// ask for JSON.
    fn from_protobuf(_: &[u8], _: &mut Interner) -> Result<Self::Object, ProtobufError> {
        let problem = "unexpected protobuf: only JSON was requested";
        Err(ProtobufError::Wire(problem))
    }
}

impl Decode for Pod {
    type Object = Self;

    const KIND: &'static str = "Pod";
    const RESOURCE: &'static str = "pods";

    fn from_json(json: &[u8], interner: &mut Interner) -> Result<Self, serde_json::Error> {
        Self::from_json(json, interner)
    }

    fn from_protobuf(message: &[u8], interner: &mut Interner) -> Result<Self, ProtobufError> {
        Self::from_protobuf(message, interner)
    }
}

impl Decode for ReplicaSet {
    type Object = Self;

    const KIND: &'static str = REPLICA_SET.kind;
    const RESOURCE: &'static str = REPLICA_SET.resource;

    fn from_json(json: &[u8], interner: &mut Interner) -> Result<Self, serde_json::Error> {
        Self::from_json(json, interner).map(Self::for_cache)
    }

    fn from_protobuf(message: &[u8], interner: &mut Interner) -> Result<Self, ProtobufError> {
        Self::from_protobuf(&REPLICA_SET, message, interner).map(Self::for_cache)
    }
}

/// ReplicationControllers, which the cache stores as equivalent ReplicaSets.
#[derive(Debug)]
pub enum ReplicationController {}

impl Decode for ReplicationController {
    type Object = ReplicaSet;

    const KIND: &'static str = REPLICATION_CONTROLLER.kind;
    const RESOURCE: &'static str = REPLICATION_CONTROLLER.resource;

    fn from_json(json: &[u8], interner: &mut Interner) -> Result<ReplicaSet, serde_json::Error> {
        ReplicaSet::of_kind(&REPLICATION_CONTROLLER, json, interner).map(ReplicaSet::for_cache)
    }

    fn from_protobuf(message: &[u8], interner: &mut Interner) -> Result<ReplicaSet, ProtobufError> {
        ReplicaSet::from_protobuf(&REPLICATION_CONTROLLER, message, interner)
            .map(ReplicaSet::for_cache)
    }
}

/// An object, or why it could not be decoded.
pub type Decoded<T> = Result<T, Unread>;

/// An object that this build cannot decode, with its identity as far as known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Key and UID; `None` if they could not be decoded either.
    pub key: Option<UnreadKey>,
    /// Its resource version, possibly empty.
    pub resource_version: ResourceVersion,
    pub error: String,
}

/// Rejects an object whose names do not fit into a path. Its key must not enter the queue, because
/// requests for it would have another path.
pub(super) fn check_names<T: Indexed>(object: T) -> Decoded<T> {
    match object.key().check_path() {
        Ok(()) => Ok(object),
        Err(error) => Err(Unread {
            key: Some(UnreadKey {
                key: object.key().clone(),
                uid: object.uid().clone(),
            }),
            resource_version: object.resource_version().clone(),
            error,
        }),
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMetadata {
    pub resource_version: ResourceVersion,
    pub continue_token: String,
}

/// One message of a watch.
#[derive(Debug)]
pub enum Frame<T> {
    Added(Decoded<T>),
    Modified(Decoded<T>),
    /// The object was deleted; this is its last state.
    Deleted(Decoded<T>),
    Bookmark {
        resource_version: ResourceVersion,
        /// True if the initial list is complete.
        is_initial_events_end: bool,
    },
    Error(Status),
    /// A message that the request does not allow, such as an object of another kind.
    Foreign(String),
}

impl<T> Frame<T> {
    /// The frame of a message of this type about an object.
    pub(super) fn of_change(type_: &str, object: impl FnOnce() -> Decoded<T>) -> Self {
        match type_ {
            "ADDED" => Self::Added(object()),
            "MODIFIED" => Self::Modified(object()),
            "DELETED" => Self::Deleted(object()),
            other => Self::Foreign(format!("a message of type {other:?}")),
        }
    }

    /// The frame of a message about an object of another kind.
    pub(super) fn of_kind(kind: &str) -> Self {
        Self::Foreign(format!("an object of kind {kind:?}"))
    }
}

/// Why a body cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The connection broke, the body is incomplete, or the silence timeout passed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The body does not match its encoding.
    #[error("malformed body: {0}")]
    Malformed(String),
    /// One value is longer than this many bytes.
    #[error("an object is longer than {0} bytes")]
    TooLarge(usize),
    /// The body holds another kind than requested, such as a `Table`.
    #[error("expected another kind, got {0}")]
    OtherKind(String),
    /// The response has an encoding that the request does not accept; with the body's beginning.
    #[error("the response has content type {0:?}: {1}")]
    ContentType(String, String),
}

impl StreamError {
    pub fn is_timeout(&self) -> bool {
        let Self::Io(error) = self else {
            return false;
        };
        let carried = error.get_ref().and_then(|inner| inner.downcast_ref());
        carried.is_some_and(ClientError::is_timeout)
    }
}

impl From<ProtobufError> for StreamError {
    fn from(error: ProtobufError) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl From<serde_json::Error> for StreamError {
    fn from(error: serde_json::Error) -> Self {
        match error.classify() {
            Category::Io => Self::Io(error.into()),
            Category::Eof => {
                let error = io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "unexpected end of file in the body",
                );
                Self::Io(error)
            }
            Category::Syntax | Category::Data => Self::Malformed(error.to_string()),
        }
    }
}

// The encoding to request. The response's `Content-Type` selects the reader, whatever the request
// accepted; JSON is always supported.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentType {
    Json,
    /// Protobuf, and JSON from a server without protobuf. A pod takes a third of JSON's bytes and
    /// of its decoding time.
    #[default]
    Protobuf,
}

impl ContentType {
    /// The value of the `Accept` header, best encoding first. No cache keeps `managedFields`, so
    /// the header asks the API server to omit them, as [`JSON_WITHOUT_MANAGED_FIELDS`] does.
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

/// Reads a list, or one page of it, of this content type. Passes each object on as soon as it has
/// arrived; the body's own read ends the wait.
///
/// # Errors
/// [`StreamError`]; the objects are no list then.
pub fn read_list<T: Decode>(
    content_type: &str,
    body: Box<dyn Read + Send>,
    interner: &mut Interner,
    on_object: &mut dyn FnMut(Decoded<T::Object>),
) -> Result<ListMetadata, StreamError> {
    let metadata = match media_type(content_type).as_str() {
        JSON => json_frames::read_list(body, T::KIND, OBJECT_BYTES_MAX, &mut |item| {
            on_object(json_frames::read_object::<T>(item, interner));
        }),
        protobuf::MEDIA_TYPE => protobuf_frames::read_list(body, T::KIND, &mut |item| {
            on_object(protobuf_frames::read_object::<T>(item, interner));
        }),
        _ => Err(other(content_type, body)),
    }?;
    // API servers set the version of each list and page. A gateway's response that happens to be
    // JSON has none, and would pass for an empty list.
    if metadata.resource_version.is_empty() {
        let problem = "a list without a resource version".to_owned();
        return Err(StreamError::Malformed(problem));
    }
    Ok(metadata)
}

/// The body of a watch.
pub struct Watch(Messages);

enum Messages {
    Json(JsonWatch),
    Protobuf(ProtobufWatch),
}

impl Watch {
    /// Returns a reader for a watch of this content type.
    pub fn new(content_type: &str, body: Box<dyn Read + Send>) -> Result<Self, StreamError> {
        match media_type(content_type).as_str() {
            JSON => Ok(Self(Messages::Json(JsonWatch::new(body)))),
            protobuf::MEDIA_TYPE => Ok(Self(Messages::Protobuf(ProtobufWatch::new(body)))),
            _ => Err(other(content_type, body)),
        }
    }

    /// Returns the next message; `None` once the server has closed the watch. Blocks until it has
    /// arrived; the body's own read ends the wait.
    ///
    /// # Errors
    /// [`StreamError`]; the watch is unusable then.
    pub fn next_frame<T: Decode>(
        &mut self,
        interner: &mut Interner,
    ) -> Result<Option<Frame<T::Object>>, StreamError> {
        match &mut self.0 {
            Messages::Json(watch) => watch.next_frame::<T>(interner),
            Messages::Protobuf(watch) => watch.next_frame::<T>(interner),
        }
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

/// Returns `application/json` for `application/json;stream=watch`, and for no content type at all,
/// as client-go does.
fn media_type(content_type: &str) -> String {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if media_type.is_empty() {
        return JSON.to_owned();
    }
    media_type.to_ascii_lowercase()
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
