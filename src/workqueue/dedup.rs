//! Deduplication: the state that coalesces repeated adds and keeps two workers off one key.
//!
//! Pure: [`super::queue::Queue`] holds it under its lock and sends keys as its methods return. The
//! tests walk through every interleaving of a small model of that queue.

use crate::stdx::hash::{HashMap, HashSet};
use std::hash::Hash;

/// The priority of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Handed out when nothing else waits, or after a bounded number of other keys.
    Low,
    /// Handed out before all keys of low priority, to workers that serve large work.
    Large,
    /// Handed out before all other keys.
    High,
}

/// The sets `dirty` and `processing` of client-go `util/workqueue/queue.go:Typed`, with three
/// priorities as in controller-runtime's `pkg/controller/priorityqueue`.
///
/// INVARIANT: a key is in the channel of high priority, or exactly one thread carries it to or from
/// that channel, if and only if the key is dirty with high priority and not processing. A key that
/// is dirty with another priority and not processing is in the channel of that priority, or a
/// thread carries it to or from there. No channel holds a key twice.
///
/// A raised key stays in its old channel, because a channel has no removal from the middle. A
/// worker that receives such a stale key drops it. Until then another add with that priority sends
/// nothing, so stale keys never pile up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dedup<K: Eq + Hash> {
    /// Keys that need work, whether or not a worker processes them.
    dirty: HashMap<K, Priority>,
    /// Keys in progress, at most one per worker.
    processing: HashSet<K>,
    /// Keys in the channel of low priority or on their way to or from it, stale ones included.
    in_low: HashSet<K>,
    /// The same for the channel of large work.
    in_large: HashSet<K>,
}

/// The result of [`Dedup::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The key is new. The caller must send it with its priority.
    Send,
    /// The key is new, and the channel of this priority holds it from an earlier add.
    Waits,
    /// The key waited with a lower priority. The caller must send it with this one too.
    Raised,
    /// The key waited with a lower priority, and the channel of this one holds it from an earlier
    /// add.
    RaisedStale,
    /// The key is processing. [`Dedup::done`] returns it for another run.
    Returns,
    /// The key waits already with at least this priority, or returns for another run anyway.
    Coalesced,
}

impl<K: Clone + Eq + Hash> Dedup<K> {
    /// Creates an empty state.
    pub fn new() -> Self {
        Self {
            dirty: HashMap::default(),
            processing: HashSet::default(),
            in_low: HashSet::default(),
            in_large: HashSet::default(),
        }
    }

    /// Marks `key` dirty with this priority.
    pub fn add(&mut self, key: &K, priority: Priority) -> Added {
        let is_processing = self.processing.contains(key);
        if let Some(known) = self.dirty.get_mut(key) {
            if *known >= priority {
                return Added::Coalesced;
            }
            *known = priority;
            return if is_processing {
                Added::Coalesced
            } else if self.needs_sending(key, priority) {
                Added::Raised
            } else {
                Added::RaisedStale
            };
        }
        self.dirty.insert(key.clone(), priority);
        if is_processing {
            Added::Returns
        } else if self.needs_sending(key, priority) {
            Added::Send
        } else {
            Added::Waits
        }
    }

    /// True if `key` waits for a worker, or will when its current worker is done.
    pub fn is_dirty(&self, key: &K) -> bool {
        self.dirty.contains_key(key)
    }

    /// Returns the keys that wait for a worker, without those with large work.
    pub fn waiting_with_small_work(&self) -> impl Iterator<Item = &K> {
        let waits = |(key, priority): &(&K, &Priority)| {
            **priority != Priority::Large && !self.processing.contains(*key)
        };
        self.dirty.iter().filter(waits).map(|(key, _)| key)
    }

    /// True if a worker processes `key`.
    pub fn is_processing(&self, key: &K) -> bool {
        self.processing.contains(key)
    }

    /// Records that a worker has received `key` from the channel of this priority. Returns true if
    /// the worker must process it; false if the key is stale there.
    pub fn begin(&mut self, key: &K, received: Priority) -> bool {
        if let Some(channel) = self.channel_keys(received) {
            channel.remove(key);
        }
        // Stale: the key was raised and taken from another channel, or is in progress.
        if self.dirty.get(key) != Some(&received) || self.processing.contains(key) {
            return false;
        }
        self.dirty.remove(key);
        self.processing.insert(key.clone())
    }

    /// Records that the worker is done with `key`. If it was added meanwhile, the caller must send
    /// it again with the returned priority.
    pub fn done(&mut self, key: &K) -> Option<Priority> {
        if !self.processing.remove(key) {
            return None;
        }
        let priority = self.dirty.get(key).copied()?;
        self.needs_sending(key, priority).then_some(priority)
    }

