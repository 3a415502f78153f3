//! Maps and sets with a hash that is quick for the short keys here, and seeded anew in each process.

use foldhash::fast::RandomState;

/// As the one of std, but for its hash.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// As the one of std, but for its hash.
pub type HashSet<T> = std::collections::HashSet<T, RandomState>;
