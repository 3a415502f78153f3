//! The state of the queue: deduplication, which coalesces repeated adds and keeps two workers off
//! one key; whose turn it is; and since when keys wait or are processed.
//!
//! Pure: [`super::queue::Queue`] holds it under its lock.

use std::hash::Hash;
use std::time::{Duration, Instant};

use super::lane::{Lane, Tenant};
use crate::stdx::hash::HashMap;

/// One in this many takes starts with a later lane, low and large in turn, so that keys there wait
/// for a bounded number of other keys.
pub(super) const TURN: u32 = 8;

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

/// The keys that a worker serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// Every key.
    All,
    /// Every key without large work, so that these keys never wait for large work to end.
    Small,
}

/// The sets `dirty` and `processing` of client-go `util/workqueue/queue.go:Typed`, with three
/// priorities as in controller-runtime's `pkg/controller/priorityqueue`, and turns by tenant.
///
/// Large work apart, a tenant gets another worker only while more workers are free than work for it
/// already. So keys that are processed for long, such as those whose requests hang, never keep all
/// workers from the other tenants.
///
/// INVARIANT: a lane holds exactly the keys that are dirty with its priority and not processing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dedup<K: Eq + Hash> {
    /// Keys that need work, whether or not a worker processes them.
    dirty: HashMap<K, Dirty>,
    /// Keys in progress, at most one per worker.
    processing: HashMap<K, Processing>,
    /// By [`Priority`].
    lanes: [Lane<K>; 3],
    /// The last number given out in the lanes.
    last_number: u64,
    /// Number of takes for each of [`Lanes`]; wraps.
    n_takes: [u32; 2],
    n_workers: usize,
}

/// A key that needs work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dirty {
    priority: Priority,
    tenant: Tenant,
    /// When it became dirty.
    added: Instant,
    /// Its number in its lane.
    number: u64,
}

