//! Decodes protobuf bodies of the few kinds that kubectl and leader election send as protobuf:
//! Namespaces, ServiceAccounts, ResourceQuotas, Leases, Events, Scales, Bindings, DeleteOptions.
//! Pure.
//!
//! Responses are always JSON, which every client that sends protobuf accepts. A table of fields per
//! message replaces generated code; the field numbers are those of `generated.proto` beside each
//! API's `types.go`.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::protobuf::wire::{self, Fields};
use crate::api::protobuf::{Envelope, MAGIC, ProtobufError};

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Integer,
    Boolean,
    Time,
    MicroTime,
    /// A message with a text field.
    Quantity,
    Message(&'static [Field]),
}

/// Number, name and type.
#[derive(Clone, Copy)]
enum Field {
    One(u32, &'static str, Kind),
    Many(u32, &'static str, Kind),
    /// Keys are texts, values are of this kind.
    Map(u32, &'static str, Kind),
}

use Field::{Many, Map as MapOf, One};
use Kind::{Boolean, Integer, Message, MicroTime, Quantity, Text, Time};

const OWNER_REFERENCE: &[Field] = &[
    One(1, "kind", Text),
    One(3, "name", Text),
    One(4, "uid", Text),
    One(5, "apiVersion", Text),
    One(6, "controller", Boolean),
    One(7, "blockOwnerDeletion", Boolean),
];

const OBJECT_META: &[Field] = &[
    One(1, "name", Text),
    One(2, "generateName", Text),
    One(3, "namespace", Text),
    One(5, "uid", Text),
    One(6, "resourceVersion", Text),
    One(8, "creationTimestamp", Time),
    MapOf(11, "labels", Text),
    MapOf(12, "annotations", Text),
    Many(13, "ownerReferences", Message(OWNER_REFERENCE)),
    Many(14, "finalizers", Text),
];

const OBJECT_REFERENCE: &[Field] = &[
    One(1, "kind", Text),
    One(2, "namespace", Text),
    One(3, "name", Text),
    One(4, "uid", Text),
    One(5, "apiVersion", Text),
    One(6, "resourceVersion", Text),
    One(7, "fieldPath", Text),
];

const NAMESPACE: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(2, "spec", Message(&[Many(1, "finalizers", Text)])),
    One(3, "status", Message(&[One(1, "phase", Text)])),
];

const SERVICE_ACCOUNT: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    Many(2, "secrets", Message(OBJECT_REFERENCE)),
    Many(3, "imagePullSecrets", Message(&[One(1, "name", Text)])),
    One(4, "automountServiceAccountToken", Boolean),
];

const SCOPE_SELECTOR: &[Field] = &[Many(
    1,
    "matchExpressions",
    Message(&[
        One(1, "scopeName", Text),
        One(2, "operator", Text),
        Many(3, "values", Text),
    ]),
)];

const RESOURCE_QUOTA: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(
        2,
        "spec",
        Message(&[
            MapOf(1, "hard", Quantity),
            Many(2, "scopes", Text),
            One(3, "scopeSelector", Message(SCOPE_SELECTOR)),
        ]),
    ),
    One(
        3,
        "status",
        Message(&[MapOf(1, "hard", Quantity), MapOf(2, "used", Quantity)]),
    ),
];

const LEASE: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(
        2,
        "spec",
        Message(&[
            One(1, "holderIdentity", Text),
            One(2, "leaseDurationSeconds", Integer),
            One(3, "acquireTime", MicroTime),
            One(4, "renewTime", MicroTime),
            One(5, "leaseTransitions", Integer),
            One(6, "strategy", Text),
            One(7, "preferredHolder", Text),
        ]),
    ),
];

