//! The shipped binary among clients that want it to fail.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use rustls::{ClientConnection, RootCertStore, StreamOwned};

use super::{Authority, DnType, write};
use crate::support::{DaemonProcess, PlainPort, TestCluster};

fn pid(process: &DaemonProcess) -> Option<Pid> {
    Pid::from_raw(i32::try_from(process.id()).expect("process ids are small"))
}

fn n_descriptors(process: &DaemonProcess) -> usize {
    let folder = fs::read_dir(format!("/proc/{}/fd", process.id()));
    folder.expect("the process is there").count()
}

/// How much of a processor the process has used, in hundredths of a second.
fn processor_time(process: &DaemonProcess) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.id()));
    let stat = stat.expect("the process is there");
    let (_, fields) = stat.rsplit_once(')').expect("its name stands in brackets");
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok());
    next().zip(next()).map_or(0, |(user, system)| user + system)
}

fn connect(port: &PlainPort) -> TcpStream {
    let address = port.url().replace("http://", "");
    TcpStream::connect(address).expect("the daemon listens")
}

#[test]
fn a_connection_takes_one_descriptor() {
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let process = cluster.start_process(&[&port.argument()]);
    cluster.eventually("it is ready", || port.get("/readyz").0 == 200);
    let before = n_descriptors(&process);
    let clients: Vec<TcpStream> = (0..40).map(|_| connect(&port)).collect();
    cluster.eventually("all are accepted", || {
        n_descriptors(&process) >= before + 40
    });
    cluster.holds("one each", || n_descriptors(&process) < before + 60);
    drop(clients);
}

#[test]
fn out_of_descriptors_the_accepting_thread_pauses() {
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let process = cluster.start_process(&[&port.argument()]);
    cluster.eventually("it is ready", || port.get("/readyz").0 == 200);
    let most = u64::try_from(n_descriptors(&process) + 5).expect("few");
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    prlimit(pid(&process), Resource::Nofile, limit).expect("the process is ours");
    // They are not closed when they are displaced, but stand in the queue of the socket that listens.
    let clients: Vec<TcpStream> = (0..60).map(|_| connect(&port)).collect();
    cluster.eventually("it says so", || {
        process
            .log()
            .contains("no connection can be accepted for now")
    });
    let before = processor_time(&process);
    cluster.holds("it goes on", || {
        process.log().matches(" WARN ").count() < 20
    });
    let used = processor_time(&process) - before;
    assert!(used < 40, "{used} hundredths of a second of processor time");
    drop(clients);
    cluster.eventually("it answers again", || port.get("/livez").0 == 200);
}

/// Memory of the process in KiB, by its name in Linux' account.
fn memory(process: &DaemonProcess, name: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id()));
    let status = status.expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse().ok()).expect("Linux says so")
}

fn resident(process: &DaemonProcess) -> usize {
    memory(process, "VmRSS:")
}

/// What the process had at most since [`forget_peak`], in KiB.
fn peak(process: &DaemonProcess) -> usize {
    memory(process, "VmHWM:")
}

fn forget_peak(process: &DaemonProcess) {
    let file = format!("/proc/{}/clear_refs", process.id());
    fs::write(file, "5").expect("the process is ours");
}

/// A hundred connections that send these bytes and then stay as they are, or are closed.
fn wave<C: Write>(connect: impl Fn() -> C, bytes: &[u8]) -> Vec<C> {
    let mut clients: Vec<C> = (0..100).map(|_| connect()).collect();
    for client in &mut clients {
        // What the daemon does not take is refused.
        client.write_all(bytes).unwrap_or_default();
    }
    clients
}

/// Waves of all that does not end, over connections that `connect` makes, while `port` is asked whether
/// the daemon lives.
#[track_caller]
fn check_hostile<C: Read + Write>(
    cluster: &TestCluster,
    process: &DaemonProcess,
    port: &PlainPort,
    connect: impl Fn() -> C,
) {
    cluster.eventually("it is ready", || port.get("/readyz").0 == 200);
    let head = "POST /livez HTTP/1.1\r\nHost: localhost\r\n";
    let endless = [
        // A line before a chunk, a head, a trailer, and data where a line's end should be.
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
    let before = resident(process);
    let good = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for mut client in wave(&connect, good) {
        let mut answer = [0; 15];
        client.read_exact(&mut answer).expect("it answers");
        assert_eq!(answer, *b"HTTP/1.1 200 OK");
    }
    let served = resident(process);
    for _ in 0..3 {
        for text in &endless {
            let used = processor_time(process);
            forget_peak(process);
            let clients = wave(&connect, text.as_bytes());
            let more = peak(process).saturating_sub(before);
            assert!(more <= 16 * 1024, "{more} KiB for {text:.80}");
            drop(clients);
            // A debug build reads more than 20 MB a second.
            let used = processor_time(process) - used;
            assert!(used < 500, "{used} hundredths of a second for {text:.80}");
        }
        cluster.eventually("it answers again", || port.get("/livez").0 == 200);
    }
    // What is kept for the next ones does not grow with them, and is little more than what is kept for a
    // hundred clients of good will.
    let more = resident(process).saturating_sub(served);
    assert!(more <= 4 * 1024, "{more} KiB more after the last round");
}

fn with_limit(client: TcpStream) -> TcpStream {
    let limit = Some(Duration::from_secs(1));
    client.set_write_timeout(limit).expect("not zero");
    client
}

#[test]
fn a_hundred_hostile_connections_have_a_bound() {
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let process = cluster.start_process(&[&port.argument()]);
    let connect_one = || with_limit(connect(&port));
    check_hostile(&cluster, &process, &port, connect_one);
}

#[test]
fn over_tls_hostile_connections_have_the_same_bound() {
    let cluster = TestCluster::start();
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&[(DnType::CommonName, "localhost")]);
    let certificate = write(folder.path(), "tls.crt", &certificate);
    let key = write(folder.path(), "tls.key", &key);
    let (plain, secure) = (PlainPort::free(), PlainPort::free());
    let process = cluster.start_process(&[
        &plain.argument(),
        "--bind-address=127.0.0.1",
        &secure.argument().replace("insecure", "secure"),
        &format!("--tls-cert-file={}", certificate.display()),
        &format!("--tls-private-key-file={}", key.display()),
    ]);
    let mut roots = RootCertStore::empty();
    let root = authority.0.der().clone();
    roots.add(root).expect("it is an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    let connect_one = || {
        let name = "localhost".try_into().expect("a name");
        let tls = ClientConnection::new(Arc::clone(&config), name);
        StreamOwned::new(
            tls.expect("a good configuration"),
            with_limit(connect(&secure)),
        )
    };
    check_hostile(&cluster, &process, &plain, connect_one);
}
