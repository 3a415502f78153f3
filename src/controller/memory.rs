//! The controller's memory between two syncs: one record per ReplicaSet, in one store with one
//! lock. Code holds that lock for a map operation only, never during a request or a cache read.
//!
//! A record disappears with its ReplicaSet ([`Memories::forget`]). When the number of records has
//! doubled since the last sweep, a sweep also drops those without useful content
//! ([`Memory::is_over`]).

pub mod history;
pub mod own_writes;
pub mod positions;
pub mod rejections;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::history::History;
use self::own_writes::OwnWrites;
use self::positions::{Positions, Resource, Versions, Waiting};
use self::rejections::{QuotaQueue, QuotaWatch, Rejected, Rejection};
use crate::api::{ArcStr, ObjectKey, ReplicaSet, ReplicaSetStatus, Uid};
use crate::stdx::clock::Clock;
use crate::stdx::{HashMap, turns};

pub use self::own_writes::{Doubt, May};

/// Below this number of records there is no sweep.
const SWEEP_AT_LEAST: usize = 1024;

/// The records of all ReplicaSets. Shared by the workers, the watch threads and `lease`.
#[derive(Debug)]
pub struct Memories {
    clock: Arc<dyn Clock>,
    /// False: no sync waits for the versions of own writes.
    waits_for_written: bool,
    pub quota_watch: Arc<QuotaWatch>,
    state: Mutex<State>,
    stands_by: AtomicBool,
    /// True if the API server dropped `terminatingReplicas` from the last status that carried it.
    terminating_is_dropped: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    records: Records,
    /// Keys with written versions that the caches lacked at [`Memories::capture`].
    waiting: Waiting,
    /// By quota. An empty one disappears when its namespace is next served.
    queues: HashMap<ObjectKey, QuotaQueue>,
    /// What a new leader has to prove before it acts: that both caches have reached these
    /// positions, which are those of its failover; empty while unknown. `None` once they have.
    ///
    /// The watches may not have shown the previous leader's last writes yet. So the first sync with
    /// something to do queries the API server for its current versions. Until an idle watch knows
    /// its position, which takes about a minute, each ReplicaSet with something to do is compared
    /// with the API server instead ([`Doubt::Failover`]).
    unproven: Option<Versions>,
    /// Twice the number of records that the last sweep kept, which spreads the cost of a sweep over
    /// as many new records.
    sweep_at: usize,
}

/// Boxed, since a table has up to twice as many places as records.
type Records = HashMap<ObjectKey, Box<Memory>>;

#[derive(Debug, Default)]
pub struct Memory {
    owner: Uid,
    /// Own writes that the watch has not shown, and the names of the next pods.
    pub own_writes: OwnWrites,
    pub positions: Positions,
    /// When a status with mere progress may be written.
    pub next_status: Option<Instant>,
    pub history: History,
    /// A pod that this daemon did not create, until a sync has asked who did.
    pub foreign_pod: Option<ArcStr>,
    /// The last rejection, until creates are accepted or not needed.
    pub(in crate::controller) rejected: Option<Box<Rejected>>,
    /// When the next old Failed pods may be deleted.
    pub next_old_failed_pods: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Open expectations of creations and of deletions.
    pub expected: (usize, usize),
    /// Missing pods that wait for a back-off to end.
    pub pods_backed_off: usize,
    /// ReplicaSets whose creates wait, by [`Rejection::kind`].
    pub rejected: [usize; Rejection::KINDS.len()],
}

impl Memory {
    pub fn of(owner: &Uid) -> Self {
        Self {
            owner: owner.clone(),
            ..Self::default()
        }
    }

