//! Retries: [`delay`], a pure function, decides whether and when a failed request is retried;
//! [`run`] retries on the sending thread.

use std::time::{Duration, Instant};

use ureq::http::Method;

use super::error::ClientError;
use super::request::Request;
use super::throttle::Throttle;
use crate::api::status::RETRY_AFTER_MAX;
use crate::stdx::stop::Stop;
use crate::stdx::thread;
use crate::telemetry::metrics::rest_client::VerbMetrics;

/// Maximum retries of a request (client-go `rest/request.go:NewRequest`, maxRetries).
const RETRIES_MAX: u32 = 10;

/// Delay after the connection of a read broke (client-go `rest/with_retry.go:retryAfterResponse`).
const CLOSED_DELAY: Duration = Duration::from_secs(1);

/// The kind of request, as far as retries are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Safe to repeat, even if the connection broke.
    Read,
    /// Like a read, but its caller has its own back-off, so a broken connection is retried only
    /// once.
    Watch,
    /// Not retried after a broken connection, because it may have taken effect.
    Write,
}

impl Kind {
    pub(super) fn of(method: &Method) -> Self {
        if method == Method::GET {
            Self::Read
        } else {
            Self::Write
        }
    }
}

/// Returns the delay before the next attempt; `None` if there is none.
///
/// `retries` counts the retries so far.
pub(super) fn delay(kind: Kind, retries: u32, error: &ClientError) -> Option<Duration> {
    if retries >= RETRIES_MAX {
        return None;
    }
    match error {
        // The server has already waited for this resource version, and the caller has a fallback.
        ClientError::Status(status) if status.is_too_large_resource_version() => None,
        ClientError::Status(status) if status.code() == 429 || status.code() >= 500 => {
            // After a longer one, the caller's back-off frees the thread for other work.
            status
                .retry_after()
                .filter(|delay| *delay <= RETRY_AFTER_MAX)
        }
        ClientError::Transport(_) if error.is_closed() => match (kind, retries) {
            // The server may have closed an idle connection just as the client took it from the
            // pool; another connection works at once.
            (Kind::Read | Kind::Watch, 0) => Some(Duration::ZERO),
            (Kind::Read, _) => Some(CLOSED_DELAY),
            (Kind::Watch | Kind::Write, _) => None,
        },
        _ => None,
    }
}

/// The seconds of a `Retry-After` header. Upstream ignores its form of a date, too.
pub(super) fn whole_seconds(retry_after: &str) -> Option<u64> {
    retry_after.trim().parse().ok()
}

/// [`delay`] of a rejected read, watch and write, for the fuzzer.
#[cfg(any(test, feature = "simulation"))]
pub fn delays(code: u16, retries: u32, retry_after: &str) -> [Option<Duration>; 3] {
    let status = crate::api::Status::new(code, "", "");
    let error = ClientError::Status(status.or_retry_after(whole_seconds(retry_after)));
    [Kind::Read, Kind::Watch, Kind::Write].map(|kind| delay(kind, retries, &error))
}

