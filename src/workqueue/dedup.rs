//! Deduplication: the state that coalesces repeated adds and keeps two workers off one key, and
//! since when.
//!
//! Pure: [`super::queue::Queue`] holds it under its lock and sends keys as its methods return. The
//! tests walk through every interleaving of a small model of that queue.

use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::stdx::hash::{HashMap, HashSet};

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
    /// Keys that need work, whether or not a worker processes them, with the time of the add that
    /// made them dirty.
    dirty: HashMap<K, (Priority, Instant)>,
    /// Keys in progress, at most one per worker.
    processing: HashMap<K, Processing>,
    /// Keys in the channel of low priority or on their way to or from it, stale ones included.
    in_low: HashSet<K>,
    /// The same for the channel of large work.
    in_large: HashSet<K>,
}

/// A key in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Processing {
    began: Instant,
    /// The last [`Dedup::progressed`], or the begin.
    progressed: Instant,
}

/// The result of [`Dedup::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The key was not dirty before.
    pub is_new: bool,
    /// The caller must send the key with its priority. False if it waits already with at least this
    /// priority, if its channel still holds it from an earlier add, or if it is processing:
    /// [`Dedup::done`] returns it for another run.
    pub sends: bool,
}

/// How long the workers have processed their current keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
    /// Sum over all keys in progress.
    pub total: Duration,
    /// The longest time of one key.
    pub longest: Duration,
    /// The longest time of one key without progress.
    pub longest_standstill: Duration,
}

impl<K: Clone + Eq + Hash> Dedup<K> {
    /// Creates an empty state.
    pub fn new() -> Self {
        Self {
            dirty: HashMap::default(),
            processing: HashMap::default(),
            in_low: HashSet::default(),
            in_large: HashSet::default(),
        }
    }

    /// Marks `key` dirty with this priority.
    pub fn add(&mut self, key: &K, priority: Priority, now: Instant) -> Added {
        let is_new = match self.dirty.get_mut(key) {
            Some((known, _)) if *known >= priority => {
                let (is_new, sends) = (false, false);
                return Added { is_new, sends };
            }
            Some((known, _)) => {
                *known = priority;
                false
            }
            None => {
                self.dirty.insert(key.clone(), (priority, now));
                true
            }
        };
        let sends = !self.is_processing(key) && self.needs_sending(key, priority);
        Added { is_new, sends }
    }

    /// True if `key` waits for a worker, or will when its current worker is done.
    pub fn is_dirty(&self, key: &K) -> bool {
        self.dirty.contains_key(key)
    }

    /// True if a worker processes `key`.
    pub fn is_processing(&self, key: &K) -> bool {
        self.processing.contains_key(key)
    }

    /// Records that a worker has received `key` from the channel of this priority. Returns how long
    /// the key has waited, and the worker must process it; `None` if the key is stale there.
    pub fn begin(&mut self, key: &K, received: Priority, now: Instant) -> Option<Duration> {
        if let Some(channel) = self.channel_keys(received) {
            channel.remove(key);
        }
        let (priority, added) = *self.dirty.get(key)?;
        // Stale: the key was raised and taken from another channel, or is in progress.
        if priority != received || self.is_processing(key) {
            return None;
        }
        self.dirty.remove(key);
        let (began, progressed) = (now, now);
        let processing = Processing { began, progressed };
        self.processing.insert(key.clone(), processing);
        Some(now.saturating_duration_since(added))
    }

    /// Records that the worker's work on `key` goes on.
    pub fn progressed(&mut self, key: &K, now: Instant) {
        if let Some(processing) = self.processing.get_mut(key) {
            processing.progressed = now;
        }
    }

