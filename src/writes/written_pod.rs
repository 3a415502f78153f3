//! Decodes the response to a pod write. Pure.
//!
//! The write succeeded regardless of the response body, so an unreadable body only leaves the
//! version unknown.

use prost::Message;

use crate::api::protobuf::meta::{ObjectMeta, OwnerReference};
use crate::api::protobuf::wire::Fields;
use crate::api::protobuf::{self, Envelope, Parts, ProtobufError};
use crate::api::{Pod, ResourceVersion, Uid};

/// What the response to a create or a patch says about the stored pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenPod {
    /// Resource version of the stored pod; empty if the response has none.
    pub resource_version: ResourceVersion,
    /// UID of the pod's controller, if any.
    pub controller: Option<Uid>,
}

impl WrittenPod {
    pub(super) fn read(body: &[u8]) -> Self {
        let written = if body.starts_with(&protobuf::MAGIC) {
            Self::from_protobuf(body).map_err(|error| error.to_string())
        } else {
            let pod = Pod::from_answer(body);
            pod.map(Self::from).map_err(|error| error.to_string())
        };
        written.unwrap_or_else(|error| {
            log::warn!(error:%; "the API server's response is not a readable pod");
            Self::default()
        })
    }

    fn from_protobuf(body: &[u8]) -> Result<Self, ProtobufError> {
        let metadata = Parts::of(Envelope::open(body)?.raw)?.metadata;
        if metadata.is_empty() {
            return Err(ProtobufError::Missing("metadata"));
        }
        let mut written = Self::default();
        for field in Fields::of(metadata) {
            let field = field?;
            match field.tag {
                ObjectMeta::RESOURCE_VERSION => {
                    written.resource_version = ResourceVersion::new(field.text()?);
                }
                ObjectMeta::OWNER_REFERENCES if written.controller.is_none() => {
                    let owner = OwnerReference::decode(field.bytes)?;
                    let is_controller = owner.controller == Some(true);
                    written.controller =
                        is_controller.then(|| Uid::new(&String::from_utf8_lossy(&owner.uid)));
                }
                _ => {}
            }
        }
        Ok(written)
    }
}

impl From<Pod> for WrittenPod {
    fn from(pod: Pod) -> Self {
        Self {
            resource_version: pod.resource_version,
            controller: pod.controller.map(|controller| controller.uid.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WrittenPod;
    use crate::api::protobuf::Envelope;

    const JSON: &[u8] = include_bytes!("../../tests/data/pod.json");
    const PROTOBUF: &[u8] = include_bytes!("../../tests/data/pod.pb");

    #[test]
    fn both_encodings_decode_to_the_same_pod() {
        let written = WrittenPod::read(PROTOBUF);
        assert_eq!(written, WrittenPod::read(JSON));
        assert!(!written.resource_version.is_empty() && written.controller.is_some());
    }

    #[test]
    fn an_unreadable_body_leaves_the_version_unknown() {
        for body in [&b"no"[..], &Envelope::seal("v1", "Pod", &[]), b"k8s\0\xff"] {
            assert_eq!(WrittenPod::read(body), WrittenPod::default());
        }
    }
}
