//! Watch messages in the form that API servers write, and in other valid forms.

use std::io;
use std::io::Read;

use prost::Message;

use super::{Body, INITIAL_EVENTS_END, KEPT_BYTES_MAX, OBJECT, ProtobufWatch, RAW, TYPE};
use crate::api::Pod;
use crate::api::interner::Interner;
use crate::api::protobuf::{Envelope, ListMeta, MEDIA_TYPE, ObjectMeta, Parts, put_bytes};
use crate::cache::decode;
use crate::cache::decode::{Decoded, Frame, OBJECT_BYTES_MAX, StreamError};
use crate::cache::protobuf_frames::read_object;

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
    let mut watch = ProtobufWatch::new(Box::new(io::Cursor::new(body)));
    let mut interner = Interner::default();
    let mut frames = Vec::new();
    loop {
        match watch.next_frame::<Pod>(&mut interner) {
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
    let unread = unread.expect_err("a label is not text");
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

#[derive(Clone, PartialEq, Message)]
struct AnyObject {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

#[derive(Clone, PartialEq, Message)]
struct ListMessage {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMeta>,
    #[prost(message, repeated, tag = "2")]
    items: Vec<AnyObject>,
    /// A field that a later version of the API might add.
    #[prost(fixed64, tag = "9")]
    number: u64,
}

/// A body that returns at most the given number of bytes per read.
struct Trickle(io::Cursor<Vec<u8>>, usize);

impl Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = buffer.len().min(self.1);
        self.0.read(&mut buffer[..n])
    }
}

fn object(name: &str) -> AnyObject {
    let metadata = ObjectMeta {
        name: name.to_owned(),
        namespace: "n".to_owned(),
        resource_version: "5".to_owned(),
        ..ObjectMeta::default()
    };
    AnyObject {
        metadata: Some(metadata),
    }
}

fn list(kind: &str, items: Vec<AnyObject>) -> Vec<u8> {
    let metadata = ListMeta {
        resource_version: "77".to_owned(),
        continue_token: "more".to_owned(),
    };
    let message = ListMessage {
        metadata: Some(metadata),
        items,
        number: 3,
    };
    Envelope::seal_raw("v1", kind, &message.encode_to_vec())
}

/// The names of the decoded objects, then the end of the list.
fn read_list(bytes: Vec<u8>, piece: usize) -> Vec<String> {
    let body = Box::new(Trickle(io::Cursor::new(bytes), piece));
    let mut outcome = Vec::new();
    let mut on_pod = |pod: Decoded<Pod>| {
        outcome.push(match pod {
            Ok(pod) => pod.key.to_string(),
            Err(unread) => format!("unread {:?}", unread.error),
        });
    };
    let interner = &mut Interner::default();
    let metadata = decode::read_list::<Pod>(MEDIA_TYPE, body, interner, &mut on_pod);
    outcome.push(match metadata {
        Ok(it) => format!("end {} {}", it.resource_version, it.continue_token),
        Err(error) => error.to_string(),
    });
    outcome
}

#[test]
fn a_list_of_a_real_server_is_decoded() {
    let bytes = include_bytes!("../../../../tests/data/pod-list.pb").to_vec();
    let outcome = read_list(bytes, 1000);
    assert_eq!(outcome[0], "golden/web-x2b4c");
    assert!(outcome[1].starts_with("end "), "{outcome:?}");
}

#[test]
fn items_are_decoded_singly_however_the_bytes_arrive() {
    let bytes = list("PodList", vec![object("a"), object("b")]);
    for piece in [1, 2, 3, 7, 1000] {
        assert_eq!(
            read_list(bytes.clone(), piece),
            ["n/a", "n/b", "end 77 more"]
        );
    }
    assert_eq!(read_list(list("PodList", vec![]), 1000), ["end 77 more"]);
}

#[test]
fn an_undecodable_item_does_not_affect_the_others() {
    let bytes = list("PodList", vec![AnyObject::default(), object("b")]);
    let expected = ["unread \"metadata.name is missing\"", "n/b", "end 77 more"];
    assert_eq!(read_list(bytes, 1000), expected);
}

#[test]
fn an_item_whose_name_changes_the_path_is_rejected() {
    let outcome = read_list(list("PodList", vec![object("a/b"), object("b")]), 1000);
    assert!(outcome[0].starts_with("unread "), "{outcome:?}");
    assert_eq!(outcome[1..], ["n/b", "end 77 more"]);
}

#[test]
fn a_body_that_is_not_a_list_of_pods_is_an_error() {
    let other = list("ConfigMapList", vec![object("a")]);
    let expected = "expected another kind, got ConfigMapList";
    assert_eq!(read_list(other, 1000), [expected]);
    let json = br#"{"kind":"PodList","items":[]}"#.to_vec();
    let expected = "malformed body: not Kubernetes protobuf: the prefix k8s\\0 is missing";
    assert_eq!(read_list(json, 1000), [expected]);
}

#[test]
fn a_list_without_a_version_is_an_error() {
    let expected = "malformed body: a list without a resource version";
    for items in [vec![], vec![object("a")]] {
        let message = ListMessage {
            metadata: Some(ListMeta::default()),
            items,
            number: 3,
        };
        let bytes = Envelope::seal_raw("v1", "PodList", &message.encode_to_vec());
        assert_eq!(
            read_list(bytes, 1000).last().map(String::as_str),
            Some(expected)
        );
    }
    assert_eq!(
        read_list(Envelope::seal("v1", "PodList", &[]), 1000),
        [expected]
    );
}

#[test]
fn a_list_that_ends_early_is_an_error_at_every_byte() {
    let bytes = list("PodList", vec![object("a"), object("b")]);
    for n in 0..bytes.len() {
        let outcome = read_list(bytes[..n].to_vec(), 1000);
        let last = outcome.last().expect("an end");
        assert!(!last.starts_with("end"), "{n} bytes were taken for a list");
    }
}

#[test]
fn a_field_of_nearly_two_to_the_64_bytes_is_an_error() {
    let field = [[0x12].as_slice(), &[0xff; 9], &[0x01]].concat();
    let bytes = Envelope::seal_raw("v1", "PodList", &field);
    let expected = "malformed body: malformed protobuf: a field is longer than its list";
    assert_eq!(read_list(bytes, 1000), [expected]);
}

#[test]
fn an_object_over_the_limit_is_an_error_before_it_is_read() {
    let varint = |number: usize| {
        let mut bytes = Vec::new();
        prost::encoding::encode_varint(number as u64, &mut bytes);
        bytes
    };
    let field = [vec![0x12], varint(OBJECT_BYTES_MAX + 1)].concat();
    let sealed = Envelope::seal_raw("v1", "PodList", &field);
    let at = sealed.windows(field.len()).position(|it| it == field);
    // The list, too, has to be as long as it says.
    let before = &sealed[..at.expect("the list") - 1];
    let bytes = [before, &varint(2 * OBJECT_BYTES_MAX), &field].concat();
    let expected = StreamError::TooLarge(OBJECT_BYTES_MAX).to_string();
    assert_eq!(read_list(bytes, 1000), [expected]);
}

/// A body whose reads end in these ways, one after the other.
struct Reads(Vec<io::Result<&'static [u8]>>);

impl Read for Reads {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.remove(0)?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

#[test]
fn only_an_interrupted_read_is_repeated() {
    let interrupted = || io::Error::from(io::ErrorKind::Interrupted);
    let reset = io::Error::from(io::ErrorKind::ConnectionReset);
    let reads = vec![
        Err(interrupted()),
        Ok(&b"one"[..]),
        Err(interrupted()),
        Ok(b"t"),
        Err(reset),
    ];
    let mut body = Body::new(Reads(reads));
    assert!(!body.has_ended().expect("the second read"));
    assert_eq!(body.take(4).expect("the fourth read"), b"onet");
    let error = body.has_ended().expect_err("the connection is reset");
    assert!(error.to_string().contains("reset"), "{error}");
}

#[test]
fn the_memory_grows_for_one_value_only_and_shrinks_after_it() {
    let mut body = Body::new(io::repeat(7));
    for _ in 0..10 {
        body.take(60_000).expect("more");
        assert!(body.value.capacity() < 200_000, "{}", body.value.capacity());
    }
    body.take(3 * KEPT_BYTES_MAX as u64).expect("more");
    assert_eq!(body.take(1).expect("more"), [7]);
    assert!(body.value.capacity() <= KEPT_BYTES_MAX);
}
