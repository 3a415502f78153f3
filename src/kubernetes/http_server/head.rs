//! The head of a request, parsed strictly (RFC 9112). The parser rejects a head that two parsers
//! could take for different requests, because the other parser may be a proxy in front. Pure;
//! httparse does the line grammar.

use httparse::{EMPTY_HEADER, Error, Status};

const HEADERS_MAX: usize = 100;

/// The status line of the error response; the connection closes after it.
pub(super) type StatusLine = &'static str;

pub(super) const BAD_REQUEST: StatusLine = "400 Bad Request";
pub(super) const HEAD_TOO_LARGE: StatusLine = "431 Request Header Fields Too Large";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: String,
    /// Path and query as received, without scheme and host.
    pub(super) target: String,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: BodyLength,
    /// The client waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
    pub(super) is_http_10: bool,
    /// The client sends no further request on this connection.
    pub(super) closes: bool,
}

/// How the parser finds the end of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLength {
    Bytes(u64),
    Chunked,
}

impl Head {
    /// Parses a complete head, including the empty line that ends it.
    ///
    /// # Errors
    /// The status line to respond with.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, StatusLine> {
        let mut headers = [EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(Status::Complete(used)) if used == bytes.len() => {}
            Err(Error::TooManyHeaders) => return Err(HEAD_TOO_LARGE),
            Ok(_) | Err(_) => return Err(BAD_REQUEST),
        }
        let (Some(method), Some(target), Some(version)) =
            (request.method, request.path, request.version)
        else {
            return Err(BAD_REQUEST);
        };
        let headers = request.headers.iter().map(|header| {
            let value = String::from_utf8_lossy(header.value).into_owned();
            (header.name.to_ascii_lowercase(), value)
        });
        let headers: Vec<(String, String)> = headers.collect();
        let is_http_10 = version == 0;
        let n_hosts = values(&headers, "host").count();
        if n_hosts > 1 || (n_hosts == 0 && !is_http_10) {
            return Err(BAD_REQUEST);
        }
        let body = body_length(&headers, is_http_10)?;
        // The body of a HEAD request has no defined meaning, and many servers take it for the next
        // request. After a CONNECT, the bytes are not HTTP at all.
        if method == "CONNECT" || (method == "HEAD" && body != BodyLength::Bytes(0)) {
            return Err(BAD_REQUEST);
        }
        let has_word = |name: &str, word: &str| {
            let mut words = values(&headers, name).flat_map(|value| value.split(','));
            words.any(|it| it.trim().eq_ignore_ascii_case(word))
        };
        Ok(Self {
            method: method.to_owned(),
            target: path_and_query(target)?.to_owned(),
            body,
            expects_continue: !is_http_10 && has_word("expect", "100-continue"),
            is_http_10,
            closes: is_http_10 || has_word("connection", "close"),
            headers,
        })
    }
}

fn values<'a>(headers: &'a [(String, String)], name: &'a str) -> impl Iterator<Item = &'a str> {
    let pairs = headers.iter().filter(move |(key, _)| key == name);
    pairs.map(|(_, value)| value.as_str())
}

fn body_length(headers: &[(String, String)], is_http_10: bool) -> Result<BodyLength, StatusLine> {
    let mut lengths = values(headers, "content-length");
    let mut encodings = values(headers, "transfer-encoding");
    // With two lengths, or a length and chunks, parsers disagree on the end of the body.
    match (lengths.next(), encodings.next()) {
        (None, None) => Ok(BodyLength::Bytes(0)),
        (Some(length), None) if lengths.next().is_none() && is_digits(length) => {
            length.parse().map(BodyLength::Bytes).or(Err(BAD_REQUEST))
        }
        (None, Some(encoding))
            if encodings.next().is_none()
                && !is_http_10
                && encoding.eq_ignore_ascii_case("chunked") =>
        {
            Ok(BodyLength::Chunked)
        }
        _ => Err(BAD_REQUEST),
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())
}

