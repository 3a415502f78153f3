//! Answers that are no HTTP, or no whole HTTP.

use super::super::bodies::gzip_bomb;
use super::Breaks::{Pages, ReplicaSets};
use super::{IN_JSON, OPEN_HEAD, Scenario, many, row};
use crate::support::{Reply, Then};

pub(super) const HTTP: &[Scenario] = &[
    row(
        "endless headers",
        ReplicaSets,
        "no end of the response's head",
        |_| {
            let line = format!("X-A: {}\r\n", "a".repeat(1000));
            Reply::raw(OPEN_HEAD, Then::Repeat(line.into_bytes()))
        },
    ),
    row(
        "an endless header",
        ReplicaSets,
        "no end of the response's head",
        |_| Reply::raw(format!("{OPEN_HEAD}X: "), Then::Repeat(many(b'a'))),
    ),
    row(
        "an endless status line",
        ReplicaSets,
        "no end of the response's head",
        |_| Reply::raw("HTTP/1.1 200 ", Then::Repeat(many(b'a'))),
    ),
    row("100 Continue for ever", ReplicaSets, "", |_| {
        Reply::raw(
            "",
            Then::Repeat(b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100)),
        )
    }),
    row("103 Early Hints for ever", ReplicaSets, "", |_| {
        let hint = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
        Reply::raw("", Then::Repeat(hint.repeat(100)))
    }),
    row(
        "a gzip bomb",
        ReplicaSets,
        "malformed body: expected value",
        |_| Reply::whole("200 OK", "Content-Encoding: gzip\r\n", gzip_bomb(400_000)),
    ),
    row(
        "an endless chunk size",
        ReplicaSets,
        "no end of the response's head or of a chunk's size within",
        |_| {
            let mut reply = Reply::chunked(IN_JSON, &[], Then::Repeat(many(b'1')));
            reply.bytes.push(b'1');
            reply
        },
    ),
    row(
        "a chunk of 2^64 bytes",
        ReplicaSets,
        "chunk length cannot be read as a number",
        |_| {
            let mut reply = Reply::chunked(IN_JSON, &[], Then::Hold);
            reply.bytes.extend(b"10000000000000000\r\nx");
            reply
        },
    ),
    row("a head byte by byte", ReplicaSets, "", |_| {
        Reply::raw(OPEN_HEAD, Then::Trickle(b"X: y\r\n"))
    }),
    row("a body byte by byte", Pages, "listing in pages", |_| {
        let head = format!("{OPEN_HEAD}Content-Length: 100000\r\n\r\n");
        Reply::raw(head, Then::Trickle(b" "))
    }),
    row("HTTP/2", ReplicaSets, "invalid HTTP version", |_| {
        Reply::raw(
            [&[0, 0, 18, 4, 0, 0, 0, 0, 0][..], &[0; 18]].concat(),
            Then::Hold,
        )
    }),
    row("no HTTP", ReplicaSets, "invalid HTTP version", |_| {
        Reply::raw("SSH-2.0-OpenSSH_9.9\r\n", Then::Close)
    }),
    row("no answer", ReplicaSets, "Peer disconnected", |_| {
        Reply::raw("", Then::Close)
    }),
    row("silence", ReplicaSets, "", |_| Reply::raw("", Then::Hold)),
    row(
        "two lengths",
        ReplicaSets,
        "conflicting content-length headers",
        |_| Reply::whole("200 OK", "Content-Length: 3\r\n", r#"{"items":[]}"#),
    ),
    row(
        "a negative length",
        ReplicaSets,
        "content-length header not a number",
        |_| Reply::raw(format!("{OPEN_HEAD}Content-Length: -1\r\n\r\n"), Then::Hold),
    ),
    row(
        "stray bytes after an answer",
        ReplicaSets,
        "rejected the request with code 403",
        |_| {
            let rejection = Reply::whole("403 Forbidden", "", r#"{"kind":"Status","code":403}"#);
            let list = Reply::whole(
                "200 OK",
                "",
                r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#,
            );
            Reply::raw([rejection.bytes, list.bytes].concat(), Then::Next)
        },
    ),
];
