//! Whose credentials they are, and what the log says when the API server rejects them (code 401)
//! or their end is near: one line with the cause and the way out, in place of one for each request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::stdx::clock::Clock;

/// Minimum time between two lines about rejections.
const INTERVAL: Duration = Duration::from_mins(1);

/// How long a rejected credential that renews itself has to do so.
const RENEWAL: Duration = Duration::from_secs(5);

/// The source of credentials.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owner {
    /// Such as `user "daemon"`; empty if there is none.
    pub(crate) user: String,
    /// Such as `kubeconfig /etc/rs.conf, context "it"`.
    pub(crate) origin: String,
    /// There is a client certificate.
    pub(crate) has_certificate: bool,
    /// Credentials are not sent, since the server has no TLS.
    pub(crate) is_withheld: bool,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.user.is_empty() {
            return f.write_str(&self.origin);
        }
        write!(f, "{} ({})", self.user, self.origin)
    }
}

/// Decides when a rejection is logged. All threads that send share it.
pub(crate) struct Rejections {
    clock: Arc<dyn Clock>,
    started: Instant,
    /// When the credentials were first rejected since they were accepted, in milliseconds from
    /// `started`; 0: they are accepted.
    since: AtomicU64,
    /// Earliest time of the next line, likewise.
    next: AtomicU64,
}

impl Rejections {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let started = clock.now();
        Self {
            clock,
            started,
            since: AtomicU64::new(0),
            next: AtomicU64::new(0),
        }
    }

    /// Call after the API server accepted the credentials.
    pub(crate) fn ended(&self) {
        if self.since.load(Ordering::Relaxed) != 0 {
            self.since.store(0, Ordering::Relaxed);
        }
    }

    /// Call after the API server rejected the credentials. True if that is to be logged.
    pub(crate) fn is_due(&self, renews_itself: bool) -> bool {
        let elapsed = self.clock.now().saturating_duration_since(self.started);
        let now = millis(elapsed).saturating_add(1);
        let first = self
            .since
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        let since = first.err().unwrap_or(now);
        let patience = if renews_itself { millis(RENEWAL) } else { 0 };
        let next = self.next.load(Ordering::Relaxed);
        now.saturating_sub(since) >= patience
            && now >= next
            && self
                .next
                .compare_exchange(
                    next,
                    now + millis(INTERVAL),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::Rejections;
    use crate::stdx::clock::FakeClock;

    #[test]
    fn a_rejection_is_logged_once_a_minute() {
        let clock = Arc::new(FakeClock::default());
        let rejections = Rejections::new(Arc::clone(&clock) as _);
        for _ in 0..3 {
            assert!(rejections.is_due(false));
            assert!(!rejections.is_due(false));
            clock.advance(Duration::from_secs(59));
            rejections.ended();
            assert!(!rejections.is_due(false));
            clock.advance(Duration::from_secs(1));
        }
    }

    #[test]
    fn what_renews_itself_has_the_time_to_do_so() {
        let clock = Arc::new(FakeClock::default());
        let rejections = Rejections::new(Arc::clone(&clock) as _);
        assert!(!rejections.is_due(true));
        clock.advance(Duration::from_secs(4));
        assert!(!rejections.is_due(true));
        rejections.ended();
        clock.advance(Duration::from_secs(2));
        assert!(!rejections.is_due(true), "another token is rejected");
        clock.advance(Duration::from_secs(5));
        assert!(rejections.is_due(true));
    }
}
