//! Complete responses over plain HTTP.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::server::{Reply, Server, response};
use super::{PATIENCE, client, client_of, stopped_while, unlimited};
use crate::api::Status;
use crate::client::{
    Client, ClientConfig, ClientError, ClientOptions, Fence, Request, TransportErrorKind,
};

const NOT_FOUND: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
"message":"pods \"a\" not found","reason":"NotFound",
"details":{"name":"a","kind":"pods"},"code":404}"#;

fn always(code: u16, headers: &'static str, body: &'static str) -> Server {
    Server::plain(move |_| Reply::Write(response(code, headers, body)))
}

#[test]
fn a_request_is_sent_as_it_was_built_and_connections_are_kept() {
    let server = always(201, "", "made");
    let (client, _) = client_of(&server);
    let post = Request::post("/api/v1/namespaces/default/pods")
        .query("fieldManager", "a b")
        .body("application/json", "{}");
    let response = client.send(&post).expect("there is a response");
    assert_eq!(
        (response.code, response.body.as_slice()),
        (201, &b"made"[..])
    );
    let delete = Request::delete("/api/v1/pods/a").body("application/json", "{\"x\":1}");
    client.send(&delete).expect("there is a response");
    let get = Request::get("/apis").accept("application/vnd.kubernetes.protobuf");
    client.send(&get).expect("there is a response");

    let (post, delete, get) = (server.next(), server.next(), server.next());
    assert_eq!(
        post.first_line,
        "POST /api/v1/namespaces/default/pods?fieldManager=a%20b HTTP/1.1"
    );
    assert_eq!(post.body, "{}");
    assert_eq!(post.all("content-type"), ["application/json"]);
    assert_eq!(post.all("accept"), ["application/json"]);
    assert_eq!(
        post.all("user-agent"),
        [ClientOptions::default().user_agent]
    );
    assert_eq!(post.all("accept-encoding"), [""; 0]);
    assert_eq!(post.all("authorization"), [""; 0]);
    assert_eq!(
        post.all("host"),
        [server.url().strip_prefix("http://").expect("it is")]
    );
    assert_eq!(delete.first_line, "DELETE /api/v1/pods/a HTTP/1.1");
    assert_eq!(delete.body, "{\"x\":1}");
    assert_eq!(get.all("accept"), ["application/vnd.kubernetes.protobuf"]);
    assert_eq!(get.all("content-type"), [""; 0]);
    assert_eq!([post.connection, delete.connection, get.connection], [0; 3]);
}

#[test]
fn the_path_of_the_servers_url_is_the_prefix() {
    let server = always(200, "", "");
    let config = ClientConfig::plain(&format!("{}/k8s/clusters/c-1/", server.url()));
    let (client, _) = client(&config, &unlimited());
    client
        .send(&Request::get("/version"))
        .expect("there is a response");
    assert_eq!(
        server.next().first_line,
        "GET /k8s/clusters/c-1/version HTTP/1.1"
    );
}

#[test]
fn a_rejected_request_is_a_status_error_and_sent_once() {
    let server = always(404, "content-type: application/json\r\n", NOT_FOUND);
    let (client, _) = client_of(&server);
    let error = client
        .send(&Request::get("/a"))
        .expect_err("it is rejected");
    assert!(error.status().is_some_and(Status::is_not_found) && !error.is_unsent());
    assert_eq!(error.to_string(), "pods \"a\" not found");
    assert_eq!(server.remaining().len(), 1);
}

