//! What hostile answers consist of: ReplicaSets with a flaw, deep nestings, protobuf and a bomb.

use serde_json::{Value, json};

/// Media type of protobuf.
pub(super) const IN_PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A value for [`with`] that [`wrong_types`] and [`deep_template`] replace in the text.
const HOLE: &str = "@@";

/// Values of every type, and at the limits of numbers, texts and times.
const VALUES: &[&str] = &[
    "1e308",
    "-1e308",
    "1e999",
    "9223372036854775807",
    "-9223372036854775809",
    "2147483648",
    "-5",
    "1.5",
    "true",
    "null",
    "\"\"",
    "\"x\"",
    "[]",
    "{}",
    "[1]",
    "{\"a\":1}",
    "\"\\ud800\"",
    "\"9999999-01-01T00:00:00Z\"",
];

/// Fields that the daemon reads.
const FIELDS: &[&str] = &[
    "/metadata",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/uid",
    "/metadata/resourceVersion",
    "/metadata/generation",
    "/metadata/labels",
    "/metadata/annotations",
    "/metadata/creationTimestamp",
    "/metadata/deletionTimestamp",
    "/metadata/ownerReferences",
    "/metadata/finalizers",
    "/spec",
    "/spec/replicas",
    "/spec/minReadySeconds",
    "/spec/selector",
    "/spec/selector/matchLabels",
    "/spec/selector/matchExpressions",
    "/spec/template",
    "/spec/template/metadata",
    "/spec/template/spec",
    "/status",
    "/status/replicas",
    "/status/conditions",
    "/status/observedGeneration",
    "/status/terminatingReplicas",
    "/kind",
    "/apiVersion",
];

/// A ReplicaSet with this many `spec.replicas`.
pub(super) fn replica_set(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": format!("uid-of-{}", name.len()),
            "resourceVersion": "7",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "replicas": replicas,
            "minReadySeconds": 0,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "x"}]},
            },
        },
        "status": {"replicas": 0},
    })
}

/// The object with this value at a pointer whose last part need not exist.
fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let parent = object.pointer_mut(parent).expect("the parent exists");
    parent[name] = value;
    object
}

/// A ReplicaSet for each field and each value, which mostly has not the field's type.
pub(super) fn wrong_types() -> Vec<String> {
    let pairs = FIELDS
        .iter()
        .flat_map(|field| VALUES.iter().map(move |value| (field, value)));
    let objects = (1..).zip(pairs).map(|(number, (field, value))| {
        let mut object = replica_set(&format!("m{number}"), 0);
        object["metadata"]["uid"] = json!(format!("uid-{number}"));
        let object = with(object, field, json!(HOLE));
        object.to_string().replace(&format!("\"{HOLE}\""), value)
    });
    objects.collect()
}

/// A list within a list, this many times.
pub(super) fn deep(levels: usize) -> String {
    "[".repeat(levels) + &"]".repeat(levels)
}

/// A ReplicaSet whose template has a field of this many levels.
pub(super) fn deep_template(levels: usize) -> String {
    let object = with(replica_set("web", 1), "/spec/template/spec", json!(HOLE));
    let hole = format!("\"{HOLE}\"");
    let spec = format!("{{\"containers\":{}}}", deep(levels));
    object.to_string().replace(&hole, &spec)
}

/// A ReplicaSet with these bytes in the place of the label's value.
pub(super) fn with_label(value: &[u8]) -> Vec<u8> {
    let object = replica_set("web", 0);
    let object = with(object, "/metadata/labels", json!({"l": HOLE}));
    let text = object.to_string();
    let (before, after) = text.split_once(HOLE).expect("the hole");
    [before.as_bytes(), value, after.as_bytes()].concat()
}

/// A watch event of this type about this object, as a line.
pub(super) fn event(type_: &str, object: impl AsRef<[u8]>) -> Vec<u8> {
    let start = format!("{{\"type\":\"{type_}\",\"object\":");
    [start.as_bytes(), object.as_ref(), b"}\n"].concat()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}

/// A field of protobuf with bytes in it.
pub(super) fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    let length = u64::try_from(bytes.len()).expect("it is in memory");
    [varint(number << 3 | 2), varint(length), bytes.to_vec()].concat()
}

/// A watch event in protobuf about a ReplicaSet with these bytes, with its length before it.
pub(super) fn protobuf_event(object: &[u8]) -> Vec<u8> {
    let kind = [field(1, b"apps/v1"), field(2, b"ReplicaSet")].concat();
    let envelope = [b"k8s\0".to_vec(), field(1, &kind), field(2, object)].concat();
    let event = [field(1, b"ADDED"), field(2, &field(1, &envelope))].concat();
    let length = u32::try_from(event.len()).expect("below 4 GiB");
    [length.to_be_bytes().to_vec(), event].concat()
}

/// A ReplicaSet in protobuf with a message within a message in its template, this many times.
pub(super) fn deep_protobuf(levels: usize) -> Vec<u8> {
    let metadata = [field(1, b"web"), field(3, b"default")].concat();
    let inner = (0..levels).fold(Vec::new(), |inner, _| field(3, &inner));
    [field(1, &metadata), field(2, &inner)].concat()
}

/// `n` times 258 spaces in gzip, 13 bits each: the end of the format, a checksum, is missing.
pub(super) fn gzip_bomb(n: usize) -> Vec<u8> {
    let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    // A last block with fixed codes, a space, and repetitions of the byte before.
    let first = "110".to_owned() + "01010000";
    let repetition = "11000101".to_owned() + "00000";
    let bits = first.bytes().chain(repetition.bytes().cycle().take(13 * n));
    let bits: Vec<u8> = bits.map(|bit| bit - b'0').collect();
    let byte = |bits: &[u8]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | bit);
    header.into_iter().chain(bits.chunks(8).map(byte)).collect()
}
