//! How much has changed since some version: a count that costs no look at the objects.

use std::time::Duration;

use super::DevServer;
use super::find;
use super::store::Change;

/// What has happened to the objects of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The version up to which was counted.
    pub version: u64,
    /// Objects that were created.
    pub added: usize,
    /// Objects that are gone.
    pub deleted: usize,
    /// False if part of the time is no longer in the history, so that there was more.
    pub is_complete: bool,
}

impl DevServer {
    /// Counts what has changed after version `since` in a namespace (in all, if that is empty). Blocks
    /// until there is a change of the resource, at most for `timeout`.
    pub fn tally(&self, resource: &str, namespace: &str, since: u64, timeout: Duration) -> Tally {
        let nothing = Tally {
            version: since,
            is_complete: true,
            ..Tally::default()
        };
        let Some(resource) = find(resource) else {
            return nothing;
        };
        let found = self.store.wait(resource, timeout, |state| {
            let shelf = state.shelf(resource);
            let mut tally = Tally {
                version: state.version,
                is_complete: shelf.forgotten <= since,
                ..Tally::default()
            };
            let mut has_events = false;
            for event in shelf.events_after(since) {
                has_events = true;
                if !namespace.is_empty() && event.object.namespace() != namespace {
                    continue;
                }
                tally.added += usize::from(event.change == Change::Added);
                tally.deleted += usize::from(event.change == Change::Deleted);
            }
            has_events.then_some(tally)
        });
        found.unwrap_or(nothing)
    }
}
