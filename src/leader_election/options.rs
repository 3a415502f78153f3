//! The options of leader election and their validation. Pure.

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

/// A validation error of [`LeaderElectionOptions`], in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// `lease_duration` is not above `renew_deadline`.
    #[error("leaseDuration must be greater than renewDeadline")]
    LeaseDuration,
    /// `renew_deadline` is not above 1.2 times `retry_period`.
    #[error("renewDeadline must be greater than retryPeriod*JitterFactor")]
    RenewDeadline,
    /// `lease_duration` is less than a second, which a Lease cannot express.
    #[error("leaseDuration must be at least one second")]
    LeaseDurationTooShort,
    /// `retry_period` is zero.
    #[error("retryPeriod must be greater than zero")]
    RetryPeriod,
    /// No identity.
    #[error("Lock identity is empty")]
    Identity,
    /// No name.
    #[error("the name of the lease is empty")]
    Name,
    /// No namespace.
    #[error("the namespace of the lease is empty")]
    Namespace,
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

    /// All validation errors, in upstream's order.
    ///
    /// DIFFERS: rejects a lease duration below a second, since the Lease would carry 0 s and
    /// anybody could take it at any time; upstream accepts any value above 0 ns.
    pub fn problems(&self) -> Vec<OptionsError> {
        let jittered = self.retry_period.mul_f64(JITTER_FACTOR);
        let checks = [
            (
                self.lease_duration <= self.renew_deadline,
                OptionsError::LeaseDuration,
            ),
            (self.renew_deadline <= jittered, OptionsError::RenewDeadline),
            (
                self.lease_duration.as_secs() < 1,
                OptionsError::LeaseDurationTooShort,
            ),
            (self.retry_period.is_zero(), OptionsError::RetryPeriod),
            (self.identity.is_empty(), OptionsError::Identity),
            (self.name.is_empty(), OptionsError::Name),
            (self.namespace.is_empty(), OptionsError::Namespace),
        ];
        let wrong = checks.into_iter().filter(|(is_wrong, _)| *is_wrong);
        wrong.map(|(_, error)| error).collect()
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
