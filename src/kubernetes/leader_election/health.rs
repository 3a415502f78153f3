//! Detects a leader that fails to renew but still runs. The thread `lease` writes the state; the
//! health checks read it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// When this process renewed the Lease last; `None` if the last seen Lease does not name it.
    renewed_at: Mutex<Option<Duration>>,
    /// The first of the uninterrupted renewals.
    leading_since: Mutex<Option<Duration>>,
}

impl LeaderElectionHealth {
    pub(super) fn new(name: &str, lease_duration: Duration, clock: Arc<dyn BootClock>) -> Self {
        Self(Arc::new(Shared {
            name: name.to_owned(),
            lease_duration,
            clock,
            renewed_at: Mutex::default(),
            leading_since: Mutex::default(),
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
        let age = |at| clock.boot_time().saturating_sub(at);
        if self
            .renewed_at()
            .is_some_and(|at| age(at) > *lease_duration + TOLERANCE)
        {
            return Err(format!(
                "failed election to renew leadership on lease {name}"
            ));
        }
        Ok(())
    }

    /// True if the last seen Lease names this process.
    pub fn is_leader(&self) -> bool {
        self.renewed_at().is_some()
    }

    /// How long this process has held the Lease; `None` for a standby.
    pub fn leading_for(&self) -> Option<Duration> {
        let since = self.0.leading_since.lock();
        let since = *since.unwrap_or_else(PoisonError::into_inner);
        Some(self.0.clock.boot_time().saturating_sub(since?))
    }

    pub(super) fn observed(&self, renewed_at: Option<Duration>) {
        *self.renewed_at() = renewed_at;
        let since = self.0.leading_since.lock();
        let mut since = since.unwrap_or_else(PoisonError::into_inner);
        *since = renewed_at.map(|renewed_at| since.unwrap_or(renewed_at));
    }

    fn renewed_at(&self) -> MutexGuard<'_, Option<Duration>> {
        let renewed_at = self.0.renewed_at.lock();
        renewed_at.unwrap_or_else(PoisonError::into_inner)
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
        for (is_leader, age_seconds, expected) in [
            (true, 3600, unhealthy.clone()),
            (false, 3600, Ok(())),
            (true, 0, Ok(())),
            (true, 61, Ok(())),
            (true, 80, Ok(())),
            (true, 81, unhealthy),
        ] {
            health.observed(is_leader.then(|| clock.boot_time()));
            clock.advance(Duration::from_secs(age_seconds));
            assert_eq!(health.check(), expected, "{is_leader} {age_seconds}");
            assert_eq!(health.is_leader(), is_leader);
        }
    }
}
