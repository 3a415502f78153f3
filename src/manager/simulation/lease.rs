//! The Lease: who leads by the API server, and what must hold for those who write it.

use std::time::Duration;

use super::http::{Answer, Request};
use super::objects::{Kind, target};
use super::world::State;

/// How long a leader tries to renew.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// The Lease as the API server has it.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaseTruth {
    pub(super) holder: String,
    pub(super) renewed: Duration,
    pub(super) duration: Duration,
    /// Until when somebody else's change of the Lease excuses two writers.
    pub(super) tampered_until: Duration,
    /// How often the holder has changed; `None` without a Lease, or if somebody else changed it.
    n_transitions: Option<u64>,
}

impl LeaseTruth {
    /// Somebody else changes the Lease.
    pub(super) fn was_changed(&mut self, excused_until: Duration) {
        self.tampered_until = excused_until;
        self.holder.clear();
        self.n_transitions = None;
    }
}

impl State {
    /// PROPERTY P45: Who takes a Lease counts one transition more than its predecessor, and a
    /// renewal and a release count none.
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
        let (holder, transitions) = (holder.to_owned(), spec["leaseTransitions"].as_u64());
        let seconds = spec["leaseDurationSeconds"].as_u64().unwrap_or(0);
        let has_changed = holder != self.lease.holder;
        let is_taken = has_changed && !holder.is_empty();
        self.lease.duration = Duration::from_secs(seconds);
        self.lease.renewed = now;
        let before = self.lease.n_transitions;
        if before.is_some_and(|n| transitions != Some(n + u64::from(is_taken))) {
            let found = format!("{holder:?} writes {transitions:?} transitions after {before:?}");
            self.wrong.push(found);
        }
        self.lease.n_transitions = transitions;
        if has_changed {
            self.note(now, format_args!("the lease is held by {holder:?}"));
            let revision = self.server.revision;
            let known = self.known.entry(process).or_default();
            // A leader renews a Lease that somebody else has changed, and leads on.
            if known.acquired_at.is_none() && !holder.is_empty() {
                known.acquired_at = Some(revision);
                known.read_live.clear();
            }
        }
        self.lease.holder = holder;
    }

    /// A process reads or writes the Lease.
    pub(super) fn note_renewal(&mut self, process: usize, request: &Request, now: Duration) {
        if request.path.contains("/leases") {
            let known = self.known.entry(process).or_default();
            known.renews_since.get_or_insert(now);
        }
    }

    /// PROPERTY P46: No leader gives up because it cannot renew the Lease within 10 s after it
    /// began the last renewal that it knows to have succeeded.
    pub(super) fn gives_up_early(&self, process: usize, why: &str, now: Duration) -> bool {
        let known = self.known.get(&process);
        let renewed_at = known.and_then(|known| known.renewed_at);
        let may_renew = renewed_at.is_some_and(|at| now < at + WRITE_LIMIT);
        may_renew && why.contains("could not be renewed")
    }

    /// PROPERTY P47: When all daemons have ended in order, nobody holds the Lease.
    pub(super) fn is_released(&self) -> bool {
        self.plan.n_daemons == 1 || self.lease.holder.is_empty()
    }
}
