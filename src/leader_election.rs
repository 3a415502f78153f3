//! Who of several daemons writes: a Lease at the API server, taken, renewed, given up and lost
//! (client-go `tools/leaderelection`).
//!
//! [`Election`] decides and is pure; [`Lock`] reads and writes the Lease; [`Elector`] is the loop between
//! them, on the thread `lease`, started by the manager. [`LeaseFence`] is what the writing clients ask
//! before every byte.
//!
//! # Two never write at a time
//!
//! Three durations matter, all counted from *before* the last successful renewal was sent, on a clock that
//! also runs while the machine sleeps and that nobody sets ([`BootClock`](crate::stdx::boot_clock)):
//!
//! ```text
//! renewal sent          renew deadline             lease duration
//! 0 s ──────────────────── 10 s ─────────────────────── 15 s ────────▶
//!      we write                  nothing leaves any more,      another may
//!                                the process ends              take over
//! ```
//!
//! Another counts from when it *saw* the renewal, which is later, and by its own clock; the time of day
//! plays no part anywhere. After the renew deadline the fence is closed for every request but those
//! for the Lease: a request that waited at the throttle, one that is repeated, one whose thread was
//! frozen in between. What the kernel had taken by then it may deliver for the 5 s that remain, after
//! that it throws it away ([`Fence::delivery_limit`](crate::client::Fence::delivery_limit)).
//!
//! A renewal never acquires. A leader whom the Lease does not name, since another took it, or since
//! somebody emptied or deleted it, has lost it for good: the process ends, and what comes after it
//! begins with empty hands. It may have slept through the whole term of another, so nothing that it
//! knows is worth anything. Renewals are sent a retry period after the last one was *sent*, or as
//! soon as that is answered, so that a slow API server costs nobody the lease whose requests take
//! up to half the deadline.
//!
//! A Lease without a holder is taken at once if it bears the marks of a release (a duration of one
//! second, and one time as that of acquisition and of renewal) or if nobody was ever seen to hold
//! it. Otherwise the holder that was seen last may not know yet, and is given its lease duration,
//! counted from when its name was seen to be gone. A release empties the very Lease that was read
//! and named us, or nothing.
//!
//! What is left: (1) the process is frozen within the few microseconds from the last look at the
//! fence to the end of the system call that sends, for longer than the margin; (2) the API server,
//! or a proxy in front of it, has the whole request and acts on it more than the margin later; (3)
//! the whole machine is suspended with unacknowledged bytes in a socket, whose timers stand still
//! meanwhile; (4) clocks whose *speeds* differ by more than a third; (5) somebody deletes or
//! empties the Lease, and a daemon comes first that has never seen its holder, such as one that was
//! just started, or somebody writes another name into it: then both may write until the leader's
//! next renewal. Nothing but a server that checks a token with each write could close these. What
//! such a late write can do is small: a create repeats a name that the successor would choose too,
//! a delete names its pod's UID, and a status update the version it was computed from.
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
pub mod migration;
mod options;
mod record;

pub use election::{Decision, Election};
#[cfg(test)]
mod tests;

pub use elector::{Callbacks, Elector, ElectorParts};
pub use fence::LeaseFence;
pub use health::{LeaderElectionHealth, TOLERANCE};
pub use identity::identity;
pub use lease_lock::LeaseLock;
pub use lock::{LeaseReference, Lock, LockError};
pub use options::{LeaderElectionOptions, OptionsError};
pub use record::LeaderElectionRecord;
