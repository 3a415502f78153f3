//! The state of the queue: deduplication, which coalesces repeated adds and keeps two workers off
//! one key; whose turn it is; and since when keys wait or are processed.
//!
//! Pure: [`super::WorkQueue`] holds it under its lock.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::stdx::{HashMap, SHRINK_FACTOR};

/// While a key of low priority waits, one in this many takes starts there, so that it waits for a
/// bounded number of other keys.
pub(super) const TURN: u32 = 8;

/// Minimum capacity that the table of keys keeps.
const TABLE_MIN: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Handed out when nothing else waits, or after a bounded number of other keys.
    Low,
    /// Handed out before all other keys.
    High,
}

/// The sets `dirty` and `processing` of client-go `util/workqueue/queue.go:Typed`, with two
/// priorities as in controller-runtime's `pkg/controller/priorityqueue`, turns by tenant, and
/// permits for large work.
///
/// A tenant gets another worker only while more workers are free than work for it already, or if
/// none works on small keys of it. So keys that are processed for long, such as those whose
/// requests hang, never keep all workers from the other tenants, and small work never waits for the
/// large work of its own tenant.
///
/// INVARIANT: a lane holds exactly the keys that are dirty with its priority and not processing.
/// INVARIANT: the next key that a worker could take and give a permit is dirty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dedup<K: Eq + Hash> {
    /// Keys that need work, whether or not a worker processes them.
    dirty: HashMap<K, Dirty>,
    /// Keys in progress, at most one per worker.
    processing: HashMap<K, Processing>,
    /// By [`Priority`].
    lanes: [Lane<K>; 2],
    /// The last number given out in the lanes.
    last_number: u64,
    /// Keys of high priority taken in a row while one of low priority waited.
    n_high: u32,
    n_workers: usize,
    permits: Permits<K>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dirty {
    priority: Priority,
    tenant: Tenant,
    /// When it became dirty.
    added: Instant,
    number: u64,
}

/// A key in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Processing {
    tenant: Tenant,
    began: Instant,
    /// The last [`Dedup::progressed`], or the begin.
    progressed: Instant,
}