/// Each of them costs the client time, so a server that sends them without end would keep a
/// processor busy.
#[test]
fn responses_before_the_final_one_are_limited() {
    let early = |n| b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(n);
    let final_one = || response(200, "", "[]");
    let server = Server::plain(move |received| match received.n {
        0 => Reply::Write([early(100), final_one()].concat()),
        _ => Reply::WriteAndHold(early(20_000)),
    });
    let (client, _) = client_of(&server);
    let get = Request::get("/a");
    client.send(&get).expect("a few are normal");
    let error = client.send(&get).expect_err("there are too many");
    let expected = "bytes of 1xx responses without a final one";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn k_09_a_write_is_sent_once_if_its_connection_breaks() {
    let server = Server::plain(|_| Reply::WriteAndClose(Vec::new()));
    let (client, _) = client_of(&server);
    let post = Request::post("/events").body("application/json", "{}");
    let error = client.send(&post).expect_err("it is dropped");
    assert!(
        error.is_closed() && !error.is_unsent() && error.status().is_none(),
        "{error}"
    );
    assert_eq!(server.remaining().len(), 1);
}

#[test]
fn k_09_a_request_that_cannot_be_built_is_not_sent() {
    let server = always(201, "", "");
    let (client, _) = client_of(&server);
    let post = Request::post("/events").body("application/\njson", "{}");
    let error = client.send(&post).expect_err("no header can be like that");
    assert!(matches!(error, ClientError::Invalid(_)) && error.is_unsent());
    assert_eq!(server.remaining().len(), 0);
}

#[test]
fn an_incomplete_response_is_a_closed_connection() {
    let server = Server::plain(|_| {
        Reply::WriteAndClose(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_vec())
    });
    let (client, _) = client_of(&server);
    let post = Request::post("/a").body("application/json", "{}");
    let error = client.send(&post).expect_err("it is cut");
    assert!(error.is_closed() && !error.is_unsent(), "{error:?}");
}

#[test]
fn a_read_is_retried_if_its_idle_connection_was_closed() {
    // The connection lives for one exchange; its second request finds it closed.
    let server = Server::plain(|received| match received.n {
        1 => Reply::WriteAndClose(Vec::new()),
        _ => Reply::Write(response(200, "", "ok")),
    });
    let (client, _) = client_of(&server);
    client
        .send(&Request::get("/1"))
        .expect("there is a response");
    client.send(&Request::get("/2")).expect("it is repeated");
    let seen = server.remaining().into_iter();
    let seen: Vec<_> = seen
        .map(|request| (request.first_line, request.connection))
        .collect();
    let seen: Vec<_> = seen.iter().map(|(line, n)| (line.as_str(), *n)).collect();
    assert_eq!(
        seen,
        [
            ("GET /1 HTTP/1.1", 0),
            ("GET /2 HTTP/1.1", 0),
            ("GET /2 HTTP/1.1", 1)
        ]
    );
}

#[test]
fn retry_after_is_obeyed_for_writes_too() {
    let server = Server::plain(|received| {
        Reply::Write(match received.n {
            0 => response(429, "Retry-After: 0\r\n", ""),
            1 => response(503, "Retry-After: 0\r\n", ""),
            _ => response(201, "", "made"),
        })
    });
    let (client, _) = client_of(&server);
    let post = Request::post("/a").body("application/json", "{}");
    assert_eq!(client.send(&post).expect("third time lucky").code, 201);
    assert!(
        server
            .remaining()
            .iter()
            .all(|request| request.body == "{}")
    );
}

#[test]
fn a_brief_retry_leaves_a_longer_wait_to_the_caller() {
    let overloaded = |header: &'static str| {
        let server = always(429, header, "");
        let (client, _) = client_of(&server);
        let post = Request::post("/a").body("application/json", "{}");
        let error = client.send(&post.retried_briefly());
        let error = error.expect_err("it is rejected");
        let retry_after = error.status().and_then(Status::retry_after);
        (server.remaining().len(), retry_after.map(|it| it.as_secs()))
    };
    assert_eq!(overloaded("Retry-After: 0\r\n"), (2, Some(0)));
    assert_eq!(overloaded("Retry-After: 2\r\n"), (1, Some(2)));
    assert_eq!(overloaded("Retry-After: 120\r\n"), (1, Some(120)));
    assert_eq!(overloaded(""), (1, None));
}

/// A fence that is open for the given number of checks.
#[derive(Debug)]
pub(super) struct OpenFor(pub(super) AtomicUsize);

impl Fence for OpenFor {
    fn is_open(&self) -> bool {
        let one_less = |n: usize| n.checked_sub(1);
        let updated = self
            .0
            .try_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        updated.is_ok()
    }

