//! Since when a watch cannot reach the API server: a layer round where its lists and watches come from.
//! On the watch's own thread; read by the `health_checks`. How long nothing was heard on what is
//! open is in `cache::stats`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::list_watch::{ListQuery, WatchQuery};
use crate::cache::reflector::{Body, Source};
use crate::client::ClientError;
use crate::stdx::report::report;

/// When the first request of one watch failed that no success has followed, and the last one's reason.
#[derive(Debug, Default)]
pub(super) struct Contact(Mutex<Option<(Instant, String)>>);

impl Contact {
    /// How long no list or watch could be opened, and why; `None` if the last one could.
    pub(super) fn outage(&self) -> Option<(Duration, String)> {
        let failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, why) = failing.as_ref()?;
        Some((since.elapsed(), why.clone()))
    }

    fn note(&self, opened: &Result<Body, ClientError>) {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *failing = match (opened, failing.take()) {
            (Ok(_), _) => None,
            (Err(error), None) => Some((Instant::now(), report(error))),
            (Err(error), Some((since, _))) => Some((since, report(error))),
        };
    }
}

/// A source that notes whether it answers.
#[derive(Debug)]
pub(super) struct Noted<S> {
    pub(super) source: S,
    pub(super) contact: Arc<Contact>,
}

impl<S: Source> Source for Noted<S> {
    fn open_list(&mut self, query: &ListQuery) -> Result<Body, ClientError> {
        let opened = self.source.open_list(query);
        self.contact.note(&opened);
        opened
    }

    fn open_watch(&mut self, query: &WatchQuery) -> Result<Body, ClientError> {
        let opened = self.source.open_watch(query);
        self.contact.note(&opened);
        opened
    }
}
