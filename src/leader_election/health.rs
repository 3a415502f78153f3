//! Detects a leader that fails to renew but still runs. The thread `lease` writes the state; the
//! health checks read it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::stdx::boot_clock::BootClock;

/// Grace period after the lease expires before the check fails (kubernetes
/// `cmd/kube-controller-manager/app/controllermanager.go:Run`, `NewLeaderHealthzAdaptor`).
pub const TOLERANCE: Duration = Duration::from_secs(20);

/// The health check `leaderElection`. Clones share their state.
#[derive(Clone, Debug)]
pub struct LeaderElectionHealth(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: String,
    lease_duration: Duration,
    clock: Arc<dyn BootClock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_leader: bool,
    observed: Duration,
    leader: String,
}

impl LeaderElectionHealth {
    pub(super) fn new(name: &str, lease_duration: Duration, clock: Arc<dyn BootClock>) -> Self {
        Self(Arc::new(Shared {
            name: name.to_owned(),
            lease_duration,
            clock,
            state: Mutex::default(),
        }))
    }

    /// Fails if this process holds the lease and has not renewed it for the lease duration plus
    /// [`TOLERANCE`]: the process should have exited by then. A standby is healthy, and so is a
    /// process that has not started the election.
    ///
    /// # Errors
    /// The failure in upstream's words.
    pub fn check(&self) -> Result<(), String> {
        let Shared {
            name,
            lease_duration,
            clock,
            ..
        } = &*self.0;
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let age = clock.boot_time().saturating_sub(state.observed);
        if state.is_leader && age > *lease_duration + TOLERANCE {
            return Err(format!(
                "failed election to renew leadership on lease {name}"
            ));
        }
        Ok(())
    }

    /// The last seen holder; empty for none.
    pub fn leader(&self) -> String {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.leader.clone()
    }

    /// True if the last seen Lease names this process.
    pub fn is_leader(&self) -> bool {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_leader
    }

    pub(super) fn observed(&self, leader: &str, is_leader: bool, at: Duration) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State {
            is_leader,
            observed: at,
            leader: leader.to_owned(),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::LeaderElectionHealth;
    use crate::stdx::boot_clock::BootClock;
    use crate::stdx::clock::FakeClock;

    #[test]
    fn l_16_only_a_leader_past_its_lease_is_unhealthy() {
        let clock = Arc::new(FakeClock::default());
        let minute = Duration::from_mins(1);
        let clock_of_check = Arc::clone(&clock) as Arc<dyn BootClock>;
        let health = LeaderElectionHealth::new("foo", minute, clock_of_check);
        clock.advance(Duration::from_hours(1));
        health.check().expect("before anything was seen");
        let unhealthy = Err("failed election to renew leadership on lease foo".to_owned());
        for (leader, is_leader, age_seconds, expected) in [
            ("me", true, 3600, unhealthy.clone()),
            ("other", false, 3600, Ok(())),
            ("me", true, 0, Ok(())),
            ("me", true, 61, Ok(())),
            ("me", true, 80, Ok(())),
            ("me", true, 81, unhealthy),
        ] {
            health.observed(leader, is_leader, clock.boot_time());
            clock.advance(Duration::from_secs(age_seconds));
            assert_eq!(health.check(), expected, "{leader} {age_seconds}");
            assert_eq!(health.leader(), leader);
            assert_eq!(health.is_leader(), is_leader, "{leader}");
        }
    }
}
