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
//! includes suspend and that nobody sets ([`BootClock`](crate::stdx::boot_clock)):
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
//! it or somebody emptied or deleted it, the leader has lost it for good. The process exits and its
//! successor starts with empty caches: the old process may have slept through another leader's
//! whole term, so its caches and expectations prove nothing. The elector sends a renewal one retry
//! period after it *sent* the last one, or as soon as the last one returns. So a slow API server
//! does not cost the lease while each request takes less than half the deadline.
//!
//! The elector takes a Lease without a holder at once if the Lease bears the marks of a release (a
//! duration of one second, and equal acquire and renew times), or if the elector never saw any
//! election fields in it. Otherwise the last holder may not know yet, so the elector waits one
//! lease duration from when it saw the name disappear. A release empties only the Lease version
//! that the elector just read and that names this process.
//!
//! Five gaps remain:
//!
//! 1. The process is frozen for longer than the margin within the few microseconds between the
//!    fence check and the end of the `send` system call.
//! 2. The API server, or a proxy in front of it, holds the complete request and acts on it after
//!    the margin.
//! 3. The machine is suspended with unacknowledged bytes in a socket, whose timers stop meanwhile.
//! 4. The *speeds* of two clocks differ by more than a third.
//! 5. Somebody deletes or empties the Lease and a daemon that never saw its holder comes first,
//!    such as one that just started; or somebody writes another name into it. Then both daemons may
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
mod fence;
mod health;
mod identity;
mod lease_lock;
mod lock;
mod options;
mod record;

pub use election::Election;
#[cfg(test)]
mod tests;

pub use elector::{Callbacks, Elector, ElectorParts};
pub use fence::LeaseFence;
pub use health::{LeaderElectionHealth, TOLERANCE};
pub use identity::identity;
pub use lease_lock::LeaseLock;
pub use lock::{LeaseReference, Lock, LockError};
pub use options::LeaderElectionOptions;
pub use record::LeaderElectionRecord;
