//! The server with clients that misbehave. Real sockets on loopback, real time in small pieces.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Handler, Limits, Request, Response, Server, ServerOptions};
use crate::stdx::stop::Stop;

const PATIENCE: Duration = Duration::from_secs(20);

struct Echo;

impl Handler for Echo {
    fn handle(&self, request: Request) -> Response {
        let length = request.body.len();
        Response::text(
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
        accept_hosts: None,
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
    let began = Instant::now();
    let mut stream = connect(&server);
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .expect("not zero");
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

/// The second request's head is there as soon as the first one is answered; its body is not.
const SECOND_WITHOUT_BODY: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n\
    POST /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\n";

#[test]
fn a_later_body_may_take_longer_than_the_idle_limit() {
    let server = start(Limits {
        idle: Some(Duration::from_millis(100)),
        ..limits()
    });
    let mut stream = connect(&server);
    let read_within = |stream: &mut TcpStream, limit| {
        stream.set_read_timeout(Some(limit)).expect("not zero");
        rest(stream)
    };
    let sent = stream.write_all(SECOND_WITHOUT_BODY);
    sent.expect("the server reads");
    let answer = read_within(&mut stream, Duration::from_millis(300));
    assert!(answer.ends_with("GET /a 0"), "{answer}");
    stream.write_all(b"ab").expect("the server reads");
    let answer = read_within(&mut stream, PATIENCE);
    assert!(answer.ends_with("POST /b 2"), "{answer}");
}

#[test]
fn a_later_body_that_never_comes_is_cut_at_the_request_limit() {
    let server = start(Limits {
        request: Some(Duration::from_millis(500)),
        ..limits()
    });
    let mut stream = connect(&server);
    let began = Instant::now();
    let sent = stream.write_all(SECOND_WITHOUT_BODY);
    sent.expect("the server reads");
    let answer = rest(&mut stream);
    assert!(answer.ends_with("GET /a 0"), "{answer}");
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
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

/// A connection to the server from another address of this machine.
fn connect_from(address: Ipv4Addr, server: &Server) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddr::from((address, 0))).expect("an address of this machine");
    connect(&socket, &server.address()).expect("the server listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream
}

#[test]
fn a_flood_from_one_address_leaves_another_ones_alone() {
    let server = start(Limits {
        connections: Some(8),
        ..limits()
    });
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let mut early = connect_from(other, &server);
    let flood: Vec<TcpStream> = (0..50).map(|_| connect(&server)).collect();
    // One that was there before the flood and one that comes in its midst.
    for stream in [&mut early, &mut connect_from(other, &server)] {
        let answer = ask(stream);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    drop(flood);
}

#[test]
fn of_many_addresses_none_is_displaced_in_its_first_second() {
    let server = start(limits());
    let address = |last| Ipv4Addr::new(127, 0, 0, last);
    let mut first: Vec<TcpStream> = (2..4)
        .map(|it| connect_from(address(it), &server))
        .collect();
    assert_eq!(rest(&mut connect_from(address(4), &server)), "");
    let began = Instant::now();
    while !ask(&mut connect_from(address(4), &server)).starts_with("HTTP/1.1 200 OK\r\n") {
        assert!(began.elapsed() < PATIENCE, "nobody is displaced");
    }
    assert!(began.elapsed() > Duration::from_millis(500));
    assert_eq!(rest(&mut first[0]), "");
}

#[test]
fn a_refused_thread_closes_one_connection_and_no_more() {
    let options = ServerOptions {
        accept_thread: "t-http",
        // No thread has a name as long as this.
        connection_thread: "t-http-refused-",
        limits: limits(),
        tls: None,
        accept_hosts: None,
    };
    let stop = Stop::new();
    let mut server =
        Server::start("127.0.0.1:0", options, Arc::new(Echo), &stop).expect("a free port");
    for _ in 0..3 {
        assert_eq!(rest(&mut connect(&server)), "");
    }
    server.stop();
    assert_eq!(stop.cause(), None);
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

/// What comes of these bytes, sent as a whole: answers up to the one after which the server closes.
fn say(server: &Server, text: &str) -> String {
    let mut stream = connect(server);
    stream.write_all(text.as_bytes()).expect("the server reads");
    rest(&mut stream)
}

#[test]
fn no_body_is_taken_for_the_next_request() {
    let server = start(limits());
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let n = smuggled.len();
    for head in [
        format!("HEAD /a HTTP/1.1\r\nHost: a\r\nContent-Length: {n}\r\n\r\n"),
        "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        format!(
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {n}\r\nTransfer-Encoding: \
             chunked\r\n\r\n0\r\n\r\n"
        ),
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n".to_owned(),
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         +5\r\nabcde\r\n0\r\n\r\n"
            .to_owned(),
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\nabcde\n0\n\n"
            .to_owned(),
        "GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(),
        "GET /a HTTP/1.1\nHost: a\n\n".to_owned(),
    ] {
        let answers = say(&server, &format!("{head}{smuggled}"));
        assert!(answers.starts_with("HTTP/1.1 400 "), "{head}{answers}");
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{head}{answers}");
    }
    let get = format!("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: {n}\r\n\r\n{smuggled}");
    let answers = say(&server, &format!("{get}\r\n{smuggled}"));
    assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 2, "{answers}");
}

#[test]
fn a_body_far_too_long_is_answered_and_the_connection_closed() {
    let server = start(limits());
    let mut stream = connect(&server);
    let head = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("the server reads");
    let piece = vec![b'x'; 64 * 1024];
    let began = Instant::now();
    // It is not read to its end, so that writing fails sooner or later.
    while stream.write_all(&piece).is_ok() {
        assert!(began.elapsed() < PATIENCE, "the server reads on");
    }
}

#[test]
fn a_client_that_asks_for_it_is_told_to_go_on() {
    let server = start(limits());
    let mut stream = connect(&server);
    let head = "POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nConnection: close\r\n\
                Content-Length: 2\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("the server reads");
    let mut word = [0; 25];
    stream.read_exact(&mut word).expect("it answers");
    assert_eq!(&word, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"ab").expect("the server reads");
    assert!(rest(&mut stream).ends_with("POST /a 2"));
}
