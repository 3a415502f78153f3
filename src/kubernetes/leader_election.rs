//! Leader election: the elector acquires, renews, releases or loses a Lease at the API server, so
//! that only one of several daemons writes (client-go `tools/leaderelection`).
//!
//! [`Election`] decides and is pure. [`Lock`] reads and writes the Lease. [`Elector`] is the loop
//! between them; the manager starts it on the thread `lease`. Writing clients check [`LeaseFence`]
//! before they send any byte.
//!
//! # At most one daemon writes
//!
//! All three durations count from *before* the last successful renewal was sent, on a clock that
//! includes suspend and that no process can set
//! ([`boot_time`](crate::stdx::clock::Clock::boot_time)):
//!
//! ```text
//! renewal sent          renew deadline             lease duration
//! 0 s ──────────────────── 10 s ─────────────────────── 15 s ────────▶
//!      leader writes             fence closed,                another daemon
//!                                process exits                may take over
//! ```
//!
//! The other daemon counts from when it *saw* the renewal, which is later, and by its own clock.
//! Wall-clock time plays no part. After the renew deadline the fence rejects every request except
//! those for the Lease. That includes a request that waited at the throttle, a retry, and a request
//! whose thread was frozen. The kernel may still deliver the bytes it accepted before, for the
//! remaining 5 s; then it drops them
//! ([`Fence::delivery_limit`](crate::client::Fence::delivery_limit)).
//!
//! A renewal never acquires. If the Lease no longer names the leader, because another daemon took
//! it or a user emptied or deleted it, the leader cannot get it back. The process exits and its
//! successor starts with empty caches: the old process may have slept through another leader's
//! whole term, so its caches and expectations cannot be trusted. The elector sends a renewal one
//! retry period after it *sent* the last one, or as soon as the last one returns. So a slow API
//! server does not cost the lease while each request takes less than half the deadline.
//!
//! The elector takes a Lease without a holder at once if the Lease has the form of a release (a
//! duration of one second, and equal acquire and renew times), or if the elector never saw its
//! holder. Otherwise the last holder may not know yet, so the elector waits one lease duration from
//! when it saw the name disappear. A release empties only the Lease version
//! that the elector just read and that names this process.
//!
//! Five gaps remain:
//!
//! 1. The process is paused for longer than the margin within the few microseconds between the
//!    fence check and the end of the `send` system call.
//! 2. The API server, or a proxy in front of it, has received the complete request and acts on it
//!    after the margin.
//! 3. The machine is suspended with unacknowledged bytes in a socket, whose timers stop meanwhile.
//! 4. The *speeds* of two clocks differ by more than a third.
//! 5. A person or program deletes or empties the Lease and a daemon that never saw its holder comes
//!    first, such as one that just started; or writes another name into it. Then both daemons may
//!    write until the leader's next renewal.
//!
//! Only a server that checks a token with each write could close these gaps. A late write does
//! little harm: a create reuses the name that the successor would choose, a delete carries the
//! pod's UID as a precondition, and a status update carries the version that it was computed from.
//!
//! # Locks
//!
//! `health` guards whether this process leads, and when the Lease was last renewed. The thread
//! `lease` writes it; `http-N` and `systemd` read it.

mod election;
mod elector;
mod lock;

use std::time::Duration;

use crate::api::ObjectKey;
use crate::stdx::random_uuid;

pub use election::{Election, LeaderElectionRecord};
pub use elector::{Callbacks, Elector, ElectorParts, LeaderElectionHealth, LeaseFence, TOLERANCE};
pub use lock::{LeaseLock, LeaseReference, Lock};

/// Jitter of the retry period: a pause lasts up to 1.2 retry periods longer, and the renew deadline
/// must leave room for it (client-go `tools/leaderelection/leaderelection.go:JitterFactor`).
const JITTER_FACTOR: f64 = 1.2;

/// Minimum timeout of a request for the Lease (client-go
/// `tools/leaderelection/resourcelock/interface.go:NewFromKubeconfig`).
const REQUEST_TIMEOUT_MIN: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElectionOptions {
    /// Unique identity of this process. See [`identity`](identity()).
    pub identity: String,
    pub lease: ObjectKey,
    /// A standby takes over after this time without a renewal. Counts in whole seconds.
    pub lease_duration: Duration,
    /// After this time without a renewal the leader stops writing and exits.
    pub renew_deadline: Duration,
    /// Pause between two attempts to acquire (times 1 to 2.2) or to renew.
    pub retry_period: Duration,
}

impl LeaderElectionOptions {
    /// Upstream's durations: 15 s, 10 s, 2 s
    /// (component-base
    /// `config/v1alpha1/defaults.go:RecommendedDefaultLeaderElectionConfiguration`).
    pub fn new(identity: String, namespace: &str, name: &str) -> Self {
        Self {
            identity,
            lease: ObjectKey::new(namespace, name),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// The lease duration as written to the Lease.
    fn lease_duration_seconds(&self) -> i32 {
        i32::try_from(self.lease_duration.as_secs()).unwrap_or(i32::MAX)
    }

    /// The time that other daemons grant: the Lease's value, truncated to whole seconds.
    fn granted(&self) -> Duration {
        Duration::from_secs(self.lease_duration.as_secs())
    }

    /// How long after sending a renewal this process may write.
    ///
    /// INVARIANT: shorter than what other daemons grant, even where truncation to whole seconds
    /// took most of the margin.
    pub fn write_limit(&self) -> Duration {
        self.renew_deadline.min(self.granted().mul_f64(0.9))
    }

    /// Time between the write limit and the earliest failover.
    pub fn margin(&self) -> Duration {
        self.granted().saturating_sub(self.write_limit())
    }

    /// Timeout of one request for the Lease: half the renew deadline, so that one hanging request
    /// does not cost the lease.
    pub fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(REQUEST_TIMEOUT_MIN)
    }
}

/// Returns `<hostname>_<uuid>`, like kube-controller-manager (kubernetes
/// `cmd/kube-controller-manager/app/controllermanager.go:Run`). The host shows people where the
/// leader runs; the UUID distinguishes two processes of one host, including a restarted one.
pub fn identity() -> String {
    let host = nix::unistd::gethostname().ok();
    let host = host.and_then(|name| name.into_string().ok());
    let host = host.filter(|name| !name.is_empty());
    format!("{}_{}", host.as_deref().unwrap_or("unknown"), random_uuid())
}

#[cfg(test)]
mod tests;
