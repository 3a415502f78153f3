//! The tables: how an API server may be broken, what the daemon logs of it, and what it may use.

mod codes;
mod creates;
mod http;
mod json;
mod protobuf;

use crate::support::{LIST_END, Reply, Then};

/// Which answers are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breaks {
    /// Lists and watches of ReplicaSets.
    ReplicaSets,
    /// The same; watches that send the list first are rejected, so the daemon reads pages.
    Pages,
    /// Answers to the creation of pods.
    Creates,
    /// All answers.
    Everything,
}

/// What the daemon may use until the test has looked at it. In an unoptimized build it starts with
/// some 26 MiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Peak of its resident memory, in MiB.
    pub(super) peak_mib: usize,
    /// Requests with a broken answer.
    pub(super) requests: usize,
    /// Lines of the log.
    pub(super) lines: usize,
}

/// For a scenario that gives no reason for more.
const BOUNDS: Bounds = Bounds {
    peak_mib: 56,
    requests: 40,
    lines: 60,
};

/// An object, a line or a page may have 64 MiB. The buffer doubles, and for a moment both exist.
const LARGE: Bounds = Bounds {
    peak_mib: 224,
    ..BOUNDS
};

pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) breaks: Breaks,
    /// A part of the log; empty if the daemon waits for the rest, or takes the answer as it is.
    pub(super) logs: &'static str,
    /// The answer. A redirect leads to the given address.
    pub(super) reply: fn(&str) -> Reply,
    pub(super) bounds: Bounds,
}

/// All tables.
pub(super) fn scenarios() -> Vec<&'static Scenario> {
    [
        http::HTTP,
        codes::CODES,
        json::JSON,
        protobuf::PROTOBUF,
        creates::CREATES,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A scenario in the usual bounds.
const fn row(
    name: &'static str,
    breaks: Breaks,
    logs: &'static str,
    reply: fn(&str) -> Reply,
) -> Scenario {
    Scenario {
        name,
        breaks,
        logs,
        reply,
        bounds: BOUNDS,
    }
}

/// Media type of JSON.
const IN_JSON: &str = "application/json";

/// The head of an answer without an end of its headers.
const OPEN_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";

/// Many of the same byte, for an answer that does not end.
fn many(byte: u8) -> Vec<u8> {
    vec![byte; 64 << 10]
}

/// A watch with these events, then the end of the list, then silence.
fn watch(events: &[Vec<u8>]) -> Reply {
    let mut chunks: Vec<&[u8]> = events.iter().map(Vec::as_slice).collect();
    chunks.push(LIST_END);
    Reply::chunked(IN_JSON, &chunks, Then::Hold)
}
