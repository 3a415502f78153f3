//! A collection that says, for people, what it means when the API server does not let the daemon see
//! it. Used on the watch threads; the refused list is tried again like any that fails.

use crate::cache::list_watch::{ListQuery, WatchQuery};
use crate::cache::reflector::{Body, Collection, Source};
use crate::client::ClientError;

/// Lists and watches of one collection, and what to tell if they are forbidden.
#[derive(Debug)]
pub(super) struct Explained {
    collection: Collection,
    /// What does not happen meanwhile, and the way out.
    meaning: String,
    /// Told once until it is allowed again, since the reflector logs each refusal anyway.
    is_told: bool,
}

impl Explained {
    pub(super) fn new(collection: Collection, meaning: String) -> Self {
        Self {
            collection,
            meaning,
            is_told: false,
        }
    }

    fn explain(&mut self, result: Result<Body, ClientError>) -> Result<Body, ClientError> {
        match &result {
            Ok(_) => self.is_told = false,
            Err(ClientError::Status(status)) if status.is_forbidden() => {
                if !std::mem::replace(&mut self.is_told, true) {
                    log::error!(error:% = status; "{}", self.meaning);
                }
            }
            Err(_) => {}
        }
        result
    }
}

impl Source for Explained {
    fn open_list(&mut self, query: &ListQuery) -> Result<Body, ClientError> {
        let result = self.collection.open_list(query);
        self.explain(result)
    }

    fn open_watch(&mut self, query: &WatchQuery) -> Result<Body, ClientError> {
        let result = self.collection.open_watch(query);
        self.explain(result)
    }
}
