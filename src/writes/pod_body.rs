//! Builds the bodies of pod requests, in JSON or in protobuf. No I/O. Template fields, known or
//! unknown, are copied as raw bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::WriteError;
use crate::api::json::{Encoded, JSON};
use crate::api::protobuf::meta::{ObjectMeta, OwnerReference};
use crate::api::protobuf::{
    Envelope, Fields, MEDIA_TYPE, Parts, ProtobufError, put_bytes, put_true,
};
use crate::api::replica_set::Template;
use crate::api::{ReplicaSet, ResourceVersion, Uid, WorkloadKind, controlling_reference};
use crate::stdx::hash;

/// The body that creates the pod `name` from the template of `rs`. Copies the template's labels,
/// annotations, finalizers and spec byte by byte in their original encoding, and sets `rs` as the
/// controller (kubernetes `pkg/controller/controller_utils.go:GetPodFromTemplate`).
///
/// DIFFERS: upstream lets the API server generate the name. With a chosen name, a create that is
/// retried fails with `AlreadyExists` instead of creating a second pod. `generateName` is set too,
/// because people and tools search for it.
pub fn create_body(
    rs: &ReplicaSet,
    kind: &WorkloadKind,
    name: &str,
) -> Result<Encoded, WriteError> {
    if rs.template_labels.is_empty() {
        return Err(WriteError::Local(
            "unable to create pods, no labels".to_owned(),
        ));
    }
    let body = match rs.template() {
        Some(Template::Protobuf(template)) => {
            protobuf_body(rs, kind, name, template).map_err(|error| error.to_string())
        }
        Some(Template::Json(template)) => {
            json_body(rs, kind, name, template.get()).map_err(|error| error.to_string())
        }
        None => return Err(WriteError::Local("the pod template is missing".to_owned())),
    };
    body.map_err(|error| WriteError::Local(format!("the pod template is unreadable: {error}")))
}

/// The longest pod name, in bytes (apiserver `pkg/storage/names/generate.go:maxNameLength`).
const NAME_BYTES_MAX: usize = 63;

/// Characters behind the prefix (apiserver `pkg/storage/names/generate.go:randomLength`).
const SUFFIX_LENGTH: usize = 5;

/// Characters that spell no words (apimachinery `pkg/util/rand/rand.go:alphanums`).
pub(crate) const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Number of suffixes: 27^5.
pub(crate) const N_SUFFIXES: u64 = (ALPHABET.len() as u64).pow(5);

/// Odd and no multiple of 3, so multiplication modulo [`N_SUFFIXES`] is a permutation; about 0.618
/// times as large, so neighbours are far apart.
const STRIDE: u64 = 8_868_113;

/// The name of the pod with this number. All versions of a ReplicaSet share one cycle through the
/// 27^5 suffixes, in an order that each UID shuffles; the number of a version is its start in the
/// cycle. Each stored pod takes a version of its own, so no name returns until the API server has
/// issued 14 million versions. The exception is a pod that appeared and vanished since the last
/// write of the ReplicaSet, if the daemon restarts then.
pub fn pod_name(rs: &ReplicaSet, number: u64) -> String {
    let mut name = generate_name(&rs.key.name);
    name.truncate(NAME_BYTES_MAX - SUFFIX_LENGTH);
    name + &suffix(&rs.uid, number)
}

/// The suffix at `index` in the cycle of this UID.
pub(crate) fn suffix(uid: &Uid, index: u64) -> String {
    let base = ALPHABET.len() as u64;
    let mut number = (index % N_SUFFIXES * STRIDE + hash(uid) % N_SUFFIXES) % N_SUFFIXES;
    let draw = |_| {
        let digit = usize::try_from(number % base).expect("a remainder below 27");
        number /= base;
        char::from(ALPHABET[digit])
    };
    (0..SUFFIX_LENGTH).map(draw).collect()
}

/// `generateName` of a ReplicaSet's pods, and the prefix of their names.
pub fn generate_name(rs_name: &str) -> String {
    format!("{rs_name}-")
}

/// `DeleteOptions` with the UID as a precondition, and the resource version too if there is one.
pub fn delete_body(uid: &Uid, version: Option<&ResourceVersion>) -> Vec<u8> {
    let mut preconditions = json!({"uid": uid});
    if let Some(version) = version.filter(|version| !version.is_empty()) {
        preconditions["resourceVersion"] = json!(version);
    }
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions,
    });
    options.to_string().into_bytes()
}

fn json_body(
    rs: &ReplicaSet,
    kind: &WorkloadKind,
    name: &str,
    template: &str,
) -> Result<Encoded, serde_json::Error> {
    type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;
    let mut pod: Members<'_> = serde_json::from_str(template)?;
    let metadata = pod
        .get("metadata")
        .map_or("null", |metadata| metadata.get());
    let metadata: Option<Members<'_>> = serde_json::from_str(metadata)?;
    let mut metadata = metadata.unwrap_or_default();
    let copied = ["labels", "annotations", "finalizers"];
    metadata.retain(|name, value| copied.contains(&&**name) && value.get() != "null");
    let owner = controlling_reference(kind, &rs.key.name, &rs.uid);
    let own = [
        ("name", to_raw_value(name)?),
        ("generateName", to_raw_value(&generate_name(&rs.key.name))?),
        ("ownerReferences", to_raw_value(&[owner])?),
    ];
    metadata.extend(own.iter().map(|(name, value)| (Cow::from(*name), &**value)));
    let own = [
        ("apiVersion", to_raw_value("v1")?),
        ("kind", to_raw_value("Pod")?),
        ("metadata", to_raw_value(&metadata)?),
    ];
    pod.extend(own.iter().map(|(name, value)| (Cow::from(*name), &**value)));
    Ok(Encoded {
        media_type: JSON,
        bytes: serde_json::to_vec(&pod)?,
    })
}

/// Initial capacity for the pod's own metadata: names and the owner reference.
const METADATA_BYTES: usize = 512;

fn protobuf_body(
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

/// As `GetPodFromTemplate`: name, namespace and owner references of a template must not reach the
/// pod.
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
mod tests;
