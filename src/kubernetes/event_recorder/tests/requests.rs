//! The requests of a real client, as a server on a socket receives them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object;
use crate::client::{Client, ClientConfig, ClientError, ClientOptions};
use crate::event_recorder::EventType;
use crate::event_recorder::{ClientEventSink, Event, EventSink, Recorded};
use crate::stdx::stop::Stop;

/// One request as received.
#[derive(Debug)]
struct Received {
    line: String,
    content_type: String,
    body: Value,
}

/// Receives one request and sends `response`, the bytes of an HTTP response. An empty one closes
/// the connection without a response.
fn serve_one(listener: &TcpListener, response: &str) -> Received {
    let (stream, _) = listener.accept().expect("the client connects");
    let mut reader = BufReader::new(&stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line of the head");
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let header = |name: &str| {
        let mut headers = lines.iter().filter_map(|line| line.split_once(": "));
        let found = headers.find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value).to_owned()
    };
    let length = header("content-length").parse().expect("a length");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    (&stream)
        .write_all(response.as_bytes())
        .expect("the response");
    Received {
        line: lines[0].clone(),
        content_type: header("content-type"),
        body: serde_json::from_slice(&body).expect("the body is JSON"),
    }
}

/// Runs `call` against a server that sends `response`.
fn exchange<T>(response: &str, call: impl FnOnce(&ClientEventSink) -> T) -> (Received, T) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let config = ClientConfig::plain(&format!("http://{address}"));
    let client = Client::new(&config, &ClientOptions::default(), &Stop::new());
    let sink = ClientEventSink::new(client);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve_one(&listener, response));
        let called = call(&sink);
        (server.join().expect("the server has responded"), called)
    })
}

fn response(status: &str, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

fn event() -> Event {
    let at = Timestamp::constant(1_767_225_600, 0);
    Event {
        name: "web.1".to_owned(),
        object: object("web"),
        type_: EventType::Normal,
        reason: "Tested",
        message: "a".into(),
        component: "tester",
        reporting_component: "tester",
        first_timestamp: at,
        last_timestamp: at,
        count: 2,
    }
}

#[test]
fn a_create_is_a_post_of_the_event() {
    let body = json!({"metadata": {"name": "web.1"}, "count": 2});
    let (received, recorded) = exchange(&response("201 Created", &body), |sink| {
        sink.create(&event())
    });
    assert_eq!(received.line, "POST /api/v1/namespaces/ns/events HTTP/1.1");
    assert_eq!(received.content_type, "application/json");
    assert_eq!(received.body["involvedObject"]["name"], "web");
    let expected = Recorded {
        name: "web.1".to_owned(),
        first_timestamp: event().first_timestamp,
        count: 2,
    };
    assert_eq!(recorded.expect("it is stored"), expected);
}

#[test]
fn a_patch_is_a_strategic_merge_patch_of_the_event() {
    let body = json!({"metadata": {"name": "web.1"}, "count": 5});
    let (received, recorded) = exchange(&response("200 OK", &body), |sink| sink.patch(&event()));
    assert_eq!(
        received.line,
        "PATCH /api/v1/namespaces/ns/events/web.1 HTTP/1.1"
    );
    assert_eq!(
        received.content_type,
        "application/strategic-merge-patch+json"
    );
    let expected = json!({"count": 2, "lastTimestamp": "2026-01-01T00:00:00Z", "message": "a"});
    assert_eq!(received.body, expected);
    assert_eq!(recorded.expect("it is stored").count, 5);
}

#[test]
fn k_09_only_a_status_is_a_rejection() {
    let status = json!({"kind": "Status", "code": 422, "reason": "Invalid", "message": "no"});
    let rejection = response("422 Unprocessable Entity", &status);
    let (_, rejected) = exchange(&rejection, |sink| sink.create(&event()));
    assert!(matches!(rejected, Err(ClientError::Status(status)) if status.is_invalid()));
    let (_, disconnected) = exchange("", |sink| sink.create(&event()));
    assert!(matches!(disconnected, Err(ClientError::Transport(_))));
    let nonsense = response("200 OK", &json!([]));
    let (_, unread) = exchange(&nonsense, |sink| sink.create(&event()));
    assert!(matches!(unread, Err(ClientError::Decode(_))));
}
