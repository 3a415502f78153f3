//! The checks of the simulation besides the number of pods: every loss is reported, and no
//! ReplicaSet waits for long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Daemon, State, World};
use crate::api::{ObjectKey, ReplicaSet, ReplicaSetStatus, Uid};
use crate::controller::decide::status::Counts;
use crate::controller::memory::history::SyncEnd;
use crate::controller::memory::rejections::{
    BackedOff, DENIED_WAIT_MAX, OVERLOAD_WAIT_MAX, PAUSE_MAX, Rejection,
};

/// Maximum wait of a ReplicaSet that has not converged, for anything except a back-off.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The first back-off of a failed key, doubled by each further failure (client-go
/// `DefaultTypedControllerRateLimiter`).
const BACK_OFF_BASE: Duration = Duration::from_millis(5);

/// The requests of a sync that determine what its status has to report.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// The counts of the last status, stored or not.
    pub(super) status: Option<Counts>,
    /// A patch or a read before the status, during which pods may have appeared or vanished.
    pub(super) took_time: bool,
}

/// The input of the next sync.
pub(super) struct Before {
    rs: Arc<ReplicaSet>,
    counts: Counts,
}

/// How long each ReplicaSet that has not converged has waited, and its failures and rejections of
/// one kind at the start.
#[derive(Debug, Default)]
pub(super) struct Waits(BTreeMap<ObjectKey, (Tries, Duration)>);

type Tries = (u32, Option<(Rejection, u32)>);

/// The longest time until a ReplicaSet in back-off retries, if nothing wakes it. In the queue of a
/// quota all others may try first.
fn longest_back_off(backed_off: &BackedOff) -> Duration {
    match backed_off.rejection {
        Rejection::Quota(_) => {
            PAUSE_MAX
                * backed_off
                    .position
                    .map_or(1, |it| u32::try_from(it.len).unwrap_or(u32::MAX))
        }
        Rejection::Overload { .. } => OVERLOAD_WAIT_MAX,
        Rejection::Invalid | Rejection::Denied => DENIED_WAIT_MAX,
    }
}

/// True if `status` hides no loss: none of its counts exceeds that of `counts`, and it has at least
/// as many terminating pods.
fn reports_each_loss(status: &Counts, counts: &Counts) -> bool {
    status.replicas <= counts.replicas
        && status.fully_labeled <= counts.fully_labeled
        && status.ready <= counts.ready
        && status.available <= counts.available
        && status.terminating.unwrap_or(0) >= counts.terminating.unwrap_or(0)
}

impl World {
    /// Returns what a sync of `key` counts if nothing happens before it.
    pub(super) fn before_sync(&self, daemon: &Daemon, key: &ObjectKey) -> Option<Before> {
        self.lock().sent = Sent::default();
        let (rs, counts) = daemon.controller.count_every_pod(key)?;
        Some(Before { rs, counts })
    }

    /// Checks after a sync that its status equals its counts, or hides only progress.
    ///
    /// PROPERTY P16: A sync that patches and reads nothing writes what it has counted as the
    /// status, or leaves one that hides no lost pod, has the generation, and has a condition
    /// exactly if the sync failed.
    pub(super) fn check_status_after(&self, daemon: &Daemon, before: &Before) {
        let Before { rs, counts } = before;
        let last = daemon
            .controller
            .memories
            .get(rs, |it| it.history.last_sync.clone())
            .flatten();
        let end = last.map_or(SyncEnd::TooEarly, |sync| sync.end);
        let mut state = self.lock();
        if state.is_killed || state.sent.took_time || end == SyncEnd::TooEarly {
            return;
        }
        let is_right = match &state.sent.status {
            Some(written) => written == counts,
            None => {
                reports_each_loss(&Counts::from(&rs.status), counts)
                    && rs.status.observed_generation == rs.generation
                    && rs.status.conditions.is_empty() == (end == SyncEnd::Synced)
            }
        };
        if !is_right {
            let (sent, status) = (&state.sent, &rs.status);
            let wrong = format!("a sync of {counts:?} ends with {sent:?} after {status:?}");
            state.wrong.push(wrong);
        }
    }

    /// Checks after an event of this ReplicaSet that its key is queued if its cached status hides a
    /// loss.
    ///
    /// PROPERTY P17: After each event a ReplicaSet whose cached status hides a lost pod is in the
    /// queue.
    pub(super) fn check_loss_is_queued(&self, daemon: &Daemon, key: &ObjectKey, uid: &Uid) {
        let counted = daemon.controller.count_every_pod(key);
        let Some((rs, counts)) = counted.filter(|(rs, _)| rs.uid == *uid) else {
            return;
        };
        let is_reported = reports_each_loss(&Counts::from(&rs.status), &counts);
        if !is_reported && !daemon.queue.state_of(key).is_waiting {
            let wrong = format!("{key} waits with {:?} though it has {counts:?}", rs.status);
            self.lock().wrong.push(wrong);
        }
    }

    /// Records that this much time passes without any event.
    ///
    /// PROPERTY P18: While nothing else can happen, no ReplicaSet that has not converged waits for
    /// more than 20 s, or for more than its back-off.
    pub(super) fn note_wait(&self, daemon: &Daemon, time: Duration) {
        let mut state = self.lock();
        let state = &mut *state;
        let waiting: Vec<_> = state.unsettled().collect();
        let waits = &mut state.waits.0;
        waits.retain(|key, _| waiting.iter().any(|(of, _)| of == key));
        for (key, what) in waiting {
            let n_failures = daemon.queue.num_requeues(&key);
            let backed_off = daemon.controller.backed_off_of(&key);
            let back_off = match n_failures {
                0 => Duration::ZERO,
                n => BACK_OFF_BASE.saturating_mul(1 << (n - 1).min(18)),
            };
            // A status update may fail while creates are backed off.
            let rejected = backed_off.as_ref().map_or(Duration::ZERO, longest_back_off);
            let back_off = back_off.max(rejected);
            let rejections = backed_off.map(|it| (it.rejection, it.n_rejections));
            let tries = (n_failures, rejections);
            let (since, waited) = waits.entry(key).or_default();
            if *since != tries {
                (*since, *waited) = (tries, Duration::ZERO);
            }
            *waited += time;
            if *waited > WAIT_MAX + back_off {
                state.wrong.push(format!(
                    "after (failures, rejections) {since:?} it waits {waited:?}: {what}"
                ));
            }
        }
    }
}

impl State {
    /// Returns the ReplicaSets that have not converged, and the reasons: each must have
    /// `spec.replicas` active pods, and a status that counts its pods and its ready pods and has
    /// its generation.
    pub(super) fn unsettled(&self) -> impl Iterator<Item = (ObjectKey, String)> {
        let unsettled = |rs: &ReplicaSet| {
            let (active, wanted) = (self.server.n_active(rs), rs.replicas.max(0));
            let ReplicaSetStatus {
                replicas,
                ready_replicas,
                observed_generation,
                ..
            } = rs.status;
            let is_settled = usize::try_from(wanted) == Ok(active)
                && replicas == wanted
                && usize::try_from(ready_replicas) == Ok(self.server.n_ready(rs))
                && observed_generation == rs.generation;
            let what = || format!("{}: {active} of {wanted}, status {:?}", rs.key, rs.status);
            (!is_settled).then(|| (rs.key.clone(), what()))
        };
        let all: Vec<_> = self
            .server
            .replica_sets
            .values()
            .filter_map(unsettled)
            .collect();
        all.into_iter()
    }
}
