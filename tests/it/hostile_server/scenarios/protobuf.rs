//! Lists and watches in protobuf.

use super::super::bodies::{IN_PROTOBUF, deep_protobuf, field, protobuf_event};
use super::Breaks::{Pages, ReplicaSets};
use super::{LARGE, Scenario, many, row};
use crate::support::{Reply, Then, chunk};

/// A watch with these bytes, then silence.
fn protobuf(bytes: &[u8]) -> Reply {
    Reply::chunked(IN_PROTOBUF, &[bytes], Then::Hold)
}

pub(super) const PROTOBUF: &[Scenario] = &[
    row(
        "deep protobuf, then a frame of 4 GiB",
        ReplicaSets,
        "an object is longer than 67108864 bytes",
        |_| {
            let event = protobuf_event(&deep_protobuf(20_000));
            protobuf(&[event, b"\xff\xff\xff\xff".to_vec()].concat())
        },
    ),
    row(
        "groups in protobuf",
        ReplicaSets,
        "recursion limit reached",
        |_| protobuf(&protobuf_event(&b"\x0b".repeat(300_000))),
    ),
    row(
        "a frame of 4 GiB",
        ReplicaSets,
        "an object is longer than 67108864 bytes",
        |_| protobuf(&[b"\xff\xff\xff\xff".to_vec(), vec![b'a'; 100_000]].concat()),
    ),
    Scenario {
        bounds: LARGE,
        ..row("a frame of 64 MiB without end", ReplicaSets, "", |_| {
            let length = (64_u32 << 20).to_be_bytes();
            Reply::chunked(IN_PROTOBUF, &[&length], Then::Repeat(chunk(&many(0))))
        })
    },
    row(
        "a field of 2^63 bytes",
        ReplicaSets,
        "a field is truncated",
        |_| {
            let field = b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7fx";
            protobuf(&[&[0, 0, 0, 11][..], field].concat())
        },
    ),
    row(
        "an item of 2^64 bytes",
        Pages,
        "a field is longer than its list",
        |_| {
            let list = b"k8s\0\x12\x64\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
            Reply::typed("200 OK", "", IN_PROTOBUF, list)
        },
    ),
    row(
        "protobuf without an object",
        ReplicaSets,
        "not Kubernetes protobuf: the prefix k8s\\0 is missing",
        |_| {
            let event = field(1, b"ADDED");
            protobuf(&[&[0, 0, 0, 7][..], &event].concat())
        },
    ),
];
