//! What is read of the answer to a write of a pod. Pure.
//!
//! The write is done whatever the answer looks like, so one that cannot be read only leaves the version
//! unknown.

use prost::Message;

use crate::api::protobuf::meta::{ObjectMeta, OwnerReference};
use crate::api::protobuf::wire::Fields;
use crate::api::protobuf::{self, Envelope, Parts, ProtobufError};
use crate::api::{Pod, ResourceVersion, Uid};

/// The metadata of a pod that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WrittenPod {
    pub(super) resource_version: ResourceVersion,
    /// UID of the controller, if there is one.
    pub(super) controller: Option<Uid>,
}

impl WrittenPod {
    pub(super) fn read(body: &[u8]) -> Self {
        let answer = if body.starts_with(&protobuf::MAGIC) {
            Self::from_protobuf(body).map_err(|error| error.to_string())
        } else {
            let pod = Pod::from_answer(body);
            pod.map(Self::from).map_err(|error| error.to_string())
        };
        answer.unwrap_or_else(|error| {
            log::warn!(error:%; "the API server's answer is no readable pod");
            Self::default()
        })
    }

    fn from_protobuf(body: &[u8]) -> Result<Self, ProtobufError> {
        let metadata = Parts::of(Envelope::open(body)?.raw)?.metadata;
        if metadata.is_empty() {
            return Err(ProtobufError::Missing("metadata"));
        }
        let mut answer = Self::default();
        for field in Fields::of(metadata) {
            let field = field?;
            match field.tag {
                ObjectMeta::RESOURCE_VERSION => {
                    answer.resource_version = ResourceVersion::new(field.text()?);
                }
                ObjectMeta::OWNER_REFERENCES if answer.controller.is_none() => {
                    let owner = OwnerReference::decode(field.bytes)?;
                    let is_controller = owner.controller == Some(true);
                    answer.controller = is_controller.then(|| Uid::new(&owner.uid));
                }
                _ => {}
            }
        }
        Ok(answer)
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
    fn both_encodings_say_the_same() {
        let answer = WrittenPod::read(PROTOBUF);
        assert_eq!(answer, WrittenPod::read(JSON));
        assert!(!answer.resource_version.is_empty() && answer.controller.is_some());
    }

    #[test]
    fn what_is_no_pod_leaves_the_version_unknown() {
        for body in [&b"no"[..], &Envelope::seal("v1", "Pod", &[]), b"k8s\0\xff"] {
            assert_eq!(WrittenPod::read(body), WrittenPod::default());
        }
    }
}
