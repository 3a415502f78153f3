//! Watch messages in the form that API servers write, and in other valid forms; lists against
//! `serde_json`, in reads of any size.

use std::io;
use std::io::Read;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Interner, JsonWatch, read_object};
use crate::api::Pod;
use crate::cache::decode::{BUFFER_BYTES, Decoded, Frame, ListMetadata, StreamError, read_list};

fn render(frame: &Frame<Pod>) -> String {
    let object = |change: &str, object: &Decoded<Pod>| match object {
        Ok(pod) => format!("{change} {}@{}", pod.key, pod.resource_version),
        Err(unread) => {
            let key = unread.key.as_ref();
            let key = key.map(|unread| format!("{} {}", unread.key, unread.uid));
            format!("{change} unread {key:?}@{}", unread.resource_version)
        }
    };
    match frame {
        Frame::Added(pod) => object("added", pod),
        Frame::Modified(pod) => object("modified", pod),
        Frame::Deleted(pod) => object("deleted", pod),
        Frame::Bookmark {
            resource_version,
            is_initial_events_end,
        } => format!("bookmark {resource_version} {is_initial_events_end}"),
        Frame::Error(status) => format!("error {} {}", status.code(), status.reason()),
        Frame::Foreign(what) => format!("foreign {what}"),
    }
}

#[track_caller]
fn check(body: &str, expected: &[&str]) {
    let mut watch = JsonWatch::new(Box::new(io::Cursor::new(body.to_owned())));
    let mut interner = Interner::default();
    let mut frames: Vec<String> = Vec::new();
    loop {
        match watch.next_frame::<Pod>(&mut interner) {
            Ok(Some(frame)) => frames.push(render(&frame)),
            Ok(None) => break,
            Err(error) => {
                frames.push(error.to_string());
                break;
            }
        }
    }
    assert_eq!(frames, expected);
}

const POD: &str = concat!(
    r#"{"kind":"Pod","apiVersion":"v1","#,
    r#""metadata":{"name":"a","namespace":"n","resourceVersion":"5"}}"#
);

