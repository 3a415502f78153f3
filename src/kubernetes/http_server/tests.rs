//! The server against misbehaving clients. Real sockets on loopback, real time in short waits.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Handler, Limits, Request, Response, Server, ServerOptions, check_hosts};
use crate::stdx::stop::Stop;

/// A limit that only a hang meets.
const PATIENCE: Duration = Duration::from_mins(2);

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
        limits: Some(limits),
        body_bytes: 4,
        tls: None,
        accept_hosts: None,
    };
    Server::start("127.0.0.1:0", options, Arc::new(Echo), &Stop::new()).expect("a free port")
}

fn limits() -> Limits {
    Limits {
        connections: 2,
        request: PATIENCE,
        idle: PATIENCE,
        answer: PATIENCE,
    }
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream
}

/// Everything the server sends until it closes the connection.
fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset also ends the connection.
    stream.read_to_end(&mut bytes).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn post_and_close(stream: &mut TcpStream) -> String {
    let request =
        b"POST /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 6\r\n\r\nabcdef";
    stream.write_all(request).expect("the server reads");
    read_to_end(stream)
}

#[test]
fn a_body_is_kept_up_to_its_limit() {
    let server = start(limits());
    let response = post_and_close(&mut connect(&server));
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.ends_with("POST /a 4"), "{response}");
}

#[test]
fn a_response_to_head_has_no_body() {
    let server = start(limits());
    let mut stream = connect(&server);
    stream
        .write_all(
            b"HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n\
              GET /b HTTP/1.1\r\nHost: a\r\n\r\n\
              HEAD /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        )
        .expect("the server reads");
    let responses = read_to_end(&mut stream);
    let responses: Vec<&str> = responses.split("HTTP/1.1 200 OK\r\n").collect();
    let [before, of_head, of_get, last] = responses.as_slice() else {
        panic!("three responses: {responses:?}");
    };
    assert_eq!(*before, "");
    for head in [of_head, last] {
        assert!(head.contains("content-length: 9\r\n"), "{head}");
        assert!(head.ends_with("\r\n\r\n"), "{head}");
    }
    assert!(of_get.ends_with("\r\n\r\nGET /b 0"), "{of_get}");
}

#[test]
fn a_slow_request_is_cut_at_its_limit() {
    let server = start(Limits {
        request: Duration::from_millis(200),
        ..limits()
    });
    let began = Instant::now();
    let mut stream = connect(&server);
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .expect("not zero");
    // Each byte arrives long before the limit has passed since the previous byte.
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
        idle: Duration::from_millis(50),
        ..limits()
    });
    let mut stream = connect(&server);
    stream
        .write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("the server reads");
    let response = read_to_end(&mut stream);
    assert!(response.ends_with("GET /a 0"), "{response}");
}

/// The second head arrives together with the first request; the second body does not.
const SECOND_WITHOUT_BODY: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n\
    POST /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\n";

#[test]
fn a_later_body_may_take_longer_than_the_idle_limit() {
    let server = start(Limits {
        idle: Duration::from_millis(100),
        ..limits()
    });
    let mut stream = connect(&server);
    let sent = stream.write_all(SECOND_WITHOUT_BODY);
    sent.expect("the server reads");
    let mut response = Vec::new();
    while !response.ends_with(b"GET /a 0") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the server responds");
        response.push(byte[0]);
    }
    Stop::new().wait_timeout(Duration::from_millis(300));
    stream.write_all(b"ab").expect("the server reads");
    let response = read_to_end(&mut stream);
    assert!(response.ends_with("POST /b 2"), "{response}");
}

#[test]
fn a_missing_later_body_is_cut_at_the_request_limit() {
    let response_within = |request| {
        let server = start(Limits {
            request,
            ..limits()
        });
        let mut stream = connect(&server);
        stream.write_all(SECOND_WITHOUT_BODY).unwrap_or_default();
        read_to_end(&mut stream)
    };
    let began = Instant::now();
    // A short limit may cut the first request of a slow client too.
    let limits = [1, 5, 25].map(|tenths| Duration::from_millis(100 * tenths));
    let responses = limits.map(response_within);
    let is_of_first = |response: &String| response.ends_with("GET /a 0");
    assert!(responses.iter().any(is_of_first), "{responses:?}");
    assert!(began.elapsed() < PATIENCE, "cut at the idle limit");
}

#[test]
fn a_new_client_displaces_the_oldest_silent_one() {
    let server = start(limits());
    let mut silent: Vec<TcpStream> = (0..2).map(|_| connect(&server)).collect();
    for _ in 0..4 {
        let response = post_and_close(&mut connect(&server));
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    }
    assert_eq!(read_to_end(&mut silent[0]), "");
}

