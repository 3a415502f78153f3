//! The API server's error object, and the questions that callers ask of it.

use std::fmt;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status as StatusObject, StatusCause};

use super::protobuf;

/// Cause of a refusal to create in a namespace that is going away
/// (kubernetes `staging/src/k8s.io/api/core/v1/types.go:NamespaceTerminatingCause`).
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// Cause of a refusal to serve a version from the future
/// (apimachinery `pkg/apis/meta/v1/types.go:CauseTypeResourceVersionTooLarge`).
const RESOURCE_VERSION_TOO_LARGE: &str = "ResourceVersionTooLarge";

/// What a server without that cause says instead.
const TOO_LARGE_MESSAGE: &str = "Too large resource version";

/// A `Status` of kind failure: the API server understood the request and said no.
#[derive(Clone, Debug, PartialEq)]
pub struct Status(Box<StatusObject>);

impl Status {
    /// The refusal with this HTTP code, reason and message.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self(Box::new(StatusObject {
            status: Some("Failure".to_owned()),
            code: Some(code.into()),
            reason: Some(reason.to_owned()),
            message: Some(message.into()),
            ..StatusObject::default()
        }))
    }

    /// The same refusal with one more entry in `details.causes`.
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

    /// Reads the body of an answer with HTTP code `code`. A body that is no `Status` becomes the
    /// message of one, cut to 1,024 bytes, so that no refusal is lost.
    pub fn from_body(code: u16, body: &[u8]) -> Self {
        let object = if body.starts_with(&protobuf::MAGIC) {
            let object = protobuf::read_status(body).ok().flatten();
            let no_status = || {
                let what = "and a body that is no Status";
                let message = format!("the server answered with HTTP code {code} {what}");
                *Self::new(code, "", message).0
            };
            Some(object.unwrap_or_else(no_status))
        } else {
            serde_json::from_slice::<StatusObject>(body).ok()
        };
        if let Some(mut object) = object {
            object.code.get_or_insert(code.into());
            Self(Box::new(object))
        } else {
            let text = String::from_utf8_lossy(&body[..body.len().min(1024)]);
            let text = text.trim();
            let message = if text.is_empty() {
                format!("the server answered with HTTP code {code} and no reason")
            } else {
                text.to_owned()
            };
            Self::new(code, "", message)
        }
    }

    /// The object as the API server sends it.
    pub fn object(&self) -> &StatusObject {
        &self.0
    }

    /// The HTTP code; 0 if neither the object nor the answer had one.
    pub fn code(&self) -> u16 {
        self.0
            .code
            .and_then(|code| u16::try_from(code).ok())
            .unwrap_or(0)
    }

    /// One word for machines, such as `NotFound`; may be empty.
    pub fn reason(&self) -> &str {
        self.0.reason.as_deref().unwrap_or_default()
    }

    /// A sentence for people.
    pub fn message(&self) -> &str {
        self.0.message.as_deref().unwrap_or_default()
    }

    /// 404.
    pub fn is_not_found(&self) -> bool {
        self.is("NotFound", 404)
    }

    /// 409 because the object is there already.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// 409 because the object (or a precondition) has another version or UID.
    pub fn is_conflict(&self) -> bool {
        !self.is_already_exists() && self.is("Conflict", 409)
    }

    /// 403: the account may not do this, or a rule such as a quota forbids it.
    pub fn is_forbidden(&self) -> bool {
        self.is("Forbidden", 403)
    }

    /// 422: the object as it would become is not valid.
    pub fn is_invalid(&self) -> bool {
        self.is("Invalid", 422)
    }

    /// 410: the version asked for is no longer in the server's history.
    pub fn is_expired(&self) -> bool {
        self.reason() == "Expired" || self.is("Gone", 410)
    }

    /// 429: the server asks to come back later.
    pub fn is_too_many_requests(&self) -> bool {
        self.is("TooManyRequests", 429)
    }

    /// 500 of the kind that a watch reports inside the stream.
    pub fn is_internal_error(&self) -> bool {
        self.is("InternalError", 500)
    }

    /// The server gave up waiting: whether the request took effect is not known.
    pub fn is_timeout(&self) -> bool {
        matches!(self.reason(), "Timeout" | "ServerTimeout") || self.code() == 504
    }

    /// The namespace is going away, so nothing can be created in it any more.
    pub fn is_namespace_terminating(&self) -> bool {
        self.causes()
            .any(|cause| cause.reason.as_deref() == Some(NAMESPACE_TERMINATING))
    }

    /// The version asked for lies in the server's future. Recognised by cause, by the cause's
    /// message or by the message, as servers of different ages say it
    /// (apimachinery `pkg/api/errors:IsTooLargeResourceVersion`, client-go `reflector.go`).
    pub fn is_too_large_resource_version(&self) -> bool {
        let by_cause = self.causes().any(|cause| {
            cause.reason.as_deref() == Some(RESOURCE_VERSION_TOO_LARGE)
                || cause.message.as_deref() == Some(TOO_LARGE_MESSAGE)
        });
        by_cause || (self.is_timeout() && self.message().contains(TOO_LARGE_MESSAGE))
    }

    /// `details.retryAfterSeconds`, where the server gave one.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.0.details.as_ref()?.retry_after_seconds?;
        u64::try_from(seconds).ok().map(Duration::from_secs)
    }

    fn causes(&self) -> impl Iterator<Item = &StatusCause> {
        let details = self.0.details.as_ref();
        details
            .and_then(|details| details.causes.as_ref())
            .into_iter()
            .flatten()
    }

    /// The reason counts; the code only where there is no reason
    /// (apimachinery `pkg/api/errors:reasonAndCodeForError`).
    fn is(&self, reason: &str, code: u16) -> bool {
        self.reason() == reason || (self.reason().is_empty() && self.code() == code)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message() {
            "" => write!(
                f,
                "the server refused with code {} {}",
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
    fn j_17_a_version_from_the_future_is_recognised_three_ways() {
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
    fn a_body_that_is_no_status_keeps_its_text() {
        let status = Status::from_body(502, b"<html>bad gateway</html>\n");
        assert_eq!(
            (status.code(), status.to_string().as_str()),
            (502, "<html>bad gateway</html>")
        );
        let empty = Status::from_body(503, b"");
        assert_eq!(
            empty.to_string(),
            "the server answered with HTTP code 503 and no reason"
        );
    }

    #[test]
    fn the_reason_wins_over_the_code() {
        let exists = Status::new(409, "AlreadyExists", "pods \"a\" already exists");
        assert!(exists.is_already_exists() && !exists.is_conflict());
        assert!(Status::new(409, "Conflict", "").is_conflict());
        assert!(Status::new(409, "", "").is_conflict());
        assert!(Status::new(410, "Expired", "").is_expired());
        assert!(Status::new(410, "Gone", "").is_expired());
    }
}
