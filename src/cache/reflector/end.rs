//! How requests end, and how the reflector reacts and logs.

use super::Reflector;
use crate::cache::decode::{Decode, StreamError};
use crate::cache::list_watch::{Failure, Reaction};
use crate::client::ClientError;
use crate::stdx::report::report;

/// How a request, or the read of its response, ended.
pub(super) enum End {
    /// The page is complete.
    Page,
    /// The watch is closed; with the reason, unless the server closed it.
    Closed(Option<StreamError>),
    /// The request, the list or the watch failed.
    Failed(Failure, String),
}

impl<T: Decode> Reflector<T> {
    /// Reports the end of a request to the state machine and logs the reaction.
    pub(super) fn react(&mut self, end: End) {
        let now = self.pace.now();
        let resource = T::RESOURCE;
        match end {
            End::Page => {}
            End::Closed(error) => {
                let reason = match &error {
                    Some(error) => report(error),
                    None => "closed by the server".to_owned(),
                };
                let is_silent = error.as_ref().is_some_and(StreamError::is_timeout);
                let reaction = if is_silent {
                    self.list_watch.on_silent(now)
                } else {
                    self.list_watch.on_closed(now)
                };
                match reaction {
                    Reaction::Retry if error.is_none() => {
                        log::debug!("watch of {resource} closed by the server, reopens it");
                    }
                    Reaction::Retry => {
                        log::info!(error:% = reason; "watch of {resource} broke, reopens it");
                    }
                    // A collection without changes has a silent watch. If there is another reason,
                    // the list shows it.
                    Reaction::EndCycle(_) if is_silent => {
                        log::debug!(error:% = reason; "watch of {resource} was silent, {reaction}");
                    }
                    reaction => {
                        log::warn!(
                            error:% = reason;
                            "watch of {resource} ended unexpectedly, {reaction}"
                        );
                    }
                }
            }
            End::Failed(failure, reason) => match self.list_watch.on_error(failure, now) {
                reaction @ (Reaction::Retry | Reaction::FallBack) => {
                    log::info!(error:% = reason; "cannot list or watch {resource}, {reaction}");
                }
                reaction @ Reaction::EndCycle(_) if failure == Failure::Expired => {
                    log::info!(error:% = reason; "watch of {resource} fell behind, {reaction}");
                }
                reaction => {
                    let level = self.outage_log.level(failure, now);
                    log::log!(
                        level, error:% = reason;
                        "cannot list or watch {resource}, {reaction}"
                    );
                }
            },
        }
    }
}

impl End {
    pub(super) fn not_opened(error: &ClientError) -> Self {
        let failure = match error.status() {
            Some(status) => Failure::of(status),
            None if error.is_connection_refused() => Failure::ConnectionRefused,
            None => Failure::Other,
        };
        Self::Failed(failure, report(error))
    }
}
