//! The Lease: who leads according to the API server, and the properties of its writers.

use std::time::Duration;

use super::http::{Answer, Request};
use super::objects::{Kind, target};
use super::world::State;

/// What a run of many histories must have had, too.
pub(super) const LOST: &str = "leader that could not renew";

/// How long a leader tries to renew.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// The Lease as the API server has it.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaseTruth {
    pub(super) holder: String,
    pub(super) renewed: Duration,
    pub(super) duration: Duration,
    /// Until when another client's change of the Lease excuses two writers.
    pub(super) tampered_until: Duration,
    /// `leaseTransitions` of the stored Lease.
    n_transitions: Option<u64>,
}

impl State {
    /// Another client has changed the Lease.
    pub(super) fn lease_was_changed(&mut self, excused_until: Duration) {
        self.lease.tampered_until = excused_until;
        self.lease.holder.clear();
        self.lease.n_transitions = self.stored_transitions();
    }

    fn stored_transitions(&self) -> Option<u64> {
        let lease = self.server.all(Kind::Lease).next()?;
        lease.value["spec"]["leaseTransitions"].as_u64()
    }

    /// Follows who leads, by the writes of the Lease that the server takes.
    pub(super) fn follow_lease(
        &mut self,
        process: usize,
        request: &Request,
        answer: &Answer,
        now: Duration,
    ) {
        let is_lease = target(&request.path).is_some_and(|(kind, ..)| kind == Kind::Lease);
        if !is_lease || request.method == "GET" || answer.code >= 300 {
            return;
        }
        let Some(lease) = self.server.all(Kind::Lease).next() else {
            return;
        };
        let spec = &lease.value["spec"];
        let holder = spec["holderIdentity"].as_str().unwrap_or_default();
        let holder = holder.to_owned();
        let seconds = spec["leaseDurationSeconds"].as_u64().unwrap_or(0);
        let has_changed = holder != self.lease.holder;
        self.lease.duration = Duration::from_secs(seconds);
        self.lease.renewed = now;
        let is_taken = has_changed && !holder.is_empty();
        self.judge_transitions(is_taken);
        if has_changed {
            self.note(now, format_args!("the lease is held by {holder:?}"));
            let revision = self.server.revision;
            let known = self.known.entry(process).or_default();
            // A leader renews a Lease that another client has changed, and keeps leading.
            if known.acquired_at.is_none() && !holder.is_empty() {
                known.acquired_at = Some(revision);
                known.read_live.clear();
            }
        }
        self.lease.holder = holder;
    }

    /// PROPERTY P45: Who creates the Lease counts no transition, who takes it one more than there
    /// were, and a renewal and a release count none, unless etcd went back before.
    fn judge_transitions(&mut self, is_taken: bool) {
        let (before, now) = (self.lease.n_transitions, self.stored_transitions());
        let right = before.map_or(0, |n| n + u64::from(is_taken));
        if self.epoch == 0 && now != Some(right) {
            let found = format!("the Lease counts {now:?} transitions after {before:?}");
            self.wrong.push(found);
        }
        self.lease.n_transitions = now;
    }

    /// A leader's limit counts from before the first request of a renewal, which may be a read.
    pub(super) fn note_renewal(&mut self, process: usize, request: &Request, now: Duration) {
        if !request.path.contains("/leases") {
            return;
        }
        let known = self.known.entry(process).or_default();
        if request.method != "GET" || known.renewed_at.is_some() {
            known.renews_since.get_or_insert(now);
        }
    }

    /// PROPERTY P46: No process ends because it cannot renew the Lease within 10 s after the first
    /// try of the last renewal that it knows to have succeeded.
    pub(super) fn judge_loss(&mut self, process: usize, why: &str, now: Duration) {
        if !why.contains("could not be renewed") {
            return;
        }
        self.count(LOST);
        let known = self.known.get(&process);
        let renewed_at = known.and_then(|known| known.renewed_at);
        if renewed_at.is_some_and(|at| now < at + WRITE_LIMIT) {
            self.wrong
                .push(format!("process {process} ends too early: {why}"));
        }
    }

    /// PROPERTY P47: When all daemons have ended in order, no process holds the Lease.
    pub(super) fn is_released(&self) -> bool {
        self.plan.n_daemons == 1 || self.lease.holder.is_empty()
    }
}
