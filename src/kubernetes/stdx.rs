//! Additions to the standard library: named threads that register their work, a stop signal, flags
//! to wait for, fake and boot clocks, fast maps, a hash, a sort for any comparison, back-off, build
//! information, certificates and keys of TLS, escaping of foreign text, files with a bound, a
//! standard error that cannot block, and the seam of simulations ([`turns`]). Imports nothing else
//! of the crate.
//!
//! # Locks
//!
//! - [`stop`] guards the cause of the stop and the wakers. Every thread takes it.
//! - [`Latch`](stop::Latch) guards the sender whose end is the signal. The thread that sets the
//!   flag takes it.
//! - [`thread`] has one lock for each thread's slot and one for the list of slots. The thread
//!   itself takes its slot; `http-N` and `signal` read all of them.
//! - [`stderr`] guards whether a thread writes, and what the last write left behind. Every thread
//!   that logs takes it, and not while it writes.

pub mod bounded_file;
pub mod build;
pub mod clock;
pub mod escape;
pub mod stderr;
pub mod stop;
#[cfg(any(test, feature = "simulation"))]
pub mod testing;
pub mod thread;
pub mod tls;
pub mod turns;

use std::hash::{DefaultHasher, Hash, Hasher};

#[cfg(not(any(test, feature = "simulation")))]
use foldhash::fast::RandomState;
// Simulations repeat: the order of a map must not change from run to run.
#[cfg(any(test, feature = "simulation"))]
use foldhash::fast::FixedState as RandomState;

/// The standard map with a faster hash function.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// The standard set with a faster hash function.
pub type HashSet<T> = std::collections::HashSet<T, RandomState>;

/// A vector or table is shrunk once its capacity exceeds its content by this factor, so that memory
/// is released after a peak.
pub const SHRINK_FACTOR: usize = 4;

/// A hash that is the same in each process.
pub fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A stable merge sort; `is_after(a, b)` is true if `b` has to come before `a`. Unlike the standard
/// library's, it never panics, whatever the comparison.
pub fn merge_sort<T>(mut items: Vec<T>, is_after: &dyn Fn(&T, &T) -> bool) -> Vec<T> {
    if items.len() < 2 {
        return items;
    }
    let right = items.split_off(items.len() / 2);
    let len = items.len() + right.len();
    let mut left = merge_sort(items, is_after).into_iter().peekable();
    let mut right = merge_sort(right, is_after).into_iter().peekable();
    let mut merged = Vec::with_capacity(len);
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let next = if is_after(a, b) {
            right.next()
        } else {
            left.next()
        };
        merged.extend(next);
    }
    merged.extend(left);
    merged.extend(right);
    merged
}

pub fn random_uuid() -> String {
    of(fastrand::u128(..))
}

/// Formats `random` as a version 4 UUID.
fn of(random: u128) -> String {
    let versioned = random & !(0xf << 76) | 4 << 76;
    let bits = versioned & !(0b11 << 62) | 0b10 << 62;
    let hex = format!("{bits:032x}");
    let (a, b, c) = (&hex[..8], &hex[8..12], &hex[12..16]);
    format!("{a}-{b}-{c}-{}-{}", &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::{of, random_uuid};

    #[test]
    fn uuids_have_version_and_variant() {
        assert_eq!(of(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(of(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_ne!(random_uuid(), random_uuid());
    }
}