/// How long the workers have processed their current keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InProgress {
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
            n_high: 0,
            n_workers,
            permits: Permits::new(n_workers),
        }
    }

    /// Marks `key` dirty with this priority, or with a higher one that it has. Returns true if it
    /// was not dirty before. A key that waits for a permit gets low priority: its work is large.
    pub fn add(&mut self, key: &K, tenant: Tenant, priority: Priority, now: Instant) -> bool {
        let is_large = self.permits.is_asked_for(key);
        let priority = if is_large { Priority::Low } else { priority };
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

    fn enqueue(&mut self, key: &K) {
        self.last_number += 1;
        if let Some(dirty) = self.dirty.get_mut(key) {
            dirty.number = self.last_number;
            let lane = &mut self.lanes[dirty.priority as usize];
            lane.push(dirty.tenant, dirty.number, key.clone());
        }
    }

    /// Takes the next key, which the worker must process, and returns it with the time for which it
    /// has waited.
    pub fn take(&mut self, now: Instant) -> Option<(K, Duration)> {
        let (priority, tenant, number, key) = self.next()?;
        let (key, lane) = (key.clone(), &mut self.lanes[priority as usize]);
        self.last_number += 1;
        lane.remove(tenant, number);
        lane.end_turn(tenant, self.last_number);
        let is_turn_over =
            priority == Priority::Low || self.lanes[Priority::Low as usize].is_empty();
        // A turn that no tenant of low priority may take stays due.
        self.n_high = if is_turn_over {
            0
        } else {
            (self.n_high + 1).min(TURN - 1)
        };
        let dirty = self.dirty.remove(&key)?;
        if self.dirty.capacity() > TABLE_MIN.max(SHRINK_FACTOR * self.dirty.len()) {
            self.dirty.shrink_to(2 * self.dirty.len());
        }
        let processing = Processing {
            tenant,
            began: now,
            progressed: now,
        };
        self.processing.insert(key.clone(), processing);
        self.recall(now);
        Some((key, now.saturating_duration_since(dirty.added)))
    }

    /// Returns the next key that a free worker may take, and where it waits.
    fn next(&self) -> Option<(Priority, Tenant, u64, &K)> {
        // Each add asks, so it must not try all tenants without need.
        if self.processing.len() >= self.n_workers {
            return None;
        }
        let order = if self.n_high == TURN - 1 {
            [Priority::Low, Priority::High]
        } else {
            [Priority::High, Priority::Low]
        };
        order.into_iter().find_map(|priority| {
            let lane = &self.lanes[priority as usize];
            let (tenant, number, key) = lane.first(|tenant, _| self.may_take(tenant))?;
            Some((priority, tenant, number, key))
        })
    }

    /// True if a free worker may take a key of `tenant`.
    fn may_take(&self, tenant: Tenant) -> bool {
        let n_free = self.n_workers.saturating_sub(self.processing.len());
        let n_its = self
            .processing
            .values()
            .filter(|it| it.tenant == tenant)
            .count();
        n_free > 0 && (n_its < n_free || n_its == self.permits.n_held_by(tenant))
    }

    /// True if a free worker may take a key.
    pub fn is_ready(&self) -> bool {
        self.next().is_some()
    }

    /// True if no key waits, nor will when its current worker is done. Keys that wait for a permit
    /// do not count: the worker that returns it takes them.
    pub fn is_drained(&self) -> bool {
        self.lanes.iter().all(Lane::is_empty) && self.n_returning() == 0
    }

    /// Returns true if the work on `key`, which is in progress, may be large: a permit is free, and
    /// the keys of high priority that the key has found waiting went first. Otherwise the key is
    /// added again, with low priority, once it may.
    pub fn begin_large(&mut self, key: &K, now: Instant) -> bool {
        let Some(Processing { tenant, .. }) = self.processing.get(key) else {
            return true;
        };
        let others_wait = !self.lanes[Priority::High as usize].is_empty();
        let may = self.permits.has(key) || self.permits.take(key, *tenant, others_wait);
        if !may && let Some(dirty) = self.dirty.get_mut(key) {
            // In no lane, since it is in progress.
            dirty.priority = Priority::Low;
        }
        self.recall(now);
        may
    }

    /// Adds the next key that gets a permit. Whatever may change which one that is calls this.
    fn recall(&mut self, now: Instant) {
        if let Some((tenant, key)) = self.next_large() {
            self.add(&key, tenant, Priority::Low, now);
        }
    }

    fn next_large(&self) -> Option<(Tenant, K)> {
        let may_take = |tenant, key: &K| !self.is_processing(key) && self.may_take(tenant);
        let (tenant, key) = self.permits.next(may_take)?;
        Some((tenant, key.clone()))
    }

    pub fn is_dirty(&self, key: &K) -> bool {
        self.dirty.contains_key(key)
    }

    /// True if `key` waits for a permit.
    pub fn waits_for_permit(&self, key: &K) -> bool {
        self.permits.is_asked_for(key)
    }

    pub fn is_processing(&self, key: &K) -> bool {
        self.processing.contains_key(key)
    }

    /// Records that the worker's work on `key` continues.
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
        self.permits.end(key);
        self.recall(now);
        Some(now.saturating_duration_since(began))
    }

    /// Number of keys that wait for a worker.
    pub fn n_waiting(&self) -> usize {
        self.dirty.len() - self.n_returning()
    }

    /// Number of keys that wait for a worker or for a permit, or will when their current worker is
    /// done.
    pub fn n_dirty(&self) -> usize {
        let only_for_permit = |key: &&K| !self.dirty.contains_key(*key);
        self.dirty.len() + self.permits.waiting().filter(only_for_permit).count()
    }

    /// Number of keys in progress that were added again.
    fn n_returning(&self) -> usize {
        let returns = |key: &&K| self.dirty.contains_key(*key);
        self.processing.keys().filter(returns).count()
    }

    /// Returns the wait of the longest-waiting key; zero without one. Waits for a permit do not
    /// count: they last as long as the large work of others.
    pub fn longest_wait(&self, now: Instant) -> Duration {
        let waits = |(key, _): &(&K, &Dirty)| !self.processing.contains_key(*key);
        let waiting = self.dirty.iter().filter(waits);
        let oldest = waiting.map(|(_, dirty)| dirty.added).min();
        oldest.map_or(Duration::ZERO, |added| now.saturating_duration_since(added))
    }

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
    pub(super) fn identity(&self) -> impl Eq + Hash + use<K> {
        let mut dirty: Vec<_> = (self.dirty.iter())
            .map(|(key, dirty)| (key.clone(), dirty.priority))
            .collect();
        dirty.sort_unstable();
        let mut processing: Vec<_> = self.processing.keys().cloned().collect();
        processing.sort_unstable();
        let lanes = [0, 1].map(|lane: usize| self.lanes[lane].identity());
        let permits = self.permits.identity();
        (dirty, processing, lanes, self.n_high, permits)
    }

    /// True if a free worker would find a key that it may take and give a permit, but the key is
    /// not dirty.
    pub(super) fn has_lost_large(&self) -> bool {
        self.next_large()
            .is_some_and(|(_, key)| !self.is_dirty(&key))
    }
}

