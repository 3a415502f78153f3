//! The state machine's requests, and its classification of failures.

use crate::api::{ResourceVersion, Status};

/// The parameters of one list request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// `resourceVersion`; omitted if empty.
    pub resource_version: ResourceVersion,
    /// `limit`, for a list in pages.
    pub limit: Option<u32>,
    /// `continue`; empty for the first page.
    pub continue_token: String,
}

/// The parameters of one watch request. It always requests bookmarks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchQuery {
    /// `resourceVersion`; omitted if empty.
    pub resource_version: ResourceVersion,
    /// True to request the complete list first (`sendInitialEvents`), at least as new as the
    /// version.
    pub send_initial_events: bool,
    /// `timeoutSeconds`.
    pub timeout_seconds: u64,
}

impl ListQuery {
    /// The query's parameters by name, without empty ones.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut parameters = Vec::new();
        if !self.resource_version.is_empty() {
            parameters.push(("resourceVersion", self.resource_version.to_string()));
        }
        if let Some(limit) = self.limit {
            parameters.push(("limit", limit.to_string()));
        }
        if !self.continue_token.is_empty() {
            parameters.push(("continue", self.continue_token.clone()));
        }
        parameters
    }
}

impl WatchQuery {
    /// The query's parameters by name, without empty ones.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut parameters = vec![("watch", "true".to_owned())];
        if !self.resource_version.is_empty() {
            parameters.push(("resourceVersion", self.resource_version.to_string()));
        }
        if self.send_initial_events {
            parameters.push(("sendInitialEvents", "true".to_owned()));
            parameters.push(("resourceVersionMatch", "NotOlderThan".to_owned()));
        }
        parameters.push(("allowWatchBookmarks", "true".to_owned()));
        parameters.push(("timeoutSeconds", self.timeout_seconds.to_string()));
        parameters
    }
}

/// A failure, classified by the reaction to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No process listens at the server's address.
    ConnectionRefused,
    /// The server requests a later retry.
    TooManyRequests,
    /// The requested version is no longer in the server's history.
    Expired,
    /// The server has not reached the requested version yet.
    TooLargeResourceVersion,
    /// The server does not accept the credentials.
    Unauthorized,
    /// The account lacks the right.
    Forbidden,
    /// Anything else.
    Other,
}

impl Failure {
    /// Classifies the status error of a response or in an open watch.
    pub fn of(status: &Status) -> Self {
        if status.is_too_large_resource_version() {
            Self::TooLargeResourceVersion
        } else if status.is_expired() {
            Self::Expired
        } else if status.is_too_many_requests() {
            Self::TooManyRequests
        } else if status.code() == 401 {
            Self::Unauthorized
        } else if status.is_forbidden() {
            Self::Forbidden
        } else {
            Self::Other
        }
    }
}
