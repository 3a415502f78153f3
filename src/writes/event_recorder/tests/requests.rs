//! The requests as the API server sees them, by a real client over a socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object;
use crate::client::{Client, ClientConfig, ClientOptions};
use crate::stdx::stop::Stop;
use crate::writes::EventType;
use crate::writes::event_recorder::{ClientEventSink, Event, EventSink, Recorded, SinkError};

/// What the server saw of one request.
#[derive(Debug)]
struct Seen {
    line: String,
    content_type: String,
    body: Value,
}

/// Takes one request and answers it with `answer`, the bytes of an HTTP response; none means that the
/// connection is closed without one.
fn serve_one(listener: &TcpListener, answer: &str) -> Seen {
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
    (&stream).write_all(answer.as_bytes()).expect("the answer");
    Seen {
        line: lines[0].clone(),
        content_type: header("content-type"),
        body: serde_json::from_slice(&body).expect("the body is JSON"),
    }
}

/// Lets `call` speak to a server that answers with `answer`.
fn exchange<T>(answer: &str, call: impl FnOnce(&ClientEventSink) -> T) -> (Seen, T) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let config = ClientConfig::plain(&format!("http://{address}"));
    let client = Client::new(&config, &ClientOptions::default(), &Stop::new());
    let sink = ClientEventSink::new(client.expect("a user agent fit for HTTP"));
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve_one(&listener, answer));
        let called = call(&sink);
        (server.join().expect("the server has answered"), called)
    })
}

fn answer(status: &str, body: &Value) -> String {
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
    let (seen, recorded) = exchange(&answer("201 Created", &body), |sink| sink.create(&event()));
    assert_eq!(seen.line, "POST /api/v1/namespaces/ns/events HTTP/1.1");
    assert_eq!(seen.content_type, "application/json");
    assert_eq!(seen.body["involvedObject"]["name"], "web");
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
    let (seen, recorded) = exchange(&answer("200 OK", &body), |sink| sink.patch(&event()));
    assert_eq!(
        seen.line,
        "PATCH /api/v1/namespaces/ns/events/web.1 HTTP/1.1"
    );
    assert_eq!(seen.content_type, "application/strategic-merge-patch+json");
    let expected = json!({"count": 2, "lastTimestamp": "2026-01-01T00:00:00Z", "message": "a"});
    assert_eq!(seen.body, expected);
    assert_eq!(recorded.expect("it is stored").count, 5);
}

#[test]
fn k_09_the_server_word_is_a_refusal_and_a_broken_connection_is_not() {
    let status = json!({"kind": "Status", "code": 422, "reason": "Invalid", "message": "no"});
    let refusal = answer("422 Unprocessable Entity", &status);
    let (_, refused) = exchange(&refusal, |sink| sink.create(&event()));
    assert!(matches!(refused, Err(SinkError::Refused(status)) if status.is_invalid()));
    let (_, unanswered) = exchange("", |sink| sink.create(&event()));
    assert!(matches!(unanswered, Err(SinkError::NoAnswer(_))));
    let nonsense = answer("200 OK", &json!([]));
    let (_, unread) = exchange(&nonsense, |sink| sink.create(&event()));
    assert!(matches!(unread, Err(SinkError::NoAnswer(_))));
}
