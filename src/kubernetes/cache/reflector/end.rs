//! How requests end, and how the reflector reacts and logs.

use super::Reflector;
use crate::cache::decode::{Decode, INITIAL_EVENTS_END, StreamError};
use crate::cache::list_watch::{Failure, Older, Reaction};
use crate::client::ClientError;
use crate::stdx::report::report;
use crate::stdx::stop::Cause;

/// How a request, or the read of its response, ended.
pub(super) enum End {
    /// The page is complete.
    Page,
    /// The watch is closed; with the reason, unless the server closed it.
    Closed(Option<StreamError>),
    /// The streamed list has no end.
    Unended,
    /// The list is complete, but older than the store.
    Older(Older),
    /// The request, the list or the watch failed.
    Failed(Failure, String),
}

impl<T: Decode> Reflector<T> {
    /// Reports the end of a request to the state machine and logs the reaction.
    pub(super) fn react(&mut self, end: End) {
        match end {
            End::Page => {}
            End::Closed(error) => self.on_closed(error.as_ref()),
            End::Unended => {
                let reaction = self.list_watch.on_unended();
                self.log_unended(reaction);
            }
            End::Older(older) => self.on_older(older),
            End::Failed(failure, reason) => self.on_failed(failure, reason),
        }
    }

    /// The store keeps what it has: nothing in this process may mix two histories.
    fn on_older(&mut self, older: Older) {
        let (resource, cached) = (T::RESOURCE, self.list_watch.last_resource_version());
        match older {
            Older::Lags(version) => {
                let reason = format!("the list has version {version}, older than {cached}");
                self.on_failed(Failure::TooLargeResourceVersion, reason);
            }
            Older::Restored(version) => self.stop.stop(Cause::Failed(format!(
                "the API server has gone back from version {cached} of {resource} to {version}, as \
                 after a restore of etcd; the daemon ends, so that its supervisor starts it with \
                 empty caches"
            ))),
        }
    }

    fn on_closed(&mut self, error: Option<&StreamError>) {
        let (now, resource) = (self.pace.now(), T::RESOURCE);
        let reason = match error {
            Some(error) => report(error),
            None => "closed by the server".to_owned(),
        };
        let is_silent = error.is_some_and(StreamError::is_timeout);
        let reaction = if is_silent {
            self.list_watch.on_silent(now)
        } else {
            self.list_watch.on_closed(now)
        };
        match reaction {
            Reaction::FallBack if is_silent => self.log_unended(reaction),
            Reaction::Retry if error.is_none() => {
                log::debug!("watch of {resource} closed by the server, reopens it");
            }
            Reaction::Retry => {
                log::info!(error:% = reason; "watch of {resource} broke, reopens it");
            }
            // A collection without changes has a silent watch. If there is another reason, the list
            // shows it.
            Reaction::Check(_) => {
                log::debug!(error:% = reason; "watch of {resource} was silent, {reaction}");
            }
            Reaction::BackOff(_) => self.fail(Failure::Other, reason, reaction),
            Reaction::EndCycle(_) | Reaction::FallBack => {
                log::warn!(error:% = reason; "watch of {resource} ended unexpectedly, {reaction}");
            }
        }
    }

    fn on_failed(&mut self, failure: Failure, reason: String) {
        let resource = T::RESOURCE;
        match self.list_watch.on_error(failure, self.pace.now()) {
            reaction @ (Reaction::Retry | Reaction::FallBack) => {
                let is_known = self.outage_log.is_on();
                let level = [log::Level::Info, log::Level::Debug][usize::from(is_known)];
                log::log!(level, error:% = reason; "cannot list or watch {resource}, {reaction}");
            }
            reaction @ Reaction::EndCycle(_) if failure == Failure::Expired => {
                log::info!(error:% = reason; "watch of {resource} fell behind, {reaction}");
            }
            reaction => self.fail(failure, reason, reaction),
        }
    }

    /// Records and logs a failure that may be part of an outage.
    fn fail(&mut self, failure: Failure, reason: String, reaction: Reaction) {
        let resource = T::RESOURCE;
        let (began, is_due) = self.outage_log.failed(failure, self.pace.now());
        let denied = self.if_forbidden.as_deref();
        let denied = denied.filter(|_| failure == Failure::Forbidden);
        match denied {
            // The client reports rejected credentials itself, for all of its users.
            _ if !is_due || failure == Failure::Unauthorized => {
                log::debug!(error:% = reason; "cannot list or watch {resource}, {reaction}");
            }
            Some(denied) => log::error!(error:% = reason; "{denied}"),
            None => log::warn!(error:% = reason; "cannot list or watch {resource}, {reaction}"),
        }
        self.stats.set_outage(Some((began, reason)));
    }

    fn log_unended(&self, reaction: Reaction) {
        let (resource, n_objects) = (T::RESOURCE, self.collector.len());
        log::warn!(
            "the streamed list of {resource} has no end: after {n_objects} objects no bookmark \
             with the annotation {INITIAL_EVENTS_END} came; {reaction} from now on, as with \
             --feature-gates=WatchListClient=false"
        );
    }

    /// Ends the outage, if there is one: a list is complete, or a message of a watch has arrived.
    pub(super) fn end_outage(&mut self) {
        let Some((duration, was_reopened)) = self.outage_log.end(self.pace.now()) else {
            return;
        };
        self.stats.set_outage(None);
        let (resource, seconds) = (T::RESOURCE, duration.as_secs_f64());
        log::info!("{resource} can be listed and watched again after {seconds:.1} s");
        if !was_reopened {
            self.handler.on_recovered();
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