    fn delivery_limit(&self) -> Duration {
        Duration::from_millis(500)
    }
}

#[test]
fn an_unsent_retry_does_not_make_the_write_unsent() {
    for n_checks in 0..10 {
        let server = always(503, "Retry-After: 0\r\n", "half done");
        let options = ClientOptions {
            fence: Some(Arc::new(OpenFor(AtomicUsize::new(n_checks)))),
            ..unlimited()
        };
        let (client, _) = client(&ClientConfig::plain(&server.url()), &options);
        let post = Request::post("/a").body("application/json", "{}");
        let error = client.send(&post).expect_err("it is rejected or not sent");
        let n_sent = server.remaining().len();
        assert_eq!(error.is_unsent(), n_sent == 0, "{n_sent} sent: {error}");
    }
}

/// The fence closes before the first request, or after requests on a new and on a kept connection.
#[test]
fn nothing_is_sent_once_the_fence_is_closed() {
    for n_checks in 0..3 {
        let server = always(201, "", "made");
        let options = ClientOptions {
            fence: Some(Arc::new(OpenFor(AtomicUsize::new(n_checks)))),
            ..unlimited()
        };
        let (client, _) = client(&ClientConfig::plain(&server.url()), &options);
        let send = |_| {
            client
                .send(&Request::get("/a"))
                .map(|response| response.code)
        };
        let responses: Vec<_> = (0..=n_checks).map(send).collect();
        let held_back = responses.last().expect("one at least");
        assert!(
            matches!(held_back, Err(ClientError::Fenced)),
            "{responses:?}"
        );
        assert_eq!(server.remaining().len(), n_checks);
    }
}

/// The server accepts the connection and reads nothing, so our kernel keeps the rest of the
/// request.
#[cfg(target_os = "linux")]
#[test]
fn undelivered_bytes_are_discarded_after_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("it is bound");
    let fence = OpenFor(AtomicUsize::new(usize::MAX));
    let options = ClientOptions {
        fence: Some(Arc::new(fence)),
        request_timeout: 2 * PATIENCE,
        ..unlimited()
    };
    let url = format!("http://{address}");
    let (client, _) = client(&ClientConfig::plain(&url), &options);
    let post = Request::post("/a").body("application/json", "x".repeat(64 << 20));
    let began = Instant::now();
    let error = client.send(&post).expect_err("nobody reads it");
    assert!(!error.is_unsent(), "{error}");
    let took = began.elapsed();
    assert!(took < PATIENCE, "{took:?}: {error}");
}

#[test]
fn a_head_with_the_most_warnings_possible_is_read() {
    let warning = format!("Warning: 299 - \"{}\"\r\n", "\u{8b66}".repeat(250));
    let headers = warning.repeat(16);
    let server = Server::plain(move |_| Reply::Write(response(201, &headers, "made")));
    let (client, _) = client_of(&server);
    let post = Request::post("/a").body("application/json", "{}");
    assert_eq!(
        client.send(&post).expect("there is a response").body,
        b"made"
    );
}

#[test]
fn a_status_error_without_retry_after_is_not_retried() {
    for code in [429, 500] {
        let server = always(code, "", "busy");
        let (client, _) = client_of(&server);
        let error = client
            .send(&Request::get("/a"))
            .expect_err("it is rejected");
        assert_eq!(error.status().map(crate::api::Status::code), Some(code));
        assert_eq!(server.remaining().len(), 1);
    }
}

#[test]
fn retries_are_limited_and_stop_ends_them_with_the_error() {
    let server = always(429, "Retry-After: 0\r\n", "");
    let (client, _) = client_of(&server);
    let error = client
        .send(&Request::get("/a"))
        .expect_err("it is rejected");
    assert!(error.status().is_some_and(Status::is_too_many_requests));
    assert_eq!(server.remaining().len(), 11);

    let server = always(429, "Retry-After: 30\r\n", "");
    let (client, stop) = client_of(&server);
    let blocked = || drop(server.next());
    let result = stopped_while(&stop, blocked, move || client.send(&Request::get("/a")));
    assert!(result.is_err_and(|error| error.status().is_some_and(Status::is_too_many_requests)));
}

