//! Decodes protobuf bodies. Pure.
//!
//! Responses are always JSON, which every client that sends protobuf accepts. The table in `schema`
//! replaces generated code. As in upstream, fields that the table does not have are skipped.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use serde_json::{Map, Value, json};

use crate::api::protobuf::{Envelope, Field, Fields, MAGIC, ProtobufError};
use crate::schema::{Kind, Many, Member, fields_of, type_named};

/// Levels of messages in an object.
const DEPTH_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The table does not have the kind.
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
pub(crate) fn read(body: &[u8]) -> Result<Value, DecodeError> {
    let envelope = body.strip_prefix(&MAGIC).ok_or(DecodeError::Malformed)?;
    let (mut type_meta, mut raw) = (Map::new(), &[][..]);
    for field in Fields::of(envelope) {
        let field = field?;
        match field.tag {
            Envelope::TYPE_META => type_meta = message(field.bytes, "TypeMeta", DEPTH_MAX)?,
            Envelope::RAW => raw = field.bytes,
            _ => {}
        }
    }
    let text = |name: &str| {
        type_meta
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let kind = type_named(text("apiVersion"), text("kind"));
    let kind = kind.ok_or_else(|| DecodeError::UnknownKind(text("kind").to_owned()))?;
    let mut object = message(raw, kind, DEPTH_MAX)?;
    object.extend(type_meta);
    Ok(Value::Object(object))
}

/// Decodes a message with at most `depth` levels. It has the members that Go would write as JSON.
fn message(bytes: &[u8], name: &str, depth: usize) -> Result<Map<String, Value>, DecodeError> {
    let depth = depth.checked_sub(1).ok_or(DecodeError::Malformed)?;
    let members = fields_of(name);
    let mut object = Map::new();
    for field in Fields::of(bytes) {
        let field = field?;
        let known = members.iter().find(|known| known.number == field.tag);
        let Some(known) = known else { continue };
        match known.many {
            Many::One => match value_of(&field, known.kind, depth)? {
                Value::Object(inlined) if known.name.is_empty() => object.extend(inlined),
                value if known.keeps_zero || !is_zero(&value, known.kind) => {
                    object.insert(known.name.to_owned(), value);
                }
                _ => {}
            },
            Many::List => {
                let list = object.entry(known.name).or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut() {
                    add(list, &field, known, depth)?;
                }
            }
            Many::Map => {
                let (key, value) = field.entry()?;
                let value = value_in(value, known.kind, depth)?;
                object.entry(known.name).or_insert_with(|| json!({}))[key] = value;
            }
        }
    }
    Ok(object)
}

/// Adds the next entry of a list, or all of a packed one.
fn add(
    list: &mut Vec<Value>,
    field: &Field<'_>,
    member: &Member,
    depth: usize,
) -> Result<(), DecodeError> {
    let is_packed = matches!(member.kind, Kind::Int32 | Kind::Int64 | Kind::Bool);
    if !is_packed || field.varint().is_ok() {
        list.push(value_of(field, member.kind, depth)?);
        return Ok(());
    }
    // A key before each number makes it a field.
    let mut rest = field.length_delimited()?;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte < 0x80);
        let (number, others) = rest.split_at(end.ok_or(DecodeError::Malformed)? + 1);
        let number = [&[1 << 3][..], number].concat();
        for field in Fields::of(&number) {
            list.push(value_of(&field?, member.kind, depth)?);
        }
        rest = others;
    }
    Ok(())
}

/// True for what Go leaves out of JSON. It writes every struct but a time.
fn is_zero(value: &Value, kind: Kind) -> bool {
    let is_message = matches!(kind, Kind::Message(_) | Kind::Quantity | Kind::IntOrString);
    !is_message && (value.is_null() || *value == "" || *value == 0 || *value == false)
}

