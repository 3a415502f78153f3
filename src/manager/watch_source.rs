//! Where a watch's lists and watches come from, with what the daemon says of that: since when none can be
//! opened, and, for people, what it means when the API server does not let the daemon see the collection.
//! Used on the watch's own thread; the `health_checks` read since when. How long nothing was heard on what
//! is open is in `cache::stats`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::list_watch::{ListQuery, WatchQuery};
use crate::cache::reflector::{Body, Collection, Source};
use crate::client::ClientError;
use crate::stdx::report::report;

/// When the first request of one watch failed that no success has followed, and the last one's reason.
#[derive(Debug, Default)]
pub(super) struct Reachability(Mutex<Option<(Instant, String)>>);

impl Reachability {
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

/// Lists and watches of one collection, and what to log if they are forbidden.
#[derive(Debug)]
pub(super) struct WatchSource {
    collection: Collection,
    reachability: Arc<Reachability>,
    /// What does not happen meanwhile, and the way out.
    meaning: String,
    /// Logged once until it is allowed again, since the reflector logs each refusal anyway.
    is_told: bool,
}

impl WatchSource {
    /// A source that notes in `reachability` whether it answers. `meaning` says what does not happen while the
    /// collection is forbidden, and the way out.
    pub(super) fn new(
        collection: Collection,
        reachability: Arc<Reachability>,
        meaning: String,
    ) -> Self {
        Self {
            collection,
            reachability,
            meaning,
            is_told: false,
        }
    }

    fn noted(&mut self, opened: Result<Body, ClientError>) -> Result<Body, ClientError> {
        self.reachability.note(&opened);
        match &opened {
            Ok(_) => self.is_told = false,
            Err(ClientError::Status(status)) if status.is_forbidden() => {
                if !std::mem::replace(&mut self.is_told, true) {
                    log::error!(error:% = status; "{}", self.meaning);
                }
            }
            Err(_) => {}
        }
        opened
    }
}

impl Source for WatchSource {
    fn open_list(&mut self, query: &ListQuery) -> Result<Body, ClientError> {
        let opened = self.collection.open_list(query);
        self.noted(opened)
    }

    fn open_watch(&mut self, query: &WatchQuery) -> Result<Body, ClientError> {
        let opened = self.collection.open_watch(query);
        self.noted(opened)
    }
}
