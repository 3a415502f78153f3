//! The API server's error object, with predicates for callers.

use std::fmt;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status as StatusObject, StatusCause};

use super::protobuf;

/// Cause of rejected creates in a terminating namespace (kubernetes
/// `staging/src/k8s.io/api/core/v1/types.go:NamespaceTerminatingCause`).
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// Cause of a rejected read at a future resource version (apimachinery
/// `pkg/apis/meta/v1/types.go:CauseTypeResourceVersionTooLarge`).
const RESOURCE_VERSION_TOO_LARGE: &str = "ResourceVersionTooLarge";

/// The message of servers that do not set this cause.
const TOO_LARGE_MESSAGE: &str = "Too large resource version";

/// The longest `Retry-After` that is obeyed, so that no mistake of a server stops a thread or a
/// ReplicaSet for hours.
///
/// DIFFERS: upstream obeys any.
pub const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

/// Returns how long a key waits after a [`Status::requested_wait`], spread for the retries of many
/// keys: up to one and a half times as long. `random` is from `0.0..1.0`.
pub fn spread_wait(requested: Duration, random: f64) -> Duration {
    requested + requested.mul_f64(random / 2.0)
}

/// A `Status` of type failure: the API server rejected the request.
#[derive(Clone, Debug, PartialEq)]
pub struct Status(Box<StatusObject>);