/// A permit for each two workers. One tenant gets one permit less, if there are two, so that
/// its small work finds a worker within its share.
///
/// A key that gets no permit waits here until the queue hands it out again: it keeps its position
/// during other work on the key. Tenants take turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permits<K: Eq + Hash> {
    total: usize,
    holders: HashMap<K, Tenant>,
    waiting: Lane<K>,
    /// The keys of `waiting`.
    asked: HashMap<K, Asked>,
    last_number: u64,
}

/// A key that asked in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    tenant: Tenant,
    /// Its number in the lane.
    number: u64,
    /// The worker that asked still processes the key.
    is_processing: bool,
}

impl<K: Clone + Eq + Hash> Permits<K> {
    /// Creates the permits of this number of workers.
    pub fn new(n_workers: usize) -> Self {
        Self {
            total: n_workers.div_ceil(2),
            holders: HashMap::default(),
            waiting: Lane::default(),
            asked: HashMap::default(),
            last_number: 0,
        }
    }

    /// Gives `key` a permit until [`end`](Self::end). If none is free, or if the key has not waited
    /// yet and `others_wait`, it waits.
    pub fn take(&mut self, key: &K, tenant: Tenant, others_wait: bool) -> bool {
        self.last_number += 1;
        if !self.is_free(tenant) || others_wait && !self.is_asked_for(key) {
            let number = self.last_number;
            let asked = self.asked.entry(key.clone()).or_insert_with(|| {
                self.waiting.push(tenant, number, key.clone());
                Asked {
                    tenant,
                    number,
                    is_processing: true,
                }
            });
            asked.is_processing = true;
            return false;
        }
        if let Some(asked) = self.asked.remove(key) {
            self.waiting.remove(tenant, asked.number);
        }
        self.waiting.end_turn(tenant, self.last_number);
        self.holders.insert(key.clone(), tenant);
        true
    }

    /// Ends the work on `key`. It keeps waiting for the permit only if it asked for one in this
    /// work.
    pub fn end(&mut self, key: &K) {
        self.holders.remove(key);
        match self.asked.get_mut(key) {
            Some(asked) if asked.is_processing => asked.is_processing = false,
            Some(_) => {
                if let Some(asked) = self.asked.remove(key) {
                    self.waiting.remove(asked.tenant, asked.number);
                }
            }
            None => {}
        }
    }

    pub fn next(&self, may_take: impl Fn(Tenant, &K) -> bool) -> Option<(Tenant, &K)> {
        let next = |tenant, key: &K| self.is_free(tenant) && may_take(tenant, key);
        let (tenant, _, key) = self.waiting.first(next)?;
        Some((tenant, key))
    }

    /// True if `tenant` may have another permit.
    fn is_free(&self, tenant: Tenant) -> bool {
        let n_most = self.total.saturating_sub(1).max(1);
        self.holders.len() < self.total && self.n_held_by(tenant) < n_most
    }

    /// Number of permits that `tenant` has.
    pub fn n_held_by(&self, tenant: Tenant) -> usize {
        self.holders.values().filter(|it| **it == tenant).count()
    }

    pub fn has(&self, key: &K) -> bool {
        self.holders.contains_key(key)
    }

    /// True if `key` waits for a permit.
    pub fn is_asked_for(&self, key: &K) -> bool {
        self.asked.contains_key(key)
    }

