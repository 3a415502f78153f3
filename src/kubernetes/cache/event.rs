//! The events that a store delivers to the handlers after it has changed.

use std::sync::Arc;

/// One change of a store. The store already has the new state when the handler runs.
#[derive(Clone, Debug)]
pub enum CacheEvent<T> {
    /// The object is new.
    Added(Arc<T>),
    /// The object has changed; at a resync `old` and `new` are the same. If an object was deleted
    /// and created again while the watch was interrupted, this is an update with another UID.
    Updated {
        /// The old state.
        old: Arc<T>,
        /// The new state.
        new: Arc<T>,
    },
    /// The object was deleted. After a relist this is its last known state, a tombstone.
    Deleted(Arc<T>),
}