#[test]
fn every_message_type_is_decoded() {
    check(
        &format!(r#"{{"type":"ADDED","object":{POD}}}"#),
        &["added n/a@5"],
    );
    check(
        &format!(
            "{{\"type\":\"MODIFIED\",\"object\":{POD}}}\n\n\
             {{\"type\":\"DELETED\",\"object\":{POD}}}\r\n"
        ),
        &["modified n/a@5", "deleted n/a@5"],
    );
    check(
        concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"},"#,
            r#""spec":{"containers":null}}}"#
        ),
        &["bookmark 9 false"],
    );
    check(
        r#"{"type":"ERROR","object":{"kind":"Status","reason":"Expired","code":410}}"#,
        &["error 410 Expired"],
    );
    check(
        r#"{"type":"NEWER","object":{}}"#,
        &[r#"foreign a message of type "NEWER""#],
    );
}

#[test]
fn messages_in_other_forms_are_decoded() {
    check(
        &format!(r#" {{ "object" : {POD} , "type" : "ADDED" }} "#),
        &["added n/a@5"],
    );
    check(
        &format!(r#"{{"type":"ADDED","object":{POD},"more":1}}"#),
        &["added n/a@5"],
    );
    check(
        r#"{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"n"}}}"#,
        &["added n/a@"],
    );
}

#[test]
fn j_26_only_the_annotation_true_ends_the_initial_list() {
    let bookmark = |value: &str| {
        let annotations = format!(r#"{{"k8s.io/initial-events-end":"{value}"}}"#);
        let metadata = format!(r#"{{"resourceVersion":"9","annotations":{annotations}}}"#);
        format!(r#"{{"type":"BOOKMARK","object":{{"kind":"Pod","metadata":{metadata}}}}}"#)
    };
    check(&bookmark("true"), &["bookmark 9 true"]);
    check(&bookmark("false"), &["bookmark 9 false"]);
}

#[test]
fn j_36_objects_of_another_kind_are_foreign() {
    check(
        r#"{"type":"ADDED","object":{"kind":"Table","metadata":{"name":"a"}}}"#,
        &[r#"foreign an object of kind "Table""#],
    );
    check(
        r#"{"type":"BOOKMARK","object":{"kind":"PodMetrics","metadata":{}}}"#,
        &[r#"foreign an object of kind "PodMetrics""#],
    );
    let table = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{},"rows":[]}"#;
    let secrets = r#"{"kind":"SecretList","metadata":{"resourceVersion":"7"},"items":[{}]}"#;
    for (body, expected) in [(table, "Table"), (secrets, "SecretList")] {
        let body = Box::new(body.as_bytes());
        let interner = &mut Interner::default();
        let read = read_list::<Pod>("application/json", body, interner, &mut |object| {
            panic!("{object:?}");
        });
        assert!(matches!(read, Err(StreamError::OtherKind(kind)) if kind == expected));
    }
}

#[test]
fn an_undecodable_object_keeps_its_identity() {
    check(
        concat!(
            r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a","namespace":"n","#,
            r#""uid":"u","resourceVersion":"5","labels":7}}}"#
        ),
        &[r#"added unread Some("n/a u")@5"#],
    );
    check(
        r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":[]}}}"#,
        &["added unread None@"],
    );
}

#[test]
fn an_incomplete_line_is_an_error_and_no_object() {
    check(
        r#"{"type":"ADDED","object":{"kind":"Pod","#,
        &["unexpected end of file in the body"],
    );
    check(
        "no json\n",
        &["malformed body: expected ident at line 1 column 2"],
    );
}

#[test]
fn the_memory_of_a_long_message_is_released() {
    let padding = "x".repeat(3 << 20);
    let pod =
        format!(r#"{{"kind":"Pod","metadata":{{"name":"a","annotations":{{"x":"{padding}"}}}}}}"#);
    let body = format!("{{\"type\":\"ADDED\",\"object\":{pod}}}\n\n");
    let mut watch = JsonWatch::new(Box::new(io::Cursor::new(body)));
    let mut interner = Interner::default();
    let spent = allocation_counter::measure(|| {
        let frame = watch.next_frame::<Pod>(&mut interner);
        assert_eq!(render(&frame.expect("read").expect("a frame")), "added a@");
        let end = watch.next_frame::<Pod>(&mut interner);
        assert!(end.expect("a clean end").is_none());
    });
    assert!(spent.bytes_max > 3 << 20, "{spent:?}");
    assert!(spent.bytes_current < 1 << 20, "{spent:?}");
}

#[test]
fn a_list_has_its_objects_and_its_metadata() {
    let body = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"next"},"items":[
        {"metadata":{"name":"a"}}, {"metadata":{"name":"b","labels":[]}},
        {"metadata":{"name":"c"}}]}"#;
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    let (interner, body) = (&mut Interner::default(), Box::new(body.as_bytes()));
    let metadata = read_list::<Pod>(
        "application/json",
        body,
        interner,
        &mut |object| match object {
            Ok(pod) => read.push(pod.key.to_string()),
            Err(object) => unread.push(object.key.expect("a key").key.to_string()),
        },
    );
    assert_eq!(
        (read, unread),
        (vec!["a".into(), "c".into()], vec!["b".to_owned()])
    );
    let expected = ListMetadata {
        resource_version: "7".into(),
        continue_token: "next".to_owned(),
    };
    assert_eq!(metadata.expect("a list"), expected);
}

#[test]
fn an_object_whose_name_changes_the_path_is_rejected() {
    let name = "../../../api/v1/nodes";
    let pod = POD.replace("\"name\":\"a\"", &format!("\"name\":{name:?}"));
    let body = format!("{{\"type\":\"ADDED\",\"object\":{pod}}}\n");
    check(
        &body,
        &["added unread Some(\"n/../../../api/v1/nodes \")@5"],
    );
}

/// Of an undecodable object only the identity is decoded, however long the object is.
#[test]
fn an_undecodable_object_takes_no_memory() {
    let field = r#"{"a":[1,"b",{}]},"#.repeat(100_000);
    let json = format!(
        r#"{{"metadata":{{"name":"a","namespace":"n","uid":"u","labels":[{field}1],
        "resourceVersion":"5"}},"spec":[{field}1],"status":7}}"#
    );
    let mut decoded = None;
    let spent = allocation_counter::measure(|| {
        decoded = read_object::<Pod>(json.as_bytes(), &mut Interner::default()).err();
    });
    let unread = decoded.expect("labels are not a list");
    assert_eq!(unread.resource_version, "5".into());
    let key = unread.key.expect("a key");
    assert_eq!(
        (key.key.to_string(), key.uid),
        ("n/a".to_owned(), "u".into())
    );
    assert!(spent.bytes_max < 10_000, "{} bytes", spent.bytes_max);
}

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
    let mut values = Vec::new();
    let metadata = super::read_list(pieces, "Pod", 1 << 20, &mut |item| {
        values.push(serde_json::from_slice(item).expect("an item is JSON"));
    })?;
    let version = metadata.resource_version.to_string();
    Ok((values, version, metadata.continue_token))
}

#[track_caller]
fn check_list(body: &str, n_items: usize, version: &str, token: &str) {
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
    check_list(
        &format!(r#"{{{metadata},"items":[{{}},{{}}]}}"#),
        2,
        "7",
        "t",
    );
    check_list(&format!(r#"{{"items":[{{}}],{metadata}}}"#), 1, "7", "t");
    check_list(r#" { "items" : [ ] , "metadata" : { } } "#, 0, "", "");
    check_list(
        r#"{"items":null,"metadata":{"resourceVersion":null}}"#,
        0,
        "",
        "",
    );
    check_list("{}", 0, "", "");
}

#[test]
fn brackets_and_quotes_in_strings_are_not_structural() {
    let body = r#"{"kind":"PodList","other":["]",{"items":[1]}],"items":[
        {"a":"}]\"{","b":"\\"},"x\"]","",[],1,-2.5e3 ,null,true]}"#;
    check_list(body, 8, "", "");
}

#[test]
fn an_item_longer_than_the_buffer_is_complete() {
    let text = "x".repeat(3 * BUFFER_BYTES);
    check_list(&json!({"items": [text, 1]}).to_string(), 2, "", "");
}

#[test]
fn a_body_that_is_not_a_list_is_an_error() {
    check_malformed(r#"{"items":[{}"#, "end of file");
    check_malformed("", "end of file");
    check_malformed("[1]", "expected a list");
    check_malformed(r#"{"items":[1 2]}"#, "expected `,` or `]`");
    check_malformed(r#"{"items":7}"#, "expected an array");
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
