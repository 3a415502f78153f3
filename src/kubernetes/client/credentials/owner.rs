//! Whose credentials they are, and what the log says when the API server rejects them (code 401) or
//! their end is near: one line with the cause and the remedy, instead of one for each request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::Deserialize;
use ureq::http::header::HeaderValue;

use crate::stdx::clock::Clock;

/// Minimum time between two lines about rejections.
const INTERVAL: Duration = Duration::from_mins(1);

/// How long a rejected credential that renews itself has to do so.
const RENEWAL: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, Default)]
pub(crate) struct Owner {
    /// Such as `user "daemon"`; empty if there is none.
    pub(crate) user: String,
    /// Such as `kubeconfig /etc/rs.conf, context "it"`.
    pub(crate) origin: String,
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
    state: Mutex<RejectionState>,
}

#[derive(Default)]
struct RejectionState {
    /// When the credentials were first rejected since they were accepted; `None`: they are
    /// accepted.
    since: Option<Instant>,
    next: Option<Instant>,
}

impl Rejections {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let state = Mutex::default();
        Self { clock, state }
    }

    /// Call after the API server accepted the credentials.
    pub(crate) fn ended(&self) {
        self.state.lock().since = None;
    }

    /// Call after the API server rejected the credentials. True if that is to be logged.
    pub(crate) fn is_due(&self, renews_itself: bool) -> bool {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let since = *state.since.get_or_insert(now);
        let had_time = !renews_itself || now.saturating_duration_since(since) >= RENEWAL;
        let is_due = had_time && state.next.is_none_or(|next| now >= next);
        if is_due {
            state.next = Some(now + INTERVAL);
        }
        is_due
    }
}

// What a token says about itself, if it is a JSON Web Token: whose it is and when it expires.
// The API server alone decides whether it is valid; this is for the log.

/// How long before a token's end its operator is warned.
const LEAD: Duration = Duration::from_hours(1);

#[derive(Debug, Default)]
pub(super) struct Claims {
    begin: Option<Timestamp>,
    pub(super) end: Option<Timestamp>,
    /// Namespace and name of the service account.
    pub(super) account: Option<(String, String)>,
}

#[derive(Deserialize)]
struct Payload {
    iat: Option<i64>,
    exp: Option<i64>,
    sub: Option<String>,
}

impl Claims {
    /// The claims of an `Authorization` header's token; none if it is not a JSON Web Token.
    pub(super) fn of(authorization: &HeaderValue) -> Self {
        Self::parse(authorization.as_bytes()).unwrap_or_default()
    }

    fn parse(authorization: &[u8]) -> Option<Self> {
        let payload = authorization.split(|byte| *byte == b'.').nth(1)?;
        let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
        let Payload { iat, exp, sub } = serde_json::from_slice(&payload).ok()?;
        let time = |seconds: i64| Timestamp::from_second(seconds).ok();
        let account = sub.and_then(|sub| {
            let (namespace, name) = sub
                .strip_prefix("system:serviceaccount:")?
                .split_once(':')?;
            Some((namespace.to_owned(), name.to_owned()))
        });
        Some(Self {
            begin: iat.and_then(time),
            end: exp.and_then(time),
            account,
        })
    }
}

/// Warns once before a token expires.
#[derive(Debug)]
pub(super) struct EndWarning {
    /// When to warn, and the end.
    at: Option<(Timestamp, Timestamp)>,
    is_given: AtomicBool,
}

impl EndWarning {
    pub(super) fn for_token(authorization: &HeaderValue) -> Self {
        let Claims { begin, end, .. } = Claims::of(authorization);
        let at = end.map(|end| {
            // The kubelet replaces a token after four fifths of its lifetime, which may be an hour.
            let life = begin.map_or(Duration::MAX, |begin| {
                end.duration_since(begin).unsigned_abs()
            });
            let lead = SignedDuration::try_from(LEAD.min(life / 10)).unwrap_or_default();
            (end.checked_sub(lead).unwrap_or(end), end)
        });
        Self {
            at,
            is_given: AtomicBool::new(false),
        }
    }

    /// The token's end, if it is near and this is the first call that finds it so.
    pub(super) fn due(&self, now: impl FnOnce() -> Timestamp) -> Option<Timestamp> {
        let (at, end) = self.at?;
        let now = now();
        let is_near = at <= now && now < end;
        (is_near && !self.is_given.swap(true, Ordering::Relaxed)).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jiff::Timestamp;
    use serde_json::json;
    use ureq::http::header::HeaderValue;

    use super::{Claims, EndWarning, Rejections};
    use crate::stdx::testing::FakeClock;

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

    fn header(payload: &str) -> HeaderValue {
        let text = format!("Bearer e30.{}.c2ln", URL_SAFE_NO_PAD.encode(payload));
        HeaderValue::from_str(&text).expect("it is text")
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    #[test]
    fn a_foreign_token_yields_no_claims() {
        for text in [
            "Bearer abc",
            "Bearer a.b.c",
            "Basic dTpw",
            "Bearer e30.e30.e30",
            "Bearer .",
        ] {
            let claims = Claims::of(&HeaderValue::from_static(text));
            assert!(claims.end.is_none() && claims.account.is_none(), "{text}");
        }
        let claims = Claims::of(&header(r#"{"sub": "jane", "exp": "soon"}"#));
        assert!(claims.end.is_none() && claims.account.is_none());
    }

    #[test]
    fn account_and_end_are_read() {
        let payload = json!({"exp": 100, "sub": "system:serviceaccount:ns:name"});
        let claims = Claims::of(&header(&payload.to_string()));
        assert_eq!(claims.end, Some(at(100)));
        assert_eq!(claims.account, Some(("ns".to_owned(), "name".to_owned())));
    }

    #[test]
    fn the_expiry_is_reported_once_and_in_time() {
        for (payload, at_second) in [
            (json!({"exp": 100_000}), 96_400),
            (json!({"iat": 0, "exp": 100_000}), 96_400),
            (json!({"iat": 96_400, "exp": 100_000}), 99_640),
        ] {
            let warning = EndWarning::for_token(&header(&payload.to_string()));
            assert_eq!(warning.due(|| at(at_second - 1)), None);
            assert_eq!(warning.due(|| at(100_000)), None, "the API server says so");
            assert_eq!(warning.due(|| at(at_second)), Some(at(100_000)));
            assert_eq!(warning.due(|| at(at_second)), None);
        }
        let without = EndWarning::for_token(&HeaderValue::from_static("Bearer abc"));
        assert_eq!(without.due(|| at(0)), None);
    }
}
