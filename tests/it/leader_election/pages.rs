//! What a leader and a standby say of themselves: to probes, to Prometheus, to systemd.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::rig::{LEASE, TIMES, grant_lease};
use crate::support::{DaemonProcess, PlainPort, TestCluster, new_replica_set};

/// A daemon that competes, its pages, and the end at which it thinks systemd is.
struct Watched {
    process: DaemonProcess,
    port: PlainPort,
    socket: UnixDatagram,
    _folder: tempfile::TempDir,
}

impl Watched {
    fn start(cluster: &TestCluster) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        let limit = Some(Duration::from_secs(30));
        socket.set_read_timeout(limit).expect("not zero");
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

    /// Waits until it tells systemd this; answers what it told before.
    #[track_caller]
    fn tells(&self, what: &str) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            let length = self.socket.recv(&mut bytes);
            let length = length.unwrap_or_else(|error| panic!("no {what}: {error}; {heard:?}"));
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if text.lines().any(|line| line == what) {
                return heard;
            }
            heard.push(text);
        }
    }

    /// All its probes pass, the one of the election among them.
    #[track_caller]
    fn is_well(&self) {
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
    fn has_metric(&self, sample: &str) {
        let (code, body) = self.port.get("/metrics");
        let found = body.lines().any(|line| line == sample);
        assert!(code == 200 && found, "no {sample} in\n{body}");
    }
}

#[test]
fn l_16_leader_and_standby_are_healthy_and_report_their_role() {
    let cluster = TestCluster::start();
    grant_lease(&cluster, cluster.namespace());
    let mut leader = Watched::start(&cluster);
    let before = leader.tells("STATUS=leading; 0 ReplicaSets, 0 pods; queue 0");
    assert!(before.concat().contains("READY=1"), "{before:?}");
    let standby = Watched::start(&cluster);
    let before = standby.tells("STATUS=standby; 0 ReplicaSets, 0 pods; queue 0");
    assert!(before.concat().contains("READY=1"), "{before:?}");
    cluster.create_replica_set(&new_replica_set("a", 2));
    cluster.stable("a");
    leader.tells("STATUS=leading; 1 ReplicaSets, 2 pods; queue 0");
    standby.tells("STATUS=standby; 1 ReplicaSets, 2 pods; queue 0");
    leader.is_well();
    standby.is_well();
    let master = |is| format!("leader_election_master_status{{name=\"{LEASE}\"}} {is}");
    leader.has_metric(&master(1));
    standby.has_metric(&master(0));
    standby.has_metric("workqueue_adds_total{name=\"replicaset\"} 0");

    leader.process.signal(Signal::SIGTERM);
    let status = leader.process.exit_within(Duration::from_secs(10));
    assert_eq!(status.code(), Some(0), "{}", leader.process.log());
    standby.tells("STATUS=leading; 1 ReplicaSets, 2 pods; queue 0");
    standby.is_well();
    standby.has_metric(&master(1));
}