    /// Returns the view at the positions `cached`, as if the failover were proven, and forgets the
    /// own writes and losses that the caches show there. With `waits`, a sync waits for own writes.
    fn view(&mut self, cached: Versions, waits: bool, now: Instant) -> RecordView {
        let writes = &self.own_writes;
        let (unknown_deletions, n_overdue) = writes.unknown_deletions(now);
        let write_delay = self.positions.write_delay(&cached, now);
        let write_delay = write_delay.filter(|_| waits);
        RecordView {
            owner: Some(self.owner.clone()),
            lagging: write_delay.map(|(resource, _)| resource),
            may: match write_delay {
                Some((_, Duration::ZERO)) => May::Verify(Doubt::Overdue),
                Some((_, delay)) => May::Wait(delay),
                None => writes.may(now),
            },
            passed: writes.passed(&cached.pods),
            is_unproven: false,
            is_confirmed: self.positions.is_confirmed,
            loss_delay: self.positions.loss_delay(&cached.replica_sets, now),
            rejected: self.rejected(now),
            spec_delay: self.positions.recorded_spec_delay(&cached.pods, now),
            unknown_creations: writes.unknown_creations(),
            unknown_deletions,
            n_overdue,
            unknowns_are_compared: writes.are_compared,
            cached,
        }
    }

    /// True if dropping the record would change nothing.
    pub fn is_over(&self, now: Instant) -> bool {
        self.own_writes.is_over(now)
            && self.positions.are_over(now)
            && self.next_status.is_none_or(|next| next <= now)
            && self.history.is_over(now)
            && self.foreign_pod.is_none()
            && self.rejected.is_none()
            && self.next_old_failed_pods.is_none_or(|next| next <= now)
    }
}

/// A copy of what a decision reads of a ReplicaSet's record, and the positions of the caches.
///
/// ORDER: a sync takes it before it reads the ReplicaSet and the pods. Whatever the
/// watches bring in between can only make those newer than this claims. In the other order an event
/// could settle an expectation whose pod the list of pods lacks, and the sync would create one too
/// many.
#[derive(Clone, Debug, Default)]
pub struct RecordView {
    /// `None` without a record.
    pub owner: Option<Uid>,
    pub cached: Versions,
    /// The cache that does not show every own write.
    pub lagging: Option<Resource>,
    /// What a sync may do by its own writes: wait until the caches show them and the watches have
    /// shown every expected pod and deletion.
    pub may: May,
    /// Expected pods whose stored version the pod cache has passed.
    pub passed: Vec<ArcStr>,
    /// True if the caches may be older than the failover, unless the API server has confirmed
    /// them for this ReplicaSet.
    pub is_unproven: bool,
    pub is_confirmed: bool,
    /// How long creates wait for the ReplicaSet's own deletion after a loss of pods.
    pub loss_delay: Option<Duration>,
    /// If the API server rejected the last create: at which generation, and the remaining back-off.
    pub rejected: Option<(i64, Option<Duration>)>,
    /// How long a choice of pods to delete waits for a pod cache as new as the spec.
    pub spec_delay: Option<Duration>,
    pub unknown_creations: Vec<ArcStr>,
    pub unknown_deletions: Vec<Uid>,
    pub n_overdue: usize,
    pub unknowns_are_compared: bool,
}

impl RecordView {
    /// The view, or that of no record if the record belongs to an earlier ReplicaSet of that name:
    /// a late response to one of its writes may have been recorded after its deletion.
    #[must_use]
    pub fn of_owner(self, owner: &Uid) -> Self {
        if self.owner.as_ref().is_none_or(|it| it == owner) {
            return self;
        }
        Self {
            cached: self.cached,
            is_unproven: self.is_unproven,
            ..Self::default()
        }
    }
}

impl Memories {
    /// Creates an empty store. Without `waits_for_written` every sync finds the caches new enough.
    /// Writes are recorded all the same, because [`Self::advanced`] needs them.
    ///
    /// DIFFERS: upstream's no-op store records nothing (kubernetes
    /// `pkg/controller/util/consistency:NewNoopConsistencyStore`).
    pub fn new(
        clock: Arc<dyn Clock>,
        waits_for_written: bool,
        quota_watch: Arc<QuotaWatch>,
    ) -> Self {
        Self {
            clock,
            waits_for_written,
            quota_watch,
            state: Mutex::default(),
            stands_by: AtomicBool::new(false),
            terminating_is_dropped: AtomicBool::new(false),
        }
    }

