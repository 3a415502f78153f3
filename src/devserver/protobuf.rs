//! Decodes protobuf bodies of the kinds that kubectl and leader election send as protobuf. Pure.
//!
//! Responses are always JSON, which every client that sends protobuf accepts. A table of fields per
//! message replaces generated code. The tables have the fields that kubectl writes; an object with
//! further ones is refused, so that none gets lost.

mod schemas;

use Field::{Many, Map as MapOf, One};
use Kind::{Integer, Text};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use serde_json::{Map, Value, json};

use crate::api::protobuf;
use crate::api::protobuf::{Envelope, Fields, MAGIC, ProtobufError};

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Bytes,
    Integer,
    /// An integer that is absent if it is 0.
    Count,
    Boolean,
    /// A boolean that is absent if it is false.
    Flag,
    Time,
    MicroTime,
    /// A message with a text field.
    Quantity,
    IntegerOrText,
    Message(&'static [Field]),
    /// What the server sets itself.
    Skipped,
    /// A message that may only have zero values. Go encodes it with every object.
    Unset,
}

/// Number, name and type.
#[derive(Clone, Copy)]
enum Field {
    One(u32, &'static str, Kind),
    Many(u32, &'static str, Kind),
    /// Keys are texts, values are of this kind.
    Map(u32, &'static str, Kind),
}

const TYPE_META: &[Field] = &[One(1, "apiVersion", Text), One(2, "kind", Text)];

/// Why a body cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DecodeError {
    /// The tables do not have the kind.
    UnknownKind(String),
    /// An object of this kind has a field that the tables do not have.
    UnknownField(String),
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
    let kind = kind.unwrap_or_default();
    let unknown_kind = || DecodeError::UnknownKind(kind.to_owned());
    let schema = schemas::of(kind).ok_or_else(unknown_kind)?;
    let mut object = message(raw, schema).map_err(|error| match error {
        DecodeError::UnknownField(_) => DecodeError::UnknownField(kind.to_owned()),
        error => error,
    })?;
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
            if field.bytes.is_empty() && field.number == 0 {
                continue;
            }
            return Err(DecodeError::UnknownField(field.tag.to_string()));
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

fn value_of(field: &protobuf::Field<'_>, kind: Kind) -> Result<Value, DecodeError> {
    Ok(match kind {
        Text => {
            let text = std::str::from_utf8(field.length_delimited()?);
            json!(text.ok().ok_or(DecodeError::Malformed)?)
        }
        Kind::Bytes => json!(BASE64_STANDARD.encode(field.length_delimited()?)),
        Kind::Count | Kind::Flag if field.varint()? == 0 => Value::Null,
        // Protobuf encodes negative numbers as 64-bit two's complement.
        Integer | Kind::Count => json!(field.varint()?.cast_signed()),
        Kind::Boolean | Kind::Flag => json!(field.varint()? != 0),
        Kind::Quantity => {
            let mut quantity = message(field.length_delimited()?, &[One(1, "string", Text)])?;
            quantity.remove("string").unwrap_or_else(|| json!("0"))
        }
        Kind::Time => time_of(field.length_delimited()?, "%Y-%m-%dT%H:%M:%SZ")?,
        Kind::MicroTime => time_of(field.length_delimited()?, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        Kind::IntegerOrText => integer_or_text(field.length_delimited()?)?,
        Kind::Skipped => Value::Null,
        Kind::Unset if is_zero(field.length_delimited()?, STATUS_DEPTH_MAX) => Value::Null,
        Kind::Unset => return Err(DecodeError::UnknownField(field.tag.to_string())),
        Kind::Message(schema) => Value::Object(message(field.length_delimited()?, schema)?),
    })
}

/// Levels of messages in a status.
const STATUS_DEPTH_MAX: usize = 8;

/// True for a message without a value at any of `depth` levels.
fn is_zero(message: &[u8], depth: usize) -> bool {
    let is_zero_field = |field: protobuf::Field<'_>| {
        field.number == 0
            && (field.bytes.is_empty() || depth > 0 && is_zero(field.bytes, depth - 1))
    };
    Fields::of(message).all(|field| field.is_ok_and(is_zero_field))
}

fn integer_or_text(bytes: &[u8]) -> Result<Value, DecodeError> {
    let schema = [
        One(1, "type", Integer),
        One(2, "number", Integer),
        One(3, "text", Text),
    ];
    let mut message = message(bytes, &schema)?;
    let is_text = message.get("type") == Some(&json!(1));
    let value = message.remove(if is_text { "text" } else { "number" });
    Ok(value.unwrap_or_else(|| json!(0)))
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
    let nanos = i32::try_from(number("nanos")).ok();
    let nanos = nanos.filter(|nanos| nanos.abs_diff(0) < 1_000_000_000);
    let nanos = nanos.ok_or(DecodeError::Malformed)?;
    let time = SignedDuration::new(number("seconds"), nanos);
    let time = DateTime::constant(1970, 1, 1, 0, 0, 0, 0).checked_add(time);
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
        let zero = read(&body("ConfigMap", &[9 << 3, 0]));
        assert!(zero.is_ok(), "{zero:?}");
        let unknown = read(&body("ConfigMap", &[9 << 3, 1]));
        let expected = DecodeError::UnknownField("ConfigMap".to_owned());
        assert_eq!(unknown, Err(expected));
        let good = body("Namespace", &field(1, &field(1, b"a-name")));
        for end in 0..good.len() {
            // A truncated body may be valid by chance, but must not panic.
            if let Ok(value) = read(&good[..end]) {
                assert_eq!(value.get("metadata"), None, "{end}");
            }
        }
        let status = |raw: &[u8]| read(&body("Deployment", &field(3, raw)));
        assert!(
            status(&[1 << 3, 0, 5 << 3 | 2, 0]).is_ok(),
            "all counts are zero"
        );
        assert!(status(&[1 << 3, 1]).is_err(), "a status would get lost");
        let endless = [&MAGIC[..], &[0xff; 40]].concat();
        assert_eq!(read(&endless), Err(DecodeError::Malformed));
    }
}
