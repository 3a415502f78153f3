//! Maps and sets with a hash function that is fast for short keys and randomly seeded per process.

#[cfg(not(any(test, feature = "simulation")))]
use foldhash::fast::RandomState;
// Simulations repeat: the order of a map must not change from run to run.
#[cfg(any(test, feature = "simulation"))]
use foldhash::fast::FixedState as RandomState;

/// The standard map with a faster hash function.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// The standard set with a faster hash function.
pub type HashSet<T> = std::collections::HashSet<T, RandomState>;
