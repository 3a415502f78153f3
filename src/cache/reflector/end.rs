//! How requests end, and what the reflector does and logs then.

use super::Reflector;
use crate::cache::decode::{Decode, StreamError};
use crate::cache::list_watch::{Failure, Reaction};
use crate::client::ClientError;
use crate::stdx::report::report;

/// How a request, or the reading of its answer, ended.
pub(super) enum End {
    /// The page is complete.
    Page,
    /// The watch is closed; with the reason, if it was not the server that closed it.
    Closed(Option<StreamError>),
    /// It failed.
    Failed(Failure, String),
}

impl<T: Decode> Reflector<T> {
    /// Tells the machine how a request ended, and the log what follows from it.
    pub(super) fn react(&mut self, end: End) {
        let now = self.pace.now();
        let resource = T::RESOURCE;
        match end {
            End::Page => {}
            End::Closed(error) => {
                let why = match &error {
                    Some(error) => report(error),
                    None => "closed by the server".to_owned(),
                };
                let is_silent = error.as_ref().is_some_and(StreamError::is_timeout);
                let reaction = if is_silent {
                    self.machine.on_silent(now)
                } else {
                    self.machine.on_closed(now)
                };
                match reaction {
                    Reaction::Retry if error.is_none() => {
                        log::debug!("watch of {resource} closed by the server, opens it again");
                    }
                    Reaction::Retry => {
                        log::info!(error:% = why; "watch of {resource} broke, opens it again");
                    }
                    // Where nothing changes, a watch may well bring nothing. If it is for another
                    // reason, the list tells.
                    Reaction::EndCycle(_) if is_silent => {
                        log::debug!(error:% = why; "nothing came of the watch of {resource}, {reaction}");
                    }
                    reaction => {
                        log::warn!(error:% = why; "watch of {resource} ended unexpectedly, {reaction}");
                    }
                }
            }
            End::Failed(failure, why) => match self.machine.on_error(failure, now) {
                reaction @ (Reaction::Retry | Reaction::FallBack) => {
                    log::info!(error:% = why; "cannot list or watch {resource}, {reaction}");
                }
                reaction @ Reaction::EndCycle(_) if failure == Failure::Expired => {
                    log::info!(error:% = why; "watch of {resource} fell behind, {reaction}");
                }
                reaction => {
                    let level = self.outage_log.level(failure, now);
                    log::log!(level, error:% = why; "cannot list or watch {resource}, {reaction}");
                }
            },
        }
    }
}

impl End {
    pub(super) fn not_opened(error: &ClientError) -> Self {
        let failure = match error.status() {
            Some(status) => Failure::of_response(status),
            None if error.is_connection_refused() => Failure::ConnectionRefused,
            None => Failure::Other,
        };
        Self::Failed(failure, report(error))
    }
}
