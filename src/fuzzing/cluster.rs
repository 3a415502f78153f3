//! What API servers send: objects, lists, watches and errors.

use std::fmt::Write as _;
use std::io;
use std::io::Read;

use serde_json::{Value, json};

use super::mutate::{Form, frame};
use super::{Reader, Target, data, encode, text_of};
use crate::api::conditions::Original;
use crate::api::interner::Interner;
use crate::api::protobuf::{Envelope, MEDIA_TYPE};
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::api::{Pod, ReplicaSet, ReplicaSetStatus, Status, WorkloadKind};
use crate::cache::decode::{Decode, ReplicationController, Watch, read_list};

const JSON: &str = "application/json";

pub(super) fn targets() -> Vec<Target> {
    let target = |name, form, n_short, corpus, reader| Target {
        name,
        form,
        n_short,
        cpu_factor: 2,
        corpus,
        reader,
    };
    vec![
        target("agreement", Form::Json, 500, objects, || {
            Box::new(agreement)
        }),
        target("json-object", Form::Json, 300, objects, || {
            Box::new(json_object)
        }),
        target("json-list", Form::Json, 200, json_lists, || {
            streams(JSON, true)
        }),
        target("json-watch", Form::Json, 200, json_watches, || {
            streams(JSON, false)
        }),
        target(
            "protobuf-object",
            Form::Protobuf(4),
            500,
            protobuf_objects,
            || Box::new(protobuf_object),
        ),
        target(
            "protobuf-list",
            Form::Protobuf(4),
            300,
            protobuf_lists,
            || streams(MEDIA_TYPE, true),
        ),
        target(
            "protobuf-watch",
            Form::Frames,
            300,
            protobuf_watches,
            || streams(MEDIA_TYPE, false),
        ),
        target("status", Form::Json, 500, statuses, || Box::new(status)),
    ]
}

fn objects() -> Vec<Vec<u8>> {
    [
        "pod.json",
        "replica-set.json",
        "replication-controller.json",
    ]
    .iter()
    .map(|name| {
        let mut object: Value = serde_json::from_slice(&data(name)).expect("an object");
        if let Some(spec) = object.pointer_mut("/spec/template/spec") {
            spec["topologySpreadConstraints"] = json!([
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
                {"maxSkew": 1, "topologyKey": "node", "whenUnsatisfiable": "DoNotSchedule"},
            ]);
        }
        object.to_string().into_bytes()
    })
    .collect()
}

fn protobuf_objects() -> Vec<Vec<u8>> {
    ["pod.pb", "replica-set.pb", "replication-controller.pb"]
        .map(data)
        .to_vec()
}

fn protobuf_lists() -> Vec<Vec<u8>> {
    vec![data("pod-list.pb")]
}

fn json_lists() -> Vec<Vec<u8>> {
    let lists = objects().into_iter().map(|object| {
        let object = String::from_utf8(object).expect("JSON");
        let metadata = r#"{"resourceVersion":"5","continue":"x"}"#;
        format!("{{\"metadata\":{metadata},\"items\":[{object},{object}]}}").into_bytes()
    });
    lists.collect()
}

fn json_watches() -> Vec<Vec<u8>> {
    let mut all = text_of(&[
        "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"resourceVersion\":\"9\",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}}\n",
    ]);
    for object in objects() {
        let object = String::from_utf8(object).expect("JSON");
        let event = |kind| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
        all.push([event("ADDED"), event("DELETED")].concat().into_bytes());
    }
    all
}

fn protobuf_watches() -> Vec<Vec<u8>> {
    let event = |kind: &str, object: &[u8]| {
        let (mut raw, mut event) = (Vec::new(), Vec::new());
        encode::field(1, object, &mut raw);
        encode::field(1, kind.as_bytes(), &mut event);
        encode::field(2, &raw, &mut event);
        frame(&event)
    };
    let mut all = Vec::new();
    for object in protobuf_objects() {
        all.push([event("ADDED", &object), event("MODIFIED", &object)].concat());
        all.push([event("BOOKMARK", &object), event("ERROR", &object)].concat());
    }
    all
}

fn statuses() -> Vec<Vec<u8>> {
    let mut all = text_of(&[
        r#"{"kind":"Status","code":429,"reason":"TooManyRequests","message":"m",
"details":{"causes":[{"reason":"a","message":"b"}],"retryAfterSeconds":3}}"#,
        "<html>bad gateway</html>",
    ]);
    let mut message = Vec::new();
    encode::field(2, b"Failure", &mut message);
    encode::field(3, b"text", &mut message);
    encode::field(4, b"Forbidden", &mut message);
    encode::field(5, &[0x22, 3, 0x0a, 1, b'x', 0x28, 3], &mut message);
    all.push(Envelope::seal_raw("v1", "Status", &message));
    all
}

/// Both readers agree on an object that the stricter one, of JSON, accepts. It also rejects an
/// object without a field that API servers always write.
fn agreement(input: &[u8]) -> bool {
    let Ok(object) = serde_json::from_slice::<Value>(input) else {
        return false;
    };
    let text = object.to_string();
    let interner = &mut Interner::default();
    let mut accepted = false;
    if let Some(message) = encode::message(&object, encode::POD) {
        let by_json = Pod::from_json(text.as_bytes(), interner).ok();
        let by_protobuf = Pod::from_protobuf(&message, interner).ok();
        if by_json.is_some() {
            accepted = true;
            assert_eq!(by_json, by_protobuf);
        }
    }
    for (kind, table) in [
        (&REPLICA_SET, encode::REPLICA_SET),
        (&REPLICATION_CONTROLLER, encode::REPLICATION_CONTROLLER),
    ] {
        if let Some(message) = encode::message(&object, table) {
            let by_json = ReplicaSet::of_kind(kind, text.as_bytes(), interner).ok();
            let by_protobuf = ReplicaSet::from_protobuf(kind, &message, interner).ok();
            if let Some(by_json) = by_json {
                accepted = true;
                let by_protobuf = by_protobuf.as_ref().map(described);
                assert_eq!(Some(described(&by_json)), by_protobuf);
            }
        }
    }
    accepted
}

