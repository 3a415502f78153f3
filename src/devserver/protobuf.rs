//! Decodes protobuf bodies of the kinds that kubectl and leader election send as protobuf. Pure.
//!
//! Responses are always JSON, which every client that sends protobuf accepts. The table in `schema`
//! replaces generated code. It has the fields that kubectl writes; an object with further ones is
//! rejected, so that none is lost.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use serde_json::{Map, Value, json};

use crate::api::protobuf::{Envelope, Field, Fields, MAGIC, ProtobufError};
use crate::schema::{Kind, Many, Member, fields_of};

/// Why a body cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The table does not have the kind.
    UnknownKind(String),
    /// An object of this kind has a field that the table does not have.
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
pub(crate) fn read(body: &[u8]) -> Result<Value, DecodeError> {
    let envelope = body.strip_prefix(&MAGIC).ok_or(DecodeError::Malformed)?;
    let (mut type_meta, mut raw) = (Map::new(), &[][..]);
    for field in Fields::of(envelope) {
        let field = field?;
        match field.tag {
            Envelope::TYPE_META => type_meta = message(field.bytes, "TypeMeta")?,
            Envelope::RAW => raw = field.bytes,
            _ => {}
        }
    }
    let kind = type_meta.get("kind").and_then(Value::as_str);
    let kind = kind.unwrap_or_default();
    let members = fields_of(kind).unwrap_or_default();
    if members.iter().all(|member| member.number == 0) {
        return Err(DecodeError::UnknownKind(kind.to_owned()));
    }
    let mut object = message(raw, kind).map_err(|error| match error {
        DecodeError::UnknownField(_) => DecodeError::UnknownField(kind.to_owned()),
        error => error,
    })?;
    object.extend(type_meta);
    Ok(Value::Object(object))
}

/// Omits empty members, because Go encodes every field that is not a pointer.
fn message(bytes: &[u8], name: &str) -> Result<Map<String, Value>, DecodeError> {
    let members = fields_of(name).unwrap_or_default();
    let mut object = Map::new();
    for field in Fields::of(bytes) {
        let field = field?;
        let known = members.iter().find(|known| known.number == field.tag);
        let Some(known) = known else {
            if field.bytes.is_empty() && field.number == 0 {
                continue;
            }
            return Err(DecodeError::UnknownField(field.tag.to_string()));
        };
        match known.many {
            Many::One => {
                let value = value_of(&field, known)?;
                if value != json!("") && !value.is_null() {
                    object.insert(known.name.to_owned(), value);
                }
            }
            Many::List => {
                let list = object.entry(known.name).or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut() {
                    list.push(value_of(&field, known)?);
                }
            }
            Many::Map => {
                let (key, value) = field.entry()?;
                let value = value_in(value, known.kind)?;
                object.entry(known.name).or_insert_with(|| json!({}))[key] = value;
            }
        }
    }
    Ok(object)
}

fn value_of(field: &Field<'_>, member: &Member) -> Result<Value, DecodeError> {
    Ok(match member.kind {
        Kind::Skipped => Value::Null,
        Kind::Int32 | Kind::Int64 | Kind::Bool if member.is_zero_absent && field.varint()? == 0 => {
            Value::Null
        }
        // Protobuf encodes negative numbers as 64-bit two's complement.
        Kind::Int32 | Kind::Int64 => json!(field.varint()?.cast_signed()),
        Kind::Bool => json!(field.varint()? != 0),
        Kind::Message(_) if member.is_zero_absent => {
            if !is_zero(field.length_delimited()?, STATUS_DEPTH_MAX) {
                return Err(DecodeError::UnknownField(field.tag.to_string()));
            }
            Value::Null
        }
        kind => value_in(field.length_delimited()?, kind)?,
    })
}

/// The value of a kind that protobuf encodes with its length.
fn value_in(bytes: &[u8], kind: Kind) -> Result<Value, DecodeError> {
    Ok(match kind {
        Kind::Bytes => json!(BASE64_STANDARD.encode(bytes)),
        Kind::Quantity => {
            let mut quantity = message(bytes, "QuantityMessage")?;
            quantity.remove("string").unwrap_or_else(|| json!("0"))
        }
        Kind::Time => time_of(bytes, "%Y-%m-%dT%H:%M:%SZ")?,
        Kind::MicroTime => time_of(bytes, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        Kind::IntOrString => {
            let mut message = message(bytes, "IntOrStringMessage")?;
            let is_text = message.get("type") == Some(&json!(1));
            let value = message.remove(if is_text { "strVal" } else { "intVal" });
            value.unwrap_or_else(|| json!(0))
        }
        Kind::Message(name) => Value::Object(message(bytes, name)?),
        _ => json!(
            std::str::from_utf8(bytes)
                .ok()
                .ok_or(DecodeError::Malformed)?
        ),
    })
}

/// Levels of messages in a status.
const STATUS_DEPTH_MAX: usize = 8;

/// True for a message without a value at any of `depth` levels.
fn is_zero(message: &[u8], depth: usize) -> bool {
    let is_zero_field = |field: Field<'_>| {
        field.number == 0
            && (field.bytes.is_empty() || depth > 0 && is_zero(field.bytes, depth - 1))
    };
    Fields::of(message).all(|field| field.is_ok_and(is_zero_field))
}

/// An empty message decodes as `null`.
fn time_of(bytes: &[u8], format: &str) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let time = message(bytes, "Timestamp")?;
    let number = |name: &str| time.get(name).and_then(Value::as_i64).unwrap_or(0);
    let nanos = i32::try_from(number("nanos")).ok();
    let nanos = nanos.filter(|nanos| nanos.abs_diff(0) < 1_000_000_000);
    let nanos = nanos.ok_or(DecodeError::Malformed)?;
    let time = SignedDuration::new(number("seconds"), nanos);
    let time = DateTime::constant(1970, 1, 1, 0, 0, 0, 0).checked_add(time);
    let time = time.ok().ok_or(DecodeError::Malformed)?;
    Ok(json!(time.strftime(format).to_string()))
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
