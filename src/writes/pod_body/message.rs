//! Builds a new pod in protobuf. Copies the template's fields undecoded, including unknown ones.

use super::generate_name;
use crate::api::encoded::Encoded;
use crate::api::protobuf::meta::{ObjectMeta, OwnerReference};
use crate::api::protobuf::wire::{Fields, put_bytes, put_true};
use crate::api::protobuf::{Envelope, MEDIA_TYPE, Parts, ProtobufError};
use crate::api::{ReplicaSet, WorkloadKind};

/// Initial capacity for the pod's own metadata: names and the owner reference.
const METADATA_BYTES: usize = 512;

pub(super) fn create_body(
    rs: &ReplicaSet,
    kind: &WorkloadKind,
    name: &str,
    template: &[u8],
) -> Result<Encoded, ProtobufError> {
    let template = Parts::of(template)?;
    let mut metadata = Vec::with_capacity(METADATA_BYTES + template.metadata.len());
    let generate_name = generate_name(&rs.key.name);
    let owner = owner_reference(rs, kind);
    put_bytes(ObjectMeta::NAME, name, &mut metadata);
    put_bytes(ObjectMeta::GENERATE_NAME, generate_name, &mut metadata);
    put_bytes(ObjectMeta::OWNER_REFERENCES, owner, &mut metadata);
    copy_metadata(template.metadata, &mut metadata)?;
    let pod = [
        (Parts::METADATA, &metadata[..]),
        (Parts::SPEC, template.spec),
    ];
    Ok(Encoded {
        media_type: MEDIA_TYPE,
        bytes: Envelope::seal("v1", "Pod", &pod),
    })
}

fn owner_reference(rs: &ReplicaSet, kind: &WorkloadKind) -> Vec<u8> {
    let mut owner = Vec::with_capacity(METADATA_BYTES);
    put_bytes(OwnerReference::KIND, kind.kind, &mut owner);
    put_bytes(OwnerReference::NAME, &*rs.key.name, &mut owner);
    put_bytes(OwnerReference::UID, rs.uid.to_string(), &mut owner);
    put_bytes(OwnerReference::API_VERSION, kind.api_version, &mut owner);
    put_true(OwnerReference::CONTROLLER, &mut owner);
    put_true(OwnerReference::BLOCK_OWNER_DELETION, &mut owner);
    owner
}

fn copy_metadata(template: &[u8], pod: &mut Vec<u8>) -> Result<(), ProtobufError> {
    for field in Fields::of(template) {
        let field = field?;
        if matches!(
            field.tag,
            ObjectMeta::LABELS | ObjectMeta::ANNOTATIONS | ObjectMeta::FINALIZERS
        ) {
            pod.extend_from_slice(field.whole);
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

    /// Written by a kube-apiserver.
    const REPLICA_SET_PROTOBUF: &[u8] = include_bytes!("../../../tests/data/replica-set.pb");

    fn field(message: &[u8], tag: u32) -> Vec<&[u8]> {
        let fields = Fields::of(message).map(|field| field.expect("a whole field"));
        let fields = fields.filter(|field| field.tag == tag);
        fields.map(|field| field.bytes).collect()
    }

    #[test]
    fn a_09_the_pod_is_built_from_the_template() {
        let rs = ReplicaSet::from_answer(&REPLICA_SET, REPLICA_SET_PROTOBUF).expect("a ReplicaSet");
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
        let fields = Fields::of(owner).map(|field| field.expect("a whole field"));
        let numbers = fields.filter(|field| field.number > 0);
        let numbers: Vec<(u32, u64)> = numbers.map(|field| (field.tag, field.number)).collect();
        // controller and blockOwnerDeletion
        assert_eq!(numbers, [(6, 1), (7, 1)]);

        // The spec equals the template's, byte by byte.
        let original = Envelope::open(REPLICA_SET_PROTOBUF).expect("an envelope");
        let template = field(field(original.raw, 2)[0], 3)[0];
        assert_eq!(field(envelope.raw, 2), field(template, 2));
    }
}