const EVENT: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(2, "involvedObject", Message(OBJECT_REFERENCE)),
    One(3, "reason", Text),
    One(4, "message", Text),
    One(
        5,
        "source",
        Message(&[One(1, "component", Text), One(2, "host", Text)]),
    ),
    One(6, "firstTimestamp", Time),
    One(7, "lastTimestamp", Time),
    One(8, "count", Integer),
    One(9, "type", Text),
    One(10, "eventTime", MicroTime),
    One(
        11,
        "series",
        Message(&[
            One(1, "count", Integer),
            One(2, "lastObservedTime", MicroTime),
        ]),
    ),
    One(12, "action", Text),
    One(13, "related", Message(OBJECT_REFERENCE)),
    One(14, "reportingComponent", Text),
    One(15, "reportingInstance", Text),
];

const SCALE: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(2, "spec", Message(&[One(1, "replicas", Integer)])),
];

const BINDING: &[Field] = &[
    One(1, "metadata", Message(OBJECT_META)),
    One(2, "target", Message(OBJECT_REFERENCE)),
];

const DELETE_OPTIONS: &[Field] = &[
    One(1, "gracePeriodSeconds", Integer),
    One(
        2,
        "preconditions",
        Message(&[One(1, "uid", Text), One(2, "resourceVersion", Text)]),
    ),
    One(3, "orphanDependents", Boolean),
    One(4, "propagationPolicy", Text),
    Many(5, "dryRun", Text),
];

const TYPE_META: &[Field] = &[One(1, "apiVersion", Text), One(2, "kind", Text)];

/// Why a body cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DecodeError {
    /// This server knows no protobuf fields for the kind.
    UnknownKind(String),
    /// The body is not protobuf, or is truncated.
    Malformed,
}

impl From<ProtobufError> for DecodeError {
    fn from(_: ProtobufError) -> Self {
        Self::Malformed
    }
}

/// Decodes the object in `body`, with `kind` and `apiVersion`.
///
/// # Errors
/// See [`DecodeError`].
pub(super) fn read(body: &[u8]) -> Result<Value, DecodeError> {
    let envelope = body.strip_prefix(&MAGIC).ok_or(DecodeError::Malformed)?;
    let (mut type_meta, mut raw) = (Map::new(), &[][..]);
    for field in Fields::of(envelope) {
        let field = field?;
        match field.tag {
            Envelope::TYPE_META => type_meta = message(field.bytes, TYPE_META)?,
            Envelope::RAW => raw = field.bytes,
            _ => {}
        }
    }
    let kind = type_meta.get("kind").and_then(Value::as_str);
    let schema = match kind.unwrap_or_default() {
        "Namespace" => NAMESPACE,
        "ServiceAccount" => SERVICE_ACCOUNT,
        "ResourceQuota" => RESOURCE_QUOTA,
        "Lease" => LEASE,
        "Event" => EVENT,
        "Scale" => SCALE,
        "Binding" => BINDING,
        "DeleteOptions" => DELETE_OPTIONS,
        kind => return Err(DecodeError::UnknownKind(kind.to_owned())),
    };
    let mut object = message(raw, schema)?;
    object.extend(type_meta);
    Ok(Value::Object(object))
}

/// Omits empty members, because Go encodes every field that is not a pointer.
fn message(bytes: &[u8], schema: &[Field]) -> Result<Map<String, Value>, DecodeError> {
    let mut object = Map::new();
    for field in Fields::of(bytes) {
        let field = field?;
        let known = schema.iter().find(|known| known.number() == field.tag);
        let Some(known) = known else {
            continue;
        };
        match *known {
            One(_, name, kind) => {
                let value = value_of(&field, kind)?;
                if value != json!("") && !value.is_null() {
                    object.insert(name.to_owned(), value);
                }
            }
            Many(_, name, kind) => {
                let list = object.entry(name).or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut() {
                    list.push(value_of(&field, kind)?);
                }
            }
            MapOf(_, name, kind) => {
                let pair = [One(1, "key", Text), One(2, "value", kind)];
                let mut pair = message(field.length_delimited()?, &pair)?;
                let key = pair.remove("key");
                let key = key.as_ref().and_then(Value::as_str).unwrap_or_default();
                let value = pair.remove("value").unwrap_or_else(|| json!(""));
                object.entry(name).or_insert_with(|| json!({}))[key] = value;
            }
        }
    }
    Ok(object)
}

