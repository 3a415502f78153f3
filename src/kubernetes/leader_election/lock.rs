//! The interface between the election and its Lease. [`LeaseLock`](super::LeaseLock) implements it;
//! tests use a fake. Called on the thread `lease`.

use std::fmt::Debug;
use std::time::Duration;

use super::record::LeaderElectionRecord;
use crate::api::Status;
use crate::client::ClientError;

/// The object that names the leader. Each call blocks for one request, for at most `limit` or
/// slightly longer.
pub trait Lock: Debug + Send {
    /// Reads the object.
    ///
    /// # Errors
    /// [`LockError::is_not_found`] if the object does not exist, otherwise the request's error.
    fn get(&mut self, limit: Duration) -> Result<LeaderElectionRecord, LockError>;

    /// Creates the object.
    ///
    /// # Errors
    /// If the object exists already, otherwise the request's error.
    fn create(&mut self, record: &LeaderElectionRecord, limit: Duration) -> Result<(), LockError>;

    /// Updates the object, on condition that it still has the version last read or written here.
    ///
    /// # Errors
    /// [`LockError::NotRead`] without an earlier read; a conflict if anybody else wrote the object.
    fn update(&mut self, record: &LeaderElectionRecord, limit: Duration) -> Result<(), LockError>;

    /// The reference for events, from the object as last read or written here.
    fn reference(&self) -> LeaseReference;
}

/// A Lease as an event's `involvedObject`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseReference {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// UID of the Lease.
    pub uid: String,
    /// Resource version of the Lease.
    pub resource_version: String,
}

/// A failed call of a [`Lock`].
#[derive(Clone, Debug, thiserror::Error)]
pub enum LockError {
    /// The request failed.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// An update without an earlier read.
    #[error("lease not initialized, call get or create first")]
    NotRead,
    /// The response is not a Lease.
    #[error("the response is not a Lease: {0}")]
    Unreadable(String),
}

impl LockError {
    /// True if the object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Client(error) if error.status().is_some_and(Status::is_not_found))
    }

    /// True if the write certainly had no effect.
    pub fn is_without_effect(&self) -> bool {
        match self {
            Self::Client(error) => {
                error.is_unsent() || error.status().is_some_and(|status| status.code() < 500)
            }
            Self::NotRead => true,
            Self::Unreadable(_) => false,
        }
    }
}
