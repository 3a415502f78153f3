//! Lists of API servers, complete and incomplete, in pieces of every size.

use std::io::{self, Read};

use prost::Message;

use super::ProtobufList;
use crate::api::Pod;
use crate::api::interner::Interner;
use crate::api::protobuf::{Envelope, ListMeta, ObjectMeta};
use crate::cache::decode::{OBJECT_BYTES_MAX, ReadList, StreamError};

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
fn read(bytes: Vec<u8>, piece: usize) -> Vec<String> {
    let body = Box::new(Trickle(io::Cursor::new(bytes), piece));
    let mut list = ProtobufList::<Pod>::new(body);
    let mut outcome = Vec::new();
    let mut interner = Interner::default();
    loop {
        match list.next_object(&mut interner) {
            Ok(Some(Ok(pod))) => outcome.push(pod.key.to_string()),
            Ok(Some(Err(unread))) => outcome.push(format!("unread {:?}", unread.error)),
            Ok(None) => {
                let metadata = list.metadata();
                let (version, token) = (&metadata.resource_version, &metadata.continue_token);
                outcome.push(format!("end {version} {token}"));
                return outcome;
            }
            Err(error) => {
                outcome.push(error.to_string());
                return outcome;
            }
        }
    }
}

#[test]
fn a_list_of_a_real_server_is_decoded() {
    let bytes = include_bytes!("../../../../tests/data/pod-list.pb").to_vec();
    let outcome = read(bytes, 1000);
    assert_eq!(outcome[0], "golden/web-x2b4c");
    assert!(outcome[1].starts_with("end "), "{outcome:?}");
}

#[test]
fn items_are_decoded_singly_however_the_bytes_arrive() {
    let bytes = list("PodList", vec![object("a"), object("b")]);
    for piece in [1, 2, 3, 7, 1000] {
        assert_eq!(read(bytes.clone(), piece), ["n/a", "n/b", "end 77 more"]);
    }
    assert_eq!(read(list("PodList", vec![]), 1000), ["end 77 more"]);
}

#[test]
fn an_undecodable_item_does_not_affect_the_others() {
    let bytes = list("PodList", vec![AnyObject::default(), object("b")]);
    let expected = ["unread \"metadata.name is missing\"", "n/b", "end 77 more"];
    assert_eq!(read(bytes, 1000), expected);
}

#[test]
fn an_item_whose_name_changes_the_path_is_rejected() {
    let outcome = read(list("PodList", vec![object("a/b"), object("b")]), 1000);
    assert!(outcome[0].starts_with("unread "), "{outcome:?}");
    assert_eq!(outcome[1..], ["n/b", "end 77 more"]);
}

#[test]
fn a_body_that_is_not_a_list_of_pods_is_an_error() {
    let other = list("ConfigMapList", vec![object("a")]);
    let expected = "the response is a ConfigMapList, which was not requested";
    assert_eq!(read(other, 1000), [expected]);
    let json = br#"{"kind":"PodList","items":[]}"#.to_vec();
    let expected = "malformed body: protobuf without Kubernetes' envelope";
    assert_eq!(read(json, 1000), [expected]);
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
        assert_eq!(read(bytes, 1000).last().map(String::as_str), Some(expected));
    }
    assert_eq!(read(Envelope::seal("v1", "PodList", &[]), 1000), [expected]);
}

#[test]
fn a_list_that_ends_early_is_an_error_at_every_byte() {
    let bytes = list("PodList", vec![object("a"), object("b")]);
    for n in 0..bytes.len() {
        let outcome = read(bytes[..n].to_vec(), 1000);
        let last = outcome.last().expect("an end");
        assert!(!last.starts_with("end"), "{n} bytes were taken for a list");
    }
}

#[test]
fn a_field_of_nearly_two_to_the_64_bytes_is_an_error() {
    let field = [[0x12].as_slice(), &[0xff; 9], &[0x01]].concat();
    let bytes = Envelope::seal_raw("v1", "PodList", &field);
    let expected = "malformed body: malformed protobuf: a field is longer than its list";
    assert_eq!(read(bytes, 1000), [expected]);
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
    assert_eq!(read(bytes, 1000), [expected]);
}
