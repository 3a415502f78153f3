//! Counts changes since a version, without scanning the objects.

use crate::DevServer;
use crate::store::Change;

/// The changes to the objects of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The version up to which the tally counts.
    pub version: u64,
    /// Objects created.
    pub added: usize,
    /// Objects deleted.
    pub deleted: usize,
    /// False if the history no longer covers the whole range, so the counts are too low.
    pub is_complete: bool,
}

impl DevServer {
    /// Counts the changes after version `since` in a namespace; an empty `namespace` means all.
    pub fn tally(&self, resource: &str, namespace: &str, since: u64) -> Tally {
        let Some(resource) = self.find(resource) else {
            return Tally {
                version: since,
                is_complete: true,
                ..Tally::default()
            };
        };
        self.store.read(|state| {
            let collection = state.collection(resource);
            let mut tally = Tally {
                version: state.version,
                is_complete: collection.forgotten <= since,
                ..Tally::default()
            };
            for event in collection.events_after(since) {
                if !namespace.is_empty() && event.object.namespace() != namespace {
                    continue;
                }
                tally.added += usize::from(event.change == Change::Added);
                tally.deleted += usize::from(event.change == Change::Deleted);
            }
            tally
        })
    }
}
