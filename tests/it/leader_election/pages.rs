//! Probes, metrics and systemd notifications of a leader and of a standby.

use std::os::unix::net::UnixDatagram;

use nix::sys::signal::Signal;

use super::rig::{LEASE, TIMES, grant_lease};
use crate::support::{DaemonProcess, PATIENCE, PlainPort, TestCluster, new_replica_set};

/// A daemon with leader election, its pages, and the socket that stands for systemd.
struct Observed {
    process: DaemonProcess,
    port: PlainPort,
    socket: UnixDatagram,
    _folder: tempfile::TempDir,
}

impl Observed {
    fn start(cluster: &TestCluster) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        let port = PlainPort::free();
        let argument = port.argument();
        let mut arguments = TIMES.to_vec();
        arguments.push(&argument);
        let path = path.to_str().expect("a plain path");
        let process = cluster.start_process_with(&arguments, &[("NOTIFY_SOCKET", path)]);
        Self {
            process,
            port,
            socket,
            _folder: folder,
        }
    }

    /// Waits until the daemon sends this line to systemd. Returns all messages until then.
    #[track_caller]
    fn wait_for_notification(&self, what: &str) -> Vec<String> {
        let mut received = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            let length = self.socket.recv(&mut bytes);
            let length = length.unwrap_or_else(|error| panic!("no {what}: {error}; {received:?}"));
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            let is_it = text.lines().any(|line| line == what);
            received.push(text);
            if is_it {
                return received;
            }
        }
    }

    /// Checks that all probes pass, including `leaderElection`.
    #[track_caller]
    fn check_probes(&self) {
        for (path, checks) in [
            ("/readyz", &["watch-rs", "watch-pods", "informer-sync"][..]),
            (
                "/healthz",
                &["leaderElection", "replicaset-controller-queue", "watch-rs"],
            ),
            ("/livez", &["replicaset-controller-workers"]),
        ] {
            let (code, body) = self.port.get(&format!("{path}?verbose"));
            assert_eq!(code, 200, "{path}: {body}");
            for check in checks {
                let line = format!("[+]{check} ok");
                assert!(body.contains(&line), "{path}: no {line} in\n{body}");
            }
        }
        let one = self.port.get("/healthz/leaderElection");
        assert_eq!(one, (200, "ok".to_owned()));
    }

    #[track_caller]
    fn check_metric(&self, sample: &str) {
        let (code, body) = self.port.get("/metrics");
        let found = body.lines().any(|line| line == sample);
        assert!(code == 200 && found, "no {sample} in\n{body}");
    }
}

#[test]
fn l_16_leader_and_standby_are_healthy_and_report_their_role() {
    let cluster = TestCluster::start();
    grant_lease(&cluster, cluster.namespace());
    let mut leader = Observed::start(&cluster);
    let before = leader.wait_for_notification("STATUS=leading; 0 ReplicaSets, 0 pods; queue 0");
    assert!(before.concat().contains("READY=1"), "{before:?}");
    let standby = Observed::start(&cluster);
    let before = standby.wait_for_notification("STATUS=standby; 0 ReplicaSets, 0 pods; queue 0");
    assert!(before.concat().contains("READY=1"), "{before:?}");
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    leader.wait_for_notification("STATUS=leading; 1 ReplicaSets, 2 pods; queue 0");
    standby.wait_for_notification("STATUS=standby; 1 ReplicaSets, 2 pods; queue 0");
    leader.check_probes();
    standby.check_probes();
    let master = |is| format!("leader_election_master_status{{name=\"{LEASE}\"}} {is}");
    leader.check_metric(&master(1));
    standby.check_metric(&master(0));
    standby.check_metric("workqueue_adds_total{name=\"replicaset\"} 0");

    leader.process.signal(Signal::SIGTERM);
    let status = leader.process.exit();
    assert_eq!(status.code(), Some(0), "{}", leader.process.log());
    standby.wait_for_notification("STATUS=leading; 1 ReplicaSets, 2 pods; queue 0");
    standby.check_probes();
    standby.check_metric(&master(1));
}
