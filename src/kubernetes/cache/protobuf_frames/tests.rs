//! Watch messages in the form that API servers write, and in other valid forms.

use std::io;

use prost::Message;

use super::{INITIAL_EVENTS_END, OBJECT, ProtobufWatch, RAW, TYPE};
use crate::api::Pod;
use crate::api::interner::Interner;
use crate::api::protobuf::wire::put_bytes;
use crate::api::protobuf::{Envelope, ObjectMeta, Parts};
use crate::cache::decode::{Decoded, Frame, ReadWatch};
use crate::cache::protobuf_object::read_object;

fn field(tag: u32, bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    put_bytes(tag, bytes, &mut field);
    field
}

fn message(type_: &str, kind: &str, metadata: &[u8]) -> Vec<u8> {
    let object = field(Parts::METADATA, metadata);
    let raw = Envelope::seal_raw("v1", kind, &object);
    let event = [
        field(TYPE, type_.as_bytes()),
        field(OBJECT, &field(RAW, &raw)),
    ]
    .concat();
    let length = u32::try_from(event.len()).expect("a short message");
    [length.to_be_bytes().to_vec(), event].concat()
}

fn metadata(name: &str) -> Vec<u8> {
    let metadata = ObjectMeta {
        name: name.to_owned(),
        namespace: "n".to_owned(),
        resource_version: "5".to_owned(),
        ..ObjectMeta::default()
    };
    metadata.encode_to_vec()
}

fn annotated(name: &str, annotation: &str, value: &[u8]) -> Vec<u8> {
    let entry = [field(1, annotation.as_bytes()), field(2, value)].concat();
    let annotation = field(ObjectMeta::ANNOTATIONS, &entry);
    [metadata(name), annotation].concat()
}

fn render(frame: &Frame<Pod>) -> String {
    let object = |change: &str, object: &Decoded<Pod>| match object {
        Ok(pod) => format!("{change} {}@{}", pod.key, pod.resource_version),
        Err(unread) => format!("{change} unread @{}", unread.resource_version),
    };
    match frame {
        Frame::Added(pod) => object("added", pod),
        Frame::Modified(pod) => object("modified", pod),
        Frame::Deleted(pod) => object("deleted", pod),
        Frame::Bookmark {
            resource_version,
            is_initial_events_end,
        } => format!("bookmark {resource_version} {is_initial_events_end}"),
        Frame::Error(status) => format!("error {}", status.code()),
        Frame::Foreign(what) => format!("foreign {what}"),
    }
}

fn read(body: Vec<u8>) -> Vec<String> {
    let mut watch = ProtobufWatch::<Pod>::new(Box::new(io::Cursor::new(body)));
    let mut interner = Interner::default();
    let mut frames = Vec::new();
    loop {
        match watch.next_frame(&mut interner) {
            Ok(Some(frame)) => frames.push(render(&frame)),
            Ok(None) => return frames,
            Err(error) => {
                frames.push(error.to_string());
                return frames;
            }
        }
    }
}

#[test]
fn every_message_type_is_decoded() {
    let end = annotated("", INITIAL_EVENTS_END, b"true");
    let body = [
        message("ADDED", "Pod", &metadata("a")),
        message("MODIFIED", "Pod", &metadata("a")),
        message("DELETED", "Pod", &metadata("a")),
        message("BOOKMARK", "Pod", &metadata("")),
        message("BOOKMARK", "Pod", &end),
        message("ADDED", "Pod", &metadata("")),
        message("ADDED", "Secret", &metadata("s")),
        message("SHINY", "Pod", &metadata("a")),
        message("ERROR", "Status", &[]),
    ];
    let expected = [
        "added n/a@5",
        "modified n/a@5",
        "deleted n/a@5",
        "bookmark 5 false",
        "bookmark 5 true",
        "added unread @5",
        "foreign an object of kind \"Secret\"",
        "foreign a message of type \"SHINY\"",
        "error 0",
    ];
    assert_eq!(read(body.concat()), expected);
}

/// The API server checks no value of an annotation, and stores what a client sends in protobuf.
#[test]
fn an_annotation_that_is_no_text_hides_no_object() {
    let metadata = annotated("a", "example.com/zipped", &[0x1f, 0x8b, 0xff]);
    let body = ["ADDED", "DELETED"].map(|type_| message(type_, "Pod", &metadata));
    assert_eq!(read(body.concat()), ["added n/a@5", "deleted n/a@5"]);
}

#[test]
fn an_undecodable_object_keeps_its_identity() {
    let label = field(
        ObjectMeta::LABELS,
        &[field(1, b"app"), field(2, b"\xff")].concat(),
    );
    let metadata = [metadata("a"), label].concat();
    let unread = read_object::<Pod>(&field(Parts::METADATA, &metadata), &mut Interner::default());
    let unread = unread.expect_err("a label is no text");
    let key = unread.key.map(|key| key.key.to_string());
    assert_eq!(
        (key.as_deref(), unread.resource_version),
        (Some("n/a"), "5".into())
    );
}

#[test]
fn a_watch_that_ends_inside_a_message_is_an_error() {
    let complete = message("ADDED", "Pod", &metadata("a"));
    assert_eq!(read(complete.clone()), ["added n/a@5"]);
    for n in 1..complete.len() {
        assert_eq!(read(complete[..n].to_vec()), ["unexpected end of file"]);
    }
    let huge = [0xff_u8; 8].to_vec();
    assert_eq!(read(huge), ["an object is longer than 67108864 bytes"]);
}

#[test]
fn a_pod_whose_name_changes_the_path_is_rejected() {
    let names = ["a/b", "../../../api/v1/nodes"];
    let messages = names.map(|name| message("ADDED", "Pod", &metadata(name)));
    let namespace = [metadata("a"), field(ObjectMeta::NAMESPACE, b"n/pods/b")].concat();
    let body = [
        &messages.concat()[..],
        &message("MODIFIED", "Pod", &namespace),
    ]
    .concat();
    let expected = ["added unread @5", "added unread @5", "modified unread @5"];
    assert_eq!(read(body), expected);
}
