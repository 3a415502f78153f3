//! HTTP: what clients send to the daemon's pages, and the header with which servers ask for time.

use std::time::Duration;

use super::cluster::Pieces;
use super::mutate::Form;
use super::{Target, text_of};
use crate::client::delays;
use crate::http_server::Request;
use crate::http_server::testing::read_requests;

/// Bytes of a body that the server keeps.
const KEPT_MAX: usize = 1000;

/// Longest head that the server takes.
const HEAD_MAX: usize = 32 * 1024;

const REQUESTS: &[&str] = &[
    "\r\n",
    "\r\n\r\n",
    "\n",
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "Host: a\r\n",
    "Content-Length: 3\r\n",
    "Content-Length: 18446744073709551615\r\n",
    "Content-Length: +3\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Connection: close\r\n",
    "Expect: 100-continue\r\n",
    "HTTP/1.0",
    "HTTP/1.1",
    "HTTP/2.0",
    "HEAD",
    "CONNECT",
    "POST",
    "5\r\nabcde\r\n",
    "0\r\n\r\n",
    "ffffffffffffffff",
    ";x=y",
    "http://u:p@h",
    "/../",
    "%00",
    "%zz",
    "?a=b&",
    "#",
    "*",
    " ",
    "\t",
    "\u{0}",
    "\r",
];

const DELAYS: &[&str] = &[
    "0",
    "1",
    "60",
    "61",
    "-",
    "+",
    ".",
    "e",
    " ",
    "\t",
    ",",
    "18446744073709551615",
    "Fri, 31 Dec 1999 23:59:59 GMT",
    "\u{0660}",
    "_",
    "0x",
];

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "http-request",
            form: Form::Text(REQUESTS),
            n_short: 1000,
            cpu_factor: 2,
            corpus: requests,
            reader: || Box::new(request),
        },
        Target {
            name: "retry-after",
            form: Form::Text(DELAYS),
            n_short: 1000,
            cpu_factor: 1,
            corpus: || text_of(&["1", " 60 ", "Fri, 31 Dec 1999 23:59:59 GMT", "0.5", "-1"]),
            reader: || Box::new(retry_after),
        },
    ]
}

fn requests() -> Vec<Vec<u8>> {
    text_of(&[
        "GET /livez?verbose HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nabcde\r\n0\r\n\
         X: y\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n",
        "PUT /debug/flags/v HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\
         Expect: 100-continue\r\n\r\n4\r\nDELETE /x%20y?a=b&c HTTP/1.1\r\nHost: a\r\n\r\n",
        "HEAD http://h/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    ])
}

/// Requests in pieces are the requests read at once, and each can be written so that it is read
/// again as the same.
fn request(input: &[u8]) -> bool {
    let (requests, end) = read_requests(&mut &*input, KEPT_MAX);
    let mut pieces = Pieces::of(input, 1 + input.len() % 61);
    let (in_pieces, end_in_pieces) = read_requests(&mut pieces, KEPT_MAX);
    assert_eq!(end, end_in_pieces);
    assert_eq!(requests.len(), in_pieces.len());
    for (request, in_pieces) in requests.iter().zip(&in_pieces) {
        assert_eq!(described(request), described(in_pieces));
        assert!(request.body.len() <= KEPT_MAX);
        assert!(request.path_and_query.starts_with('/') || request.path_and_query == "*");
        let head = head_of(request);
        if head.len() > HEAD_MAX {
            continue;
        }
        let bytes = [head.as_bytes(), &request.body].concat();
        let (again, end) = read_requests(&mut bytes.as_slice(), KEPT_MAX);
        assert_eq!(again.len(), 1, "{end} after {head:?}");
        assert_eq!(described(&again[0]), described(request));
    }
    !requests.is_empty()
}

/// All of a request but how its body was framed.
fn described(request: &Request) -> impl PartialEq + std::fmt::Debug {
    (
        request.method.clone(),
        (request.path.clone(), request.path_and_query.clone()),
        request.query.clone(),
        headers_of(request),
        request.body.clone(),
    )
}

fn headers_of(request: &Request) -> Vec<(String, String)> {
    let framing = ["content-length", "transfer-encoding"];
    let headers = request.headers.iter();
    headers
        .filter(|(name, _)| !framing.contains(&name.as_str()))
        .cloned()
        .collect()
}

fn head_of(request: &Request) -> String {
    let headers = headers_of(request);
    let has_host = headers.iter().any(|(name, _)| name == "host");
    let version = if has_host { "1.1" } else { "1.0" };
    let (method, target) = (&request.method, &request.path_and_query);
    let mut head = format!("{method} {target} HTTP/{version}\r\n");
    for (name, value) in &headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    if !request.body.is_empty() {
        let length = request.body.len().to_string();
        head.extend(["Content-Length: ", &length, "\r\n"]);
    }
    head + "\r\n"
}

/// A delay is one of whole seconds, the same for all requests, and has a bound.
fn retry_after(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let digits = text.trim();
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let significant = digits.trim_start_matches('0');
    let seconds = match significant.len() {
        0 => Some(0),
        1..=2 => significant.parse().ok(),
        _ => None,
    };
    let expected = seconds
        .filter(|seconds| is_number && *seconds <= 60)
        .map(Duration::from_secs);
    for code in [429, 500, 503, 504, 599] {
        assert_eq!(delays(code, 0, &text), [expected; 3], "{text:?}");
        assert_eq!(delays(code, 10, &text), [None; 3]);
    }
    for code in [0, 200, 401, 404, 409, 422] {
        assert_eq!(delays(code, 0, &text), [None; 3]);
    }
    expected.is_some()
}
