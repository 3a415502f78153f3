//! Draws an input from a corpus: by its bytes, or by the structure of JSON or protobuf.

use fastrand::Rng;
use serde_json::{Value, json};

use crate::api::protobuf::Fields;

/// An input grows no longer than this.
const LENGTH_MAX: usize = 200_000;

/// The structure of a target's inputs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// None, with words that matter.
    Text(&'static [&'static str]),
    Json,
    /// Messages, after this many bytes that are none.
    Protobuf(usize),
    /// Messages, each after its length in four bytes.
    Frames,
}

const WORDS: [&str; 46] = [
    "null",
    "true",
    "-1",
    "1e308",
    "9223372036854775808",
    "\"\"",
    "{}",
    "[]",
    "\"\\ud800\"",
    "\"metadata\":",
    "\"items\":[",
    "\"9999-12-31T23:59:60.999999999Z\"",
    "\n",
    "\u{0}",
    "\\",
    "\"",
    "{\"type\":\"ERROR\",\"object\":",
    "{\"type\":\"BOOKMARK\",\"object\":",
    "\"$patch\":\"delete\"",
    "a/b",
    "/-",
    "~1",
    "[",
    "{",
    "]",
    "}",
    ":",
    ",",
    " ",
    "0",
    "99999999999999999999",
    "k8s\u{0}",
    "\n\u{7f}\u{7f}\u{7f}\u{7f}\u{7}",
    "\u{12}",
    "\u{1a}",
    "\u{b}",
    "\u{c}",
    "\u{8}\u{7f}",
    "x",
    "-",
    "=",
    "\u{202e}",
    "\u{e9}",
    ".",
    "\t",
    "\r\n",
];

const KEYS: [&str; 34] = [
    "metadata",
    "name",
    "namespace",
    "labels",
    "annotations",
    "ownerReferences",
    "uid",
    "controller",
    "spec",
    "status",
    "replicas",
    "selector",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "template",
    "containers",
    "conditions",
    "type",
    "lastTransitionTime",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "controller.kubernetes.io/pod-deletion-cost",
    "items",
    "kind",
    "$patch",
    "path",
    "details",
    "restartPolicy",
    "retryAfterSeconds",
];

const TEXTS: [&str; 16] = [
    "",
    "2026-13-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "100Mi",
    "1e1000",
    "In",
    "NotIn",
    "Exists",
    "True",
    "Always",
    "+7",
    "-2147483648",
    "\u{0}",
    "18446744073709551615",
];

fn one<'a, T: ?Sized>(rng: &mut Rng, of: &[&'a T]) -> &'a T {
    of[rng.usize(..of.len())]
}

/// Draws an input.
pub(super) fn draw(rng: &mut Rng, corpus: &[Vec<u8>], form: Form) -> Vec<u8> {
    let mut input = corpus[rng.usize(..corpus.len())].clone();
    let (by_structure, by_bytes) = match rng.u8(0..8) {
        0..=4 => (true, false),
        5..=6 => (false, true),
        _ => (true, true),
    };
    if by_structure {
        match form {
            Form::Text(_) => {}
            Form::Json => input = json_lines(rng, &input),
            Form::Protobuf(n) => {
                let n = n.min(input.len());
                let message = mutated(rng, &input[n..]);
                input.truncate(n);
                input.extend(message);
            }
            Form::Frames => input = frames(rng, &input),
        }
    }
    if by_bytes || matches!(form, Form::Text(_)) {
        for _ in 0..1_u32 << rng.u8(0..5) {
            change_bytes(rng, &mut input, corpus, form);
        }
    }
    input
}

fn change_bytes(rng: &mut Rng, input: &mut Vec<u8>, corpus: &[Vec<u8>], form: Form) {
    let length = input.len();
    let at = rng.usize(..=length);
    let end = (at + rng.usize(1..=256)).min(length);
    let word = match form {
        Form::Text(words) if rng.u8(0..4) > 0 => one(rng, words),
        _ => one(rng, &WORDS),
    };
    match rng.u8(0..9) {
        0 if at < length => input[at] ^= 1 << rng.u8(0..8),
        1 if at < length => input[at] = rng.u8(..),
        2 => drop(input.drain(at..end)),
        3 => drop(input.splice(at..at, word.bytes())),
        4 => drop(input.splice(at..(at + word.len()).min(length), word.bytes())),
        5 if length < LENGTH_MAX => {
            let piece = input[at..end].repeat(rng.usize(1..20));
            drop(input.splice(at..at, piece));
        }
        6 => {
            let other = &corpus[rng.usize(..corpus.len())];
            let from = rng.usize(..=other.len());
            let to = (from + rng.usize(1..=512)).min(other.len());
            drop(input.splice(at..at, other[from..to].iter().copied()));
        }
        7 if rng.u8(0..4) == 0 => input.truncate(at),
        8 if length < LENGTH_MAX => {
            let byte = one(
                rng,
                &[&b'[', &b'{', &b' ', &b'0', &b'9', &0, &0x0a, &0x13, &0xff],
            );
            drop(input.splice(at..at, std::iter::repeat_n(*byte, rng.usize(1..2000))));
        }
        _ => {}
    }
}

