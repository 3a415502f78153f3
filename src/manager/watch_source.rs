//! Opens the lists and watches of one collection, records since when that fails, and logs a hint
//! when the API server forbids the collection. Runs on the watch's own thread; `health_checks`
//! reads the outage. `cache::stats` records the silence of an open watch.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::list_watch::{ListQuery, WatchQuery};
use crate::cache::reflector::{Body, Collection, Source};
use crate::client::ClientError;
use crate::stdx::report::report;

/// Start of the current outage of one watch and the reason of the last failure; `None` while the
/// last request succeeded.
#[derive(Debug, Default)]
pub(super) struct Reachability(Mutex<Option<(Instant, String)>>);

impl Reachability {
    /// Duration and reason of the current outage; `None` if the last list or watch opened.
    pub(super) fn outage(&self) -> Option<(Duration, String)> {
        let failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, why) = failing.as_ref()?;
        Some((since.elapsed(), why.clone()))
    }

    fn record(&self, opened: &Result<Body, ClientError>) {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *failing = match (opened, failing.take()) {
            (Ok(_), _) => None,
            (Err(error), None) => Some((Instant::now(), report(error))),
            (Err(error), Some((since, _))) => Some((since, report(error))),
        };
    }
}

/// Opens lists and watches of one collection, and logs a hint if they are forbidden.
#[derive(Debug)]
pub(super) struct WatchSource {
    collection: Collection,
    reachability: Arc<Reachability>,
    /// The log message while forbidden: the consequence and the remedy.
    meaning: String,
    /// Set while forbidden, since the reflector logs each rejected request anyway.
    is_logged: bool,
}

impl WatchSource {
    /// A source that records in `reachability` whether requests succeed. `meaning` names the
    /// consequence while the collection is forbidden, and the remedy.
    pub(super) fn new(
        collection: Collection,
        reachability: Arc<Reachability>,
        meaning: String,
    ) -> Self {
        Self {
            collection,
            reachability,
            meaning,
            is_logged: false,
        }
    }

    fn record(&mut self, opened: Result<Body, ClientError>) -> Result<Body, ClientError> {
        self.reachability.record(&opened);
        match &opened {
            Ok(_) => self.is_logged = false,
            Err(ClientError::Status(status)) if status.is_forbidden() => {
                if !std::mem::replace(&mut self.is_logged, true) {
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
        self.record(opened)
    }

    fn open_watch(&mut self, query: &WatchQuery) -> Result<Body, ClientError> {
        let opened = self.collection.open_watch(query);
        self.record(opened)
    }
}