fn value_of(field: &Field<'_>, kind: Kind, depth: usize) -> Result<Value, DecodeError> {
    Ok(match kind {
        // Protobuf encodes negative numbers as 64-bit two's complement.
        Kind::Int32 | Kind::Int64 => json!(field.varint()?.cast_signed()),
        Kind::Bool => json!(field.varint()? != 0),
        Kind::Float => {
            let bytes = field.whole.last_chunk().ok_or(DecodeError::Malformed)?;
            number(f64::from_le_bytes(*bytes))
        }
        kind => value_in(field.length_delimited()?, kind, depth)?,
    })
}

/// Go writes a fraction without digits after the point as an integer.
fn number(number: f64) -> Value {
    let text = number.to_string();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The first field of a message with this number.
fn part(bytes: &[u8], number: u32) -> Result<Option<Field<'_>>, DecodeError> {
    for field in Fields::of(bytes) {
        let field = field?;
        if field.tag == number {
            return Ok(Some(field));
        }
    }
    Ok(None)
}

/// The number in the field `tag` of a message, or 0.
fn number_in(bytes: &[u8], tag: u32) -> Result<i64, DecodeError> {
    let found = part(bytes, tag)?.map(|field| field.varint()).transpose()?;
    Ok(found.unwrap_or(0).cast_signed())
}

/// The value of a kind that protobuf encodes with its length.
fn value_in(bytes: &[u8], kind: Kind, depth: usize) -> Result<Value, DecodeError> {
    let inner = |tag: u32| Ok::<_, DecodeError>(part(bytes, tag)?.map_or(&[][..], |it| it.bytes));
    let schema = |bytes| message(bytes, "JSONSchemaProps", depth).map(Value::Object);
    let all = |tag: u32| {
        Fields::of(bytes)
            .flatten()
            .filter(move |field| field.tag == tag)
    };
    let texts = |tag: u32| {
        all(tag)
            .map(|field| text(field.bytes))
            .collect::<Result<Value, _>>()
    };
    Ok(match kind {
        Kind::Bytes => json!(BASE64_STANDARD.encode(bytes)),
        Kind::Quantity => match text(inner(1)?)? {
            Value::String(empty) if empty.is_empty() => json!("0"),
            quantity => quantity,
        },
        Kind::Time => time_of(bytes, "%Y-%m-%dT%H:%M:%SZ")?,
        Kind::MicroTime => time_of(bytes, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        Kind::IntOrString if number_in(bytes, 1)? == 1 => text(inner(3)?)?,
        Kind::IntOrString => json!(number_in(bytes, 2)?),
        Kind::Raw if inner(1)?.is_empty() => Value::Null,
        Kind::Raw => serde_json::from_slice(inner(1)?).or(Err(DecodeError::Malformed))?,
        Kind::Texts => texts(1)?,
        Kind::SchemaOrBool => match part(bytes, 2)? {
            Some(field) => schema(field.bytes)?,
            None => json!(number_in(bytes, 1)? != 0),
        },
        Kind::SchemaOrArray | Kind::SchemaOrTexts => match (part(bytes, 1)?, kind) {
            (Some(field), _) => schema(field.bytes)?,
            (None, Kind::SchemaOrTexts) => texts(2)?,
            (None, _) => all(2)
                .map(|field| schema(field.bytes))
                .collect::<Result<_, _>>()?,
        },
        Kind::Message(name) => Value::Object(message(bytes, name, depth)?),
        _ => text(bytes)?,
    })
}

fn text(bytes: &[u8]) -> Result<Value, DecodeError> {
    let text = std::str::from_utf8(bytes);
    text.map(Value::from).or(Err(DecodeError::Malformed))
}

/// An empty message decodes as `null`.
fn time_of(bytes: &[u8], format: &str) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(number_in(bytes, 2)?).ok();
    let nanos = nanos.filter(|nanos| nanos.abs_diff(0) < 1_000_000_000);
    let nanos = nanos.ok_or(DecodeError::Malformed)?;
    let time = SignedDuration::new(number_in(bytes, 1)?, nanos);
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
        let unknown = read(&body("Foo", b""));
        assert_eq!(unknown, Err(DecodeError::UnknownKind("Foo".to_owned())));
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
