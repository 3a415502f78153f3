//! The shipped binary among clients that want it to fail.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

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

/// Resident memory of the process, in KiB.
fn memory(process: &DaemonProcess) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id()));
    let status = status.expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse().ok()).expect("Linux says so")
}

/// A hundred connections that send these bytes and then stay as they are, or are closed.
fn wave(port: &PlainPort, bytes: &[u8]) -> Vec<TcpStream> {
    let mut clients: Vec<TcpStream> = (0..100).map(|_| connect(port)).collect();
    for client in &mut clients {
        let limit = Some(Duration::from_secs(1));
        client.set_write_timeout(limit).expect("not zero");
        // What the daemon does not take is refused.
        client.write_all(bytes).unwrap_or_default();
    }
    clients
}

#[test]
fn a_hundred_hostile_connections_have_a_bound() {
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let process = cluster.start_process(&[&port.argument()]);
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
    let before = memory(&process);
    let mut after_first = 0;
    for round in 0..3 {
        for text in &endless {
            let used = processor_time(&process);
            let clients = wave(&port, text.as_bytes());
            let more = memory(&process).saturating_sub(before);
            assert!(more <= 16 * 1024, "{more} KiB for {text:.80}");
            drop(clients);
            // A debug build reads more than 20 MB a second.
            let used = processor_time(&process) - used;
            assert!(used < 500, "{used} hundredths of a second for {text:.80}");
        }
        cluster.eventually("it answers again", || port.get("/livez").0 == 200);
        if round == 0 {
            after_first = memory(&process);
        }
    }
    // What is kept for the next ones does not grow with them.
    let more = memory(&process).saturating_sub(after_first);
    assert!(more <= 4 * 1024, "{more} KiB more after the last round");
}