    fn needs_sending(&mut self, key: &K, priority: Priority) -> bool {
        self.channel_keys(priority)
            .is_none_or(|channel| channel.insert(key.clone()))
    }

    /// Returns the keys in the channel of this priority; `None` for the channel without stale keys.
    fn channel_keys(&mut self, priority: Priority) -> Option<&mut HashSet<K>> {
        match priority {
            Priority::Low => Some(&mut self.in_low),
            Priority::Large => Some(&mut self.in_large),
            Priority::High => None,
        }
    }

    /// Number of keys that wait for a worker.
    pub fn n_waiting(&self) -> usize {
        self.dirty.len() - self.n_returning()
    }

    /// Number of keys in progress.
    pub fn n_processing(&self) -> usize {
        self.processing.len()
    }

    /// Number of keys in progress that were added again.
    pub fn n_returning(&self) -> usize {
        let returns = |key: &&K| self.dirty.contains_key(*key);
        self.processing.iter().filter(returns).count()
    }
}

#[cfg(test)]
impl<K: Clone + Ord + Hash> Dedup<K> {
    /// The whole state as sorted lists, for models that compare it.
    pub(super) fn identity(&self) -> (Vec<(K, Priority)>, [Vec<K>; 3]) {
        let mut dirty: Vec<_> = self
            .dirty
            .iter()
            .map(|(key, it)| (key.clone(), *it))
            .collect();
        dirty.sort_unstable();
        let sets = [&self.processing, &self.in_low, &self.in_large];
        let sets = sets.map(|keys| {
            let mut keys: Vec<K> = keys.iter().cloned().collect();
            keys.sort_unstable();
            keys
        });
        (dirty, sets)
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

    use super::Priority::{High, Large, Low};
    use super::{Added, Dedup, Priority};

    const KEYS: [u8; 2] = [0, 1];
    const PRIORITIES: [Priority; 3] = [Low, Large, High];

    /// The state of a queue between two steps of its threads. Keys in the hands of a thread are
    /// kept with their source or destination channel.
    #[derive(Clone)]
    struct Model {
        dedup: Dedup<u8>,
        /// Keys that a thread is about to send, in any order.
        sending: Vec<(u8, Priority)>,
        high: Vec<u8>,
        large: Vec<u8>,
        low: Vec<u8>,
        /// Keys that a worker has received and not started.
        received: Vec<(u8, Priority)>,
        /// Keys added since a worker last started on them, by the model's own account.
        needs_work: HashSet<u8>,
    }

    impl Model {
        /// Returns every state that one step of one thread can reach.
        fn steps(&self) -> Vec<Self> {
            let mut steps = Vec::new();
            for key in KEYS {
                for priority in PRIORITIES {
                    let mut added = self.clone();
                    added.needs_work.insert(key);
                    match added.dedup.add(&key, priority) {
                        Added::Send | Added::Raised => added.sending.push((key, priority)),
                        Added::Waits | Added::RaisedStale | Added::Returns | Added::Coalesced => {}
                    }
                    steps.push(added);
                }
                if self.dedup.processing.contains(&key) {
                    let mut done = self.clone();
                    let sent = done.dedup.done(&key);
                    done.sending.extend(sent.map(|priority| (key, priority)));
                    steps.push(done);
                }
            }
            for i in 0..self.sending.len() {
                let mut sent = self.clone();
                let (key, priority) = sent.sending.remove(i);
                sent.channel(priority).push(key);
                steps.push(sent);
            }
            for i in 0..self.received.len() {
                let mut begun = self.clone();
                let (key, priority) = begun.received.remove(i);
                let is_other = begun.dedup.processing.contains(&key);
                let begins = begun.dedup.begin(&key, priority);
                assert!(!(begins && is_other), "two have {key}");
                if begins {
                    begun.needs_work.remove(&key);
                }
                steps.push(begun);
            }
            for priority in PRIORITIES {
                let mut received = self.clone();
                if !received.channel(priority).is_empty() {
                    let key = received.channel(priority).remove(0);
                    received.received.push((key, priority));
                    steps.push(received);
                }
            }
            steps
        }

        fn channel(&mut self, priority: Priority) -> &mut Vec<u8> {
            match priority {
                High => &mut self.high,
                Large => &mut self.large,
                Low => &mut self.low,
            }
        }

        fn n_under_way(&self, key: u8, priority: Priority) -> usize {
            let channel = match priority {
                High => &self.high,
                Large => &self.large,
                Low => &self.low,
            };
            let moving = self.sending.iter().chain(&self.received).copied();
            let sent = channel.iter().map(|sent| (*sent, priority));
            moving
                .chain(sent)
                .filter(|it| *it == (key, priority))
                .count()
        }

        fn check(&self) {
            for key in KEYS {
                let high = self.n_under_way(key, High);
                let is_processing = self.dedup.processing.contains(&key);
                let waits = self.dedup.dirty.get(&key).filter(|_| !is_processing);
                let state = self.identity();
                let needs_work = self.needs_work.contains(&key);
                assert_eq!(
                    needs_work,
                    self.dedup.is_dirty(&key),
                    "{key} is lost: {state:?}"
                );
                assert_eq!(high, usize::from(waits == Some(&High)), "{state:?}");
                for (lower, there) in [(Low, &self.dedup.in_low), (Large, &self.dedup.in_large)] {
                    let n = self.n_under_way(key, lower);
                    assert!(n <= 1, "{state:?}");
                    assert!(n == 1 || waits != Some(&lower), "{state:?}");
                    assert_eq!(n == 1, there.contains(&key), "{state:?}");
                }
            }
        }

        fn identity(&self) -> impl Eq + std::hash::Hash + std::fmt::Debug + use<> {
            fn sorted<T: Ord>(keys: impl IntoIterator<Item = T>) -> Vec<T> {
                let mut keys: Vec<T> = keys.into_iter().collect();
                keys.sort_unstable();
                keys
            }
            let dirty = self.dedup.dirty.iter();
            (
                sorted(dirty.map(|(key, priority)| (*key, *priority))),
                sorted(self.dedup.processing.iter().copied()),
                sorted(self.sending.iter().copied()),
                (self.high.clone(), self.large.clone(), self.low.clone()),
                sorted(self.received.iter().copied()),
                sorted(self.needs_work.iter().copied()),
            )
        }
    }

    #[test]
    fn no_interleaving_loses_a_key_or_has_it_twice() {
        let mut to_do = vec![Model {
            dedup: Dedup::new(),
            sending: Vec::new(),
            high: Vec::new(),
            large: Vec::new(),
            low: Vec::new(),
            received: Vec::new(),
            needs_work: HashSet::new(),
        }];
        let mut seen = HashSet::new();
        while let Some(model) = to_do.pop() {
            if seen.insert(model.identity()) {
                model.check();
                to_do.extend(model.steps());
            }
        }
        // One key alone is idle, sending, sent, received, processing or returning, per priority.
        assert!(seen.len() > 10 * 10, "{} states", seen.len());
    }

    #[test]
    fn repeated_raises_leave_one_stale_key() {
        let mut dedup = Dedup::new();
        let mut n_sent_low = 0;
        for _ in 0..100 {
            n_sent_low += usize::from(dedup.add(&1, Low) == Added::Send);
            assert_eq!(dedup.add(&1, High), Added::Raised);
            assert!(dedup.begin(&1, High));
            assert_eq!(dedup.done(&1), None);
        }
        assert_eq!(n_sent_low, 1);
        assert!(!dedup.begin(&1, Low), "it was worked on");
        assert!(dedup.dirty.is_empty() && dedup.processing.is_empty() && dedup.in_low.is_empty());
    }

    #[test]
    fn a_raised_key_reuses_its_stale_entry() {
        let mut dedup = Dedup::new();
        assert_eq!(dedup.add(&1, Large), Added::Send);
        assert_eq!(dedup.add(&1, High), Added::Raised);
        assert!(dedup.begin(&1, High));
        assert_eq!(dedup.done(&1), None);
        assert_eq!(dedup.add(&1, Low), Added::Send);
        assert_eq!(dedup.add(&1, Large), Added::RaisedStale);
        assert!(dedup.begin(&1, Large));
        assert!(!dedup.begin(&1, Low), "it is being worked on");
    }

    #[test]
    fn done_for_a_key_not_in_progress_changes_nothing() {
        let mut dedup = Dedup::new();
        assert_eq!(dedup.add(&1, High), Added::Send);
        assert_eq!(dedup.done(&1), None, "it is in the channel already");
        assert_eq!((dedup.n_waiting(), dedup.n_processing()), (1, 0));
    }

    #[test]
    fn a_key_is_processed_from_its_begin_until_it_is_done() {
        let mut dedup = Dedup::new();
        assert_eq!(dedup.add(&0, High), Added::Send);
        assert!(dedup.is_dirty(&0) && !dedup.is_processing(&0));
        assert!(dedup.begin(&0, High));
        assert!(!dedup.is_dirty(&0) && dedup.is_processing(&0));
        assert_eq!(dedup.done(&0), None);
        assert!(!dedup.is_processing(&0));
    }
}
