//! A table of floods from one address, beside which probes from another address are answered.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use replicaset_controller::stdx::stop::{Cause, Stop};

use super::ports::{Connection, Ports, codes};
use crate::support::{PlainPort, ScriptedServer, Waiting};

/// Open connections of a flood: more than the daemon keeps.
const CONNECTIONS: usize = 150;

/// Probes of each page beside each flood.
const PROBES: usize = 5;

/// Threads of the daemon at most: its own, and those of connections.
const THREADS_MAX: usize = 300;

/// Memory that the daemon may keep after a flood, in KiB.
const MEMORY_MORE: usize = 16 << 10;

/// Pause of a flood between two new connections.
const PAUSE: Duration = Duration::from_millis(1);

/// A flood keeps its connections open, and replaces the oldest one by a new one all the time.
struct Flood {
    name: &'static str,
    /// What each connection sends at first.
    first: &'static [u8],
    /// Whether it then continues byte by byte.
    goes_on: bool,
}

const fn flood(name: &'static str, first: &'static [u8]) -> Flood {
    Flood {
        name,
        first,
        goes_on: false,
    }
}

const FLOODS: &[Flood] = &[
    flood("silent connections", b""),
    flood(
        "half handshakes",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ),
    flood("half heads", b"GET /livez HTTP/1.1\r\nHost: local"),
    Flood {
        goes_on: true,
        ..flood("heads byte by byte", b"GET /livez HTTP/1.1\r\nX: ")
    },
    flood(
        "half bodies",
        b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n\r\nx",
    ),
    flood(
        "requests without a reader",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ),
];

impl Flood {
    fn connect(&self, port: &PlainPort) -> TcpStream {
        let mut connection = Ports::tcp(Ipv4Addr::LOCALHOST, port);
        // The daemon may have closed it already.
        connection.write_all(self.first).unwrap_or_default();
        connection
    }

    /// Floods a port until `stop` trips.
    fn run(&self, port: &PlainPort, n_opened: &AtomicUsize, stop: &Stop) {
        let mut open: VecDeque<TcpStream> = VecDeque::new();
        while !stop.wait_timeout(PAUSE) {
            if self.goes_on {
                for connection in &mut open {
                    connection.write_all(b"x").unwrap_or_default();
                }
            }
            open.push_back(self.connect(port));
            n_opened.fetch_add(1, Ordering::Relaxed);
            if open.len() > CONNECTIONS {
                open.pop_front();
            }
        }
    }
}

/// Probes both pages on both ports, and returns what is wrong. As a kubelet does, it tries again: a
/// new connection is rejected while the machine is so slow that all others are being served.
fn probe(ports: &Ports, waiting: &Waiting, name: &str) -> Vec<String> {
    let prober = Ipv4Addr::new(127, 0, 0, 2);
    let mut wrong = Vec::new();
    for page in ["livez", "readyz"] {
        let request = format!("GET /{page} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut check = |port, connect: &dyn Fn() -> Box<dyn Connection>| {
            let last = RefCell::new(Vec::new());
            waiting.within(|| {
                *last.borrow_mut() = codes(&mut *connect(), request.as_bytes());
                !last.borrow().is_empty()
            });
            let last = last.into_inner();
            if last != [200] {
                wrong.push(format!("{name}: {page} on {port}: {last:?}"));
            }
        };
        check("plain", &|| Box::new(ports.plain(prober)));
        check("secure", &|| Box::new(ports.secure(prober)));
    }
    wrong
}

#[test]
fn probes_are_answered_beside_every_flood() {
    let server = ScriptedServer::start(|_| None);
    let ports = Ports::free();
    let process = ports.start(&server);
    let waiting = Waiting::new(server.stop());
    let before = process.resident();
    let mut wrong = Vec::new();
    for flood in FLOODS {
        for port in [&ports.plain, &ports.secure] {
            let (n_opened, stop) = (AtomicUsize::new(0), Stop::new());
            std::thread::scope(|scope| {
                scope.spawn(|| flood.run(port, &n_opened, &stop));
                let is_flooded = || n_opened.load(Ordering::Relaxed) > CONNECTIONS;
                if !waiting.within(is_flooded) {
                    wrong.push(format!("{}: the flood is slow", flood.name));
                }
                for _ in 0..PROBES {
                    wrong.extend(probe(&ports, &waiting, flood.name));
                }
                stop.stop(Cause::Requested("the probes are done".to_owned()));
            });
            let n_threads = || process.thread_names().len();
            if !waiting.within(|| n_threads() <= THREADS_MAX) {
                wrong.push(format!("{}: {} threads", flood.name, n_threads()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", process.log());
    // Until the last connections are closed, their threads have stacks and buffers.
    let more = || process.resident().saturating_sub(before);
    let is_freed = waiting.within(|| more() <= MEMORY_MORE);
    assert!(is_freed, "{} KiB more", more());
    let log = process.log();
    assert!(!log.contains("panick") && log.lines().count() < 30, "{log}");
}
