//! Requests and responses without a socket, for `crate::fuzzing`.

use std::io::Read;

use super::connection::request_of;
use super::exchange::{Peer, Request};
use super::head::Head;
use super::received::{ReadError, Received};

/// Reads requests as a connection does. Returns them, and why there is no further one.
pub fn read_requests(source: &mut impl Read, kept_max: usize) -> (Vec<Request>, String) {
    let mut received = Received::default();
    let mut requests = Vec::new();
    loop {
        match next(&mut received, source, kept_max) {
            Ok(Some((request, true))) => requests.push(request),
            Ok(Some((request, false))) => {
                requests.push(request);
                return (requests, "the connection closes".to_owned());
            }
            Ok(None) => return (requests, "no more".to_owned()),
            Err(ReadError::Rejected(status)) => return (requests, status.to_owned()),
            Err(ReadError::Io(error)) => return (requests, error.to_string()),
        }
    }
}

/// The next request, and whether another one may follow.
fn next(
    received: &mut Received,
    source: &mut impl Read,
    kept_max: usize,
) -> Result<Option<(Request, bool)>, ReadError> {
    let bytes = loop {
        if let Some(bytes) = received.take_head()? {
            break bytes;
        }
        if received.receive(source)? == 0 {
            return Ok(None);
        }
    };
    let head = Head::parse(&bytes)?;
    let body = received.read_body(source, head.body, kept_max)?;
    let goes_on = body.is_read_to_its_end && !head.closes;
    Ok(Some((
        request_of(head, body.kept, Peer::default()),
        goes_on,
    )))
}

/// The head of a response as a connection writes it.
///
/// # Errors
/// If the connection would break instead.
pub fn written_head(response: &super::Response) -> Result<Vec<u8>, String> {
    use super::ResponseBody;
    use super::connection::{Exchange, head_bytes, start};

    let mut head = start(response);
    if let ResponseBody::Whole(body) = &response.body {
        head = head.header("content-length", body.len());
    }
    let exchange = Exchange {
        is_head: false,
        is_http_10: false,
        closes: false,
    };
    head_bytes(head, exchange).map_err(|error| error.to_string())
}
