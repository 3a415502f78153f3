//! Is somebody else writing what this daemon controls? Two controllers for one ReplicaSet fight, and
//! each looks healthy; so a second one that is seen at work is told of.
//!
//! The watch threads raise a *suspicion*, cheaply: a pod of ours that is new and that this daemon does
//! not expect, or a status that has changed and that it did not write. The next sync of the ReplicaSet
//! asks the API server once who it was (`metadata.managedFields`), so that a write of our own whose
//! answer was lost is never taken for a stranger's. For some time after the daemon took over nothing is
//! suspected: its predecessor's last writes may still arrive.
//!
//! What it cannot tell: another instance of this very program, which writes under the same name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::ReplicaSetController;
use crate::api::conditions::{REPLICA_FAILURE, get_condition};
use crate::api::{ObjectKey, Pod, ReplicaSet, ReplicaSetStatus, ResourceVersion};
use crate::stdx::clock::Clock;
use crate::telemetry::metrics;
use crate::writes::managers::{MANAGER, Manager};

/// Nothing is suspected for so long after the daemon took over: longer than a watch lags in health.
pub const GRACE: Duration = Duration::from_secs(10);

/// Between two questions to the API server, over all ReplicaSets.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A ReplicaSet is told of once in this time; what is suspected in between only counts.
const TOLD_INTERVAL: Duration = Duration::from_mins(10);

/// ReplicaSets that are suspected, or told of, at the same time; more would say nothing new.
const KEYS_MAX: usize = 1024;

/// Reason of the event.
pub const OTHER_WRITER: &str = "OtherWriter";

/// What was seen of other writers. Shared by workers and watch threads; one short lock.
#[derive(Debug, Default)]
pub struct OtherWriters {
    state: Mutex<State>,
    /// How many keys are suspected, so that a sync need not take the lock.
    n_suspects: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// When this daemon began to write, by both clocks; `None` while it must not.
    armed: Option<(Instant, Timestamp)>,
    suspects: HashMap<ObjectKey, Suspicion>,
    /// Versions of own status writes that the watch has not shown yet.
    own_statuses: HashMap<ObjectKey, ResourceVersion>,
    told: HashMap<ObjectKey, Instant>,
    checked: Option<Instant>,
}

/// What looks like somebody else's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Suspicion {
    pod: Option<Arc<str>>,
    status: Option<ResourceVersion>,
}

/// What to do about a suspicion.
enum Check {
    Ask(Suspicion),
    Count(Suspicion),
}

impl OtherWriters {
    /// This daemon writes from now on. Only the first call after [`Self::disarm`] counts.
    pub fn arm(&self, clock: &dyn Clock) {
        let now = (clock.now(), clock.wall());
        self.lock().armed.get_or_insert(now);
    }

    /// This daemon writes no more, so that others may.
    pub fn disarm(&self) {
        *self.lock() = State::default();
        self.n_suspects.store(0, Ordering::Relaxed);
    }

    /// A status of ours was stored under `version`.
    pub fn wrote_status(&self, key: &ObjectKey, version: &ResourceVersion) {
        let mut state = self.lock();
        if state.armed.is_none() {
            return;
        }
        let seen = state.suspects.get_mut(key);
        if let Some(suspicion) = seen.filter(|it| it.status.as_ref() == Some(version)) {
            suspicion.status = None;
        } else {
            state.own_statuses.insert(key.clone(), version.clone());
        }
        self.sweep(&mut state);
    }

    /// Forgets a ReplicaSet that is gone.
    pub fn clear(&self, key: &ObjectKey) {
        let mut state = self.lock();
        state.suspects.remove(key);
        state.own_statuses.remove(key);
        state.told.remove(key);
        self.sweep(&mut state);
    }

    fn suspect_pod(&self, key: &ObjectKey, pod: &Pod, now: Instant) {
        let mut state = self.lock();
        let Some((since, wall)) = state.armed else {
            return;
        };
        let is_late = now.saturating_duration_since(since) > GRACE;
        let is_new = pod
            .creation
            .is_some_and(|created| created.timestamp() > wall);
        if is_late && is_new && state.has_room(key) {
            let name = Arc::clone(&pod.key.name);
            state.suspects.entry(key.clone()).or_default().pod = Some(name);
            self.sweep(&mut state);
        }
    }

    fn suspect_status(&self, key: &ObjectKey, version: &ResourceVersion, now: Instant) {
        let mut state = self.lock();
        if state.own_statuses.get(key) == Some(version) {
            state.own_statuses.remove(key);
            return;
        }
        let since = state.armed.map(|(since, _)| since);
        let is_late = since.is_some_and(|since| now.saturating_duration_since(since) > GRACE);
        if is_late && state.has_room(key) {
            state.suspects.entry(key.clone()).or_default().status = Some(version.clone());
            self.sweep(&mut state);
        }
    }

