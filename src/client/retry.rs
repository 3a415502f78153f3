//! Which failed requests are sent again, and when: [`delay`] decides and is pure, [`run`] obeys, on
//! the thread that sends.

use std::time::{Duration, Instant};

use super::error::ClientError;
use super::http::Failure;
use super::meter::Meter;
use super::request::{Method, Request};
use super::throttle::Throttle;
use crate::stdx::activity;
use crate::stdx::stop::Stop;

/// A request is sent at most once more than this (client-go `rest/request.go:NewRequest`, maxRetries).
const RETRIES_MAX: u32 = 10;

/// After a read's connection broke (client-go `rest/with_retry.go:retryAfterResponse`).
const CLOSED_DELAY: Duration = Duration::from_secs(1);

/// DIFFERS: upstream obeys any `Retry-After`. Beyond this the refusal goes to the caller, whose own
/// back-off serves others in the meantime, and a bounded wait stays bounded.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

/// What kind of request it is, as far as repeating goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Harmless to repeat, even if the connection broke.
    Read,
    /// As a read, but its caller has a back-off of its own, so that a broken connection is only
    /// tried once more.
    Watch,
    /// Not repeated on a broken connection: it may have taken effect.
    Write,
}

impl Kind {
    pub(super) fn of(method: Method) -> Self {
        match method {
            Method::Get => Self::Read,
            Method::Post | Method::Put | Method::Patch | Method::Delete => Self::Write,
        }
    }
}

/// How long to wait before the request is sent again; `None` if it is not.
///
/// `retries` were made already. `retry_after` is the answer's header of that name.
pub(super) fn delay(
    kind: Kind,
    retries: u32,
    error: &ClientError,
    retry_after: Option<&str>,
) -> Option<Duration> {
    if retries >= RETRIES_MAX {
        return None;
    }
    match error {
        // The server has waited for that version already, and the caller knows another way.
        ClientError::Status(status) if status.is_too_large_resource_version() => None,
        ClientError::Status(status) if status.code() == 429 || status.code() >= 500 => {
            // Only whole seconds count; the header may also be a date, which upstream ignores.
            let seconds = retry_after?.trim().parse().ok()?;
            Some(Duration::from_secs(seconds)).filter(|delay| *delay <= RETRY_AFTER_MAX)
        }
        ClientError::Transport(_) if error.is_closed() => match (kind, retries) {
            // The server may have closed an idle connection in the moment it was taken from the
            // pool: another one is there at once.
            (Kind::Read | Kind::Watch, 0) => Some(Duration::ZERO),
            (Kind::Read, _) => Some(CLOSED_DELAY),
            (Kind::Watch | Kind::Write, _) => None,
        },
        _ => None,
    }
}

/// Makes attempts until one succeeds or is not to be repeated; each waits at the throttle, if any,
/// and is told how many came before it. When the daemon stops while a repetition is due, the last
/// attempt's error stands. Of a write that may have taken effect only an answer that tells how
/// things are says more: that a later attempt was refused or could not be sent leaves its outcome
/// open.
pub(super) fn run<T>(
    request: &Request,
    kind: Kind,
    throttle: Option<&Throttle>,
    meter: &Meter,
    stop: &Stop,
    mut attempt: impl FnMut(u32) -> Result<T, Failure>,
) -> Result<T, ClientError> {
    let _request = activity::enter("request", request);
    let wait = || match throttle {
        Some(throttle) => wait_at(throttle, request, meter),
        None => Ok(()),
    };
    wait()?;
    let mut open_outcome = None;
    for retries in 0.. {
        let Failure { error, retry_after } = match attempt(retries) {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        let delay = delay(kind, retries, &error, retry_after.as_deref());
        let tells = error
            .status()
            .is_some_and(|status| status.is_already_exists() || status.is_not_found());
        let error = match open_outcome.take() {
            Some(earlier) if !error.leaves_outcome_open() && !tells => {
                log::debug!(error:%; "{request} may have taken effect before it failed with");
                earlier
            }
            _ => error,
        };
        if kind == Kind::Write && error.leaves_outcome_open() {
            open_outcome = Some(error.clone());
        }
        let Some(delay) = delay.filter(|_| !request.is_single) else {
            return Err(error);
        };
        log::debug!(error:%; "{request} is sent again in {delay:?}");
        let stopped = {
            let _wait = activity::enter("waits to send again", format_args!("{delay:.1?}"));
            stop.wait_timeout(delay)
        };
        if stopped || wait().is_err() {
            return Err(error);
        }
    }
    unreachable!("the number of retries is limited")
}

fn wait_at(throttle: &Throttle, request: &Request, meter: &Meter) -> Result<(), ClientError> {
    if !throttle.is_limited() {
        return throttle.wait(request);
    }
    let began = Instant::now();
    let waited = throttle.wait(request);
    let metrics = meter.verb(request.method());
    metrics
        .rate_limiter_duration
        .observe(began.elapsed().as_secs_f64());
    waited
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Kind, delay};
    use crate::api::Status;
    use crate::client::error::{ClientError, TransportError, TransportErrorKind};

    fn refusal(code: u16) -> ClientError {
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
        let expected = ms.map(Duration::from_millis);
        assert_eq!(delay(kind, retries, error, header), expected);
    }

    #[test]
    fn a_version_from_the_future_is_the_callers_matter() {
        let status = Status::new(504, "Timeout", "Too large resource version: 9, current: 1");
        check(Kind::Read, 0, &ClientError::Status(status), Some("1"), None);
    }

    #[test]
    fn refusals_are_retried_only_with_whole_seconds() {
        for kind in [Kind::Read, Kind::Watch, Kind::Write] {
            for code in [429, 500, 503, 504] {
                check(kind, 0, &refusal(code), Some("2"), Some(2000));
                check(kind, 9, &refusal(code), Some("0"), Some(0));
                check(kind, 10, &refusal(code), Some("2"), None);
                check(kind, 0, &refusal(code), None, None);
                for odd in ["", "1.5", "-1", "Fri, 31 Dec 1999 23:59:59 GMT", "61"] {
                    check(kind, 0, &refusal(code), Some(odd), None);
                }
            }
            for code in [400, 401, 403, 404, 409, 410, 422] {
                check(kind, 0, &refusal(code), Some("2"), None);
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
