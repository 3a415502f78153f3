//! Answers to the creation of a pod.

use super::super::bodies::deep;
use super::Breaks::Creates;
use super::{IN_JSON, Scenario, row};
use crate::support::{Reply, Then, chunk};

pub(super) const CREATES: &[Scenario] = &[
    row(
        "a create answered by 1 GiB",
        Creates,
        "larger than request limit",
        |_| {
            let mebibyte = chunk(&vec![b' '; 1 << 20]);
            Reply::chunked(IN_JSON, &[], Then::Repeat(mebibyte))
        },
    ),
    row(
        "a create answered by garbage",
        Creates,
        "the response is not an object",
        |_| Reply::whole("201 Created", "", b"\xff\x00garbage"),
    ),
    row(
        "a create answered by 204",
        Creates,
        "the response is not an object",
        |_| Reply::raw("HTTP/1.1 204 No Content\r\n\r\n", Then::Next),
    ),
    row(
        "a create answered by 999",
        Creates,
        "HTTP code 999 and no reason",
        |_| Reply::whole("999 Odd", "", ""),
    ),
    row("a create rejected in deep JSON", Creates, "[[[[", |_| {
        Reply::whole("422 Unprocessable Entity", "", deep(400_000))
    }),
    row("a create cut off", Creates, "Peer disconnected", |_| {
        let head = "HTTP/1.1 201 Created\r\nContent-Length: 1000\r\n\r\n{";
        Reply::raw(head, Then::Close)
    }),
];
