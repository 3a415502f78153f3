//! A new pod in protobuf: the template's fields are copied without being read, known or not.

use prost::Message;

use super::generate_name;
use crate::api::encoded::Encoded;
use crate::api::protobuf::wire::{Fields, put_bytes};
use crate::api::protobuf::{Envelope, MEDIA_TYPE, Parts, ProtobufError};
use crate::api::{ReplicaSet, WorkloadKind};

/// Numbers of the fields of `metadata` that a pod has from its template.
const LABELS: u32 = 11;
const ANNOTATIONS: u32 = 12;
const FINALIZERS: u32 = 14;

/// `metadata` of a new pod, as far as it is the pod's own.
#[derive(Clone, PartialEq, Message)]
struct PodMetadataMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    generate_name: String,
    #[prost(message, optional, tag = "13")]
    owner_reference: Option<ControllingReferenceMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ControllingReferenceMessage {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(string, tag = "5")]
    api_version: String,
    #[prost(bool, tag = "6")]
    controller: bool,
    #[prost(bool, tag = "7")]
    block_owner_deletion: bool,
}

pub(super) fn create_body(
    rs: &ReplicaSet,
    kind: &WorkloadKind,
    name: &str,
    template: &[u8],
) -> Result<Encoded, ProtobufError> {
    let own = PodMetadataMessage {
        name: name.to_owned(),
        generate_name: generate_name(&rs.key.name),
        owner_reference: Some(ControllingReferenceMessage {
            kind: kind.kind.to_owned(),
            name: (*rs.key.name).to_owned(),
            uid: rs.uid.to_string(),
            api_version: kind.api_version.to_owned(),
            controller: true,
            block_owner_deletion: true,
        }),
    };
    let mut metadata = own.encode_to_vec();
    let template = Parts::of(template)?;
    copy_metadata(template.metadata, &mut metadata)?;
    let mut pod = Vec::with_capacity(metadata.len() + template.spec.len() + 16);
    put_bytes(Parts::METADATA, &metadata, &mut pod);
    put_bytes(Parts::SPEC, template.spec, &mut pod);
    Ok(Encoded {
        media_type: MEDIA_TYPE,
        bytes: Envelope::seal("v1", "Pod", &pod),
    })
}

fn copy_metadata(template: &[u8], metadata: &mut Vec<u8>) -> Result<(), ProtobufError> {
    for field in Fields::of(template) {
        let field = field?;
        if matches!(field.tag, LABELS | ANNOTATIONS | FINALIZERS) {
            metadata.extend_from_slice(field.whole);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::create_body;
    use crate::api::interner::Interner;
    use crate::api::protobuf::wire::Fields;
    use crate::api::protobuf::{Envelope, MEDIA_TYPE};
    use crate::api::workload_kind::REPLICA_SET;
    use crate::api::{Pod, ReplicaSet};

    /// As a kube-apiserver wrote it.
    const REPLICA_SET_PROTOBUF: &[u8] = include_bytes!("../../../tests/data/replica-set.pb");

    fn field(message: &[u8], tag: u32) -> Vec<&[u8]> {
        let fields = Fields::of(message).map(|field| field.expect("a whole field"));
        let fields = fields.filter(|field| field.tag == tag);
        fields.map(|field| field.bytes).collect()
    }

    #[test]
    fn a_09_the_pod_is_built_from_the_template() {
        let rs =
            ReplicaSet::from_answer(&REPLICA_SET, REPLICA_SET_PROTOBUF, &mut Interner::default())
                .expect("a ReplicaSet");
        let body = create_body(&rs, &REPLICA_SET, "web-x2b4c").expect("a body");
        assert_eq!(body.media_type, MEDIA_TYPE);
        let envelope = Envelope::open(&body.bytes).expect("an envelope");
        assert_eq!(envelope.kind, "Pod");

        let pod = Pod::from_protobuf(envelope.raw, &mut Interner::default()).expect("a pod");
        assert_eq!(&*pod.key.name, "web-x2b4c");
        assert_eq!(pod.labels, rs.template_labels);
        let owner = pod.controller.expect("a controller");
        assert_eq!((&*owner.kind, &*owner.name), ("ReplicaSet", "web"));
        assert_eq!(owner.uid, rs.uid);

        let metadata = field(envelope.raw, 1)[0];
        assert_eq!(field(metadata, 2), [b"web-"]);
        assert_eq!(field(metadata, 14), [b"example.com/pod"]);
        let annotation = String::from_utf8_lossy(field(metadata, 12)[0]).into_owned();
        assert!(annotation.contains("\"v\""), "{annotation}");
        let owner = field(metadata, 13)[0];
        assert_eq!(field(owner, 5), [b"apps/v1"]);

        // The spec is the template's, byte by byte.
        let came = Envelope::open(REPLICA_SET_PROTOBUF).expect("an envelope");
        let template = field(field(came.raw, 2)[0], 3)[0];
        assert_eq!(field(envelope.raw, 2), field(template, 2));
    }
}
