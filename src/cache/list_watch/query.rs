//! Requests as the state machine makes them, and failures as it tells them apart.

use crate::api::{ResourceVersion, Status};

/// The parameters of one list request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// `resourceVersion`; left out if empty.
    pub resource_version: ResourceVersion,
    /// `limit`, if the list is to come in pages.
    pub limit: Option<u32>,
    /// `continue`; empty for the first page.
    pub continue_token: String,
}

/// The parameters of one watch request. Bookmarks are always asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchQuery {
    /// `resourceVersion`; left out if empty.
    pub resource_version: ResourceVersion,
    /// True to ask for the whole list first (`sendInitialEvents`), not older than the version.
    pub send_initial_events: bool,
    /// `timeoutSeconds`.
    pub timeout_seconds: u64,
}

impl ListQuery {
    /// The query's parameters by name, those without a value left out.
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
    /// The query's parameters by name, those without a value left out.
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

/// A failure, by what is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody listens at the server's address.
    ConnectionRefused,
    /// The server asks to come back later.
    TooManyRequests,
    /// The version asked for is no longer in the server's history.
    Expired,
    /// The version asked for lies in the server's future.
    TooLargeResourceVersion,
    /// An open watch reported an error inside the server.
    InternalError,
    /// Anything else.
    Other,
}

impl Failure {
    /// What an answer instead of the one asked for means.
    pub fn of_answer(status: &Status) -> Self {
        if status.is_too_large_resource_version() {
            Self::TooLargeResourceVersion
        } else if status.is_expired() {
            Self::Expired
        } else if status.is_too_many_requests() {
            Self::TooManyRequests
        } else {
            Self::Other
        }
    }

    /// What an error in an open watch means.
    pub fn of_message(status: &Status) -> Self {
        if status.is_internal_error() {
            Self::InternalError
        } else {
            Self::of_answer(status)
        }
    }
}