/// Calls `attempt` with the number of retries so far until it succeeds or may not be retried. Each
/// attempt waits for the throttle, if there is one. If the daemon stops during the delay, the last
/// attempt's error is returned.
///
/// If an earlier attempt of a write may have taken effect, `run` returns that attempt's error when
/// a later attempt is rejected or not sent: the outcome is still open. Only "already exists" and
/// "not found" replace it, because they show the object's state.
pub(super) fn run<T>(
    request: &Request,
    kind: Kind,
    throttle: Option<&Throttle>,
    metrics: &VerbMetrics,
    stop: &Stop,
    mut attempt: impl FnMut(u32) -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let _request = thread::enter("request", request);
    let wait = || match throttle {
        Some(throttle) => wait_for_throttle(throttle, request, metrics),
        None => Ok(()),
    };
    wait()?;
    let mut open_outcome = None;
    for retries in 0.. {
        let error = match attempt(retries) {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let delay = delay(kind, retries, &error);
        let shows_outcome = error
            .status()
            .is_some_and(|status| status.is_already_exists() || status.is_not_found());
        let error = match open_outcome.take() {
            // The new error would hide that the earlier attempt may have taken effect.
            Some(earlier) if !error.leaves_outcome_open() && !shows_outcome => {
                log::debug!(error:%; "{request} may have taken effect before it failed with");
                earlier
            }
            _ => error,
        };
        if kind == Kind::Write && error.leaves_outcome_open() {
            open_outcome = Some(error.clone());
        }
        let Some(delay) = delay.filter(|delay| request.retries.permit(retries, *delay)) else {
            return Err(error);
        };
        log::debug!(error:%; "{request} is sent again in {delay:?}");
        let stopped = {
            let _wait = thread::enter("waits to send again", format_args!("{delay:.1?}"));
            stop.wait_timeout(delay)
        };
        if stopped || wait().is_err() {
            return Err(error);
        }
    }
    unreachable!("the number of retries is limited")
}

fn wait_for_throttle(
    throttle: &Throttle,
    request: &Request,
    metrics: &VerbMetrics,
) -> Result<(), ClientError> {
    if !throttle.is_limited() {
        return throttle.wait(request);
    }
    let began = Instant::now();
    let waited = throttle.wait(request);
    let waited_for = began.elapsed().as_secs_f64();
    metrics.rate_limiter_duration.observe(waited_for);
    waited
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Kind, Request, delay, run, whole_seconds};
    use crate::api::Status;
    use crate::client::error::{ClientError, TransportError, TransportErrorKind};
    use crate::stdx::stop::{Cause, Stop};
    use crate::telemetry::metrics;

    fn rejected(code: u16) -> ClientError {
        ClientError::Status(Status::new(code, "", ""))
    }

    fn broken(kind: TransportErrorKind) -> ClientError {
        ClientError::Transport(TransportError {
            kind,
            sent: true,
            message: String::new(),
        })
    }

    #[track_caller]
    fn check(kind: Kind, retries: u32, error: &ClientError, header: Option<&str>, ms: Option<u64>) {
        let mut error = error.clone();
        if let ClientError::Status(status) = error {
            error = ClientError::Status(status.or_retry_after(header.and_then(whole_seconds)));
        }
        let expected = ms.map(Duration::from_millis);
        assert_eq!(delay(kind, retries, &error), expected);
    }

    /// Of a watch, which waits for no throttle.
    #[test]
    fn after_the_stop_the_last_error_is_returned() {
        let (request, stop) = (Request::get("/a"), Stop::new());
        let metrics = metrics::global().rest_client.of("GET", "a.invalid");
        let mut n_attempts = 0;
        let result = run(&request, Kind::Watch, None, &metrics, &stop, |_| {
            n_attempts += 1;
            stop.stop(Cause::Requested("test".to_owned()));
            let status = Status::new(429, "", "").or_retry_after(Some(0));
            Err::<(), _>(ClientError::Status(status))
        });
        let code = result.map_err(|error| error.status().map(Status::code));
        assert_eq!((code, n_attempts), (Err(Some(429)), 1));
    }

    #[test]
    fn a_too_large_resource_version_is_not_retried() {
        let status = Status::new(504, "Timeout", "Too large resource version: 9, current: 1");
        check(Kind::Read, 0, &ClientError::Status(status), Some("1"), None);
    }

    #[test]
    fn status_errors_are_retried_only_with_whole_seconds() {
        for kind in [Kind::Read, Kind::Watch, Kind::Write] {
            for code in [429, 500, 503, 504] {
                check(kind, 0, &rejected(code), Some("2"), Some(2000));
                check(kind, 9, &rejected(code), Some("0"), Some(0));
                check(kind, 10, &rejected(code), Some("2"), None);
                check(kind, 0, &rejected(code), None, None);
                for odd in ["", "1.5", "-1", "Fri, 31 Dec 1999 23:59:59 GMT", "61"] {
                    check(kind, 0, &rejected(code), Some(odd), None);
                }
            }
            for code in [400, 401, 403, 404, 409, 410, 422] {
                check(kind, 0, &rejected(code), Some("2"), None);
            }
        }
    }

    #[test]
    fn only_reads_are_retried_after_a_broken_connection() {
        let closed = broken(TransportErrorKind::Closed);
        check(Kind::Write, 0, &closed, None, None);
        check(Kind::Read, 0, &closed, None, Some(0));
        check(Kind::Read, 1, &closed, None, Some(1000));
        check(Kind::Read, 9, &closed, None, Some(1000));
        check(Kind::Read, 10, &closed, None, None);
        check(Kind::Watch, 0, &closed, None, Some(0));
        check(Kind::Watch, 1, &closed, None, None);
        for kind in [
            TransportErrorKind::Refused,
            TransportErrorKind::TimedOut,
            TransportErrorKind::Other,
        ] {
            check(Kind::Read, 0, &broken(kind), None, None);
        }
        check(Kind::Read, 0, &ClientError::Stopped, None, None);
    }
}
