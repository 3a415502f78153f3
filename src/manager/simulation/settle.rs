//! After the faults: every ReplicaSet becomes stable, and no further requests follow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::api_server::ApiServer;
use super::daemon::{Queue, Running};
use super::failing;
use super::knowledge::Deletes;
use super::marks::waits_for_timeout;
use super::objects::{Change, Kind, NAMESPACE, Object, is_active, is_terminating};
use super::oracles::unsettled;
use super::world::{State, World};
use crate::api::ObjectKey;
use crate::controller::ReplicaSetController;
use crate::controller::memory::rejections::{
    DENIED_WAIT_MAX, OVERLOAD_WAIT_MAX, PAUSE_MAX, Rejection,
};
use crate::stdx::turns::simulation::{Process, in_process};

/// Time in which a ReplicaSet must become stable, beside what is excused.
const SETTLES_WITHIN: Duration = Duration::from_secs(2);

/// Time in which it must become stable at all: leases expire, requests time out, and back-offs end,
/// of which the longest takes 1,000 s.
const SETTLES_AT_ALL_WITHIN: Duration = Duration::from_mins(35);

/// A watch whose version the restored store has passed again continues as if nothing had happened:
/// no reader can detect it, and what changed in between stays unseen.
const UNNOTICED: &str = "restore that no list reveals";

/// How long each ReplicaSet has been backed off.
type Holds = BTreeMap<String, Duration>;

/// How often the state is looked at.
const STEP: Duration = Duration::from_millis(100);

/// Time for the last events and status writes, and then the time in which nothing may be sent.
const CALMS_WITHIN: Duration = Duration::from_mins(2);
const CALM: Duration = Duration::from_mins(1);

impl World {
    /// Ends the faults, and waits until everything is at rest.
    ///
    /// PROPERTY P10: When the faults have ended, every ReplicaSet has `spec.replicas` active pods,
    /// has adopted the active pods that it selects and released those that lost their labels, and
    /// has a status that counts its pods and its ready pods and has its generation, before nothing
    /// changes for two seconds, without the time in which there is no leader, the leader has not
    /// heard that it leads, is paused, starts, pauses before it sends again, waits for a
    /// response, backs off, or cannot know that etcd went back; and within 35 minutes.
    ///
    /// PROPERTY P11: Two minutes later all have still converged, and for one minute nothing is sent
    /// but watches, requests for the Lease, the check whether quotas may be watched, and one LIST
    /// for a delete of unknown outcome that can take no effect any more.
    pub(super) fn settle(self: &Arc<Self>) {
        self.scheduler.set_slowness(None);
        self.scheduler.set_crash_rate(None);
        self.lock().end_faults(self.now());
        let end = self.now() + SETTLES_AT_ALL_WITHIN;
        let mut waited = Duration::ZERO;
        let mut n_changes = 0;
        let mut holds = Holds::default();
        loop {
            self.run_until(self.now() + STEP);
            let mut state = self.lock();
            if !state.wrong.is_empty() {
                return;
            }
            let Some(what) = state.unsettled() else {
                break;
            };
            if self.now() > end && state.rewinds_unnoticed() {
                state.faults.count(UNNOTICED);
                return;
            }
            let others = |change: &&Change| change.object.kind != Kind::Lease;
            let n_now = state.server.log.iter().filter(others).count();
            drop(state);
            let excuse = self.excuse().or_else(|| self.expects_what_was_undone());
            if let Some(found) = self.overlong_back_off(&mut holds, excuse.as_deref()) {
                let mut state = self.lock();
                state.note(self.now(), &found);
                state.wrong.push(found);
                return;
            }
            if n_now != n_changes || excuse.is_some() || !holds.is_empty() {
                waited = Duration::ZERO;
                n_changes = n_now;
            } else {
                waited += STEP;
            }
            if waited > SETTLES_WITHIN || self.now() > end {
                let found = format!("nothing happens for {waited:?} though {what}");
                let mut state = self.lock();
                state.note(self.now(), &found);
                state.wrong.push(found);
                return;
            }
        }
        self.run_until(self.now() + CALMS_WITHIN);
        self.lock().calm_requests = Some(Vec::new());
        self.run_until(self.now() + CALM);
        let state = self.lock();
        let unrest = state
            .unsettled()
            .map(|what| format!("it does not stay at rest: {what}"));
        let n_requests = state.calm_requests.as_ref().map_or(0, Vec::len) as u64;
        let n_requests = n_requests.saturating_sub(state.n_open_deletes());
        let noise =
            (n_requests > 0).then(|| format!("{n_requests} requests though everything is at rest"));
        drop(state);
        let reported = self.reports_unrest();
        let mut state = self.lock();
        let found: Vec<String> = unrest.into_iter().chain(noise).chain(reported).collect();
        // A daemon of that kind asks for what its cache lacks until it lists again.
        if !found.is_empty() && state.rewinds_unnoticed() {
            state.faults.count(UNNOTICED);
            return;
        }
        state.wrong.extend(found);
    }