    /// Records that the worker is done with `key`, and returns how long it took; `None` if no
    /// worker processed it. If the key was added meanwhile, the caller must send it again with the
    /// returned priority.
    pub fn done(&mut self, key: &K, now: Instant) -> Option<(Duration, Option<Priority>)> {
        let Processing { began, .. } = self.processing.remove(key)?;
        let added = self.dirty.get(key).map(|(priority, _)| *priority);
        let returns = added.filter(|priority| self.needs_sending(key, *priority));
        Some((now.saturating_duration_since(began), returns))
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

    /// Number of keys that wait for a worker, or will when their current worker is done.
    pub fn n_dirty(&self) -> usize {
        self.dirty.len()
    }

    /// Number of keys in progress that were added again.
    pub fn n_returning(&self) -> usize {
        let returns = |key: &&K| self.dirty.contains_key(*key);
        self.processing.keys().filter(returns).count()
    }

    /// Returns the wait of the longest-waiting key; zero without one. Keys with large work do not
    /// count: they wait for each other as long as that work takes.
    pub fn longest_wait(&self, now: Instant) -> Duration {
        let waiting = self.dirty.iter().filter(|(key, (priority, _))| {
            *priority != Priority::Large && !self.processing.contains_key(*key)
        });
        let oldest = waiting.map(|(_, (_, added))| *added).min();
        oldest.map_or(Duration::ZERO, |added| now.saturating_duration_since(added))
    }

    /// Returns how long the workers have processed their current keys.
    pub fn in_progress(&self, now: Instant) -> InProgress {
        let since = |at: Instant| now.saturating_duration_since(at);
        let all = self.processing.values();
        all.fold(InProgress::default(), |sum, it| InProgress {
            total: sum.total + since(it.began),
            longest: sum.longest.max(since(it.began)),
            longest_standstill: sum.longest_standstill.max(since(it.progressed)),
        })
    }
}

#[cfg(test)]
impl<K: Clone + Ord + Hash> Dedup<K> {
    /// The whole state as sorted lists, for models that compare it.
    pub(super) fn identity(&self) -> (Vec<(K, Priority)>, [Vec<K>; 3]) {
        let mut dirty: Vec<_> = self
            .dirty
            .iter()
            .map(|(key, (priority, _))| (key.clone(), *priority))
            .collect();
        dirty.sort_unstable();
        let sorted = |keys: &mut dyn Iterator<Item = &K>| {
            let mut keys: Vec<K> = keys.cloned().collect();
            keys.sort_unstable();
            keys
        };
        let sets = [
            sorted(&mut self.processing.keys()),
            sorted(&mut self.in_low.iter()),
            sorted(&mut self.in_large.iter()),
        ];
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
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    use super::Priority::{High, Large, Low};
    use super::{Added, Dedup, InProgress, Priority};

    static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);
    const ZERO: Duration = Duration::ZERO;

