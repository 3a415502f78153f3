//! The server with clients that misbehave. Real sockets on loopback, real time in small pieces.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Answer, Handler, Limits, Request, Server, ServerOptions};
use crate::stdx::stop::Stop;

const PATIENCE: Duration = Duration::from_secs(20);

struct Echo;

impl Handler for Echo {
    fn handle(&self, request: Request) -> Answer {
        let length = request.body.len();
        Answer::text(
            200,
            &format!("{} {} {length}", request.method, request.path),
        )
    }
}

fn start(limits: Limits) -> Server {
    let options = ServerOptions {
        accept_thread: "t-http",
        connection_thread: "t-http-",
        limits,
        tls: None,
    };
    Server::start("127.0.0.1:0", options, Arc::new(Echo), &Stop::new()).expect("a free port")
}

fn limits() -> Limits {
    Limits {
        connections: Some(2),
        request: Some(PATIENCE),
        idle: Some(PATIENCE),
        answer: Some(PATIENCE),
        body_bytes: 4,
    }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream
}

/// What comes until the server closes the connection.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that is reset has ended too.
    stream.read_to_end(&mut bytes).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn ask(stream: &mut TcpStream) -> String {
    let request =
        b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 6\r\n\r\nabcdef";
    stream.write_all(request).expect("the server reads");
    rest(stream)
}

#[test]
fn a_body_is_kept_up_to_its_limit() {
    let server = start(limits());
    let answer = ask(&mut connect(&server));
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("POST /a 4"), "{answer}");
}

#[test]
fn a_head_is_answered_without_a_body() {
    let server = start(limits());
    let mut stream = connect(&server);
    stream
        .write_all(
            b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n\
              GET /b HTTP/1.1\r\nHost: a\r\n\r\n\
              HEAD /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        )
        .expect("the server reads");
    let answers = rest(&mut stream);
    let answers: Vec<&str> = answers.split("HTTP/1.1 200 OK\r\n").collect();
    let [before, of_head, of_get, last] = answers.as_slice() else {
        panic!("three answers: {answers:?}");
    };
    assert_eq!(*before, "");
    for head in [of_head, last] {
        assert!(head.contains("content-length: 9\r\n"), "{head}");
        assert!(head.ends_with("\r\n\r\n"), "{head}");
    }
    assert!(of_get.ends_with("\r\n\r\nGET /b 0"), "{of_get}");
}

#[test]
fn a_client_that_is_slow_with_its_request_is_cut_although_it_sends() {
    let server = start(Limits {
        request: Some(Duration::from_millis(200)),
        ..limits()
    });
    let mut stream = connect(&server);
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .expect("not zero");
    let began = Instant::now();
    // Byte by byte, each well before the limit has passed since the last one.
    let ended = loop {
        assert!(began.elapsed() < PATIENCE, "the server still listens");
        let sent = stream.write_all(b"G");
        match stream.read(&mut [0; 1]) {
            _ if sent.is_err() => break began.elapsed(),
            Ok(0) => break began.elapsed(),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                break began.elapsed();
            }
            _ => {}
        }
    };
    assert!(ended >= Duration::from_millis(190), "{ended:?}");
}

#[test]
fn an_idle_connection_is_closed() {
    let server = start(Limits {
        idle: Some(Duration::from_millis(50)),
        ..limits()
    });
    let mut stream = connect(&server);
    stream
        .write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("the server reads");
    let answer = rest(&mut stream);
    assert!(answer.ends_with("GET /a 0"), "{answer}");
}

#[test]
fn one_more_client_displaces_the_oldest_that_says_nothing() {
    let server = start(limits());
    let mut silent: Vec<TcpStream> = (0..2).map(|_| connect(&server)).collect();
    for _ in 0..4 {
        let answer = ask(&mut connect(&server));
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    assert_eq!(rest(&mut silent[0]), "");
}

#[test]
fn stopping_ends_connections_that_wait() {
    let mut server = start(limits());
    let mut stream = connect(&server);
    let began = Instant::now();
    server.stop();
    assert_eq!(rest(&mut stream), "");
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
}