/// All that the controller reads, without what only one encoding carries.
fn described(rs: &ReplicaSet) -> String {
    let mut status = rs.status.clone();
    status.other.clear();
    status.unknown.clear();
    for condition in &mut status.conditions {
        condition.original = Original::None;
        // Protobuf writes an absent text as an empty one.
        for text in [&mut condition.reason, &mut condition.message] {
            *text = text.take().filter(|text| !text.is_empty());
        }
    }
    let facts = (
        (&rs.key, &rs.uid, &rs.resource_version),
        (rs.generation, rs.deletion, &rs.controller),
        (rs.replicas, rs.min_ready_seconds, &rs.selector),
        (&rs.template_labels, &rs.opt_ins, status),
        rs.topology_key(),
    );
    format!("{facts:?}")
}

/// A status update of what was read can be read, and changes nothing but the status.
fn check_update(kind: &WorkloadKind, rs: &ReplicaSet) {
    let status = ReplicaSetStatus {
        replicas: 7,
        observed_generation: 8,
        ..rs.status.clone()
    };
    let update = rs.with_status(kind, &status).expect("a status is JSON");
    let read = ReplicaSet::from_answer(kind, &update.bytes).expect("an update can be read");
    let mut expected = rs.clone();
    expected.status = status;
    assert_eq!(described(&read), described(&expected));
}

fn json_object(input: &[u8]) -> bool {
    let interner = &mut Interner::default();
    let mut accepted = Pod::from_json(input, interner).is_ok();
    for kind in [&REPLICA_SET, &REPLICATION_CONTROLLER] {
        if let Ok(rs) = ReplicaSet::of_kind(kind, input, interner) {
            accepted = true;
            check_update(kind, &rs);
        }
    }
    accepted
}

fn protobuf_object(input: &[u8]) -> bool {
    let interner = &mut Interner::default();
    let Ok(envelope) = Envelope::open(input) else {
        return false;
    };
    let mut accepted = Pod::from_protobuf(envelope.raw, interner).is_ok();
    for kind in [&REPLICA_SET, &REPLICATION_CONTROLLER] {
        if let Ok(rs) = ReplicaSet::from_protobuf(kind, envelope.raw, interner) {
            accepted = true;
            check_update(kind, &rs);
        }
    }
    accepted
}

/// A body that arrives in pieces of this many bytes.
pub(super) struct Pieces(io::Cursor<Vec<u8>>, usize);

impl Pieces {
    pub(super) fn of(input: &[u8], n: usize) -> Self {
        Self(io::Cursor::new(input.to_vec()), n)
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.1);
        self.0.read(&mut buffer[..most])
    }
}

/// Reads lists or watches of all kinds, whole and in pieces: both must give the same.
fn streams(content_type: &'static str, is_list: bool) -> Reader {
    fn list<T: Decode>(content_type: &str, input: &[u8], piece: usize) -> (bool, String) {
        let interner = &mut Interner::default();
        let body = Pieces::of(input, piece);
        let mut message = String::new();
        let read = read_list::<T>(content_type, Box::new(body), interner, &mut |object| {
            writeln!(message, "{object:?}").expect("text");
        });
        match read {
            Ok(metadata) => (true, message + &format!("{metadata:?}")),
            Err(error) => (false, message + &error.to_string()),
        }
    }
    fn watch<T: Decode>(content_type: &str, input: &[u8], piece: usize) -> (bool, String) {
        let interner = &mut Interner::default();
        let body = Pieces::of(input, piece);
        let mut watch = Watch::new(content_type, Box::new(body)).expect("a known type");
        let mut message = String::new();
        loop {
            match watch.next_frame::<T>(interner) {
                Ok(Some(frame)) => writeln!(message, "{frame:?}").expect("text"),
                Ok(None) => return (true, message),
                Err(error) => return (false, message + &error.to_string()),
            }
        }
    }
    Box::new(move |input| {
        let mut accepted = false;
        let readers = if is_list {
            [
                list::<Pod>,
                list::<ReplicaSet>,
                list::<ReplicationController>,
            ]
        } else {
            [
                watch::<Pod>,
                watch::<ReplicaSet>,
                watch::<ReplicationController>,
            ]
        };
        let piece = 1 + input.len() % 61;
        for reader in readers {
            let whole = reader(content_type, input, usize::MAX);
            assert_eq!(whole, reader(content_type, input, piece));
            accepted |= whole.0;
        }
        accepted
    })
}

/// An error message has a bounded length, and survives being served.
fn status(input: &[u8]) -> bool {
    let status = Status::from_body(500, input);
    let served = serde_json::to_vec(status.object()).expect("JSON");
    assert_eq!(Status::from_body(500, &served), status);
    assert!(status.to_string().len() <= 2 * input.len() + 4096);
    let after = status.retry_after();
    let is = (status.is_expired(), status.is_too_large_resource_version());
    after.is_some() || is.0 || is.1 || !status.reason().is_empty()
}
