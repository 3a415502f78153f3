//! A pod in protobuf (kubernetes `staging/src/k8s.io/api/core/v1/generated.proto`).

use std::sync::Arc;

use prost::Message;

use super::{POD_DELETION_COST, Pod, PodPhase, parse_deletion_cost};
use crate::api::interner::Interner;
use crate::api::protobuf::ProtobufError;
use crate::api::protobuf::meta::{ObjectMeta, Time, controller_of};
use crate::api::{ObjectKey, ResourceVersion, Uid};

#[derive(Clone, PartialEq, Message)]
struct PodMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<SpecMessage>,
    #[prost(message, optional, tag = "3")]
    status: Option<StatusMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct SpecMessage {
    #[prost(string, tag = "10")]
    node_name: String,
    #[prost(message, repeated, tag = "20")]
    init_containers: Vec<InitContainerMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct InitContainerMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "24")]
    restart_policy: String,
}

#[derive(Clone, PartialEq, Message)]
struct StatusMessage {
    #[prost(string, tag = "1")]
    phase: String,
    #[prost(message, repeated, tag = "2")]
    conditions: Vec<ConditionMessage>,
    #[prost(message, repeated, tag = "8")]
    container_statuses: Vec<ContainerStatusMessage>,
    #[prost(message, repeated, tag = "10")]
    init_container_statuses: Vec<ContainerStatusMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ConditionMessage {
    #[prost(string, tag = "1")]
    type_: String,
    #[prost(string, tag = "2")]
    status: String,
    #[prost(message, optional, tag = "4")]
    last_transition_time: Option<Time>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerStatusMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "5")]
    restart_count: i32,
}

impl Pod {
    /// Reads a pod from its protobuf message, out of its envelope.
    ///
    /// # Errors
    /// If the bytes are no such message, or it has no name.
    pub fn from_protobuf(message: &[u8], interner: &mut Interner) -> Result<Self, ProtobufError> {
        let message = PodMessage::decode(message)?;
        let metadata = message.metadata.unwrap_or_default();
        if metadata.name.is_empty() {
            return Err(ProtobufError::Missing("metadata.name"));
        }
        Ok(Self::new(
            metadata,
            &message.spec.unwrap_or_default(),
            &message.status.unwrap_or_default(),
            interner,
        ))
    }

    fn new(
        metadata: ObjectMeta,
        spec: &SpecMessage,
        status: &StatusMessage,
        interner: &mut Interner,
    ) -> Self {
        let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
        let is_sidecar = |status: &&ContainerStatusMessage| {
            let mut containers = spec.init_containers.iter();
            containers.any(|c| c.name == status.name && c.restart_policy == "Always")
        };
        let sidecars = status.init_container_statuses.iter().filter(is_sidecar);
        let cost = metadata.annotations.get(POD_DELETION_COST);
        Self {
            key: ObjectKey {
                namespace: interner.text(&metadata.namespace),
                name: Arc::from(metadata.name),
            },
            uid: Uid::new(&metadata.uid),
            resource_version: ResourceVersion::new(&metadata.resource_version),
            labels: interner.labels(metadata.labels.into_iter().collect()),
            controller: controller_of(&metadata.owner_references, interner),
            phase: PodPhase::from_text(&status.phase),
            node: (!spec.node_name.is_empty()).then(|| interner.text(&spec.node_name)),
            is_ready: ready.is_some_and(|ready| ready.status == "True"),
            ready_transition: ready.and_then(|ready| ready.last_transition_time?.timestamp()),
            creation: metadata.creation.and_then(Time::timestamp),
            deletion: metadata.deletion.and_then(Time::timestamp),
            restarts: max_restarts(status.container_statuses.iter()),
            sidecar_restarts: max_restarts(sidecars),
            deletion_cost: cost.map_or(0, |cost| parse_deletion_cost(cost)),
        }
    }
}

fn max_restarts<'a>(statuses: impl Iterator<Item = &'a ContainerStatusMessage>) -> i32 {
    statuses
        .map(|status| status.restart_count)
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Interner, Pod, ProtobufError};
    use crate::api::protobuf::Envelope;

    /// One pod as a kube-apiserver wrote it in both encodings.
    const JSON: &[u8] = include_bytes!("../../../tests/data/pod.json");
    const PROTOBUF: &[u8] = include_bytes!("../../../tests/data/pod.pb");

    #[test]
    fn both_encodings_say_the_same() {
        let mut interner = Interner::default();
        let from_json = Pod::from_json(JSON, &mut interner).expect("a pod");
        let envelope = Envelope::open(PROTOBUF).expect("an envelope");
        let pod = Pod::from_protobuf(envelope.raw, &mut interner).expect("a pod");
        assert_eq!(envelope.kind, "Pod");
        assert_eq!(pod, from_json);
        assert_eq!((pod.restarts, pod.sidecar_restarts), (3, 5));
        assert_eq!((pod.deletion_cost, pod.is_ready), (-7, true));
        assert!(pod.is_terminating() && pod.controller.is_some());
    }

    #[test]
    fn a_pod_without_name_is_refused() {
        let read = Pod::from_protobuf(&[], &mut Interner::default());
        assert_eq!(read, Err(ProtobufError::Missing("metadata.name")));
    }
}