    /// Changes the record of `rs`, and creates it first if there is none. At most one owner of a
    /// key is alive, so another owner's record is dropped.
    pub fn with<R>(&self, rs: &ReplicaSet, change: impl FnOnce(&mut Memory) -> R) -> R {
        self.change(&mut self.state.lock(), rs, change)
    }

    /// As [`with`](Self::with), but leaves the record of another owner alone: `None` then. For the
    /// watch threads, whose `rs` may be older than what a worker has recorded since.
    pub fn observe<R>(&self, rs: &ReplicaSet, change: impl FnOnce(&mut Memory) -> R) -> Option<R> {
        let mut state = self.state.lock();
        let memory = state.records.get(&rs.key);
        let is_its = memory.is_none_or(|memory| memory.owner == rs.uid);
        is_its.then(|| self.change(&mut state, rs, change))
    }

    pub fn get<R>(&self, rs: &ReplicaSet, change: impl FnOnce(&mut Memory) -> R) -> Option<R> {
        self.get_of(&rs.key, &rs.uid, change)
    }

    /// As [`get`](Self::get), for the ReplicaSet `key` with the UID `owner`.
    pub fn get_of<R>(
        &self,
        key: &ObjectKey,
        owner: &Uid,
        change: impl FnOnce(&mut Memory) -> R,
    ) -> Option<R> {
        self.state.lock().of(key, owner).map(change)
    }

    /// Forgets a deleted ReplicaSet: the one with UID `owner`, or with `None` any owner of the key.
    pub fn forget(&self, key: &ObjectKey, owner: Option<&Uid>) {
        self.forget_if(key, |it| owner.is_none_or(|owner| it.owner == *owner));
    }

    /// Forgets the record of `rs` if only `explain` uses it.
    pub fn forget_if_over(&self, rs: &ReplicaSet) {
        let now = self.clock.now();
        self.forget_if(&rs.key, |it| it.owner == rs.uid && it.is_over(now));
    }

    fn forget_if(&self, key: &ObjectKey, is_it: impl FnOnce(&Memory) -> bool) {
        let mut state = self.state.lock();
        if state.records.get(key).is_some_and(|it| is_it(it)) {
            self.forget_in(&mut state, key);
        }
    }

    /// Takes the view of the record of `key` for a sync. If the caches lack own writes, this
    /// registers the key, and [`Self::advanced`] returns it once they show them. `cached` reads the
    /// positions of the caches; this calls it up to twice, never under the lock.
    pub fn capture(&self, key: &ObjectKey, cached: impl Fn() -> Versions) -> RecordView {
        let view = self.view(key, cached());
        if view.lagging.is_none() {
            return view;
        }
        // ORDER: the caches may have advanced between the check and the registration. From here on
        // the watch threads report; a second check closes the gap.
        turns::reached("readiness: between the two checks");
        self.view(key, cached())
    }

    fn view(&self, key: &ObjectKey, cached: Versions) -> RecordView {
        let now = self.clock.now();
        let state = &mut *self.state.lock();
        // An empty version never blocks, so it must not prove anything either.
        let is_reached = |target: &mut Versions| {
            let is_known = !target.pods.is_empty() && !target.replica_sets.is_empty();
            is_known && cached.lagging(target).is_none()
        };
        if state.unproven.take_if(is_reached).is_some() {
            state.forget_confirmations();
        }
        let mut view = RecordView::default();
        if let Some(memory) = state.records.get_mut(key) {
            if let Some(written) = memory.positions.written() {
                state.waiting.remove(key, written);
            }
            view = memory.view(cached, self.waits_for_written, now);
            if let Some(written) = memory.positions.written() {
                state.waiting.add(key, written);
            }
        } else {
            view.cached = cached;
        }
        view.is_unproven = state.unproven.is_some();
        view
    }

    /// Returns the keys whose wait ends now that a cache has reached `cached`. The watch threads
    /// call this. It calls `cached` at most once, never under the lock.
    pub fn advanced(&self, cached: impl FnOnce() -> Versions) -> Vec<ObjectKey> {
        if self.state.lock().waiting.is_empty() {
            return Vec::new();
        }
        let cached = cached();
        let state = &mut *self.state.lock();
        let written = |key: &ObjectKey| state.records.get(key)?.positions.written();
        state.waiting.take_shown(&cached, written)
    }