    /// Why nothing needs to happen right now.
    fn excuse(&self) -> Option<String> {
        let state = self.lock();
        let leader = state.leader().map(|number| &state.daemons[number]);
        let Some(leader) = leader.filter(|leader| leader.process.is_some()) else {
            return Some("there is no leader".to_owned());
        };
        let process = leader.process?;
        if self.scheduler.is_frozen(process) {
            return Some("the leader is paused".to_owned());
        }
        // A watch from a version that the restored store has not reached is silent.
        if state.is_rewound(process) {
            return Some("the leader has not noticed that the store went back".to_owned());
        }
        let stop = leader.stop.spot();
        // Nothing waits for the lease's thread, or for the check whether quotas may be watched.
        let others = ["lease", "watch-quotas"];
        if let Some(thread) = self.scheduler.waits_only_for(process, stop, &others) {
            return Some(format!("{thread} waits to send again"));
        }
        if state.waits_for_answer(process, self.now()) {
            return Some("a request has not been answered or timed out".to_owned());
        }
        if !state.knows_that_it_leads(process) {
            return Some("the leader has not heard that it leads".to_owned());
        }
        let running = leader.running();
        let Some(Running { queue, .. }) = &*running else {
            return Some("the leader is starting".to_owned());
        };
        let mut sets = state.server.all(Kind::ReplicaSet);
        sets.find_map(|rs| {
            State::unsettled_of(&state.server, rs)?;
            if is_terminating(rs) {
                return Some(format!("{} is being deleted", rs.name));
            }
            if failing::awaits_readiness(&state.server, rs) {
                return Some(format!("a pod of {} is not Ready", rs.name));
            }
            if waits_for_timeout(&rs.value) {
                return Some(format!("{} keeps protected pods for a while", rs.name));
            }
            let key = ObjectKey::new(NAMESPACE, &*rs.name);
            // By its own clock, which may have been suspended.
            let key = in_process(process, || queue.state_of(&key));
            let backs_off = key.n_failures > 0 && key.due_in.is_some();
            let rests = failing::may_rest(rs, key.due_in);
            (backs_off || rests).then(|| format!("{} backs off", rs.name))
        })
    }

    /// A ReplicaSet of which the leader expects a write that was undone when etcd went back. Its
    /// cache was no newer than what etcd went back to, so no list shows it: only the expiry of the
    /// expectation ends the wait.
    fn expects_what_was_undone(&self) -> Option<String> {
        let state = self.lock();
        let (process, _, controller) = state.leading()?;
        let known = state.known.get(&process)?;
        let pods = state.server.all(Kind::Pod);
        let active: BTreeSet<&str> = pods
            .filter(|pod| is_active(&pod.value))
            .filter_map(|pod| pod.value["metadata"]["uid"].as_str())
            .collect();
        let mut sets = state.server.all(Kind::ReplicaSet);
        let found = sets.find(|rs| {
            let key = ObjectKey::new(NAMESPACE, &*rs.name);
            let facts = in_process(process, || controller.inspector().inspect(&key));
            let Some(memory) = facts.and_then(|facts| facts.memory) else {
                return false;
            };
            let awaited = memory
                .waits_for
                .iter()
                .flat_map(|it| [&it.pods, &it.replica_sets]);
            let mut awaited = awaited.filter_map(|version| version.to_string().parse().ok());
            if awaited.any(|version: u64| known.undone_versions.contains(&version)) {
                return true;
            }
            let Some(expected) = memory.expectations else {
                return false;
            };
            let is_undone = |uid: &str| known.deleted.get(uid).is_some_and(Deletes::are_undone);
            let mut uids = expected.deletions.iter().map(ToString::to_string);
            let is_lost = |name: &str| {
                known.undone.contains(name) && state.server.get(Kind::Pod, name).is_none()
            };
            uids.any(|uid| active.contains(&*uid) && is_undone(&uid))
                || expected.creations.iter().any(|name| is_lost(name))
        });
        found.map(|rs| format!("{} expects a write that was undone", rs.name))
    }

