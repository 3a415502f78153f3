//! Whether a leader that renews no more still runs: written by the thread `lease`, read by whoever
//! answers health checks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::stdx::boot_clock::BootClock;

/// How long after the lease's end a leader may still be there before it counts as ill
/// (kubernetes `cmd/kube-controller-manager/app/controllermanager.go:Run`, `NewLeaderHealthzAdaptor`).
pub const TOLERANCE: Duration = Duration::from_secs(20);

/// The health check `leaderElection`. Clones tell the same.
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

    /// Fails if we hold the lease and have not renewed it for longer than it lasts and [`TOLERANCE`]:
    /// then this process should have ended, and something keeps it. Whoever waits for the lease, or has
    /// not begun, is well.
    ///
    /// # Errors
    /// What is wrong, in upstream's words.
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

    /// Who leads, as far as known; empty for nobody.
    pub fn leader(&self) -> String {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.leader.clone()
    }

    /// True if we were the leader when the Lease was last looked at.
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
    fn l_16_only_a_leader_that_should_have_ended_is_ill() {
        let clock = Arc::new(FakeClock::default());
        let minute = Duration::from_mins(1);
        let clock_of_check = Arc::clone(&clock) as Arc<dyn BootClock>;
        let health = LeaderElectionHealth::new("foo", minute, clock_of_check);
        clock.advance(Duration::from_hours(1));
        health.check().expect("before anything was seen");
        let ill = Err("failed election to renew leadership on lease foo".to_owned());
        for (leader, is_leader, age_seconds, expected) in [
            ("me", true, 3600, ill.clone()),
            ("other", false, 3600, Ok(())),
            ("me", true, 0, Ok(())),
            ("me", true, 61, Ok(())),
            ("me", true, 80, Ok(())),
            ("me", true, 81, ill),
        ] {
            health.observed(leader, is_leader, clock.boot_time());
            clock.advance(Duration::from_secs(age_seconds));
            assert_eq!(health.check(), expected, "{leader} {age_seconds}");
            assert_eq!(health.leader(), leader);
        }
    }
}
