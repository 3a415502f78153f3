//! Daemons that compete for a lease, each with its own credentials and its own [`Relay`] to the API
//! server. The API server's own record shows which daemon wrote when: the recorder of the dev
//! server, or the audit log of a real API server.

use std::env;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use replicaset_controller::client::Request;
use replicaset_controller::devserver::ApiCall;
use replicaset_controller::stdx::stop::{Cause, Stop};
use replicaset_controller::stdx::thread::Thread;
use serde_json::{Value, json};

use crate::support::{Access, DaemonProcess, Kind, PATIENCE, Relay, Setup, TestCluster, text_at};

/// The name of the lease. Each test has it in its own namespace.
pub(super) const LEASE: &str = "replicaset-controller";

/// As short as tests can wait for, and so long that on a slow machine no leader loses its lease.
pub(super) const TIMES: [&str; 4] = [
    "--leader-elect=true",
    "--leader-elect-lease-duration=30s",
    "--leader-elect-renew-deadline=20s",
    "--leader-elect-retry-period=500ms",
];

/// The two candidates: whom they impersonate on the dev server, their user names on a real API
/// server.
const USERS: [&str; 2] = ["replicaset-controller", "replicaset-controller-token"];

/// A write as the API server recorded it. All times share one arbitrary origin.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) user: String,
    pub(super) began: Duration,
    pub(super) ended: Duration,
    pub(super) what: String,
}

/// A cluster on which both users have rights on the lease.
pub(super) fn cluster() -> TestCluster {
    let cluster = TestCluster::with(Setup {
        access: Access::Certificate,
        ..Setup::default()
    });
    grant_lease(&cluster, cluster.namespace());
    cluster
}

/// Creates the Role and RoleBinding for the Lease, as in `config/`, on a real API server.
pub(super) fn grant_lease(cluster: &TestCluster, namespace: &str) {
    if !TestCluster::is_real() {
        return;
    }
    let group = "rbac.authorization.k8s.io";
    let path = format!("/apis/{group}/v1/namespaces/{namespace}");
    let metadata = json!({"name": "lease"});
    let lease = ("coordination.k8s.io", "leases");
    let rule =
        |verbs: Value| json!({"apiGroups": [lease.0], "resources": [lease.1], "verbs": verbs});
    let subjects = USERS.map(|user| json!({"apiGroup": group, "kind": "User", "name": user}));
    let objects = [
        (
            "roles",
            json!({"metadata": metadata, "rules": [rule(json!(["create", "get", "update"]))]}),
        ),
        (
            "rolebindings",
            json!({
                "metadata": metadata,
                "roleRef": {"apiGroup": group, "kind": "Role", "name": "lease"},
                "subjects": subjects,
            }),
        ),
    ];
    for (plural, object) in objects {
        let request = Request::post(format!("{path}/{plural}"));
        let sent = cluster.send(&request.body("application/json", object.to_string()));
        sent.unwrap_or_else(|status| panic!("{plural}: {status}"));
    }
}

/// Gets the Lease; `None` if it does not exist.
pub(super) fn lease(cluster: &TestCluster, name: &str) -> Option<Value> {
    cluster.send(&Request::get(lease_path(cluster, name))).ok()
}

/// The path of the Lease.
pub(super) fn lease_path(cluster: &TestCluster, name: &str) -> String {
    let namespace = cluster.namespace();
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
}

/// The Lease's holder; empty if there is none.
pub(super) fn holder(cluster: &TestCluster, name: &str) -> String {
    let lease = lease(cluster, name).unwrap_or_default();
    text_at(&lease, "/spec/holderIdentity")
}

/// A daemon with leader election, and the relay between it and the API server.
pub(super) struct Candidate {
    pub(super) process: DaemonProcess,
    pub(super) relay: Relay,
    pub(super) user: &'static str,
    _kubeconfig: tempfile::NamedTempFile,
}

impl Candidate {
    /// Starts a daemon as the user `USERS[number]`.
    pub(super) fn start(cluster: &TestCluster, number: usize, arguments: &[&str]) -> Self {
        let user = USERS[number];
        let relay = Relay::start(server_address(cluster), cluster.stop());
        let file = tempfile::NamedTempFile::new().expect("a file for the kubeconfig");
        let text = kubeconfig(number, user, relay.address());
        std::fs::write(file.path(), text).expect("a writable file");
        let path = format!("--kubeconfig={}", file.path().display());
        let namespace = format!("--namespace={}", cluster.namespace());
        let mut all = vec!["run", "--kube-api-qps=0", &path, &namespace];
        all.extend(TIMES);
        all.extend(arguments);
        Self {
            process: DaemonProcess::start(&all),
            relay,
            user,
            _kubeconfig: file,
        }
    }

    /// True once it has become the leader.
    pub(super) fn leads(&self) -> bool {
        self.process.log().contains("successfully acquired lease")
    }

    /// True once it has listed both resources.
    pub(super) fn is_warm(&self) -> bool {
        let log = self.process.log();
        log.contains(" pods listed in ") && log.contains(" replicasets listed in ")
    }
}

/// The address of the API server itself.
fn server_address(cluster: &TestCluster) -> SocketAddr {
    let url = match env::var("CONTROL_PLANE_URL") {
        Ok(url) => url,
        Err(_) => cluster.url(),
    };
    let authority = url.split("//").nth(1).unwrap_or_default();
    let authority = authority.trim_end_matches('/');
    authority.parse().expect("an address with a port")
}

