//! Watch messages in the form that API servers write, and in other valid forms.

use std::io;

use super::{Interner, JsonWatch, KEPT_LINE_BYTES_MAX, ReadWatch};
use crate::api::Pod;
use crate::cache::decode::{Decoded, Frame, ListMetadata, ReadList, StreamError};
use crate::cache::json_frames::JsonList;

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
        match ReadWatch::<Pod>::next_frame(&mut watch, &mut interner) {
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
    let mut list = JsonList::new(Box::new(table.as_bytes()));
    let error = ReadList::<Pod>::next_object(&mut list, &mut Interner::default());
    assert!(matches!(error, Err(StreamError::OtherKind(kind)) if kind == "Table"));
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
        &["unexpected end of file"],
    );
    check(
        "no json\n",
        &["malformed body: expected ident at line 1 column 2"],
    );
}

#[test]
fn the_memory_of_a_long_queue_is_released() {
    let padding = "x".repeat(3 << 20);
    let pod =
        format!(r#"{{"kind":"Pod","metadata":{{"name":"a","annotations":{{"x":"{padding}"}}}}}}"#);
    let body = format!("{{\"type\":\"ADDED\",\"object\":{pod}}}\n\n");
    let mut watch = JsonWatch::new(Box::new(io::Cursor::new(body)));
    let mut interner = Interner::default();
    let frame = ReadWatch::<Pod>::next_frame(&mut watch, &mut interner);
    assert_eq!(render(&frame.expect("read").expect("a frame")), "added a@");
    let end = ReadWatch::<Pod>::next_frame(&mut watch, &mut interner);
    assert!(end.expect("a clean end").is_none());
    assert!(watch.line.capacity() <= KEPT_LINE_BYTES_MAX);
}

#[test]
fn a_list_has_its_objects_and_its_metadata() {
    let body = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"next"},"items":[
        {"metadata":{"name":"a"}}, {"metadata":{"name":"b","labels":[]}},
        {"metadata":{"name":"c"}}]}"#;
    let mut list = JsonList::new(Box::new(body.as_bytes()));
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    let mut interner = Interner::default();
    while let Some(object) = ReadList::<Pod>::next_object(&mut list, &mut interner).expect("a list")
    {
        match object {
            Ok(pod) => read.push(pod.key.to_string()),
            Err(object) => unread.push(object.key.expect("a key").key.to_string()),
        }
    }
    assert_eq!(
        (read, unread),
        (vec!["a".into(), "c".into()], vec!["b".to_owned()])
    );
    let expected = ListMetadata {
        resource_version: "7".into(),
        continue_token: "next".to_owned(),
    };
    assert_eq!(ReadList::<Pod>::metadata(&list), &expected);
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
        decoded = crate::cache::json_frames::read_object::<Pod>(
            json.as_bytes(),
            &mut crate::api::interner::Interner::default(),
        )
        .err();
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
