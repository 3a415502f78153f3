//! The options of leader election. Pure.

use std::time::Duration;

/// Jitter of the retry period: a pause lasts up to 1.2 retry periods longer, and the renew deadline
/// must leave room for it (client-go `tools/leaderelection/leaderelection.go:JitterFactor`).
pub(super) const JITTER_FACTOR: f64 = 1.2;

/// Minimum timeout of a request for the Lease (client-go
/// `tools/leaderelection/resourcelock/interface.go:NewFromKubeconfig`).
const REQUEST_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// The options of leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElectionOptions {
    /// Unique identity of this process. See [`identity`](super::identity()).
    pub identity: String,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
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
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// `namespace/name` of the Lease.
    pub fn lease(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The lease duration as written to the Lease.
    pub(super) fn lease_duration_seconds(&self) -> i32 {
        i32::try_from(self.lease_duration.as_secs()).unwrap_or(i32::MAX)
    }

    /// The time that other daemons grant: the Lease's value, truncated to whole seconds.
    pub(super) fn granted(&self) -> Duration {
        Duration::from_secs(self.lease_duration.as_secs())
    }

    /// How long after sending a renewal this process may write.
    ///
    /// INVARIANT: shorter than what other daemons grant, even where truncation to whole seconds
    /// took most of the margin.
    pub fn write_limit(&self) -> Duration {
        self.renew_deadline.min(self.granted().mul_f64(0.9))
    }

    /// Time between the write limit and the earliest takeover.
    pub fn margin(&self) -> Duration {
        self.granted().saturating_sub(self.write_limit())
    }

    /// Timeout of one request for the Lease: half the renew deadline, so that one hanging request
    /// does not cost the lease.
    pub fn request_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(REQUEST_TIMEOUT_MIN)
    }
}
