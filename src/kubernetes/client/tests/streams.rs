//! Lists and watches.

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use super::server::{Reply, Server, chunked, response};
use super::{carried_by, client, client_of, stopped_while, unlimited};
use crate::api::Status;
use crate::client::{BodyStream, ClientConfig, ClientError, ClientOptions, Request};

/// The silence after which a stream ends: a busy machine responds sooner.
const SILENCE_MAX: Duration = Duration::from_secs(4);

fn watch() -> Request {
    Request::get("/api/v1/pods").query("watch", "true")
}

fn read_to_end(stream: &mut BodyStream) -> (String, Option<ClientError>) {
    let mut text = Vec::new();
    let error = stream.read_to_end(&mut text).err();
    let text = String::from_utf8(text).expect("tests send text");
    (text, error.map(carried_by))
}

/// A server that responds with one line and a complete body.
fn ends_well() -> Server {
    Server::plain(|_| {
        let mut bytes = chunked(&["{}\n"]);
        bytes.extend(b"0\r\n\r\n");
        Reply::Write(bytes)
    })
}

#[track_caller]
fn check_ends_well(stream: &mut BodyStream) {
    let (text, error) = read_to_end(stream);
    assert!(error.is_none() && text == "{}\n", "{text:?} {error:?}");
}

#[test]
fn lines_arrive_as_written_and_stop_ends_the_next_read() {
    let server = Server::plain(|_| Reply::WriteAndHold(chunked(&["{\"a\":1}\n", "{\"b\""])));
    let (client, stop) = client_of(&server);
    let stream = client
        .stream_client()
        .open_watch(&watch())
        .expect("it opens");
    assert_eq!(stream.content_type(), "application/json;stream=watch");
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).expect("a complete line arrives");
    assert_eq!(line, "{\"a\":1}\n");
    let error = stopped_while(&stop, || {}, move || lines.read_line(&mut String::new()));
    let error = carried_by(error.expect_err("the line has no end"));
    assert!(matches!(error, ClientError::Stopped), "{error:?}");
}

#[test]
fn stop_ends_the_wait_for_a_head_and_opens_nothing_more() {
    let server = Server::plain(|_| Reply::WriteAndHold(Vec::new()));
    let (client, stop) = client_of(&server);
    let streams = client.stream_client();
    let blocked = || drop(server.next());
    let open = move || {
        (
            streams.open_watch(&watch()).map(drop),
            streams.open_list(&watch()),
        )
    };
    let (watch, list) = stopped_while(&stop, blocked, open);
    assert!(matches!(watch, Err(ClientError::Stopped)), "{watch:?}");
    assert!(matches!(list, Err(ClientError::Stopped)), "{list:?}");
}

#[test]
fn a_clean_end_is_no_error_and_keeps_the_connection() {
    let server = ends_well();
    let (client, _) = client_of(&server);
    let streams = client.stream_client();
    for _ in 0..2 {
        let mut stream = streams.open_watch(&watch()).expect("it opens");
        check_ends_well(&mut stream);
    }
    assert_eq!(
        server.remaining().last().map(|request| request.connection),
        Some(0)
    );
}

#[test]
fn a_new_stream_reads_without_waits_until_they_are_allowed() {
    let server = ends_well();
    let (client, _) = client_of(&server);
    let streams = client.stream_client();
    for _ in 0..2 {
        let mut stream = streams.open_watch(&watch()).expect("it opens");
        assert!(!stream.state().coalesces());
        stream.state().begin_watch(true);
        check_ends_well(&mut stream);
    }
}

#[test]
fn an_incomplete_stream_stays_broken() {
    let server = Server::plain(|_| Reply::WriteAndClose(chunked(&["{}\n", "{\"half"])));
    let (client, _) = client_of(&server);
    let mut stream = client
        .stream_client()
        .open_list(&Request::get("/a"))
        .expect("it opens");
    let (text, error) = read_to_end(&mut stream);
    assert_eq!(text, "{}\n{\"half");
    assert!(error.is_some_and(|error| error.is_closed() && !error.is_unsent()));
    let (text, error) = read_to_end(&mut stream);
    assert!(text.is_empty() && error.is_some_and(|error| error.is_closed()));
}

#[test]
fn a_silent_watch_ends() {
    let server = Server::plain(|_| Reply::WriteAndHold(chunked(&["{}\n"])));
    let options = ClientOptions {
        watch_silence_timeout: SILENCE_MAX,
        ..unlimited()
    };
    let (client, _) = client(&ClientConfig::plain(&server.url()), &options);
    let mut stream = client
        .stream_client()
        .open_watch(&watch())
        .expect("it opens");
    stream.state().begin_watch(false);
    let (text, error) = read_to_end(&mut stream);
    assert_eq!(text, "{}\n");
    assert!(error.is_some_and(|error| error.is_timeout()));
}

/// An API server that sends no bookmark at the end of a streamed list is silent from there on.
#[test]
fn a_streamed_list_may_be_silent_as_long_as_any_list() {
    let server = Server::plain(|_| Reply::WriteAndHold(chunked(&["{}\n"])));
    let options = ClientOptions {
        request_timeout: SILENCE_MAX,
        watch_silence_timeout: Duration::from_mins(5),
        ..unlimited()
    };
    let (client, _) = client(&ClientConfig::plain(&server.url()), &options);
    let mut stream = client
        .stream_client()
        .open_watch(&watch())
        .expect("it opens");
    let (text, error) = read_to_end(&mut stream);
    assert_eq!(text, "{}\n");
    assert!(error.is_some_and(|error| error.is_timeout()));
}

#[test]
fn a_rejected_watch_is_a_status_error() {
    let gone = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired",
        "message":"too old resource version","code":410}"#;
    let server = Server::plain(move |_| Reply::Write(response(410, "", gone)));
    let (client, _) = client_of(&server);
    let error = client
        .stream_client()
        .open_watch(&watch())
        .expect_err("it is rejected");
    assert!(error.status().is_some_and(Status::is_expired));
}

#[test]
fn a_broken_watch_is_retried_once_and_a_list_more_often() {
    let server = Server::plain(|received| match received.n {
        0..=3 => Reply::WriteAndClose(Vec::new()),
        _ => Reply::Write(response(200, "", "[]")),
    });
    let (client, _) = client_of(&server);
    let streams = client.stream_client();
    let error = streams.open_watch(&watch()).expect_err("it breaks twice");
    assert!(error.is_closed());
    assert_eq!(server.remaining().len(), 2);
    let mut list = streams
        .open_list(&Request::get("/a"))
        .expect("there is a response at last");
    assert_eq!(read_to_end(&mut list).0, "[]");
    assert_eq!(server.remaining().len(), 3);
}

#[test]
fn lists_wait_for_a_token_and_watches_do_not() {
    let server = Server::plain(|_| Reply::Write(response(200, "", "[]")));
    let options = ClientOptions {
        qps: 0.001,
        burst: 1,
        ..ClientOptions::default()
    };
    let (client, stop) = client(&ClientConfig::plain(&server.url()), &options);
    let streams = client.stream_client();
    drop(
        streams
            .open_list(&Request::get("/a"))
            .expect("the burst lets it go"),
    );
    for _ in 0..3 {
        drop(streams.open_watch(&watch()).expect("it opens"));
    }
    let open = move || streams.open_list(&Request::get("/a")).map(drop);
    let error = stopped_while(&stop, || {}, open).expect_err("it waits for a token");
    assert!(matches!(error, ClientError::Stopped));
}
