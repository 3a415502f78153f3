//! The binary among hostile clients: bounds on descriptors, processor time and memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use super::ports::Ports;
use crate::support::{DaemonProcess, PlainPort, TestCluster};

fn connect(port: &PlainPort) -> TcpStream {
    TcpStream::connect(port.address()).expect("the daemon listens")
}

#[test]
fn a_connection_takes_one_descriptor() {
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let process = cluster.start_process(&[&port.argument()]);
    cluster.eventually("the daemon is ready", || port.get("/readyz").0 == 200);
    let before = process.n_descriptors();
    let clients: Vec<TcpStream> = (0..40).map(|_| connect(&port)).collect();
    cluster.eventually("all connections are accepted", || {
        process.n_descriptors() >= before + 40
    });
    cluster.holds("one descriptor per connection", || {
        process.n_descriptors() < before + 60
    });
    drop(clients);
}

#[test]
fn the_accepting_thread_pauses_without_descriptors() {
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let process = cluster.start_process(&[&port.argument()]);
    cluster.eventually("the daemon is ready", || port.get("/readyz").0 == 200);
    let descriptors_max = process.n_descriptors() + 5;
    let limited = Command::new("prlimit")
        .arg(format!("--pid={}", process.id()))
        .arg(format!("--nofile={descriptors_max}"))
        .status();
    assert!(limited.expect("util-linux is installed").success());
    // The connections stay in the accept queue of the listening socket.
    let clients: Vec<TcpStream> = (0..60).map(|_| connect(&port)).collect();
    cluster.eventually("the daemon logs the pause", || {
        process
            .log()
            .contains("no connection can be accepted for now")
    });
    let before = process.processor_time();
    cluster.holds("few warnings are logged", || {
        process.log().matches(" WARN ").count() < 20
    });
    let used = process.processor_time() - before;
    assert!(used < 40, "{used} ticks of 10 ms of processor time");
    drop(clients);
    cluster.eventually("the daemon responds again", || port.get("/livez").0 == 200);
}

/// Opens a hundred connections, sends these bytes on each, and returns them open.
fn wave<C: Write>(connect: impl Fn() -> C, bytes: &[u8]) -> Vec<C> {
    let start = |_| {
        let mut client = connect();
        // The daemon may close the connection before it has read everything.
        client.write_all(bytes).unwrap_or_default();
        client
    };
    (0..100).map(start).collect()
}

/// Sends waves of endless requests over connections from `connect`, and checks the bounds and that
/// the daemon still responds on `port`.
#[track_caller]
fn check_hostile<C: Read + Write>(
    cluster: &TestCluster,
    process: &DaemonProcess,
    port: &PlainPort,
    connect: impl Fn() -> C,
) {
    cluster.eventually("the daemon is ready", || port.get("/readyz").0 == 200);
    let head = "POST /livez HTTP/1.1\r\nHost: localhost\r\n";
    let endless = [
        // An endless chunk size, head and trailer, chunk data without its line end, and a body.
        format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n{}",
            "1".repeat(1 << 20)
        ),
        format!("{head}X: {}", "x".repeat(30 * 1024)),
        format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n0\r\n{}",
            "X: y\r\n".repeat(1 << 17)
        ),
        format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n1\r\n{}",
            "x".repeat(1 << 20)
        ),
        format!(
            "{head}Content-Length: 9999999\r\n\r\n{}",
            "x".repeat(1 << 20)
        ),
    ];
    let before = process.resident();
    let good = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for mut client in wave(&connect, good) {
        let mut status = [0; 15];
        client.read_exact(&mut status).expect("the daemon responds");
        assert_eq!(status, *b"HTTP/1.1 200 OK");
    }
    let served = process.resident();
    for _ in 0..3 {
        for text in &endless {
            let used = process.processor_time();
            process.reset_peak();
            let clients = wave(&connect, text.as_bytes());
            let more = process.peak().saturating_sub(before);
            assert!(more <= 16 * 1024, "{more} KiB for {text:.80}");
            drop(clients);
            // A debug build reads more than 20 MB per second.
            let used = process.processor_time() - used;
            assert!(used < 500, "{used} ticks of 10 ms for {text:.80}");
        }
        cluster.eventually("the daemon responds again", || port.get("/livez").0 == 200);
    }
    // The buffers that the daemon keeps do not grow with the waves, and exceed those for a hundred
    // regular clients only slightly.
    let more = || process.resident().saturating_sub(served);
    cluster.eventually("the buffers are freed", || more() <= 4 * 1024);
}

fn with_limit(client: TcpStream) -> TcpStream {
    let limit = Some(Duration::from_secs(1));
    client.set_write_timeout(limit).expect("not zero");
    client
}

#[test]
fn a_hundred_hostile_connections_use_bounded_resources() {
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let process = cluster.start_process(&[&port.argument()]);
    let connect_one = || with_limit(connect(&port));
    check_hostile(&cluster, &process, &port, connect_one);
}

#[test]
fn hostile_connections_over_tls_use_bounded_resources() {
    let cluster = TestCluster::start();
    let ports = Ports::free();
    let process = cluster.start_process(&ports.arguments());
    let connect_one = || ports.tls(with_limit(connect(&ports.secure)));
    check_hostile(&cluster, &process, &ports.plain, connect_one);
}