    /// True while another daemon may lead: no key is enqueued. Takes no lock.
    pub fn is_standby(&self) -> bool {
        self.stands_by.load(Ordering::SeqCst)
    }

    pub fn set_standby(&self, stands_by: bool) {
        self.stands_by.store(stands_by, Ordering::SeqCst);
    }

    /// Discards every proof and confirmation: the caches may be older than this moment.
    pub fn need_proof(&self) {
        let mut state = self.state.lock();
        state.unproven = Some(Versions::default());
        state.forget_confirmations();
    }

    /// True if the positions that the caches must reach are still unknown.
    pub fn lacks_target(&self) -> bool {
        self.state.lock().unproven == Some(Versions::default())
    }

    /// Sets the positions that the caches must reach, unless another worker has set them.
    pub fn set_target(&self, target: Versions) {
        let mut state = self.state.lock();
        if state.unproven == Some(Versions::default()) {
            state.unproven = Some(target);
        }
    }

    /// Notes from each status write whether the API server drops `terminatingReplicas`. During a
    /// cluster upgrade some API servers may drop the field and others keep it.
    pub fn note_terminating_support(&self, sent: &ReplicaSetStatus, stored: &ReplicaSetStatus) {
        if sent.terminating_replicas.is_some() {
            let is_dropped = stored.terminating_replicas.is_none();
            self.terminating_is_dropped
                .store(is_dropped, Ordering::Relaxed);
        }
    }

    /// True if `rs.status` lacks the number of terminating pods because the API server drops it: a
    /// comparison with it would cause one useless write per sync.
    pub fn drops_terminating(&self, rs: &ReplicaSet) -> bool {
        rs.status.terminating_replicas.is_none()
            && self.terminating_is_dropped.load(Ordering::Relaxed)
    }

    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for memory in self.state.lock().records.values() {
            let (creations, deletions) = memory.own_writes.n_expected();
            totals.expected.0 += creations;
            totals.expected.1 += deletions;
            totals.pods_backed_off += memory.history.n_backed_off;
            if let Some(rejected) = &memory.rejected {
                totals.rejected[rejected.rejection.kind()] += 1;
            }
        }
        totals
    }

    /// The ReplicaSets whose creates wait for a back-off: after a rejection, or after pods that
    /// failed.
    pub fn in_back_off(&self) -> Vec<ObjectKey> {
        let state = self.state.lock();
        let waits = |memory: &Memory| memory.rejected.is_some() || memory.history.n_backed_off > 0;
        let waiting = state.records.iter().filter(|(_, memory)| waits(memory));
        waiting.map(|(key, _)| key.clone()).collect()
    }

    fn change<R>(
        &self,
        state: &mut State,
        rs: &ReplicaSet,
        change: impl FnOnce(&mut Memory) -> R,
    ) -> R {
        if let Some(memory) = state.of(&rs.key, &rs.uid) {
            return change(memory);
        }
        if state.records.len() >= state.sweep_at.max(SWEEP_AT_LEAST) {
            let now = self.clock.now();
            state.records.retain(|_, memory| !memory.is_over(now));
            state.sweep_at = 2 * state.records.len();
        }
        self.forget_in(state, &rs.key);
        let record = state.records.entry(rs.key.clone());
        change(record.or_insert_with(|| Box::new(Memory::of(&rs.uid))))
    }

    fn forget_in(&self, state: &mut State, key: &ObjectKey) {
        state.end_wait(key, false, self.clock.now());
        let memory = state.records.remove(key);
        if let Some(written) = memory.as_ref().and_then(|it| it.positions.written()) {
            state.waiting.remove(key, written);
        }
    }
}

impl State {
    fn of(&mut self, key: &ObjectKey, owner: &Uid) -> Option<&mut Memory> {
        let memory = self.records.get_mut(key)?;
        (memory.owner == *owner).then_some(memory)
    }

    fn forget_confirmations(&mut self) {
        for memory in self.records.values_mut() {
            memory.positions.is_confirmed = false;
        }
    }
}

#[cfg(test)]
mod tests;
