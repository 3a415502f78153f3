//! What the daemon sends to systemd.

use std::os::unix::net::UnixDatagram;

use nix::sys::signal::Signal;
use replicaset_controller::stdx::stop::Stop;

use crate::support::{DaemonProcess, PATIENCE, TestCluster, Waiting};

/// The socket that stands for systemd.
struct Systemd {
    socket: UnixDatagram,
    received: Vec<String>,
    folder: tempfile::TempDir,
}

impl Systemd {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        Self {
            socket,
            received: Vec::new(),
            folder,
        }
    }

    fn path(&self) -> String {
        self.folder.path().join("notify").display().to_string()
    }

    /// Receives until `count` lines begin with this, those before this call included.
    #[track_caller]
    fn receive_until(&mut self, what: &str, count: usize) {
        while self.count(what) < count {
            let mut bytes = [0; 4096];
            let length = self.socket.recv(&mut bytes);
            let received = &self.received;
            let length = length.unwrap_or_else(|error| panic!("no {what}: {error}; {received:?}"));
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            self.received.extend(text.lines().map(str::to_owned));
        }
    }

    fn count(&self, what: &str) -> usize {
        let lines = self.received.iter();
        lines.filter(|line| line.starts_with(what)).count()
    }
}

#[test]
fn systemd_receives_ready_status_watchdog_and_stopping() {
    let cluster = TestCluster::start();
    let mut systemd = Systemd::start();
    let environment = [
        ("NOTIFY_SOCKET", &*systemd.path()),
        ("WATCHDOG_USEC", "600000"),
    ];
    let mut process = cluster.start_process_with(&[], &environment);
    // The daemon checks the caches once for READY and once for STATUS, and they may sync between
    // the two checks. So STATUS may be sent before READY.
    systemd.receive_until("READY=1", 1);
    systemd.receive_until("STATUS=running; 0 ReplicaSets, 0 pods; queue 0", 1);
    systemd.receive_until("WATCHDOG=1", 1);
    process.signal(Signal::SIGHUP);
    systemd.receive_until("READY=1", 2);
    assert_eq!(systemd.count("RELOADING=1"), 1, "{:?}", systemd.received);
    process.signal(Signal::SIGTERM);
    systemd.receive_until("STOPPING=1", 1);
    let status = process.exit();
    assert_eq!(status.code(), Some(0), "{}", process.log());
}

/// A READY would end the unit's start while the daemon does nothing yet.
#[test]
fn a_reload_during_the_start_is_not_reported() {
    let mut systemd = Systemd::start();
    let mut process = DaemonProcess::start_with(
        &["run", "--master=http://127.0.0.1:1"],
        &[("NOTIFY_SOCKET", &systemd.path())],
    );
    systemd.receive_until("EXTEND_TIMEOUT_USEC=", 1);
    process.signal(Signal::SIGHUP);
    let waiting = Waiting::new(&Stop::new());
    waiting.eventually("it reloads", || process.log().contains("SIGHUP: re-read"));
    process.signal(Signal::SIGTERM);
    systemd.receive_until("STOPPING=1", 1);
    for what in ["READY=1", "RELOADING=1"] {
        assert_eq!(systemd.count(what), 0, "{what}: {:?}", systemd.received);
    }
    let status = process.exit();
    assert_eq!(status.code(), Some(0), "{}", process.log());
}