impl Status {
    /// A failure with this HTTP code, reason and message.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self(Box::new(StatusObject {
            status: Some("Failure".to_owned()),
            code: Some(code.into()),
            reason: Some(reason.to_owned()),
            message: Some(message.into()),
            ..StatusObject::default()
        }))
    }

    /// Adds an entry to `details.causes`.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: &str) -> Self {
        let details = self.0.details.get_or_insert_default();
        details.causes.get_or_insert_default().push(StatusCause {
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            field: None,
        });
        self
    }

    /// Decodes the body of a response with HTTP code `code`. A body that is not a `Status` becomes
    /// the message of a new one, truncated to 1,024 bytes.
    pub fn from_body(code: u16, body: &[u8]) -> Self {
        let object = if body.starts_with(&protobuf::MAGIC) {
            let object = protobuf::read_status(body).ok().flatten();
            let no_status = || {
                let what = "and a body that is not a Status";
                let message = format!("the server responded with HTTP code {code} {what}");
                *Self::of_other_body(code, message).0
            };
            Some(object.unwrap_or_else(no_status))
        } else {
            serde_json::from_slice::<StatusObject>(body).ok()
        };
        if let Some(mut object) = object {
            // The body may be a proxy's. An error event of a watch has no HTTP code.
            if code != 0 {
                object.code = Some(code.into());
            }
            Self(Box::new(object))
        } else {
            let text = String::from_utf8_lossy(&body[..body.len().min(1024)]);
            let text = text.trim();
            let message = if text.is_empty() {
                format!("the server responded with HTTP code {code} and no reason")
            } else {
                text.to_owned()
            };
            Self::of_other_body(code, message)
        }
    }

    /// Adds the words of the request, such as `post pods`, to the text of a body that is not a
    /// `Status`, as client-go does (apimachinery `pkg/api/errors:NewGenericServerResponse`).
    #[must_use]
    pub fn to_request(mut self, request: &str) -> Self {
        let text = self.message();
        if self.0.status.is_none() && !text.is_empty() && !request.is_empty() {
            let text = match self.code() {
                500.. => {
                    let prevented = "has prevented the request from succeeding";
                    format!("an error on the server ({text:?}) {prevented} ({request})")
                }
                _ => format!("{text} ({request})"),
            };
            self.0.message = Some(text);
        }
        self
    }

    /// For a body that is not a `Status`.
    fn of_other_body(code: u16, message: String) -> Self {
        let mut status = Self::new(code, "", message);
        status.0.status = None;
        status
    }

    pub fn object(&self) -> &StatusObject {
        &self.0
    }

    pub fn code(&self) -> u16 {
        self.0
            .code
            .and_then(|code| u16::try_from(code).ok())
            .unwrap_or(0)
    }

    pub fn reason(&self) -> &str {
        self.0.reason.as_deref().unwrap_or_default()
    }

    pub fn message(&self) -> &str {
        self.0.message.as_deref().unwrap_or_default()
    }

    /// True if the API server says that the object does not exist.
    ///
    /// DIFFERS: upstream also takes a 404 whose body is no `Status` for that, such as that of a
    /// proxy that has lost its way to the API server.
    pub fn is_not_found(&self) -> bool {
        self.reason() == "NotFound" || (self.0.status.is_some() && self.is("", 404))
    }

    /// 409 because the object already exists.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// 409 because the object, or a precondition, has another version or UID.
    pub fn is_conflict(&self) -> bool {
        !self.is_already_exists() && self.is("Conflict", 409)
    }

    /// 403: the account lacks the permission, or admission such as a quota forbids the request.
    pub fn is_forbidden(&self) -> bool {
        self.is("Forbidden", 403)
    }

    /// 422: the resulting object would be invalid.
    pub fn is_invalid(&self) -> bool {
        self.is("Invalid", 422)
    }

    /// The quota of the namespace that rejected the create (apiserver
    /// `pkg/admission/plugin/resourcequota/controller.go:CheckRequest`): it is used up, its usage
    /// is not known yet, or it demands a request or limit that the pod lacks.
    pub fn rejecting_quota(&self) -> Option<&str> {
        let message = Some(self.message()).filter(|_| self.is_forbidden())?;
        let kinds = [
            "exceeded quota: ",
            "failed quota: ",
            "status unknown for quota: ",
        ];
        let rest = kinds
            .iter()
            .find_map(|kind| Some(message.split_once(kind)?.1))?;
        let name = rest.split([',', ':']).next()?.trim();
        (!name.is_empty()).then_some(name)
    }

    /// The server is overloaded or not ready, or an admission webhook did not respond. A later
    /// request may succeed without any change in the cluster.
    pub fn is_overload(&self) -> bool {
        self.is_too_many_requests()
            || self.is("ServiceUnavailable", 503)
            || self.is_timeout()
            || (self.is("InternalError", 500) && self.message().contains("failed calling webhook"))
    }

    /// 410: the requested version is no longer in the server's history.
    pub fn is_expired(&self) -> bool {
        self.reason() == "Expired" || self.is("Gone", 410)
    }

    /// 429: the server requests a later retry.
    pub fn is_too_many_requests(&self) -> bool {
        self.is("TooManyRequests", 429)
    }

    /// The server timed out; the outcome of the request is unknown.
    pub fn is_timeout(&self) -> bool {
        matches!(self.reason(), "Timeout" | "ServerTimeout") || self.code() == 504
    }

    /// The namespace is terminating, so no object can be created in it.
    pub fn is_namespace_terminating(&self) -> bool {
        self.causes()
            .any(|cause| cause.reason.as_deref() == Some(NAMESPACE_TERMINATING))
    }

    /// The requested version lies in the server's future. Checks the cause, the cause's message and
    /// the message, which different server versions use (apimachinery
    /// `pkg/api/errors:IsTooLargeResourceVersion`, client-go `reflector.go`).
    pub fn is_too_large_resource_version(&self) -> bool {
        let by_cause = self.causes().any(|cause| {
            cause.reason.as_deref() == Some(RESOURCE_VERSION_TOO_LARGE)
                || cause.message.as_deref() == Some(TOO_LARGE_MESSAGE)
        });
        by_cause || (self.is_timeout() && self.message().contains(TOO_LARGE_MESSAGE))
    }

    /// `details.retryAfterSeconds`, if the server set it.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.0.details.as_ref()?.retry_after_seconds?;
        u64::try_from(seconds).ok().map(Duration::from_secs)
    }

    /// How long the caller waits at least after a temporary rejection:
    /// [`retry_after`](Self::retry_after), in [`RETRY_AFTER_MAX`] at most. `None` for zero, since
    /// the caller's back-off spares an overloaded server, and for codes that client-go does not
    /// retry (client-go `rest/with_retry.go:checkWait`).
    pub fn requested_wait(&self) -> Option<Duration> {
        let is_temporary = self.code() == 429 || self.code() >= 500;
        let wait = self
            .retry_after()
            .filter(|wait| is_temporary && !wait.is_zero())?;
        Some(wait.min(RETRY_AFTER_MAX))
    }

    /// Adds the response's `Retry-After` header, unless the body names its own time
    /// (client-go `rest/request.go:newUnstructuredResponseError`).
    #[must_use]
    pub fn or_retry_after(mut self, seconds: Option<u64>) -> Self {
        if let Some(seconds) = seconds {
            let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
            let details = self.0.details.get_or_insert_default();
            details.retry_after_seconds.get_or_insert(seconds);
        }
        self
    }

    fn causes(&self) -> impl Iterator<Item = &StatusCause> {
        let details = self.0.details.as_ref();
        details
            .and_then(|details| details.causes.as_ref())
            .into_iter()
            .flatten()
    }

    /// The code only counts if the reason is empty (apimachinery
    /// `pkg/api/errors:reasonAndCodeForError`).
    fn is(&self, reason: &str, code: u16) -> bool {
        self.reason() == reason || (self.reason().is_empty() && self.code() == code)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message() {
            "" => write!(
                f,
                "the server rejected the request with code {} {}",
                self.code(),
                self.reason()
            ),
            message => f.write_str(message),
        }
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn only_a_status_says_that_an_object_is_not_found() {
        for (body, expected) in [
            (
                r#"{"kind":"Status","status":"Failure","reason":"NotFound"}"#,
                true,
            ),
            (r#"{"kind":"Status","status":"Failure","code":404}"#, true),
            (
                r#"{"kind":"Status","status":"Failure","reason":"Gone"}"#,
                false,
            ),
            ("404 page not found", false),
            (r#"{"error":"no route"}"#, false),
            ("", false),
        ] {
            let status = Status::from_body(404, body.as_bytes());
            assert_eq!(status.is_not_found(), expected, "{body}");
        }
    }

    #[test]
    fn j_17_a_future_version_is_recognised_in_three_forms() {
        let timeout = |message| Status::new(504, "Timeout", message);
        assert!(
            timeout("x")
                .with_cause("ResourceVersionTooLarge", "y")
                .is_too_large_resource_version()
        );
        assert!(
            timeout("x")
                .with_cause("", "Too large resource version")
                .is_too_large_resource_version()
        );
        assert!(
            timeout("Too large resource version: 9, current: 1").is_too_large_resource_version()
        );
        assert!(!timeout("x").is_too_large_resource_version());
        assert!(
            !Status::new(500, "", "Too large resource version").is_too_large_resource_version()
        );
    }

    #[test]
    fn a_body_that_is_not_a_status_keeps_its_text() {
        let status = Status::from_body(502, b"<html>\n\"bad\" gateway</html>\n");
        let text = "<html>\n\"bad\" gateway</html>";
        assert_eq!((status.code(), &*status.to_string()), (502, text));
        let words = "an error on the server (\"<html>\\n\\\"bad\\\" gateway</html>\") has \
                     prevented the request from succeeding (post pods)";
        assert_eq!(status.to_request("post pods").to_string(), words);
        let denied = Status::from_body(403, b"no").to_request("post pods");
        assert_eq!(denied.to_string(), "no (post pods)");
        let own = Status::from_body(500, br#"{"status":"Failure","message":"no"}"#);
        assert_eq!(own.to_request("post pods").to_string(), "no");
        let empty = Status::from_body(503, b"");
        assert_eq!(
            empty.to_string(),
            "the server responded with HTTP code 503 and no reason"
        );
    }

    #[test]
    fn the_http_code_counts_unless_an_event_has_none() {
        let body = br#"{"kind":"Status","reason":"Forbidden","code":200}"#;
        assert_eq!(Status::from_body(403, body).code(), 403);
        assert_eq!(Status::from_body(0, body).code(), 200);
    }

    #[test]
    fn a_rejection_by_a_quota_names_the_quota() {
        let quota = |code, reason, message: &str| {
            let status = Status::new(code, reason, message);
            status.rejecting_quota().map(str::to_owned)
        };
        let forbidden = |message: &str| {
            quota(
                403,
                "Forbidden",
                &format!("pods \"a-b7xqz\" is forbidden: {message}"),
            )
        };
        for (message, name) in [
            (
                "exceeded quota: few.pods, requested: pods=1, used: pods=2, limited: pods=2",
                "few.pods",
            ),
            ("failed quota: cpu: must specify limits.cpu for: c", "cpu"),
            ("status unknown for quota: new, resources: pods", "new"),
        ] {
            assert_eq!(forbidden(message).as_deref(), Some(name), "{message}");
        }
        assert_eq!(
            forbidden("error looking up service account default/default"),
            None
        );
        assert_eq!(forbidden("exceeded quota: "), None);
        assert_eq!(quota(422, "Invalid", "exceeded quota: a, requested"), None);
    }

    #[test]
    fn overload_is_distinguished_from_other_failures() {
        let webhook = "Internal error occurred: failed calling webhook \"a.b.c\": failed to call \
            webhook: Post \"https://a.b.svc:443/?timeout=10s\": context deadline exceeded";
        for (code, reason, message, expected) in [
            (429, "TooManyRequests", "", true),
            (503, "ServiceUnavailable", "", true),
            (503, "", "", true),
            (504, "Timeout", "", true),
            (500, "InternalError", webhook, true),
            (
                500,
                "InternalError",
                "Internal error occurred: etcdserver: no leader",
                false,
            ),
            (403, "Forbidden", webhook, false),
        ] {
            let status = Status::new(code, reason, message);
            assert_eq!(status.is_overload(), expected, "{code} {reason} {message}");
        }
    }

    #[test]
    fn the_reason_takes_precedence_over_the_code() {
        let exists = Status::new(409, "AlreadyExists", "pods \"a\" already exists");
        assert!(exists.is_already_exists() && !exists.is_conflict());
        assert!(Status::new(409, "Conflict", "").is_conflict());
        assert!(Status::new(409, "", "").is_conflict());
        assert!(Status::new(410, "Expired", "").is_expired());
        assert!(Status::new(410, "Gone", "").is_expired());
    }
}
