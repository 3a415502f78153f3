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
    #[prost(string, optional, tag = "2")]
    status: Option<String>,
    #[prost(string, optional, tag = "3")]
    message: Option<String>,
    #[prost(string, optional, tag = "4")]
    reason: Option<String>,
    #[prost(message, optional, tag = "5")]
    details: Option<DetailsMessage>,
    #[prost(int32, optional, tag = "6")]
    code: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct DetailsMessage {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    group: Option<String>,
    #[prost(string, optional, tag = "3")]
    kind: Option<String>,
    #[prost(message, repeated, tag = "4")]
    causes: Vec<CauseMessage>,
    #[prost(int32, optional, tag = "5")]
    retry_after_seconds: Option<i32>,
    #[prost(string, optional, tag = "6")]
    uid: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct CauseMessage {
    #[prost(string, optional, tag = "1")]
    reason: Option<String>,
    #[prost(string, optional, tag = "2")]
    message: Option<String>,
    #[prost(string, optional, tag = "3")]
    field: Option<String>,
}

impl StatusMessage {
    fn into_object(self) -> StatusObject {
        StatusObject {
            status: self.status,
            message: self.message,
            reason: self.reason,
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
            reason: cause.reason,
            message: cause.message,
            field: cause.field,
        });
        let causes: Vec<StatusCause> = causes.collect();
        StatusDetails {
            name: self.name,
            group: self.group,
            kind: self.kind,
            uid: self.uid,
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
            reason: Some("NamespaceTerminating".to_owned()),
            ..CauseMessage::default()
        };
        let message = StatusMessage {
            status: Some("Failure".to_owned()),
            message: Some("namespace a is being terminated".to_owned()),
            reason: Some("Forbidden".to_owned()),
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
        assert_eq!(status.to_string(), "namespace a is being terminated");
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