fn kubeconfig(number: usize, user: &str, address: SocketAddr) -> String {
    let Ok(url) = env::var("CONTROL_PLANE_URL") else {
        return format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             clusters: [{{name: a, cluster: {{server: \"http://{address}\"}}}}]\n\
             users: [{{name: a, user: {{as: {user}}}}}]\n"
        );
    };
    let variable = [
        "CONTROL_PLANE_CONTROLLER_KUBECONFIG",
        "CONTROL_PLANE_TOKEN_KUBECONFIG",
    ];
    let file = env::var_os(variable[number]).expect("run.sh sets it");
    let text = std::fs::read_to_string(file).expect("a readable kubeconfig");
    text.replace(&url, &format!("https://{address}"))
}

/// The writes of both users in the test's namespace except for leases, from the API server's own
/// record, in the order of their start.
pub(super) fn writes(cluster: &TestCluster) -> Vec<Written> {
    let mut writes = match env::var_os("CONTROL_PLANE_AUDIT_LOG") {
        Some(file) if TestCluster::is_real() => {
            let text = std::fs::read_to_string(file).expect("a readable audit log");
            // The last line may not be complete yet.
            let lines = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            lines
                .filter_map(|event| audited(&event, cluster.namespace()))
                .collect()
        }
        _ => recorded(cluster),
    };
    // Reviews are creates that store nothing.
    writes.retain(|write| USERS.contains(&&*write.user) && !write.what.ends_with("reviews"));
    writes.sort_by_key(|write| write.began);
    writes
}

fn is_write(verb: &str) -> bool {
    matches!(
        verb,
        "create" | "update" | "patch" | "delete" | "deletecollection"
    )
}

fn audited(event: &Value, namespace: &str) -> Option<Written> {
    let (verb, resource) = (
        text_at(event, "/verb"),
        text_at(event, "/objectRef/resource"),
    );
    let is_counted = is_write(&verb)
        && resource != "leases"
        && text_at(event, "/objectRef/namespace") == namespace
        && text_at(event, "/stage") == "ResponseComplete";
    let time = |pointer| {
        let time: jiff::Timestamp = text_at(event, pointer).parse().expect("a time");
        Duration::from_micros(time.as_microsecond().unsigned_abs())
    };
    is_counted.then(|| Written {
        user: text_at(event, "/user/username"),
        began: time("/requestReceivedTimestamp"),
        ended: time("/stageTimestamp"),
        what: format!("{verb} {resource} {}", text_at(event, "/objectRef/name")),
    })
}

fn recorded(cluster: &TestCluster) -> Vec<Written> {
    let requests = cluster.faults().recorder().requests();
    let Some(base) = requests.first().map(|request| request.started) else {
        return Vec::new();
    };
    let requests = requests.into_iter().filter(|recorded| {
        is_write(recorded.request.verb()) && recorded.request.resource() != "leases"
    });
    let since = |at: Instant| at.saturating_duration_since(base);
    let requests = requests.map(|recorded| Written {
        user: recorded.request.header("impersonate-user").to_owned(),
        began: since(recorded.started),
        ended: since(recorded.answered().unwrap_or(recorded.started)),
        what: recorded.action(),
    });
    requests.collect()
}

/// Checks that the last write of `first` ended before the first write of `second` began.
#[track_caller]
pub(super) fn assert_one_after_the_other(writes: &[Written], first: &str, second: &str) {
    let of = |user: &str| {
        writes
            .iter()
            .filter(|write| write.user == user)
            .collect::<Vec<_>>()
    };
    let (before, after) = (of(first), of(second));
    assert!(
        !before.is_empty() && !after.is_empty(),
        "both users have written"
    );
    let last = before
        .iter()
        .map(|write| write.ended)
        .max()
        .unwrap_or_default();
    let began = after
        .iter()
        .map(|write| write.began)
        .min()
        .unwrap_or_default();
    let mut around = String::new();
    let near = writes.iter().filter(|write| {
        write.ended + Duration::from_secs(1) > began && write.began < last + Duration::from_secs(1)
    });
    for write in near {
        writeln!(around, "{:?} {} {}", write.began, write.user, write.what).unwrap_or_default();
    }
    assert!(
        last < began,
        "{first} wrote until {last:?}, {second} from {began:?}:\n{around}"
    );
}

/// Keeps the leader writing: the thread `churn` scales a ReplicaSet up and down until drop.
pub(super) struct Churn {
    stop: Stop,
    thread: Option<Thread>,
}

impl Churn {
    /// Starts the thread. The ReplicaSet must exist.
    pub(super) fn start(cluster: &TestCluster, name: &'static str) -> Self {
        let stop = Stop::new();
        let (api, stopping) = (cluster.api().clone(), stop.clone());
        let thread = Thread::spawn("churn", cluster.stop(), move || {
            for n in 0.. {
                let replicas = if n % 2 == 0 { 8 } else { 2 };
                api.merge_patch(
                    Kind::ReplicaSets,
                    name,
                    &json!({"spec": {"replicas": replicas}}),
                );
                if stopping.wait_timeout(Duration::from_millis(40)) {
                    return;
                }
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.stop
            .stop(Cause::Requested("the test ends the churn".to_owned()));
        let deadline = Instant::now() + PATIENCE;
        let ended = self.thread.take().map(|thread| thread.join_until(deadline));
        assert!(
            std::thread::panicking() || ended == Some(Ok(())),
            "the thread `churn` did not end: {ended:?}"
        );
    }
}