    /// The keys that wait for a permit, in any order.
    pub fn waiting(&self) -> impl Iterator<Item = &K> {
        self.asked.keys()
    }
}

#[cfg(test)]
impl<K: Clone + Ord + Hash> Permits<K> {
    /// The whole state without numbers, for models that compare it.
    fn identity(&self) -> impl Eq + Hash + use<K> {
        let mut holders: Vec<_> = self.holders.keys().cloned().collect();
        holders.sort_unstable();
        let asked = self.asked.iter();
        let mut asked: Vec<_> = asked
            .map(|(key, it)| (key.clone(), it.is_processing))
            .collect();
        asked.sort_unstable();
        (holders, asked, self.waiting.identity())
    }
}

/// The owner of some keys, such as a hash of their namespace. Keys whose hashes collide only share
/// its turns.
pub type Tenant = u64;

/// Keys with the numbers under which they wait. The tenants take turns; the keys of one tenant are
/// first in, first out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane<K> {
    /// The tenants with waiting keys, the next one first.
    turns: BTreeMap<u64, Tenant>,
    tenants: HashMap<Tenant, Waiting<K>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting<K> {
    turn: u64,
    keys: BTreeMap<u64, K>,
}

impl<K> Lane<K> {
    /// Adds a key under a number that is higher than all before.
    pub fn push(&mut self, tenant: Tenant, number: u64, key: K) {
        let new = || {
            self.turns.insert(number, tenant);
            Waiting {
                turn: number,
                keys: BTreeMap::new(),
            }
        };
        let waiting = self.tenants.entry(tenant).or_insert_with(new);
        waiting.keys.insert(number, key);
    }

    /// Returns the first key of the next tenant for which `may_take` is true, and the number under
    /// which it waits.
    pub fn first(&self, may_take: impl Fn(Tenant, &K) -> bool) -> Option<(Tenant, u64, &K)> {
        let mut firsts = self.turns.values().filter_map(|tenant| {
            let (number, key) = self.tenants[tenant].keys.first_key_value()?;
            Some((*tenant, *number, key))
        });
        firsts.find(|(tenant, _, key)| may_take(*tenant, key))
    }

    pub fn remove(&mut self, tenant: Tenant, number: u64) {
        if let Some(waiting) = self.tenants.get_mut(&tenant) {
            waiting.keys.remove(&number);
            if waiting.keys.is_empty() {
                self.turns.remove(&waiting.turn);
                self.tenants.remove(&tenant);
            }
        }
    }

