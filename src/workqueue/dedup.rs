//! Which keys wait and which are being worked on: the state that makes repeats fall together and
//! keeps two workers off one key.
//!
//! Pure: [`super::queue::Queue`] holds it under its lock and does what the answers say, and the tests
//! walk through every interleaving of a small model of that.

use std::collections::HashSet;
use std::hash::Hash;

/// The sets `dirty` and `processing` of client-go `util/workqueue/queue.go:Typed`.
///
/// INVARIANT: a key is in the channel, or on its way there or from there in the hands of exactly one
/// thread, if and only if it is dirty and not being processed. So it is never there twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dedup<K: Eq + Hash> {
    /// Needs work, whether or not somebody works on it right now.
    dirty: HashSet<K>,
    /// Is being worked on. At most as many keys as there are workers.
    processing: HashSet<K>,
}

/// What [`Dedup::add`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The key is new: the caller must send it.
    Send,
    /// The key is being worked on: it comes back through [`Dedup::done`].
    Returns,
    /// The key waits already.
    Coalesced,
}

impl<K: Clone + Eq + Hash> Dedup<K> {
    /// No key.
    pub fn new() -> Self {
        Self {
            dirty: HashSet::new(),
            processing: HashSet::new(),
        }
    }

    /// Notes that `key` needs work.
    pub fn add(&mut self, key: &K) -> Added {
        if self.dirty.contains(key) {
            return Added::Coalesced;
        }
        self.dirty.insert(key.clone());
        if self.processing.contains(key) {
            Added::Returns
        } else {
            Added::Send
        }
    }

    /// True if `key` waits for a worker, or will as soon as the one that has it is done.
    pub fn is_dirty(&self, key: &K) -> bool {
        self.dirty.contains(key)
    }

    /// True if a worker has `key`.
    pub fn is_processing(&self, key: &K) -> bool {
        self.processing.contains(key)
    }

    /// Notes that a worker has received `key` and begins.
    pub fn begin(&mut self, key: &K) {
        self.dirty.remove(key);
        self.processing.insert(key.clone());
    }

    /// Notes that the worker is done with `key`. True if it was added meanwhile: the caller must send
    /// it again.
    pub fn done(&mut self, key: &K) -> bool {
        self.processing.remove(key) && self.dirty.contains(key)
    }

    /// Keys that wait for a worker.
    pub fn n_waiting(&self) -> usize {
        self.dirty.len() - self.n_returning()
    }

    /// Keys that are being worked on.
    pub fn n_processing(&self) -> usize {
        self.processing.len()
    }

    /// Keys that are being worked on and were added again.
    pub fn n_returning(&self) -> usize {
        let returns = |key: &&K| self.dirty.contains(*key);
        self.processing.iter().filter(returns).count()
    }

    /// True if nothing waits and nobody works.
    pub fn is_idle(&self) -> bool {
        self.dirty.is_empty() && self.processing.is_empty()
    }
}

impl<K: Clone + Eq + Hash> Default for Dedup<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Added, Dedup};

    const KEYS: [u8; 2] = [0, 1];

    /// A queue as it stands between two steps of its threads.
    #[derive(Clone)]
    struct Model {
        dedup: Dedup<u8>,
        /// Keys that some thread is about to send, in any order.
        sending: Vec<u8>,
        channel: Vec<u8>,
        /// Keys that some worker has received and not begun.
        received: Vec<u8>,
    }

    impl Model {
        /// Every state that one step of one thread leads to.
        fn steps(&self) -> Vec<Self> {
            let mut steps = Vec::new();
            for key in KEYS {
                let mut added = self.clone();
                if added.dedup.add(&key) == Added::Send {
                    added.sending.push(key);
                }
                steps.push(added);
                if self.dedup.processing.contains(&key) {
                    let mut done = self.clone();
                    if done.dedup.done(&key) {
                        done.sending.push(key);
                    }
                    steps.push(done);
                }
            }
            for i in 0..self.sending.len() {
                let mut sent = self.clone();
                sent.channel.push(sent.sending[i]);
                sent.sending.remove(i);
                steps.push(sent);
            }
            for i in 0..self.received.len() {
                let mut begun = self.clone();
                let key = begun.received.remove(i);
                begun.dedup.begin(&key);
                steps.push(begun);
            }
            if !self.channel.is_empty() {
                let mut received = self.clone();
                let key = received.channel.remove(0);
                received.received.push(key);
                steps.push(received);
            }
            steps
        }

        fn check(&self) {
            for key in KEYS {
                let places = [&self.sending, &self.channel, &self.received];
                let held = places.into_iter().flatten().filter(|held| **held == key);
                let waits =
                    self.dedup.dirty.contains(&key) && !self.dedup.processing.contains(&key);
                assert_eq!(held.count(), usize::from(waits), "{:?}", self.identity());
            }
        }

        fn identity(&self) -> impl Eq + std::hash::Hash + std::fmt::Debug + use<> {
            let sorted = |keys: Vec<u8>| {
                let mut keys = keys;
                keys.sort_unstable();
                keys
            };
            (
                sorted(self.dedup.dirty.iter().copied().collect()),
                sorted(self.dedup.processing.iter().copied().collect()),
                sorted(self.sending.clone()),
                self.channel.clone(),
                sorted(self.received.clone()),
            )
        }
    }

    #[test]
    fn no_interleaving_loses_a_key_or_has_it_twice() {
        let mut to_do = vec![Model {
            dedup: Dedup::new(),
            sending: Vec::new(),
            channel: Vec::new(),
            received: Vec::new(),
        }];
        let mut seen = HashSet::new();
        while let Some(model) = to_do.pop() {
            if seen.insert(model.identity()) {
                model.check();
                to_do.extend(model.steps());
            }
        }
        // One key alone is idle, sending, sent, received, processing or returning.
        assert!(seen.len() > 6 * 6, "{} states", seen.len());
    }

    #[test]
    fn done_for_a_key_that_nobody_works_on_changes_nothing() {
        let mut dedup = Dedup::new();
        assert_eq!(dedup.add(&1), Added::Send);
        assert!(!dedup.done(&1), "it is in the channel already");
        assert_eq!((dedup.n_waiting(), dedup.n_processing()), (1, 0));
    }
}
