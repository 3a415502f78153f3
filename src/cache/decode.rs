//! What comes over the wire, object by object.
//!
//! Used by the [`reflector`](super::reflector) on a watch thread. The traits here say what the
//! loop wants of any encoding; [`encoding`](super::encoding) chooses one.

use std::fmt::Debug;
use std::io;

use super::store::{Indexed, UnreadKey};
use crate::api::interner::Interner;
use crate::api::protobuf::ProtobufError;
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::api::{Pod, ReplicaSet, ResourceVersion, Status};
use crate::client::ClientError;

/// No object, list member or watch frame may be longer than this, in bytes. An object in etcd has
/// 1.5 MiB; the bound only keeps a broken server from filling the memory.
pub const OBJECT_BYTES_MAX: usize = 64 << 20;

/// Annotation of the bookmark that closes the initial list
/// (apimachinery `pkg/apis/meta/v1/types.go:InitialEventsAnnotationKey`).
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// A resource whose objects can be read from every encoding that is asked for.
pub trait Decode: Debug + Send + 'static {
    /// What its objects become.
    type Object: Indexed;

    /// `kind` of the object.
    const KIND: &'static str;

    /// Plural name of the resource, for logs.
    const RESOURCE: &'static str;

    /// Reads one object from JSON.
    ///
    /// # Errors
    /// If the text is not JSON, or not such an object.
    fn from_json(json: &[u8], interner: &mut Interner) -> Result<Self::Object, serde_json::Error>;

    /// Reads one object from its protobuf message, out of its envelope.
    ///
    /// # Errors
    /// If the bytes are no such message.
    fn from_protobuf(
        message: &[u8],
        interner: &mut Interner,
    ) -> Result<Self::Object, ProtobufError>;
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
        Self::from_json(json, interner)
    }

    fn from_protobuf(message: &[u8], interner: &mut Interner) -> Result<Self, ProtobufError> {
        Self::from_protobuf(&REPLICA_SET, message, interner)
    }
}

/// ReplicationControllers, which are kept as the ReplicaSets that they amount to.
#[derive(Debug)]
pub enum ReplicationController {}

impl Decode for ReplicationController {
    type Object = ReplicaSet;

    const KIND: &'static str = REPLICATION_CONTROLLER.kind;
    const RESOURCE: &'static str = REPLICATION_CONTROLLER.resource;

    fn from_json(json: &[u8], interner: &mut Interner) -> Result<ReplicaSet, serde_json::Error> {
        ReplicaSet::of_kind(&REPLICATION_CONTROLLER, json, interner)
    }

    fn from_protobuf(message: &[u8], interner: &mut Interner) -> Result<ReplicaSet, ProtobufError> {
        ReplicaSet::from_protobuf(&REPLICATION_CONTROLLER, message, interner)
    }
}

/// An object, or why it could not be read.
pub type Decoded<T> = Result<T, Unread>;

/// An object that this build cannot read, and what could be told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Which object it is; `None` if not even that could be read.
    pub key: Option<UnreadKey>,
    /// Its version, or an empty one.
    pub resource_version: ResourceVersion,
    /// What is wrong with it.
    pub error: String,
}

/// An object whose names would lead requests elsewhere is as good as one that cannot be read: its
/// key must not come into the queue, from which it would get into paths.
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

/// `metadata` of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMetadata {
    /// The position that the list shows.
    pub resource_version: ResourceVersion,
    /// Where the next page goes on; empty on the last page.
    pub continue_token: String,
}

impl ListMetadata {
    /// Checks that a list that was read to its end was one. API servers say the version of each list
    /// and page; a gateway's answer that happens to be JSON does not, and would be an empty list.
    ///
    /// # Errors
    /// [`StreamError::Malformed`] if there is no version.
    pub(super) fn check(&self) -> Result<(), StreamError> {
        if self.resource_version.is_empty() {
            let what = "a list without a resource version".to_owned();
            return Err(StreamError::Malformed(what));
        }
        Ok(())
    }
}

/// One message of a watch.
#[derive(Debug)]
pub enum Frame<T> {
    /// An object is new, or part of the initial list.
    Added(Decoded<T>),
    /// An object has changed.
    Modified(Decoded<T>),
    /// An object is gone; this was its last state.
    Deleted(Decoded<T>),
    /// Nothing happened up to this version.
    Bookmark {
        /// The version.
        resource_version: ResourceVersion,
        /// True if the initial list is complete.
        is_initial_events_end: bool,
    },
    /// The watch failed.
    Error(Status),
    /// Something that was not asked for, such as an object of another kind.
    Foreign(String),
}

/// Why a body cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The connection broke, the body broke off, or nothing came for too long.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The body is not what this encoding looks like.
    #[error("malformed body: {0}")]
    Malformed(String),
    /// One value is longer than this many bytes.
    #[error("an object is longer than {0} bytes")]
    TooLarge(usize),
    /// The body holds another kind than was asked for, such as a `Table`.
    #[error("the answer is a {0}, which was not asked for")]
    OtherKind(String),
    /// The answer has an encoding that was not asked for.
    #[error("cannot read content type {0:?}")]
    ContentType(String),
}

impl StreamError {
    /// Nothing came for too long.
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
        Self::Malformed(error.to_string())
    }
}

/// The body of one list, or of one page of it.
pub trait ReadList<T: Decode>: Debug {
    /// The next object; `None` after the last. Blocks until it has arrived; the body's own read
    /// ends the wait.
    ///
    /// # Errors
    /// [`StreamError`]; the list is of no use then.
    fn next_object(
        &mut self,
        interner: &mut Interner,
    ) -> Result<Option<Decoded<T::Object>>, StreamError>;

    /// The list's metadata; complete once [`next_object`](Self::next_object) gave `None`.
    fn metadata(&self) -> &ListMetadata;
}

/// The body of one watch.
pub trait ReadWatch<T: Decode>: Debug {
    /// The next message; `None` when the server has closed the watch. Blocks until it has arrived;
    /// the body's own read ends the wait.
    ///
    /// # Errors
    /// [`StreamError`]; the watch is of no use then.
    fn next_frame(
        &mut self,
        interner: &mut Interner,
    ) -> Result<Option<Frame<T::Object>>, StreamError>;
}