    /// Counts how long the leader has backed off the creates of each ReplicaSet without another
    /// excuse. Returns what is wrong if one waits longer than its kind of rejection may last: no
    /// request is rejected any more.
    fn overlong_back_off(&self, holds: &mut Holds, excuse: Option<&str>) -> Option<String> {
        let state = self.lock();
        let (process, _, controller) = state.leading()?;
        let mut now = Holds::default();
        for rs in state.server.all(Kind::ReplicaSet) {
            let key = ObjectKey::new(NAMESPACE, &*rs.name);
            let backed_off = in_process(process, || controller.backed_off_of(&key));
            let Some(backed_off) = backed_off.filter(|_| unsettled(&state.server, rs).is_some())
            else {
                continue;
            };
            let longest = match backed_off.rejection {
                Rejection::Quota(_) => PAUSE_MAX,
                Rejection::Overload { .. } => OVERLOAD_WAIT_MAX,
                Rejection::Invalid | Rejection::Denied => DENIED_WAIT_MAX,
            };
            let step = if excuse.is_none() {
                STEP
            } else {
                Duration::ZERO
            };
            let waited = step + holds.get(&rs.name).copied().unwrap_or_default();
            if waited > longest + SETTLES_WITHIN {
                return Some(format!("{} waits {waited:?}: {backed_off:?}", rs.name));
            }
            now.insert(rs.name.clone(), waited);
        }
        *holds = now;
        None
    }
}

impl State {
    /// The leader's process, queue and controller.
    pub(super) fn leading(&self) -> Option<(Process, Arc<Queue>, Arc<ReplicaSetController>)> {
        let leader = &self.daemons[self.leader()?];
        let running = leader.running();
        let Running {
            queue, controller, ..
        } = running.as_ref()?;
        Some((leader.process?, Arc::clone(queue), controller.upgrade()?))
    }

    /// Deletes of the leader whose pods are there and whose outcome it does not know.
    pub(super) fn open_deletes(&self) -> impl Iterator<Item = &Arc<Object>> {
        let known = self
            .leader_process()
            .and_then(|process| self.known.get(&process));
        let is_open = move |pod: &&Arc<Object>| {
            let uid = pod.value["metadata"]["uid"].as_str().unwrap_or_default();
            let deletes = known.and_then(|known| known.deleted.get(uid));
            is_active(&pod.value) && deletes.is_some_and(Deletes::may_be_repeated)
        };
        self.server.all(Kind::Pod).filter(is_open)
    }

    pub(super) fn n_open_deletes(&self) -> u64 {
        self.open_deletes().map(|_| 1).sum()
    }

    fn unsettled(&self) -> Option<String> {
        let leader = self.leader_process();
        let is_lost = |rs: &Object| leader.is_some_and(|process| self.has_lost_status(process, rs));
        let mut sets = self.server.all(Kind::ReplicaSet);
        sets.find_map(|rs| Self::unsettled_of(&self.server, rs).filter(|_| !is_lost(rs)))
    }

    fn unsettled_of(server: &ApiServer, rs: &Object) -> Option<String> {
        unsettled(server, rs).or_else(|| failing::unsettled(server, rs))
    }
}
