//! The token bucket that keeps this daemon from crowding others out of the API server. The bucket
//! is pure; [`Throttle`] is the wait round it, on the thread that wants to send.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::ClientError;
use super::request::Request;
use crate::stdx::activity;
use crate::stdx::stop::Stop;

/// Waits longer than this are logged for whoever looks for slowness
/// (client-go `rest/request.go:longThrottleLatency`).
const LONG_WAIT: Duration = Duration::from_millis(50);

/// Waits longer than this are logged for everyone
/// (client-go `rest/request.go:extraLongThrottleLatency`).
const VERY_LONG_WAIT: Duration = Duration::from_secs(1);

/// Between two such lines at the default level, so that one large scale-up does not flood the log
/// (client-go `rest/request.go:globalThrottledLogger`).
const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

/// Tokens that drip in at a steady rate up to a limit. Callers take one each and may run into
/// debt, which says how long they have to wait: so they are served in the order in which they ask.
#[derive(Debug)]
struct TokenBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    updated: Instant,
}

impl TokenBucket {
    /// A full bucket.
    fn new(per_second: f32, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst.max(1));
        Self {
            per_second: per_second.into(),
            burst,
            tokens: burst,
            updated: now,
        }
    }

    /// Takes one token; says how long to wait until it is there.
    fn take(&mut self, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.updated).as_secs_f64();
        self.updated = self.updated.max(now);
        self.tokens = (self.tokens + elapsed * self.per_second).min(self.burst) - 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.per_second).unwrap_or(Duration::MAX)
    }
}

/// What requests wait at before they are sent.
#[derive(Debug)]
pub(super) struct Throttle {
    /// `None`: no limit.
    state: Option<Mutex<State>>,
    stop: Stop,
}

#[derive(Debug)]
struct State {
    bucket: TokenBucket,
    noticed: Option<Instant>,
}

impl Throttle {
    /// A throttle of `qps` requests per second and `burst` at once; no limit if `qps` is not above
    /// zero.
    pub(super) fn new(qps: f32, burst: u32, stop: &Stop) -> Self {
        let state = (qps > 0.0).then(|| {
            Mutex::new(State {
                bucket: TokenBucket::new(qps, burst, Instant::now()),
                noticed: None,
            })
        });
        Self {
            state,
            stop: stop.clone(),
        }
    }

    /// True if requests may have to wait.
    pub(super) fn is_limited(&self) -> bool {
        self.state.is_some()
    }

    /// Waits until `request` may go. The wait ends early when the daemon stops. A request that
    /// needs no wait goes even then: the last events and the lease are written after the signal.
    ///
    /// # Errors
    /// [`ClientError::Stopped`] if the daemon stopped during the wait.
    pub(super) fn wait(&self, request: &Request) -> Result<(), ClientError> {
        let Some(state) = &self.state else {
            return Ok(());
        };
        let now = Instant::now();
        let mut guard = state.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = guard.bucket.take(now);
        let due = |noticed| now.saturating_duration_since(noticed) >= NOTICE_INTERVAL;
        let notice = wait > VERY_LONG_WAIT && guard.noticed.is_none_or(due);
        if notice {
            guard.noticed = Some(now);
        }
        drop(guard);
        if wait.is_zero() {
            return Ok(());
        }
        if notice {
            log::info!("{request} waits {wait:.1?} for this client's own rate limit");
        } else if wait > LONG_WAIT {
            log::debug!("{request} waits {wait:.3?} for this client's own rate limit");
        }
        let _wait = activity::enter("waits for the rate limit", format_args!("{wait:.1?}"));
        if self.stop.wait_timeout(wait) {
            return Err(ClientError::Stopped);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Throttle, TokenBucket};
    use crate::client::{ClientError, Request};
    use crate::stdx::stop::{Cause, Stop};

    #[test]
    fn a_burst_is_free_and_then_callers_are_spaced() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(20.0, 3, start);
        let waits: Vec<_> = (0..6).map(|_| bucket.take(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 50, 100, 150]);
    }

    #[test]
    fn quiet_times_fill_the_bucket_up_to_the_burst() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(10.0, 2, start);
        let later = start + Duration::from_mins(1);
        let waits: Vec<_> = [start, start, start, later, later, later]
            .map(|now| bucket.take(now).as_millis())
            .into();
        assert_eq!(waits, [0, 0, 100, 0, 0, 100]);
    }

    #[test]
    fn time_that_seems_to_go_back_gives_nothing() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(1.0, 1, start + Duration::from_secs(5));
        assert_eq!(bucket.take(start), Duration::ZERO);
        assert_eq!(bucket.take(start), Duration::from_secs(1));
    }

    #[test]
    fn a_rate_of_zero_or_less_is_no_limit_and_a_burst_of_zero_is_one() {
        for qps in [0.0, -1.0] {
            let throttle = Throttle::new(qps, 0, &Stop::new());
            for _ in 0..1000 {
                throttle.wait(&Request::get("/")).expect("it is free");
            }
        }
        let mut bucket = TokenBucket::new(1.0, 0, Instant::now());
        assert_eq!(bucket.take(Instant::now()), Duration::ZERO);
    }

    #[test]
    fn stop_ends_the_wait_but_not_the_free_requests() {
        let stop = Stop::new();
        let throttle = Throttle::new(0.001, 1, &stop);
        stop.stop(Cause::Requested("test".to_owned()));
        throttle.wait(&Request::get("/")).expect("it is free");
        assert!(matches!(
            throttle.wait(&Request::get("/")),
            Err(ClientError::Stopped)
        ));
    }
}