/// Changes each line that is JSON; the whole input if that is.
fn json_lines(rng: &mut Rng, input: &[u8]) -> Vec<u8> {
    if let Ok(mut value) = serde_json::from_slice(input) {
        change_json(rng, &mut value);
        return value.to_string().into_bytes();
    }
    let mut lines = Vec::new();
    for line in input.split(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(mut value) => {
                change_json(rng, &mut value);
                lines.push(value.to_string().into_bytes());
            }
            Err(_) => lines.push(line.to_vec()),
        }
    }
    lines.join(&b'\n')
}

fn change_json(rng: &mut Rng, root: &mut Value) {
    for _ in 0..1_u32 << rng.u8(0..4) {
        let mut all = Vec::new();
        paths(root, String::new(), &mut all);
        let path = &all[rng.usize(..all.len())];
        let other = root.pointer(&all[rng.usize(..all.len())]).cloned();
        let value = match rng.u8(0..11) {
            0 => Value::Null,
            1 => json!(rng.bool()),
            2 => json!([-1, 0, 1, i32::MAX, i32::MIN][rng.usize(..5)]),
            3 => json!([i64::MAX, i64::MIN, 1 << 31][rng.usize(..3)]),
            4 => json!([1e308, 0.5, 1e19][rng.usize(..3)]),
            5 => json!({}),
            6 => json!([]),
            7 => json!("x".repeat(rng.usize(0..300))),
            8 | 9 => json!(one(rng, &TEXTS)),
            _ => other.unwrap_or_default(),
        };
        let Some(slot) = root.pointer_mut(path) else {
            continue;
        };
        match (rng.u8(0..6), slot) {
            (0..=1, slot) => *slot = value,
            (2, Value::Object(map)) => drop(map.insert(one(rng, &KEYS).to_owned(), value)),
            (3..=5, Value::Object(map)) if !map.is_empty() => {
                let keys: Vec<String> = map.keys().cloned().collect();
                let member = map.remove(&keys[rng.usize(..keys.len())]);
                if rng.bool() {
                    map.insert(one(rng, &KEYS).to_owned(), member.unwrap_or_default());
                }
            }
            (2..=4, Value::Array(list)) if all.len() < 2000 => {
                let at = rng.usize(..=list.len());
                for _ in 0..rng.usize(1..20) {
                    list.insert(at, value.clone());
                }
            }
            (_, Value::Array(list)) if !list.is_empty() => {
                let member = list.remove(rng.usize(..list.len()));
                if rng.bool() {
                    list.push(member);
                }
            }
            _ => {}
        }
    }
}

/// The pointers of a value and all its members.
fn paths(value: &Value, at: String, all: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, member) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                paths(member, format!("{at}/{key}"), all);
            }
        }
        Value::Array(list) => {
            for (index, member) in list.iter().enumerate() {
                paths(member, format!("{at}/{index}"), all);
            }
        }
        _ => {}
    }
    all.push(at);
}

fn frames(rng: &mut Rng, mut input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((head, rest)) = input.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
        let (message, rest) = rest.split_at(length.min(rest.len()));
        out.extend(frame(&mutated(rng, message)));
        input = rest;
    }
    out
}

/// A message after its length.
pub(super) fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a short message");
    [&length.to_be_bytes()[..], message].concat()
}

/// The fields of a message, if it is one; changed, down to a field of some depth.
fn mutated(rng: &mut Rng, message: &[u8]) -> Vec<u8> {
    let fields: Result<Vec<_>, _> = Fields::of(message).collect();
    let Ok(fields) = fields else {
        return message.to_vec();
    };
    let mut fields: Vec<Vec<u8>> = fields.iter().map(|field| field.whole.to_vec()).collect();
    if fields.is_empty() {
        return message.to_vec();
    }
    for _ in 0..1_u32 << rng.u8(0..3) {
        if fields.is_empty() {
            break;
        }
        let at = rng.usize(..fields.len());
        match rng.u8(0..12) {
            0 => drop(fields.remove(at)),
            1 => {
                let field = fields[at].clone();
                fields.insert(rng.usize(..=fields.len()), field);
            }
            2 => {
                let tag = rng.u32(1..26);
                let number = [0, 1, u64::MAX, 1 << 31, 1 << 63, (1 << 31) - 1][rng.usize(..6)];
                let mut field = varint(u64::from(tag) << 3);
                field.extend(varint(number));
                fields.push(field);
            }
            3 => {
                let byte = fields[at][0];
                fields[at][0] = (byte & 7) | (rng.u8(1..16) << 3);
            }
            _ => fields[at] = mutated_field(rng, &fields[at]),
        }
    }
    fields.concat()
}

/// Another value for a field with a length: mostly its message with a change.
fn mutated_field(rng: &mut Rng, whole: &[u8]) -> Vec<u8> {
    let Some(Ok(field)) = Fields::of(whole).next() else {
        return whole.to_vec();
    };
    if whole[0] & 7 != 2 {
        return whole.to_vec();
    }
    let content = match rng.u8(0..8) {
        0 => one(rng, &TEXTS).as_bytes().to_vec(),
        1 => Vec::new(),
        2 => field.bytes.repeat(rng.usize(1..5)),
        _ => mutated(rng, field.bytes),
    };
    let mut out = varint(u64::from(field.tag) << 3 | 2);
    out.extend(varint(content.len() as u64));
    out.extend(content);
    out
}

/// A number as protobuf writes it.
pub(super) fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).expect("seven bits"));
    bytes
}