#[test]
fn j_10_a_refused_connection_is_recognised_and_unsent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let (client, _) = client(
        &ClientConfig::plain(&format!("http://{address}")),
        &unlimited(),
    );
    let post = Request::post("/a").body("application/json", "{}");
    let error = client.send(&post).expect_err("nobody listens");
    assert!(error.is_connection_refused() && error.is_unsent());
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn an_unknown_host_is_unsent_and_not_refused() {
    // A label this long is rejected without asking the network.
    let url = format!("http://{}.invalid", "x".repeat(64));
    let (client, _) = client(&ClientConfig::plain(&url), &unlimited());
    let error = client
        .send(&Request::get("/a"))
        .expect_err("it does not exist");
    let transport = error.transport().expect("it is a transport error");
    assert_eq!(
        (transport.kind, transport.sent),
        (TransportErrorKind::Other, false)
    );
}

#[test]
fn a_missing_response_is_a_timeout_with_an_open_outcome() {
    let server = Server::plain(|_| Reply::WriteAndHold(Vec::new()));
    let (client, _) = client_of(&server);
    check_times_out_after_sending(&client);

    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    let server = Server::plain(|_| Reply::WriteAndHold(head.to_vec()));
    let (client, _) = client_of(&server);
    check_times_out_after_sending(&client);
}

#[track_caller]
fn check_times_out_after_sending(client: &Client) {
    let mut limit = Duration::from_millis(50);
    loop {
        let request = Request::get("/a").timeout(limit);
        let error = client.send(&request).expect_err("no whole response comes");
        assert!(error.is_timeout(), "{error:?}");
        if !error.is_unsent() {
            return;
        }
        // A slow machine needs longer to send it.
        limit *= 2;
        assert!(limit < PATIENCE, "{error:?}");
    }
}

#[test]
fn redirects_are_not_followed() {
    let server = always(307, "location: http://elsewhere.invalid/\r\n", "");
    let (client, _) = client_of(&server);
    let error = client
        .send(&Request::get("/a"))
        .expect_err("it is elsewhere");
    assert_eq!(error.status().map(crate::api::Status::code), Some(307));
    assert!(error.to_string().contains("elsewhere.invalid"), "{error}");
}

#[test]
fn long_responses_with_warnings_are_read() {
    let body: &'static str = "x".repeat(12 << 20).leak();
    let server = always(200, "Warning: 299 - \"use something else\"\r\n", body);
    let (client, _) = client_of(&server);
    let response = client
        .send(&Request::get("/a"))
        .expect("there is a response");
    assert_eq!(response.body.len(), body.len());
}

#[test]
fn a_response_that_is_not_http_is_no_status_error() {
    let server = Server::plain(|_| Reply::WriteAndClose(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()));
    let (client, _) = client_of(&server);
    let error = client
        .send(&Request::get("/a"))
        .expect_err("it is not HTTP");
    assert!(
        error.transport().is_some_and(|error| error.sent),
        "{error:?}"
    );
}

#[test]
fn each_client_has_its_throttle_and_stop_ends_its_waits() {
    let server = always(200, "", "");
    let options = ClientOptions {
        qps: 0.001,
        burst: 1,
        ..ClientOptions::default()
    };
    let (client, stop) = client(&ClientConfig::plain(&server.url()), &options);
    client
        .send(&Request::get("/pods"))
        .expect("the burst lets it go");
    let (events, _) = client_of(&server);
    events
        .send(&Request::get("/events"))
        .expect("its bucket is another");
    let blocked = client.clone();
    let blocked = move || blocked.send(&Request::get("/pods"));
    let error = stopped_while(&stop, || {}, blocked).expect_err("it waits for a token");
    assert!(matches!(error, ClientError::Stopped) && error.is_unsent());
    assert_eq!(server.remaining().len(), 2);
    events
        .send(&Request::get("/lease"))
        .expect("what need not wait is sent even now");
}

