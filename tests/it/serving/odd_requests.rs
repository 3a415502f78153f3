//! A table of odd requests to both ports, and the codes of the responses to each.

use std::net::Ipv4Addr;

use super::ports::{Ports, codes};
use crate::support::{Asked, Reply, ScriptedServer, Waiting};

/// Requests on one connection, and the codes of the daemon's responses until it closes the
/// connection, by port.
#[derive(Clone)]
struct Row {
    name: &'static str,
    bytes: Vec<u8>,
    plain: &'static [u16],
    secure: &'static [u16],
}

/// Nothing may be parsed after these bytes, so a request that follows them gets no response.
const NEXT: &str = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn row(name: &'static str, bytes: impl Into<Vec<u8>>, codes: &'static [u16]) -> Row {
    apart(name, bytes, codes, codes)
}

/// A row whose codes depend on the port.
fn apart(
    name: &'static str,
    bytes: impl Into<Vec<u8>>,
    plain: &'static [u16],
    secure: &'static [u16],
) -> Row {
    Row {
        name,
        bytes: bytes.into(),
        plain,
        secure,
    }
}

/// A request for a page, with these lines after the host.
fn get(path: &str, lines: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")
}

/// A request for `/livez`, with these lines after the host.
fn livez(lines: &str) -> String {
    get("/livez", lines)
}

/// A POST with these headers and this body, and a request after it.
fn post(headers: &str, body: &str) -> String {
    format!("POST /livez HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n{body}{NEXT}")
}