    /// What is to be checked about `key` now.
    fn take(&self, key: &ObjectKey, now: Instant) -> Option<Check> {
        if self.n_suspects.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut state = self.lock();
        let passed = |then: Instant| now.saturating_duration_since(then);
        let is_told = state
            .told
            .get(key)
            .is_some_and(|then| passed(*then) < TOLD_INTERVAL);
        if !is_told
            && state
                .checked
                .is_some_and(|then| passed(then) < CHECK_INTERVAL)
        {
            return None;
        }
        let suspicion = state.suspects.remove(key)?;
        self.sweep(&mut state);
        if is_told {
            return Some(Check::Count(suspicion));
        }
        state.checked = Some(now);
        Some(Check::Ask(suspicion))
    }

    fn note_told(&self, key: &ObjectKey, now: Instant) {
        let mut state = self.lock();
        if state.told.len() >= KEYS_MAX {
            state
                .told
                .retain(|_, then| now.saturating_duration_since(*then) < TOLD_INTERVAL);
        }
        if state.told.len() < KEYS_MAX {
            state.told.insert(key.clone(), now);
        }
    }

    /// INVARIANT: called after each change of `suspects`, under the lock.
    fn sweep(&self, state: &mut State) {
        let is_empty = |it: &Suspicion| it.pod.is_none() && it.status.is_none();
        if state.suspects.len() < 8 {
            state.suspects.retain(|_, it| !is_empty(it));
        }
        self.n_suspects
            .store(state.suspects.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_room(&self, key: &ObjectKey) -> bool {
        self.suspects.len() < KEYS_MAX || self.suspects.contains_key(key)
    }
}

impl ReplicaSetController {
    /// Called by the watch thread for a new pod of `rs`, before its creation is struck out.
    pub(super) fn suspect_pod(&self, rs: &ReplicaSet, pod: &Pod) {
        let (key, uid, name) = (&rs.key, &rs.uid, &pod.key.name);
        let is_ours = self.expectations.expects_creation(key, uid, name)
            || self.unresolved.creations(key, uid).contains(name);
        if !is_ours && self.shadow.is_none() {
            self.others.suspect_pod(key, pod, self.clock.now());
        }
    }

    /// Called by the watch thread for a ReplicaSet that has changed.
    pub(super) fn suspect_status(&self, old: &ReplicaSet, new: &ReplicaSet) {
        let is_changed = old.uid == new.uid && !is_alike(&old.status, &new.status);
        if is_changed && self.shadow.is_none() {
            let (now, version) = (self.clock.now(), &new.resource_version);
            self.others.suspect_status(&new.key, version, now);
        }
    }

    /// Follows up what the watch threads suspect of `rs`. Blocks for one read if there is something.
    pub(super) fn look_for_other_writers(&self, rs: &ReplicaSet) {
        let now = self.clock.now();
        match self.others.take(&rs.key, now) {
            None => {}
            Some(Check::Count(suspicion)) => {
                for what in suspicion.whats() {
                    metrics::global().other_writers.seen(what);
                }
            }
            Some(Check::Ask(suspicion)) => self.ask_who(rs, &suspicion, now),
        }
    }

    fn ask_who(&self, rs: &ReplicaSet, suspicion: &Suspicion, now: Instant) {
        let (what, found) = match &suspicion.pod {
            Some(name) => (
                format!("pod {name}"),
                self.pod_control.owner_managers(rs, name),
            ),
            None => (
                "the status".to_owned(),
                self.replica_set_control.status_managers(&rs.key),
            ),
        };
        let managers = match found {
            Ok(managers) => managers,
            Err(error) => {
                log::debug!(
                    object:% = self.kind.named(&rs.key);
                    "who wrote {what} is not known: {error}"
                );
                return;
            }
        };
        let Some(other) = stranger(managers) else {
            return;
        };
        for what in suspicion.whats() {
            metrics::global().other_writers.seen(what);
        }
        self.others.note_told(&rs.key, now);
        let message = format!(
            "{what} was written by {other}, while {} controls this {}: stop one of the two",
            self.kind.component, self.kind.kind
        );
        let object = self.kind.named(&rs.key);
        log::warn!(object:% = object; "another writer is at work: {message}");
        self.pod_control.warn(rs, OTHER_WRITER, message);
    }
}

impl Suspicion {
    fn whats(&self) -> impl Iterator<Item = &'static str> {
        let pod = self.pod.as_ref().map(|_| "pod");
        pod.into_iter()
            .chain(self.status.as_ref().map(|_| "status"))
    }
}

/// Who wrote last, unless it was this program.
fn stranger(managers: Vec<Manager>) -> Option<String> {
    let latest = managers.iter().map(|manager| manager.time).max()?;
    let mut last = managers
        .into_iter()
        .filter(|manager| manager.time == latest);
    // Times have whole seconds: one of ours in the same second leaves it open, and then it is not told.
    let mut other = None;
    last.all(|manager| {
        let is_other = manager.name != MANAGER;
        other = Some(manager.name);
        is_other
    })
    .then_some(other)
    .flatten()
}

/// True if the two agree in what this controller writes; conditions of other types are others' matter.
fn is_alike(a: &ReplicaSetStatus, b: &ReplicaSetStatus) -> bool {
    let failure = |status: &ReplicaSetStatus| {
        let condition = get_condition(&status.conditions, REPLICA_FAILURE);
        condition.map(|condition| condition.status.clone())
    };
    a.replicas == b.replicas
        && a.fully_labeled_replicas == b.fully_labeled_replicas
        && a.ready_replicas == b.ready_replicas
        && a.available_replicas == b.available_replicas
        && a.terminating_replicas == b.terminating_replicas
        && a.observed_generation == b.observed_generation
        && failure(a) == failure(b)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::{CHECK_INTERVAL, Check, GRACE, OtherWriters, stranger};
    use crate::api::{ObjectKey, Pod};
    use crate::stdx::clock::{Clock, FakeClock};
    use crate::writes::managers::Manager;

    fn managers(of: &[(&str, i64)]) -> Vec<Manager> {
        let manager = |(name, second): &(&str, i64)| Manager {
            name: (*name).to_owned(),
            time: Timestamp::from_second(*second).ok(),
        };
        of.iter().map(manager).collect()
    }

    #[test]
    fn only_the_last_writer_counts_and_never_this_program() {
        let ours = "replicaset-controller";
        let other = "kube-controller-manager";
        assert_eq!(stranger(managers(&[])), None);
        assert_eq!(stranger(managers(&[(ours, 2)])), None);
        assert_eq!(stranger(managers(&[(other, 1), (ours, 2)])), None);
        assert_eq!(stranger(managers(&[(other, 2), (ours, 2)])), None);
        assert_eq!(
            stranger(managers(&[(ours, 1), (other, 2)])).as_deref(),
            Some(other)
        );
    }

    fn pod(clock: &FakeClock) -> Pod {
        Pod {
            key: ObjectKey::new("shop", "web-1"),
            creation: Some(clock.wall().into()),
            ..Pod::default()
        }
    }

    #[test]
    fn a_predecessors_late_writes_raise_no_suspicion() {
        let (others, clock) = (OtherWriters::default(), FakeClock::default());
        let key = ObjectKey::new("shop", "web");
        let before = pod(&clock);
        others.suspect_pod(&key, &before, clock.now());
        others.arm(&clock);
        clock.advance(GRACE);
        others.suspect_pod(&key, &pod(&clock), clock.now());
        others.suspect_status(&key, &"7".into(), clock.now());
        clock.advance(Duration::from_secs(1));
        // It comes late, but it was created before.
        others.suspect_pod(&key, &before, clock.now());
        assert!(others.take(&key, clock.now()).is_none());
        others.suspect_pod(&key, &pod(&clock), clock.now());
        assert!(matches!(
            others.take(&key, clock.now()),
            Some(Check::Ask(_))
        ));
    }

    #[test]
    fn own_statuses_raise_none_whichever_of_event_and_answer_comes_first() {
        let (others, clock) = (OtherWriters::default(), FakeClock::default());
        let key = ObjectKey::new("shop", "web");
        others.arm(&clock);
        clock.advance(GRACE + Duration::from_secs(1));
        others.wrote_status(&key, &"7".into());
        others.suspect_status(&key, &"7".into(), clock.now());
        others.suspect_status(&key, &"8".into(), clock.now());
        others.wrote_status(&key, &"8".into());
        assert!(others.take(&key, clock.now()).is_none());
        assert!(others.lock().own_statuses.is_empty());
    }

    #[test]
    fn the_api_server_is_asked_seldom_and_once_told_only_counted() {
        let (others, clock) = (OtherWriters::default(), FakeClock::default());
        let (web, api) = (ObjectKey::new("shop", "web"), ObjectKey::new("shop", "api"));
        others.arm(&clock);
        clock.advance(GRACE + Duration::from_secs(1));
        for key in [&web, &api] {
            others.suspect_status(key, &"7".into(), clock.now());
        }
        assert!(matches!(
            others.take(&web, clock.now()),
            Some(Check::Ask(_))
        ));
        others.note_told(&web, clock.now());
        assert!(others.take(&api, clock.now()).is_none());
        others.suspect_status(&web, &"8".into(), clock.now());
        assert!(matches!(
            others.take(&web, clock.now()),
            Some(Check::Count(_))
        ));
        clock.advance(CHECK_INTERVAL);
        assert!(matches!(
            others.take(&api, clock.now()),
            Some(Check::Ask(_))
        ));
    }
}
