//! HTTP/1.1 as the simulated servers speak it: whole requests in, answers and chunks out.

use serde_json::Value;

/// A whole request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    query: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// An answer with a length.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) retry_after: Option<u32>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// Takes the first request out of `bytes` if it is complete.
    pub(super) fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
        let mut lines = text.split("\r\n");
        let mut first = lines.next()?.split(' ');
        let (method, target) = (first.next()?.to_owned(), first.next()?);
        let length = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse().ok())?
        });
        let end = head + length.unwrap_or(0_usize);
        if bytes.len() < end {
            return None;
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let request = Self {
            method,
            path: unescaped(path),
            query: pairs
                .map(|(name, value)| (unescaped(name), unescaped(value)))
                .collect(),
            body: bytes[head..end].to_vec(),
        };
        bytes.drain(..end);
        Some(request)
    }

    /// The value of a parameter.
    pub(super) fn query(&self, name: &str) -> Option<String> {
        let pair = self.query.iter().find(|(known, _)| known == name);
        pair.map(|(_, value)| value.clone())
    }

    /// `POST pods`, for histories.
    pub(super) fn describe(&self) -> String {
        let rest = self
            .path
            .rsplit_once("/namespaces/default/")
            .map_or(&*self.path, |it| it.1);
        format!("{} {rest}", self.method)
    }
}

impl Answer {
    pub(super) fn ok(value: &Value) -> Self {
        Self {
            code: 200,
            retry_after: None,
            body: value.to_string().into_bytes(),
        }
    }

    /// The answer as it travels.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let retry_after = self
            .retry_after
            .map(|seconds| format!("Retry-After: {seconds}\r\n"));
        let head = format!(
            "HTTP/1.1 {} X\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n",
            self.code,
            retry_after.unwrap_or_default(),
            self.body.len()
        );
        let mut bytes = head.into_bytes();
        bytes.extend(&self.body);
        bytes
    }
}

/// The head of a watch's answer.
pub(super) const STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

/// The end of a watch's answer.
pub(super) const STREAM_END: &[u8] = b"0\r\n\r\n";

/// One chunk of a watch.
pub(super) fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend(bytes);
    chunk.extend(b"\r\n");
    chunk
}

fn unescaped(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8_lossy()
        .into_owned()
}