fn value_of(field: &wire::Field<'_>, kind: Kind) -> Result<Value, DecodeError> {
    Ok(match kind {
        Text => {
            let text = std::str::from_utf8(field.length_delimited()?);
            json!(text.ok().ok_or(DecodeError::Malformed)?)
        }
        // Protobuf encodes negative numbers as 64-bit two's complement.
        Integer => json!(field.varint()?.cast_signed()),
        Boolean => json!(field.varint()? != 0),
        Quantity => {
            let mut quantity = message(field.length_delimited()?, &[One(1, "string", Text)])?;
            quantity.remove("string").unwrap_or_else(|| json!("0"))
        }
        Time => time_of(field.length_delimited()?, "%Y-%m-%dT%H:%M:%SZ")?,
        MicroTime => time_of(field.length_delimited()?, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        Message(schema) => Value::Object(message(field.length_delimited()?, schema)?),
    })
}

/// An empty message decodes as `null`.
fn time_of(bytes: &[u8], format: &str) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let time = message(
        bytes,
        &[One(1, "seconds", Integer), One(2, "nanos", Integer)],
    )?;
    let number = |name: &str| time.get(name).and_then(Value::as_i64).unwrap_or(0);
    let nanos = i32::try_from(number("nanos"))
        .ok()
        .ok_or(DecodeError::Malformed)?;
    let time = Timestamp::new(number("seconds"), nanos);
    let time = time.ok().ok_or(DecodeError::Malformed)?;
    Ok(json!(time.strftime(format).to_string()))
}

impl Field {
    fn number(&self) -> u32 {
        match self {
            One(number, ..) | Many(number, ..) | MapOf(number, ..) => *number,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{DecodeError, MAGIC, read};

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).expect("short");
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &type_meta), field(2, raw)].concat()
    }

    #[test]
    fn a_quota_from_kubectl_decodes() {
        // Go encodes empty texts and the zero creation time, too.
        let metadata = [field(1, b"q"), field(2, b""), field(8, b"")].concat();
        let hard = [field(1, b"pods"), field(2, &field(1, b"3"))].concat();
        let raw = [field(1, &metadata), field(2, &field(1, &hard))].concat();
        let expected = json!({
            "kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "q"},
            "spec": {"hard": {"pods": "3"}},
        });
        assert_eq!(read(&body("ResourceQuota", &raw)), Ok(expected));
    }

    #[test]
    fn times_numbers_and_owners_decode() {
        let micro = [&[8, 60, 16], &[0x80, 0x89, 0x7a][..]].concat();
        let spec = [vec![16, 15], field(3, &micro)].concat();
        let owner = [field(4, b"1"), vec![48, 1]].concat();
        let raw = [field(1, &field(13, &owner)), field(2, &spec)].concat();
        let lease = read(&body("Lease", &raw)).expect("a lease");
        assert_eq!(lease["spec"]["leaseDurationSeconds"], json!(15));
        assert_eq!(
            lease["spec"]["acquireTime"],
            json!("1970-01-01T00:01:00.002000Z")
        );
        let owners = &lease["metadata"]["ownerReferences"];
        assert_eq!(owners, &json!([{"uid": "1", "controller": true}]));
    }

    #[test]
    fn undecodable_bodies_are_errors() {
        let unknown = read(&body("Pod", b""));
        assert_eq!(unknown, Err(DecodeError::UnknownKind("Pod".to_owned())));
        let good = body("Namespace", &field(1, &field(1, b"a-name")));
        for end in 0..good.len() {
            // A truncated body may be valid by chance, but must not panic.
            if let Ok(value) = read(&good[..end]) {
                assert_eq!(value.get("metadata"), None, "{end}");
            }
        }
        let endless = [&MAGIC[..], &[0xff; 40]].concat();
        assert_eq!(read(&endless), Err(DecodeError::Malformed));
    }
}
