//! The splitter against `serde_json` for any list, in reads of any size.

use std::io::{self, Read};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{JsonItems, StreamError};
use crate::cache::read_buffer::BUFFER_BYTES;

/// A body that returns its bytes in pieces of the given sizes, repeated in a cycle.
struct Pieces<'a> {
    bytes: &'a [u8],
    sizes: Vec<usize>,
    n_reads: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes[self.n_reads % self.sizes.len()];
        self.n_reads += 1;
        let n = size.min(self.bytes.len()).min(buffer.len());
        let (piece, rest) = self.bytes.split_at(n);
        buffer[..n].copy_from_slice(piece);
        self.bytes = rest;
        Ok(n)
    }
}

type Split = (Vec<Value>, String, String);

fn split(body: &[u8], sizes: &[usize]) -> Result<Split, StreamError> {
    let pieces = Pieces {
        bytes: body,
        sizes: sizes.to_vec(),
        n_reads: 0,
    };
    let mut items = JsonItems::new(pieces, 1 << 20);
    let mut values = Vec::new();
    while let Some(item) = items.next_item()? {
        values.push(serde_json::from_slice(item)?);
    }
    let metadata = items.metadata();
    Ok((
        values,
        metadata.resource_version.to_string(),
        metadata.continue_token.clone(),
    ))
}

#[track_caller]
fn check(body: &str, n_items: usize, version: &str, token: &str) {
    for size in [1, 2, 7, 1 << 20] {
        let (items, found_version, found_token) = split(body.as_bytes(), &[size]).expect("a list");
        assert_eq!(items.len(), n_items, "in {body}");
        assert_eq!((&*found_version, &*found_token), (version, token));
    }
}

#[track_caller]
fn check_malformed(body: &str, message: &str) {
    let error = split(body.as_bytes(), &[3]).expect_err("no list");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn metadata_is_found_on_either_side_of_the_items() {
    let metadata = r#""metadata":{"resourceVersion":"7","continue":"t","remainingItemCount":3}"#;
    check(
        &format!(r#"{{{metadata},"items":[{{}},{{}}]}}"#),
        2,
        "7",
        "t",
    );
    check(&format!(r#"{{"items":[{{}}],{metadata}}}"#), 1, "7", "t");
    check(r#" { "items" : [ ] , "metadata" : { } } "#, 0, "", "");
    check(
        r#"{"items":null,"metadata":{"resourceVersion":null}}"#,
        0,
        "",
        "",
    );
    check("{}", 0, "", "");
}

#[test]
fn brackets_and_quotes_in_strings_are_not_structural() {
    let body = r#"{"kind":"PodList","other":["]",{"items":[1]}],"items":[
        {"a":"}]\"{","b":"\\"},"x\"]","",[],1,-2.5e3 ,null,true]}"#;
    check(body, 8, "", "");
}

#[test]
fn an_item_longer_than_the_buffer_is_complete() {
    let text = "x".repeat(3 * BUFFER_BYTES);
    check(&json!({"items": [text, 1]}).to_string(), 2, "", "");
}

#[test]
fn a_body_that_is_not_a_list_is_an_error() {
    check_malformed(r#"{"items":[{}"#, "end of file");
    check_malformed("", "end of file");
    check_malformed("[1]", "'[' where '{' belongs");
    check_malformed(r#"{"items":[1 2]}"#, "'2' where ',' belongs");
    check_malformed(r#"{"items":7}"#, "no array");
    check_malformed(r#"{"metadata":{"continue":1}}"#, "invalid type");
    let long = json!({"items": ["x".repeat(2 << 20)]}).to_string();
    check_malformed(&long, "longer than");
}

/// JSON values of every kind, with structural characters in their strings.
fn values() -> impl Strategy<Value = Value> {
    let text = proptest::string::string_regex(r#"[a"\\{}\[\],: \n\u{e9}\u{1f600}]{0,12}"#);
    let text = text.expect("a valid pattern").boxed();
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((text.clone(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_list_in_any_pieces_has_the_items_of_serde_json(
        items in proptest::collection::vec(values(), 0..8),
        sizes in proptest::collection::vec(1..40_usize, 1..6),
        is_pretty in any::<bool>(),
        other in values(),
    ) {
        let list = json!({
            "aaa": other, "items": items, "zzz": other,
            "metadata": {"resourceVersion": "12", "continue": "t\"", "other": other},
        });
        let body = if is_pretty { format!("{list:#}") } else { list.to_string() };
        let (found, version, token) = split(body.as_bytes(), &sizes).expect("a list");
        prop_assert_eq!(found, items);
        prop_assert_eq!((version, token), ("12".to_owned(), "t\"".to_owned()));
    }

    #[test]
    fn no_input_makes_the_splitter_panic(
        body in proptest::collection::vec(any::<u8>(), 0..200),
        tail in r#"[\[\]{}",:\\a1 ]{0,60}"#,
    ) {
        drop(split(&body, &[5]));
        drop(split(format!("{{\"items\":[{tail}").as_bytes(), &[5]));
    }
}