/// A key in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Processing {
    tenant: Tenant,
    is_large: bool,
    began: Instant,
    /// The last [`Dedup::progressed`], or the begin.
    progressed: Instant,
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
    /// Creates an empty state for this number of workers.
    pub fn new(n_workers: usize) -> Self {
        Self {
            dirty: HashMap::default(),
            processing: HashMap::default(),
            lanes: Default::default(),
            last_number: 0,
            n_takes: [0; 2],
            n_workers,
        }
    }

    /// Marks `key` dirty with this priority, or with a higher one that it has. Returns true if it
    /// was not dirty before.
    pub fn add(&mut self, key: &K, tenant: Tenant, priority: Priority, now: Instant) -> bool {
        let known = self.dirty.get(key).copied();
        if known.is_some_and(|known| known.priority >= priority) {
            return false;
        }
        let dirty = Dirty {
            priority,
            tenant,
            added: known.map_or(now, |known| known.added),
            number: 0,
        };
        if let Some(known) = known
            && !self.is_processing(key)
        {
            self.lanes[known.priority as usize].remove(known.tenant, known.number);
        }
        self.dirty.insert(key.clone(), dirty);
        if !self.is_processing(key) {
            self.enqueue(key);
        }
        known.is_none()
    }

    /// Puts a dirty key into its lane.
    fn enqueue(&mut self, key: &K) {
        self.last_number += 1;
        if let Some(dirty) = self.dirty.get_mut(key) {
            dirty.number = self.last_number;
            let lane = &mut self.lanes[dirty.priority as usize];
            lane.push(dirty.tenant, dirty.number, key.clone());
        }
    }

    /// Takes the next key of these lanes, which the worker must process, and returns it with the
    /// time for which it has waited.
    pub fn take(&mut self, lanes: Lanes, now: Instant) -> Option<(K, Duration)> {
        let mut order = self.order(lanes).into_iter();
        let next = |priority| Some((priority, self.next_tenant(priority)?));
        let (priority, tenant) = order.find_map(next)?;
        self.n_takes[lanes as usize] = self.n_takes[lanes as usize].wrapping_add(1);
        self.last_number += 1;
        let key = self.lanes[priority as usize].pop(tenant, self.last_number)?;
        let dirty = self.dirty.remove(&key)?;
        let processing = Processing {
            tenant,
            is_large: priority == Priority::Large,
            began: now,
            progressed: now,
        };
        self.processing.insert(key.clone(), processing);
        Some((key, now.saturating_duration_since(dirty.added)))
    }

    /// The priorities in the order in which to try them. Without large work, one of them appears
    /// twice.
    fn order(&self, lanes: Lanes) -> [Priority; 3] {
        let (high, low) = (Priority::High, Priority::Low);
        let large = match lanes {
            Lanes::All => Priority::Large,
            Lanes::Small => Priority::Low,
        };
        let n_takes = self.n_takes[lanes as usize];
        if !(n_takes + 1).is_multiple_of(TURN) {
            [high, large, low]
        } else if n_takes % (2 * TURN) < TURN {
            [low, large, high]
        } else {
            [large, low, high]
        }
    }

    /// Returns the tenant with the next key of this priority that a free worker may take.
    fn next_tenant(&self, priority: Priority) -> Option<Tenant> {
        let n_free = self.n_workers.saturating_sub(self.processing.len());
        self.lanes[priority as usize].next(|tenant| {
            let is_its = |it: &&Processing| it.tenant == tenant && !it.is_large;
            let n_its = self.processing.values().filter(is_its).count();
            n_its < n_free || priority == Priority::Large
        })
    }

    /// True if a free worker for these lanes, but not for more, may take a key.
    pub fn is_ready(&self, lanes: Lanes) -> bool {
        let priorities: &[Priority] = match lanes {
            Lanes::All => &[Priority::Large],
            Lanes::Small => &[Priority::High, Priority::Low],
        };
        priorities.iter().any(|it| self.next_tenant(*it).is_some())
    }

    /// True if no key of these lanes waits, nor will when its current worker is done.
    pub fn is_drained(&self, lanes: Lanes) -> bool {
        let waits = |it: &Priority| !self.lanes[*it as usize].is_empty();
        !self.order(lanes).iter().any(waits) && self.n_returning() == 0
    }

    /// True if `key` waits for a worker, or will when its current worker is done.
    pub fn is_dirty(&self, key: &K) -> bool {
        self.dirty.contains_key(key)
    }

    /// True if a worker processes `key`.
    pub fn is_processing(&self, key: &K) -> bool {
        self.processing.contains_key(key)
    }

    /// Records that the work on `key`, which is in progress, is large.
    pub fn runs_large(&mut self, key: &K) {
        if let Some(processing) = self.processing.get_mut(key) {
            processing.is_large = true;
        }
    }

    /// Records that the worker's work on `key` goes on.
    pub fn progressed(&mut self, key: &K, now: Instant) {
        if let Some(processing) = self.processing.get_mut(key) {
            processing.progressed = now;
        }
    }

    /// Records that the worker is done with `key`, which waits again if it was added meanwhile.
    /// Returns how long the work took; `None` if no worker processed the key.
    pub fn done(&mut self, key: &K, now: Instant) -> Option<Duration> {
        let Processing { began, .. } = self.processing.remove(key)?;
        self.enqueue(key);
        Some(now.saturating_duration_since(began))
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
    fn n_returning(&self) -> usize {
        let returns = |key: &&K| self.dirty.contains_key(*key);
        self.processing.keys().filter(returns).count()
    }

    /// Returns the wait of the longest-waiting key; zero without one. Keys with large work do not
    /// count: they wait for each other as long as that work takes.
    pub fn longest_wait(&self, now: Instant) -> Duration {
        let waiting = self.dirty.iter().filter(|(key, dirty)| {
            dirty.priority != Priority::Large && !self.processing.contains_key(*key)
        });
        let oldest = waiting.map(|(_, dirty)| dirty.added).min();
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
    /// The whole state without times and numbers, for models that compare it.
    pub(super) fn identity(&self) -> impl Eq + Hash + use<K> {
        let mut dirty: Vec<_> = (self.dirty.iter())
            .map(|(key, dirty)| (key.clone(), dirty.priority))
            .collect();
        dirty.sort_unstable();
        let mut processing: Vec<_> = (self.processing.iter())
            .map(|(key, it)| (key.clone(), it.is_large))
            .collect();
        processing.sort_unstable();
        let lanes = [0, 1, 2].map(|lane: usize| self.lanes[lane].identity());
        let n_takes = self.n_takes.map(|n_takes| n_takes % (2 * TURN));
        (dirty, processing, lanes, n_takes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    use super::Priority::{High, Large, Low};
    use super::{Dedup, InProgress, Lanes};

    static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);
    const ZERO: Duration = Duration::ZERO;

    fn new() -> Dedup<&'static str> {
        Dedup::new(usize::MAX)
    }

    fn take_all(dedup: &mut Dedup<&'static str>, lanes: Lanes) -> Vec<&'static str> {
        let take = || Some(dedup.take(lanes, *NOW)?.0);
        std::iter::from_fn(take).collect()
    }

    #[test]
    fn done_for_a_key_not_in_progress_changes_nothing() {
        let mut dedup = new();
        assert!(dedup.add(&"a", 0, High, *NOW));
        assert_eq!(dedup.done(&"a", *NOW), None, "it waits");
        assert_eq!((dedup.n_waiting(), dedup.n_dirty()), (1, 1));
        assert_eq!(take_all(&mut dedup, Lanes::All), ["a"]);
    }

    #[test]
    fn a_key_is_processed_from_its_take_until_it_is_done() {
        let mut dedup = new();
        assert!(dedup.add(&"a", 0, High, *NOW));
        assert!(dedup.is_dirty(&"a") && !dedup.is_processing(&"a"));
        assert_eq!(dedup.take(Lanes::All, *NOW), Some(("a", ZERO)));
        assert!(!dedup.is_dirty(&"a") && dedup.is_processing(&"a"));
        assert!(dedup.add(&"a", 0, Low, *NOW));
        assert_eq!((dedup.n_waiting(), dedup.n_dirty()), (0, 1));
        assert!(!dedup.is_drained(Lanes::All) && !dedup.is_ready(Lanes::Small));
        assert_eq!(dedup.done(&"a", *NOW), Some(ZERO));
        assert!(dedup.is_dirty(&"a") && !dedup.is_processing(&"a"));
        assert!(dedup.is_ready(Lanes::Small));
    }

    #[test]
    fn a_raised_key_leaves_its_lane() {
        let mut dedup = new();
        assert!(dedup.add(&"a", 0, Low, *NOW));
        assert!(!dedup.add(&"a", 0, Large, *NOW));
        assert!(dedup.is_drained(Lanes::Small) && dedup.is_ready(Lanes::All));
        assert!(!dedup.add(&"a", 0, High, *NOW));
        assert!(!dedup.add(&"a", 0, Low, *NOW));
        assert_eq!(take_all(&mut dedup, Lanes::All), ["a"]);
        assert_eq!(dedup.done(&"a", *NOW), Some(ZERO));
        assert_eq!(dedup.n_dirty(), 0);
        assert!(dedup.is_drained(Lanes::All));
    }

    #[test]
    fn tenants_take_turns_in_each_lane() {
        let mut dedup = new();
        for (key, tenant) in [("a1", 1), ("a2", 1), ("a3", 1), ("b1", 2), ("b2", 2)] {
            dedup.add(&key, tenant, High, *NOW);
        }
        assert_eq!(dedup.take(Lanes::All, *NOW), Some(("a1", ZERO)));
        dedup.add(&"c1", 3, High, *NOW);
        let rest = ["b1", "a2", "c1", "b2", "a3"];
        assert_eq!(take_all(&mut dedup, Lanes::All), rest);
    }

    #[test]
    fn a_tenant_leaves_workers_to_the_others() {
        // Number of workers, and how many of them the first, second and third tenant get.
        for (n_workers, expected) in [
            (1, [1, 0, 0]),
            (2, [1, 1, 0]),
            (3, [2, 1, 0]),
            (4, [2, 1, 1]),
            (5, [3, 1, 1]),
            (10, [5, 3, 1]),
        ] {
            let mut dedup = Dedup::new(n_workers);
            for (tenant, n_workers) in (0..).zip(expected) {
                for n in 0..20 {
                    dedup.add(&(tenant, n), tenant, High, *NOW);
                }
                let take = || dedup.take(Lanes::Small, *NOW);
                assert_eq!(std::iter::from_fn(take).count(), n_workers, "{tenant}");
            }
            assert!(!dedup.is_ready(Lanes::Small) && !dedup.is_drained(Lanes::Small));
        }
    }

    /// Small work never waits for the large work of its own tenant, however few workers there are.
    #[test]
    fn large_work_counts_for_nobody() {
        for n_workers in 2..8 {
            let mut dedup = Dedup::new(n_workers);
            for n in 0..n_workers / 2 {
                // Large from the start, or found to be so.
                dedup.add(&n, 1, if n == 0 { Large } else { High }, *NOW);
                dedup.take(Lanes::All, *NOW).expect("a worker is free");
                dedup.runs_large(&n);
            }
            dedup.add(&10, 1, High, *NOW);
            assert!(dedup.take(Lanes::Small, *NOW).is_some(), "{n_workers}");
        }
    }

    #[test]
    fn the_longest_wait_and_the_longest_work() {
        let seconds = Duration::from_secs;
        let at = |after| *NOW + seconds(after);
        let mut dedup = new();
        assert_eq!(dedup.longest_wait(at(5)), ZERO);
        dedup.add(&"a", 0, Low, at(10));
        dedup.add(&"b", 0, Low, at(20));
        // The first of several adds counts.
        dedup.add(&"a", 0, High, at(30));
        assert_eq!(dedup.longest_wait(at(40)), seconds(30));
        assert_eq!(dedup.in_progress(at(40)), InProgress::default());
        let taken = dedup.take(Lanes::All, at(40));
        assert_eq!(taken, Some(("a", seconds(30))));
        assert_eq!(dedup.longest_wait(at(40)), seconds(20));
        let taken = dedup.take(Lanes::All, at(50));
        assert_eq!(taken, Some(("b", seconds(30))));
        assert_eq!(dedup.longest_wait(at(60)), ZERO);
        dedup.progressed(&"a", at(55));
        dedup.progressed(&"other", at(55));
        let expected = InProgress {
            total: seconds(30),
            longest: seconds(20),
            longest_standstill: seconds(10),
        };
        assert_eq!(dedup.in_progress(at(60)), expected);
        assert_eq!(dedup.done(&"a", at(60)), Some(seconds(20)));
        // A key in progress does not wait for a worker, and large work does not count.
        dedup.add(&"b", 0, High, at(65));
        dedup.add(&"c", 0, Large, at(65));
        dedup.add(&"d", 0, Low, at(70));
        assert_eq!(dedup.longest_wait(at(75)), seconds(5));
        assert_eq!(dedup.in_progress(at(75)).longest, seconds(25));
    }
}