    const NEW: Added = Added {
        is_new: true,
        sends: true,
    };
    const RAISED: Added = Added {
        is_new: false,
        sends: true,
    };
    const COALESCED: Added = Added {
        is_new: false,
        sends: false,
    };

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
                    if added.dedup.add(&key, priority, *NOW).sends {
                        added.sending.push((key, priority));
                    }
                    steps.push(added);
                }
                if self.dedup.is_processing(&key) {
                    let mut done = self.clone();
                    let (_, sent) = done.dedup.done(&key, *NOW).expect("it is in progress");
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
                let is_other = begun.dedup.is_processing(&key);
                let begins = begun.dedup.begin(&key, priority, *NOW).is_some();
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
                let is_processing = self.dedup.is_processing(&key);
                let waits = self.dedup.dirty.get(&key).filter(|_| !is_processing);
                let waits = waits.map(|(priority, _)| *priority);
                let state = self.identity();
                let needs_work = self.needs_work.contains(&key);
                assert_eq!(
                    needs_work,
                    self.dedup.is_dirty(&key),
                    "{key} is lost: {state:?}"
                );
                assert_eq!(high, usize::from(waits == Some(High)), "{state:?}");
                for (lower, there) in [(Low, &self.dedup.in_low), (Large, &self.dedup.in_large)] {
                    let n = self.n_under_way(key, lower);
                    assert!(n <= 1, "{state:?}");
                    assert!(n == 1 || waits != Some(lower), "{state:?}");
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
            (
                self.dedup.identity(),
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
            n_sent_low += usize::from(dedup.add(&1, Low, *NOW).sends);
            assert_eq!(dedup.add(&1, High, *NOW), RAISED);
            assert_eq!(dedup.begin(&1, High, *NOW), Some(ZERO));
            assert_eq!(dedup.done(&1, *NOW), Some((ZERO, None)));
        }
        assert_eq!(n_sent_low, 1);
        assert_eq!(dedup.begin(&1, Low, *NOW), None, "it was worked on");
        assert_eq!(dedup, Dedup::new());
    }

    #[test]
    fn a_raised_key_reuses_its_stale_entry() {
        let mut dedup = Dedup::new();
        assert_eq!(dedup.add(&1, Large, *NOW), NEW);
        assert_eq!(dedup.add(&1, High, *NOW), RAISED);
        assert_eq!(dedup.begin(&1, High, *NOW), Some(ZERO));
        assert_eq!(dedup.done(&1, *NOW), Some((ZERO, None)));
        assert_eq!(dedup.add(&1, Low, *NOW), NEW);
        assert_eq!(dedup.add(&1, Large, *NOW), COALESCED, "it is there");
        assert_eq!(dedup.begin(&1, Large, *NOW), Some(ZERO));
        assert_eq!(dedup.begin(&1, Low, *NOW), None, "it is in progress");
    }

    #[test]
    fn done_for_a_key_not_in_progress_changes_nothing() {
        let mut dedup = Dedup::new();
        assert_eq!(dedup.add(&1, High, *NOW), NEW);
        assert_eq!(dedup.done(&1, *NOW), None, "it is in the channel");
        assert_eq!((dedup.n_waiting(), dedup.n_dirty()), (1, 1));
    }

    #[test]
    fn a_key_is_processed_from_its_begin_until_it_is_done() {
        let mut dedup = Dedup::new();
        assert_eq!(dedup.add(&0, High, *NOW), NEW);
        assert!(dedup.is_dirty(&0) && !dedup.is_processing(&0));
        assert_eq!(dedup.begin(&0, High, *NOW), Some(ZERO));
        assert!(!dedup.is_dirty(&0) && dedup.is_processing(&0));
        let returns = Added {
            is_new: true,
            sends: false,
        };
        assert_eq!(dedup.add(&0, Low, *NOW), returns);
        assert_eq!((dedup.n_waiting(), dedup.n_dirty()), (0, 1));
        assert_eq!(dedup.done(&0, *NOW), Some((ZERO, Some(Low))));
        assert!(dedup.is_dirty(&0) && !dedup.is_processing(&0));
    }

    #[test]
    fn the_longest_wait_and_the_longest_work() {
        let seconds = Duration::from_secs;
        let at = |after| *NOW + seconds(after);
        let mut dedup = Dedup::new();
        assert_eq!(dedup.longest_wait(at(5)), ZERO);
        dedup.add(&"a", Low, at(10));
        dedup.add(&"b", Low, at(20));
        // The first of several adds counts.
        dedup.add(&"a", High, at(30));
        assert_eq!(dedup.longest_wait(at(40)), seconds(30));
        assert_eq!(dedup.in_progress(at(40)), InProgress::default());
        assert_eq!(dedup.begin(&"a", High, at(40)), Some(seconds(30)));
        assert_eq!(dedup.longest_wait(at(40)), seconds(20));
        assert_eq!(dedup.begin(&"b", Low, at(50)), Some(seconds(30)));
        assert_eq!(dedup.longest_wait(at(60)), ZERO);
        dedup.progressed(&"a", at(55));
        dedup.progressed(&"other", at(55));
        let expected = InProgress {
            total: seconds(30),
            longest: seconds(20),
            longest_standstill: seconds(10),
        };
        assert_eq!(dedup.in_progress(at(60)), expected);
        assert_eq!(dedup.done(&"a", at(60)), Some((seconds(20), None)));
        // A key in progress does not wait for a worker, and large work does not count.
        dedup.add(&"b", High, at(65));
        dedup.add(&"c", Large, at(65));
        dedup.add(&"d", Low, at(70));
        assert_eq!(dedup.longest_wait(at(75)), seconds(5));
        assert_eq!(dedup.in_progress(at(75)).longest, seconds(25));
    }
}