/// The target without scheme and host, which clients send to proxies, and without a fragment.
fn path_and_query(target: &str) -> Result<&str, StatusLine> {
    if !target.bytes().all(|it| it.is_ascii_graphic()) {
        return Err(BAD_REQUEST);
    }
    let target = target.split('#').next().unwrap_or_default();
    if target.starts_with('/') || target == "*" {
        return Ok(target);
    }
    let behind_scheme = ["http://", "https://"].into_iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    });
    let rest = behind_scheme.ok_or(BAD_REQUEST)?;
    match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => Ok(&rest[at..]),
        // The path is "/" and what follows a query, which a search for the slash would mistake.
        Some(_) => Err(BAD_REQUEST),
        None => Ok("/"),
    }
}

/// The length of a chunk, from its line without the line ending.
pub(super) fn chunk_length(line: &[u8]) -> Result<u64, StatusLine> {
    let digits = line.split(|it| *it == b';').next().unwrap_or_default();
    let text = str::from_utf8(digits).or(Err(BAD_REQUEST))?;
    if text.is_empty() || !text.bytes().all(|it| it.is_ascii_hexdigit()) {
        return Err(BAD_REQUEST);
    }
    u64::from_str_radix(text, 16).or(Err(BAD_REQUEST))
}

#[cfg(test)]
mod tests {
    use super::{BAD_REQUEST, BodyLength, Head, chunk_length};

    #[test]
    fn ambiguous_heads_are_rejected() {
        for (why, head) in [
            ("no host", "GET / HTTP/1.1\r\n"),
            ("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n"),
            (
                "length and chunks",
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            ),
            (
                "an unknown encoding",
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n",
            ),
            (
                "two encodings",
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n",
            ),
            (
                "chunks in HTTP/1.0",
                "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n",
            ),
            (
                "two lengths",
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n",
            ),
            (
                "a sign",
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n",
            ),
            (
                "no number",
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n",
            ),
            (
                "2^64",
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551616\r\n",
            ),
            (
                "HEAD with a body",
                "HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n",
            ),
            ("CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n"),
            (
                "a slash in the query",
                "GET http://a?b/metrics HTTP/1.1\r\nHost: a\r\n",
            ),
            ("space before a colon", "GET / HTTP/1.1\r\nHost : a\r\n"),
            (
                "a folded line",
                "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n",
            ),
            ("no path", "GET x HTTP/1.1\r\nHost: a\r\n"),
            ("HTTP/2", "PRI * HTTP/2.0\r\n"),
        ] {
            let whole = format!("{head}\r\n");
            assert_eq!(
                Head::parse(whole.as_bytes()).err(),
                Some(BAD_REQUEST),
                "{why}"
            );
        }
    }

    #[test]
    fn a_head_has_path_headers_and_length() {
        let text = "POST http://a/b?c#d HTTP/1.1\r\nHOST: a\r\nContent-Length: 12\r\n\
                    Connection: x, Close\r\nExpect: 100-Continue\r\n\r\n";
        let head = Head::parse(text.as_bytes()).expect("it is good");
        assert_eq!(
            (head.method.as_str(), head.target.as_str()),
            ("POST", "/b?c")
        );
        assert_eq!(head.body, BodyLength::Bytes(12));
        assert!(head.closes && head.expects_continue && !head.is_http_10);
        assert_eq!(head.headers[0], ("host".to_owned(), "a".to_owned()));
    }

    #[test]
    fn chunk_lengths_are_hexadecimal_digits() {
        for (line, expected) in [
            ("5", Ok(5)),
            ("0;name=value", Ok(0)),
            ("fFfF", Ok(65535)),
            ("ffffffffffffffff", Ok(u64::MAX)),
            ("+5", Err(BAD_REQUEST)),
            ("", Err(BAD_REQUEST)),
            (" 5", Err(BAD_REQUEST)),
            ("0x5", Err(BAD_REQUEST)),
            ("1ffffffffffffffff", Err(BAD_REQUEST)),
        ] {
            assert_eq!(chunk_length(line.as_bytes()), expected, "{line}");
        }
    }
}