/// Connects to the server from another loopback address.
fn connect_from(address: Ipv4Addr, server: &Server) -> TcpStream {
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, socket,
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("a socket");
    let from = SockaddrStorage::from(SocketAddr::from((address, 0)));
    bind(socket.as_raw_fd(), &from).expect("an address of this machine");
    let to = SockaddrStorage::from(server.address());
    connect(socket.as_raw_fd(), &to).expect("the server listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream
}

#[test]
fn a_flood_spares_connections_of_other_addresses() {
    let server = start(Limits {
        connections: 8,
        ..limits()
    });
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let mut early = connect_from(other, &server);
    let flood: Vec<TcpStream> = (0..50).map(|_| connect(&server)).collect();
    // The first connection is older than the flood; the second opens during the flood.
    for stream in [&mut early, &mut connect_from(other, &server)] {
        let response = post_and_close(stream);
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    }
    drop(flood);
}

#[test]
fn no_connection_is_displaced_in_its_first_second() {
    let server = start(limits());
    let address = |last| Ipv4Addr::new(127, 0, 0, last);
    let began = Instant::now();
    let mut first: Vec<TcpStream> = (2..4)
        .map(|it| connect_from(address(it), &server))
        .collect();
    while !post_and_close(&mut connect_from(address(4), &server)).starts_with("HTTP/1.1 200 OK\r\n")
    {
        assert!(began.elapsed() < PATIENCE, "no connection is displaced");
    }
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(read_to_end(&mut first[0]), "");
}

#[test]
fn a_failed_thread_start_closes_only_its_connection() {
    let options = ServerOptions {
        accept_thread: "t-http",
        // `try_spawn` returns an error for a name this long.
        connection_thread: "t-http-refused-",
        limits: Some(limits()),
        body_bytes: 4,
        tls: None,
        accept_hosts: None,
    };
    let stop = Stop::new();
    let mut server =
        Server::start("127.0.0.1:0", options, Arc::new(Echo), &stop).expect("a free port");
    for _ in 0..3 {
        assert_eq!(read_to_end(&mut connect(&server)), "");
    }
    server.stop();
    assert_eq!(stop.cause(), None);
}

#[test]
fn stop_ends_waiting_connections() {
    let mut server = start(limits());
    let mut stream = connect(&server);
    let began = Instant::now();
    server.stop();
    assert_eq!(read_to_end(&mut stream), "");
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    TcpStream::connect(server.address()).expect_err("nobody listens");
}

/// Sends `text` and returns all responses until the server closes the connection.
fn send(server: &Server, text: &str) -> String {
    let mut stream = connect(server);
    stream.write_all(text.as_bytes()).expect("the server reads");
    read_to_end(&mut stream)
}

#[test]
fn no_body_is_parsed_as_the_next_request() {
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
        let responses = send(&server, &format!("{head}{smuggled}"));
        assert!(responses.starts_with("HTTP/1.1 400 "), "{head}{responses}");
        assert_eq!(
            responses.matches("HTTP/1.1 ").count(),
            1,
            "{head}{responses}"
        );
    }
    let get = format!("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: {n}\r\n\r\n{smuggled}");
    let responses = send(&server, &format!("{get}\r\n{smuggled}"));
    assert_eq!(responses.matches("HTTP/1.1 200 ").count(), 2, "{responses}");
}

#[test]
fn a_far_too_long_body_closes_the_connection() {
    let server = start(limits());
    let mut stream = connect(&server);
    let head = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("the server reads");
    let piece = vec![b'x'; 64 * 1024];
    let began = Instant::now();
    // The server stops reading, so a write fails sooner or later.
    while stream.write_all(&piece).is_ok() {
        assert!(began.elapsed() < PATIENCE, "the server reads on");
    }
}

#[test]
fn a_client_that_expects_it_gets_100_continue() {
    let server = start(limits());
    let mut stream = connect(&server);
    let head = "POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nConnection: close\r\n\
                Content-Length: 2\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("the server reads");
    let mut interim = [0; 25];
    stream
        .read_exact(&mut interim)
        .expect("the server responds");
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"ab").expect("the server reads");
    assert!(read_to_end(&mut stream).ends_with("POST /a 2"));
}

#[track_caller]
fn is_allowed(host: &str, origin: &str) -> bool {
    let headers = [("host", host), ("origin", origin)];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let request = Request {
        headers: headers.to_vec(),
        ..Request::default()
    };
    let local = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
    check_hosts(&request, local, &["dev.shop.svc".to_owned()]).is_ok()
}

#[test]
fn only_own_names_and_own_pages_are_accepted() {
    for host in [
        "localhost:8001",
        "LOCALHOST",
        "127.0.0.1:8001",
        "127.1.2.3",
        "[::1]:8001",
        "[::1]",
        "10.0.0.7:8001",
        "dev.shop.svc:80",
        "",
    ] {
        assert!(is_allowed(host, ""), "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example:8001",
        "127.0.0.1.evil.example",
        "10.0.0.8:8001",
        "[::2]:8001",
        "shop.svc",
    ] {
        assert!(!is_allowed(host, ""), "{host}");
    }
    assert!(is_allowed("localhost:8001", "http://localhost:8001"));
    for origin in ["http://evil.example", "null", "http://localhost:3000"] {
        assert!(!is_allowed("localhost:8001", origin), "{origin}");
    }
}