    /// Moves the next turn of `tenant` behind those of all others. `number` is higher than all
    /// before.
    pub fn end_turn(&mut self, tenant: Tenant, number: u64) {
        if let Some(waiting) = self.tenants.get_mut(&tenant) {
            self.turns.remove(&waiting.turn);
            waiting.turn = number;
            self.turns.insert(number, tenant);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
impl<K: Clone + Hash> Lane<K> {
    /// The keys of each tenant, the next tenant first, for models that compare states.
    pub(super) fn identity(&self) -> Vec<(Tenant, Vec<K>)> {
        let keys = |tenant: &Tenant| self.tenants[tenant].keys.values().cloned().collect();
        let turns = self.turns.values();
        turns.map(|tenant| (*tenant, keys(tenant))).collect()
    }
}

impl<K> Default for Lane<K> {
    fn default() -> Self {
        Self {
            turns: BTreeMap::new(),
            tenants: HashMap::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    use super::Priority::{High, Low};
    use super::{Dedup, InProgress};

    static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);
    const ZERO: Duration = Duration::ZERO;

    fn new() -> Dedup<&'static str> {
        Dedup::new(usize::MAX)
    }

    fn take_all(dedup: &mut Dedup<&'static str>) -> Vec<&'static str> {
        let take = || Some(dedup.take(*NOW)?.0);
        std::iter::from_fn(take).collect()
    }

    #[test]
    fn done_for_a_key_not_in_progress_changes_nothing() {
        let mut dedup = new();
        assert!(dedup.add(&"a", 0, High, *NOW));
        assert_eq!(dedup.done(&"a", *NOW), None, "it waits");
        assert_eq!((dedup.n_waiting(), dedup.n_dirty()), (1, 1));
        assert_eq!(take_all(&mut dedup), ["a"]);
    }

    #[test]
    fn a_key_is_processed_from_its_take_until_it_is_done() {
        let mut dedup = new();
        assert!(dedup.add(&"a", 0, High, *NOW));
        assert!(dedup.is_dirty(&"a") && !dedup.is_processing(&"a"));
        assert_eq!(dedup.take(*NOW), Some(("a", ZERO)));
        assert!(!dedup.is_dirty(&"a") && dedup.is_processing(&"a"));
        assert!(dedup.add(&"a", 0, Low, *NOW));
        assert_eq!((dedup.n_waiting(), dedup.n_dirty()), (0, 1));
        assert!(!dedup.is_drained() && !dedup.is_ready());
        assert_eq!(dedup.done(&"a", *NOW), Some(ZERO));
        assert!(dedup.is_dirty(&"a") && !dedup.is_processing(&"a"));
        assert!(dedup.is_ready());
    }

    #[test]
    fn a_raised_key_leaves_its_lane() {
        let mut dedup = new();
        assert!(dedup.add(&"a", 0, Low, *NOW));
        assert!(!dedup.add(&"a", 0, High, *NOW));
        assert!(!dedup.add(&"a", 0, Low, *NOW));
        assert_eq!(take_all(&mut dedup), ["a"]);
        assert_eq!(dedup.done(&"a", *NOW), Some(ZERO));
        assert_eq!(dedup.n_dirty(), 0);
        assert!(dedup.is_drained());
    }

    #[test]
    fn tenants_take_turns_in_each_lane() {
        let mut dedup = new();
        for (key, tenant) in [("a1", 1), ("a2", 1), ("a3", 1), ("b1", 2), ("b2", 2)] {
            dedup.add(&key, tenant, High, *NOW);
        }
        assert_eq!(dedup.take(*NOW), Some(("a1", ZERO)));
        dedup.add(&"c1", 3, High, *NOW);
        let rest = ["b1", "a2", "c1", "b2", "a3"];
        assert_eq!(take_all(&mut dedup), rest);
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
                let take = || dedup.take(*NOW);
                assert_eq!(std::iter::from_fn(take).count(), n_workers, "{tenant}");
            }
            assert!(!dedup.is_ready() && !dedup.is_drained());
        }
    }

    /// Small work never waits for the large work of its own tenant, however few workers there are,
    /// and both together leave half of the workers to other tenants.
    #[test]
    fn large_work_leaves_workers_to_small_work() {
        for n_workers in 2_usize..12 {
            let mut dedup = Dedup::new(n_workers);
            let mut n_large = 0;
            for n in 0..n_workers {
                dedup.add(&n, 1, High, *NOW);
                let Some(_) = dedup.take(*NOW) else { break };
                if !dedup.begin_large(&n, *NOW) {
                    dedup.done(&n, *NOW);
                    break;
                }
                n_large += 1;
            }
            assert_eq!(n_large, (n_workers.div_ceil(2) - 1).max(1), "{n_workers}");
            let mut n_small = 0;
            for n in 100..200 {
                dedup.add(&n, 1, High, *NOW);
                n_small += usize::from(dedup.take(*NOW).is_some());
            }
            assert!(n_small > 0, "{n_workers}");
            assert!(n_large + n_small <= n_workers.div_ceil(2).max(2));
            dedup.add(&1000, 2, High, *NOW);
            assert_eq!(dedup.take(*NOW).is_some(), n_workers > 2, "{n_workers}");
        }
    }

    /// Also beside tenants that have most of the workers.
    #[test]
    fn small_work_needs_one_free_worker() {
        let mut dedup = Dedup::new(4);
        for tenant in 0..3 {
            dedup.add(&tenant, tenant, High, *NOW);
            dedup.take(*NOW).expect("a worker is free");
        }
        assert!(dedup.begin_large(&0, *NOW));
        dedup.add(&10, 1, High, *NOW);
        assert!(!dedup.is_ready(), "it works on small keys of this tenant");
        dedup.add(&20, 0, High, *NOW);
        assert_eq!(dedup.take(*NOW), Some((20, ZERO)));
    }

    #[test]
    fn tenants_take_turns_at_the_permits() {
        let mut dedup = Dedup::new(2);
        let take = |dedup: &mut Dedup<u64>| {
            let (key, _) = dedup.take(*NOW).expect("a key waits");
            (key, dedup.begin_large(&key, *NOW))
        };
        dedup.add(&0, 0, High, *NOW);
        assert_eq!(take(&mut dedup), (0, true));
        for key in [10, 11, 12, 20, 30] {
            dedup.add(&key, key / 10, High, *NOW);
            assert_eq!(take(&mut dedup), (key, false));
            dedup.done(&key, *NOW);
            assert!(dedup.is_drained() && dedup.waits_for_permit(&key));
        }
        // Other work on a key that waits does not change its turn.
        dedup.add(&11, 1, High, *NOW);
        assert_eq!(take(&mut dedup), (11, false));
        dedup.done(&11, *NOW);
        assert_eq!(dedup.n_dirty(), 5);
        let mut last = 0;
        for key in [10, 20, 30, 11, 12] {
            dedup.done(&last, *NOW);
            assert_eq!(take(&mut dedup), (key, true));
            assert!(!dedup.waits_for_permit(&key));
            last = key;
        }
    }

    /// It may be large no longer, or wait for something else.
    #[test]
    fn a_key_that_needs_no_permit_waits_no_more() {
        let mut dedup = Dedup::new(2);
        for key in [0, 1, 2] {
            dedup.add(&key, 0, High, *NOW);
            dedup.take(*NOW).expect("a worker is free");
            assert_eq!(dedup.begin_large(&key, *NOW), key == 0);
            if key > 0 {
                dedup.done(&key, *NOW);
            }
        }
        dedup.done(&0, *NOW);
        assert_eq!(dedup.take(*NOW), Some((1, ZERO)));
        assert!(dedup.waits_for_permit(&1));
        dedup.done(&1, *NOW);
        assert!(!dedup.waits_for_permit(&1));
        assert_eq!(dedup.take(*NOW), Some((2, ZERO)));
        assert!(dedup.begin_large(&2, *NOW));
    }

    #[test]
    fn a_permit_waits_for_no_tenant_without_a_worker() {
        let mut dedup = Dedup::new(4);
        let take = |dedup: &mut Dedup<u64>, key: u64| {
            dedup.add(&key, key / 10, High, *NOW);
            assert_eq!(dedup.take(*NOW), Some((key, ZERO)));
        };
        for (key, has_permit) in [(20, true), (30, true), (10, false), (50, false)] {
            take(&mut dedup, key);
            assert_eq!(dedup.begin_large(&key, *NOW), has_permit);
            if !has_permit {
                dedup.done(&key, *NOW);
            }
        }
        take(&mut dedup, 11);
        take(&mut dedup, 40);
        dedup.done(&30, *NOW);
        assert_eq!(dedup.take(*NOW), Some((50, ZERO)));
        assert!(dedup.begin_large(&50, *NOW));
    }

    /// It gives way once, so that it does not starve.
    #[test]
    fn large_work_follows_the_keys_that_wait() {
        let mut dedup = Dedup::new(1);
        for key in [0, 1, 2] {
            dedup.add(&key, 0, High, *NOW);
        }
        assert_eq!(dedup.take(*NOW), Some((0, ZERO)));
        assert!(!dedup.begin_large(&0, *NOW));
        for (done, next) in [(0, 1), (1, 2), (2, 0)] {
            dedup.done(&done, *NOW);
            assert_eq!(dedup.take(*NOW), Some((next, ZERO)));
        }
        dedup.add(&3, 0, High, *NOW);
        assert!(dedup.begin_large(&0, *NOW));
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
        let taken = dedup.take(at(40));
        assert_eq!(taken, Some(("a", seconds(30))));
        assert_eq!(dedup.longest_wait(at(40)), seconds(20));
        let taken = dedup.take(at(50));
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
        // A key in progress does not wait for a worker.
        dedup.add(&"b", 0, High, at(65));
        dedup.add(&"d", 0, Low, at(70));
        assert_eq!(dedup.longest_wait(at(75)), seconds(5));
        assert_eq!(dedup.in_progress(at(75)).longest, seconds(25));
    }
}