/// Heads that are no requests, or several.
fn heads() -> Vec<Row> {
    let many = |n: usize| "X: y\r\n".repeat(n);
    vec![
        row("one", NEXT, &[200]),
        row("five at once", NEXT.repeat(5), &[200; 5]),
        row("empty lines before it", format!("\r\n\r\n{NEXT}"), &[200]),
        row("HTTP/1.0", "GET /livez HTTP/1.0\r\n\r\n", &[200]),
        row("HTTP/0.9", "GET /livez\r\n\r\n", &[400]),
        row("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[400]),
        row("no host", "GET /livez HTTP/1.1\r\n\r\n", &[400]),
        row("two hosts", livez("Host: localhost\r\n"), &[400]),
        apart(
            "a foreign host",
            NEXT.replace("localhost", "evil.example"),
            &[403],
            &[200],
        ),
        apart(
            "a foreign origin",
            livez("Origin: http://evil.example\r\n"),
            &[403],
            &[200],
        ),
        apart(
            "a method of 5,000 letters",
            "A".repeat(5000) + NEXT,
            &[405],
            &[403],
        ),
        row("a header without a name", livez(": a\r\n"), &[400]),
        row("a folded header", livez("X: a\r\n b\r\n"), &[400]),
        row("a space before the colon", livez("X : a\r\n"), &[400]),
        row("NUL in a header", livez("X: a\0b\r\n"), &[400]),
        row("CR in a header", livez("X: a\rY: b\r\n"), &[400]),
        row(
            "lines that end with LF",
            "GET /livez HTTP/1.1\nHost: localhost\n\n",
            &[400],
        ),
        row("99 headers", livez(&many(98)), &[200]),
        row("101 headers", livez(&many(100)), &[431]),
        row(
            "a header of 30 KB",
            livez(&format!("X: {}\r\n", "x".repeat(30_000))),
            &[200],
        ),
        row(
            "a header of 40 KB",
            livez(&format!("X: {}\r\n", "x".repeat(40_000))),
            &[431],
        ),
        row(
            "a query of 30 KB",
            NEXT.replace("livez", &format!("livez?{}", "x".repeat(30_000))),
            &[200],
        ),
        apart(
            "a path with odd escapes",
            get("/livez%zz%f%ff%00", ""),
            &[404],
            &[404],
        ),
        row("a path with other letters", get("/\u{e9}", ""), &[400]),
        row(
            "a path with a scheme",
            NEXT.replace("/livez", "http://evil/livez"),
            &[200],
        ),
        row(
            "a path with user and port",
            NEXT.replace("/livez", "http://u:p@evil:99999/livez"),
            &[200],
        ),
        row(
            "a path of a file",
            NEXT.replace("http", "file")
                .replace("/livez", "file:///livez"),
            &[400],
        ),
        row("half a request", "GET /livez HTTP/1.1\r\nHost: local", &[]),
        row(
            "the start of a TLS handshake",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            &[],
        ),
        row(
            "bytes of no text",
            (0..=255).cycle().take(4096).collect::<Vec<u8>>(),
            &[400],
        ),
        row(
            "HTTP/1.0 kept alive",
            "GET /livez HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".repeat(2),
            &[200],
        ),
        row(
            "an upgrade to h2c",
            livez("Upgrade: h2c\r\nConnection: Upgrade\r\n"),
            &[200],
        ),
    ]
}

/// Bodies, and methods.
fn bodies() -> Vec<Row> {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let chunks = |body: &str| post(chunked, body);
    vec![
        apart(
            "a body",
            post("Content-Length: 3\r\n", "abc"),
            &[405, 200],
            &[403, 200],
        ),
        apart(
            "a body in chunks",
            chunks("3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\n"),
            &[405, 200],
            &[403, 200],
        ),
        row(
            "a body of GET",
            livez(&format!("Content-Length: {}\r\n", NEXT.len())) + NEXT + NEXT,
            &[200; 2],
        ),
        row(
            "a body of HEAD",
            livez("Content-Length: 3\r\n").replace("GET", "HEAD") + "abc" + NEXT,
            &[400],
        ),
        row(
            "CONNECT",
            format!("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n{NEXT}"),
            &[400],
        ),
        row(
            "length and chunks",
            post(&format!("{chunked}Content-Length: 5\r\n"), "0\r\n\r\n"),
            &[400],
        ),
        row(
            "two lengths",
            post("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd"),
            &[400],
        ),
        row("length -1", post("Content-Length: -1\r\n", ""), &[400]),
        row("length +3", post("Content-Length: +3\r\n", "abc"), &[400]),
        row(
            "length 2^64",
            post("Content-Length: 18446744073709551616\r\n", "abc"),
            &[400],
        ),
        row(
            "chunks, not quite",
            post("Transfer-Encoding: xchunked\r\n", ""),
            &[400],
        ),
        row(
            "gzip and chunks",
            post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
            &[400],
        ),
        row("chunk +5", chunks("+5\r\nabcde\r\n0\r\n\r\n"), &[400]),
        row("a chunk ended by LF", chunks("5\nabcde\n0\n\n"), &[400]),
        row(
            "a chunk of 2^65",
            chunks("1ffffffffffffffff\r\nabc"),
            &[400],
        ),
        row(
            "a chunk longer than its size",
            chunks("3\r\nabcdef\r\n0\r\n\r\n"),
            &[400],
        ),
        apart(
            "half a body",
            "POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nab",
            &[],
            &[],
        ),
        apart(
            "Expect",
            post("Expect: 100-continue\r\nContent-Length: 3\r\n", "abc"),
            &[100, 405, 200],
            &[100, 403, 200],
        ),
        apart(
            "OPTIONS *",
            "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
            &[405],
            &[404],
        ),
        apart(
            "TRACE",
            livez("X-Secret: 1\r\n").replace("GET", "TRACE"),
            &[405],
            &[403],
        ),
        apart(
            "a method of nobody",
            livez("").replace("GET", "FROB"),
            &[405],
            &[403],
        ),
    ]
}

/// Paths and credentials that must not open a page. The API server knows no token, and allows
/// nothing.
fn rights() -> Vec<Row> {
    vec![
        apart("a page", get("/metrics", ""), &[200], &[403]),
        apart(
            "a page below an open one",
            get("/healthz/../metrics", ""),
            &[404],
            &[403],
        ),
        apart(
            "a page after two slashes",
            get("//metrics", ""),
            &[404],
            &[404],
        ),
        apart(
            "a page and an escaped slash",
            get("/metrics%2f", ""),
            &[404],
            &[404],
        ),
        apart("a page in capitals", get("/METRICS", ""), &[404], &[404]),
        apart(
            "an open page and a slash",
            get("/livez/", ""),
            &[404],
            &[403],
        ),
        apart("an open page and NUL", get("/livez%00", ""), &[404], &[404]),
        apart(
            "an open page and a newline",
            get("/livez%0a", ""),
            &[404],
            &[404],
        ),
        apart(
            "somebody's name",
            get(
                "/metrics",
                "X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n",
            ),
            &[200],
            &[403],
        ),
        apart(
            "impersonation",
            get(
                "/metrics",
                "Impersonate-User: admin\r\nImpersonate-Group: system:masters\r\n",
            ),
            &[200],
            &[403],
        ),
        apart(
            "an unknown token",
            get("/metrics", "Authorization: Bearer x\r\n"),
            &[200],
            &[401],
        ),
        apart(
            "two tokens",
            get(
                "/metrics",
                "Authorization: Bearer x\r\nAuthorization: Bearer y\r\n",
            ),
            &[200],
            &[401],
        ),
        apart(
            "a token of 20 KB",
            get(
                "/metrics",
                &format!("Authorization: Bearer {}\r\n", "x".repeat(20_000)),
            ),
            &[200],
            &[401],
        ),
        apart(
            "a password",
            get("/metrics", "Authorization: Basic YTpi\r\n"),
            &[200],
            &[403],
        ),
        apart(
            "an open page with an unknown token",
            livez("Authorization: Bearer x\r\n"),
            &[200],
            &[200],
        ),
        apart(
            "the verbosity",
            "PUT /debug/flags/v HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n9",
            &[405],
            &[403],
        ),
    ]
}

/// An API server that knows no token and allows nothing.
fn distrust(asked: &Asked) -> Option<Reply> {
    let is_review =
        asked.path.ends_with("/tokenreviews") || asked.path.ends_with("/subjectaccessreviews");
    let status = r#"{"status":{"authenticated":false,"allowed":false}}"#;
    is_review.then(|| Reply::whole("201 Created", "", status))
}

#[test]
fn unusual_requests_get_their_codes_and_leave_no_memory() {
    let server = ScriptedServer::start(distrust);
    let ports = Ports::free();
    let process = ports.start(&server);
    let rows = [heads(), bodies(), rights()].concat();
    let mut wrong = Vec::new();
    let mut check_all = || {
        for Row {
            name,
            bytes,
            plain,
            secure,
        } in &rows
        {
            let client = Ipv4Addr::LOCALHOST;
            let on_plain = codes(&mut ports.plain(client), bytes);
            let on_secure = codes(&mut ports.secure(client), bytes);
            if (on_plain.as_slice(), on_secure.as_slice()) != (*plain, *secure) {
                wrong.push(format!("{name}: {on_plain:?} and {on_secure:?}"));
            }
        }
    };
    check_all();
    let before = process.resident();
    for _ in 0..4 {
        check_all();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let more = || process.resident().saturating_sub(before);
    let is_freed = Waiting::new(server.stop()).within(|| more() <= 2 * 1024);
    assert!(is_freed, "{} KiB more", more());
    let log = process.log();
    assert!(!log.contains("panick") && log.lines().count() < 30, "{log}");
}