#[test]
fn a_retry_waits_for_a_token_too() {
    let server = always(429, "Retry-After: 0\r\n", "");
    let options = ClientOptions {
        qps: 0.001,
        burst: 1,
        ..ClientOptions::default()
    };
    let (client, stop) = client(&ClientConfig::plain(&server.url()), &options);
    let blocked = || drop(server.next());
    let result = stopped_while(&stop, blocked, move || client.send(&Request::get("/a")));
    assert!(result.is_err_and(|error| error.status().is_some_and(Status::is_too_many_requests)));
    assert_eq!(server.remaining().len(), 0);
}

#[test]
fn abort_closes_connections_in_use_and_opens_no_more() {
    let server = Server::plain(|_| Reply::WriteAndHold(Vec::new()));
    let (client, stop) = client_of(&server);
    let (blocked, at_stop) = (client.clone(), client.clone());
    stop.on_stop(move || at_stop.abort());
    let wait = || drop(server.next());
    let post = Request::post("/a").body("application/json", "{}");
    let error = stopped_while(&stop, wait, move || blocked.send(&post)).expect_err("it is cut");
    assert!(!error.is_unsent(), "{error:?}");
    let error = client.send(&Request::get("/a")).expect_err("it is over");
    assert!(error.is_unsent(), "{error:?}");
}

/// Checks the outcome of a POST and of a DELETE whose first attempt times out on the server and
/// whose retry gets this code.
#[track_caller]
fn check_retry(code: u16, reason: &str, is_open: bool) {
    let n_tries = AtomicUsize::new(0);
    let body = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure",
        "reason":"{reason}","code":{code}}}"#
    );
    let server = Server::plain(move |_| {
        Reply::Write(match n_tries.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => response(504, "Retry-After: 0\r\n", "given up"),
            _ => response(code, "", &body),
        })
    });
    let (client, _) = client_of(&server);
    for request in [Request::post("/a"), Request::delete("/a")] {
        let request = request.body("application/json", "{}");
        let error = client.send(&request).expect_err("it is rejected");
        assert_eq!(error.leaves_outcome_open(), is_open, "{code}: {error}");
    }
    assert_eq!(server.remaining().len(), 4);
}

#[test]
fn a_rejected_retry_leaves_the_outcome_open() {
    check_retry(403, "Forbidden", true);
    check_retry(409, "Conflict", true);
    check_retry(422, "Invalid", true);
    check_retry(429, "TooManyRequests", true);
    // These show the object's state.
    check_retry(409, "AlreadyExists", false);
    check_retry(404, "NotFound", false);
}

#[test]
fn only_a_write_with_an_open_outcome_hides_a_later_rejection() {
    let post = Request::post("/a").body("application/json", "{}");
    for (request, first) in [(post, 429), (Request::get("/a"), 504)] {
        let n_tries = AtomicUsize::new(0);
        let server = Server::plain(move |_| {
            Reply::Write(match n_tries.fetch_add(1, Ordering::SeqCst) {
                0 => response(first, "Retry-After: 0\r\n", "not now"),
                _ => response(403, "", "no"),
            })
        });
        let (client, _) = client_of(&server);
        let error = client.send(&request).expect_err("it is rejected");
        let status = error.status().expect("a status");
        assert_eq!(status.code(), 403, "{error}");
        assert_eq!(server.remaining().len(), 2);
    }
}

#[test]
fn the_response_to_a_write_has_a_size_limit() {
    const MIB: usize = 1 << 20;
    for (n_bytes, fits) in [(15 * MIB, true), (17 * MIB, false)] {
        let server = Server::plain(move |_| Reply::Write(response(201, "", &"x".repeat(n_bytes))));
        let (client, _) = client_of(&server);
        let post = Request::post("/a").body("application/json", "{}");
        match client.send(&post) {
            Ok(response) => assert!(fits && response.body.len() == n_bytes),
            // The server may have performed the write nevertheless.
            Err(error) => assert!(!fits && error.leaves_outcome_open(), "{error}"),
        }
        // A page of a list may be longer.
        let page = Request::get("/a").query("limit", "2");
        assert_eq!(client.send(&page).expect("a page").body.len(), n_bytes);
    }
}
