//! The seam between blocking code and a simulation that runs it on a virtual clock.
//!
//! Every loop of the daemon blocks in one of a few places: in this module's
//! [`Stop`](super::stop::Stop), [`Latch`](super::stop::Latch) and
//! [`Thread`](super::thread::Thread), in the work queue, in the event recorder's channel, and in
//! the client's transport. Each of them has a [`Spot`]: it calls [`wait`] before it would block,
//! and [`Spot::wake`] after it changed what others wait for. Outside of a simulation both do
//! nothing, and a release build contains neither.
//!
//! In a simulation (`simulation`) the daemon's threads are real threads, but only one runs at a
//! time: in `wait` and `wake` it hands its turn to a thread that the seed chooses. Time passes only
//! while all of them wait. So the loops that ship are the loops that are simulated, and the same
//! seed gives the same history.

#[cfg(any(test, feature = "simulation"))]
pub mod simulation;

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// What threads of a simulation wait for.
#[derive(Debug, Default)]
pub struct Spot {
    #[cfg(any(test, feature = "simulation"))]
    id: simulation::SpotId,
}

impl Spot {
    /// Wakes the threads that wait here. Call it without holding a lock: in a simulation another
    /// thread may run before this returns.
    #[inline]
    pub fn wake(&self) {
        #[cfg(any(test, feature = "simulation"))]
        simulation::wake(self.id);
    }
}

#[derive(Debug)]
pub enum Waited<T> {
    /// This is not a simulation: the caller blocks by its own means.
    Unsimulated,
    TimedOut,
    Ready(T),
}

/// In a simulation, blocks until `ready` returns a value or `deadline` has passed. Otherwise
/// returns at once.
///
/// `ready` runs again whenever one of `spots` wakes.
#[inline]
#[cfg_attr(
    not(any(test, feature = "simulation")),
    expect(unused_variables, reason = "only simulations wait here")
)]
pub fn wait<T>(
    spots: &[&Spot],
    deadline: Option<Instant>,
    ready: impl FnMut() -> Option<T>,
) -> Waited<T> {
    #[cfg(any(test, feature = "simulation"))]
    return simulation::wait(spots, deadline, ready);
    #[cfg(not(any(test, feature = "simulation")))]
    Waited::Unsimulated
}

/// As [`wait`], with a timeout in place of a deadline. [`Duration::MAX`] is none.
#[inline]
pub fn wait_timeout<T>(
    spots: &[&Spot],
    timeout: Duration,
    ready: impl FnMut() -> Option<T>,
) -> Waited<T> {
    #[cfg(any(test, feature = "simulation"))]
    return simulation::wait(spots, super::clock::now().checked_add(timeout), ready);
    #[cfg(not(any(test, feature = "simulation")))]
    {
        let _ = timeout;
        wait(spots, None, ready)
    }
}

/// A place in the code where order matters. In a simulation the thread may lose its turn here, for
/// long, or be killed with its process; and the simulation counts how often this place was reached.
#[inline]
#[cfg_attr(
    not(any(test, feature = "simulation")),
    expect(unused_variables, reason = "only simulations count it")
)]
pub fn reached(place: &'static str) {
    #[cfg(any(test, feature = "simulation"))]
    simulation::reached(place);
}

/// The simulation's clocks; `None` outside of a simulation.
#[inline]
pub(super) fn clocks() -> Option<Clocks> {
    #[cfg(any(test, feature = "simulation"))]
    return simulation::clocks();
    #[cfg(not(any(test, feature = "simulation")))]
    None
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    pub(super) now: Instant,
    pub(super) wall: Timestamp,
    /// The time since boot, suspend included.
    pub(super) boot: Duration,
}
