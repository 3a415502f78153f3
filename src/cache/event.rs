//! What a store tells the handlers after it has changed.

use std::sync::Arc;

/// One change of a store. The store already shows it when the handler sees it.
#[derive(Clone, Debug)]
pub enum CacheEvent<T> {
    /// An object is new.
    Added(Arc<T>),
    /// An object is another than before; at a resync `old` and `new` are the same. An object that was
    /// deleted and made anew unseen is an update with another UID.
    Updated {
        /// As it was.
        old: Arc<T>,
        /// As it is.
        new: Arc<T>,
    },
    /// An object is gone. After a relist this is its last known state, a tombstone.
    Deleted(Arc<T>),
}
