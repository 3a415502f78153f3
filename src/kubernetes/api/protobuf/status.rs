//! Decodes a `Status` from protobuf.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Status as StatusObject, StatusCause, StatusDetails,
};
use prost::Message;

use super::{Envelope, ProtobufError};

/// Decodes a `Status` with its envelope; returns `None` for another kind.
///
/// # Errors
/// If the bytes are not in this encoding.
pub fn read_status(bytes: &[u8]) -> Result<Option<StatusObject>, ProtobufError> {
    let envelope = Envelope::open(bytes)?;
    if envelope.kind != "Status" {
        return Ok(None);
    }
    Ok(Some(StatusMessage::decode(envelope.raw)?.into_object()))
}

#[derive(Clone, PartialEq, Message)]
struct StatusMessage {
    #[prost(bytes = "vec", optional, tag = "2")]
    status: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "3")]
    message: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "4")]
    reason: Option<Vec<u8>>,
    #[prost(message, optional, tag = "5")]
    details: Option<DetailsMessage>,
    #[prost(int32, optional, tag = "6")]
    code: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct DetailsMessage {
    #[prost(bytes = "vec", optional, tag = "1")]
    name: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    group: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "3")]
    kind: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "4")]
    causes: Vec<CauseMessage>,
    #[prost(int32, optional, tag = "5")]
    retry_after_seconds: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "6")]
    uid: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct CauseMessage {
    #[prost(bytes = "vec", optional, tag = "1")]
    reason: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    message: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "3")]
    field: Option<Vec<u8>>,
}

/// A message may quote bytes of the request, which need not be UTF-8.
fn text(bytes: Option<Vec<u8>>) -> Option<String> {
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

impl StatusMessage {
    fn into_object(self) -> StatusObject {
        StatusObject {
            status: text(self.status),
            message: text(self.message),
            reason: text(self.reason),
            details: self.details.map(DetailsMessage::into_object),
            // This encoding writes an absent number as zero.
            code: self.code.filter(|code| *code != 0),
            ..StatusObject::default()
        }
    }
}

impl DetailsMessage {
    fn into_object(self) -> StatusDetails {
        let causes = self.causes.into_iter().map(|cause| StatusCause {
            reason: text(cause.reason),
            message: text(cause.message),
            field: text(cause.field),
        });
        let causes: Vec<StatusCause> = causes.collect();
        StatusDetails {
            name: text(self.name),
            group: text(self.group),
            kind: text(self.kind),
            uid: text(self.uid),
            causes: (!causes.is_empty()).then_some(causes),
            retry_after_seconds: self.retry_after_seconds.filter(|seconds| *seconds != 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::{CauseMessage, DetailsMessage, StatusMessage};
    use crate::api::Status;
    use crate::api::protobuf::Envelope;

    fn sealed(kind: &str) -> Vec<u8> {
        let cause = CauseMessage {
            reason: Some(b"NamespaceTerminating".to_vec()),
            ..CauseMessage::default()
        };
        let message = StatusMessage {
            status: Some(b"Failure".to_vec()),
            message: Some(b"namespace \xff is being terminated".to_vec()),
            reason: Some(b"Forbidden".to_vec()),
            details: Some(DetailsMessage {
                causes: vec![cause],
                retry_after_seconds: Some(3),
                ..DetailsMessage::default()
            }),
            code: Some(403),
        };
        Envelope::seal_raw("v1", kind, &message.encode_to_vec())
    }

    #[test]
    fn a_status_decodes_as_in_json() {
        let status = Status::from_body(403, &sealed("Status"));
        assert_eq!((status.code(), status.reason()), (403, "Forbidden"));
        assert_eq!(status.to_string(), "namespace \u{fffd} is being terminated");
        assert!(status.is_namespace_terminating());
        assert_eq!(status.retry_after().map(|after| after.as_secs()), Some(3));
    }

    #[test]
    fn another_object_is_not_a_status() {
        let status = Status::from_body(500, &sealed("Pod"));
        assert_eq!(status.code(), 500);
        assert_eq!(
            status.to_string(),
            "the server responded with HTTP code 500 and a body that is not a Status"
        );
    }
}
