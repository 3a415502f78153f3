//! What the election needs of the thing that is fought for: implemented by
//! [`LeaseLock`](super::LeaseLock), and in tests by whatever stands in for it. Called on the thread
//! `lease`.

use std::fmt::Debug;
use std::time::Duration;

use super::record::LeaderElectionRecord;
use crate::api::Status;
use crate::client::ClientError;

/// The object that names the leader. Each call blocks for one request, at most for `limit` or a little
/// more.
pub trait Lock: Debug + Send {
    /// Reads it.
    ///
    /// # Errors
    /// [`LockError::is_not_found`] if it is not there; else what befell the request.
    fn get(&mut self, limit: Duration) -> Result<LeaderElectionRecord, LockError>;

    /// Makes it.
    ///
    /// # Errors
    /// If it is there already, or as the request says.
    fn create(&mut self, record: &LeaderElectionRecord, limit: Duration) -> Result<(), LockError>;

    /// Writes it, on condition that it is as it was last read or written here.
    ///
    /// # Errors
    /// [`LockError::NotRead`] without an earlier read; a conflict if somebody else has written it.
    fn update(&mut self, record: &LeaderElectionRecord, limit: Duration) -> Result<(), LockError>;

    /// What an event about it refers to, as it was last read or written here.
    fn reference(&self) -> LeaseReference;

    /// `namespace/name`.
    fn describe(&self) -> String;
}

/// A Lease as an event's `involvedObject`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
}

/// A call on a [`Lock`] that did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LockError {
    /// The request failed.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// An update before anything was read.
    #[error("lease not initialized, call get or create first")]
    NotRead,
    /// The answer is no Lease.
    #[error("the answer is no Lease: {0}")]
    Unreadable(String),
}

impl LockError {
    /// True if the object is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Client(error) if error.status().is_some_and(Status::is_not_found))
    }

    /// True if the write surely did not take effect.
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
