//! Group J: lists and watches on the wire. The tests check the requests, their resource versions,
//! and how the daemon continues after a watch ends or fails.
//!
//! All tests check the requests for pods. The same code sends those for ReplicaSets.

use std::sync::Arc;
use std::time::Duration;

use replicaset_controller::api::Status;
use replicaset_controller::devserver::{
    Action, ApiCall, ApiRequest, Ending, Faults, Handler, Matcher, Recorded, Response, Rule,
};
use serde_json::json;

use crate::support::{
    Kind, Setup, TestCluster, is_streaming_list, name, new_pod, new_replica_set, plain_watches_of,
    reads_of, status_error, streaming_lists_of,
};

/// Lower bound of the first back-off.
const BACKOFF_MIN: Duration = Duration::from_millis(800);

/// Longer than a watch that the reflector treats as very short.
const NOT_VERY_SHORT: Duration = Duration::from_millis(1100);

/// Renders a request as `stream from V`, `list V limit N`, `next page limit N` or `watch from V`.
/// `-` stands for no version and for no limit.
fn describe(request: &ApiRequest) -> String {
    let or_none = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
    let version = or_none(request.query_value("resourceVersion"));
    let limit = or_none(request.query_value("limit"));
    match request.verb() {
        "watch" if is_streaming_list(request) => format!("stream from {version}"),
        "watch" => format!("watch from {version}"),
        _ if request.query_value("continue").is_empty() => format!("list {version} limit {limit}"),
        _ => format!("next page limit {limit}"),
    }
}

/// The daemon's lists and watches of pods. Not its queries of one pod by name: it asks who has
/// created a pod if a sync finds the pod in the cache before its event is handled.
fn reads(cluster: &TestCluster) -> Vec<Arc<Recorded>> {
    let requests = cluster.faults().recorder().requests();
    let is_read = reads_of("pods");
    let of_all = |it: &ApiRequest| it.query_value("fieldSelector").is_empty();
    let reads = requests.into_iter();
    reads
        .filter(|it| is_read.matches(&it.request) && of_all(&it.request))
        .collect()
}

fn described(cluster: &TestCluster) -> Vec<String> {
    let reads = reads(cluster);
    reads.iter().map(|read| describe(&read.request)).collect()
}

/// Waits until the daemon has sent these requests, and checks that no other follows.
#[track_caller]
fn check_reads(cluster: &TestCluster, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|text| (*text).to_owned()).collect();
    cluster.eventually_eq("the lists and watches of pods", &expected, || {
        described(cluster)
    });
    cluster
        .waiting()
        .holds_for(Duration::from_millis(500), "no other request", || {
            described(cluster) == expected
        });
}

/// The resource version of the daemon's cache of pods.
fn position(cluster: &TestCluster) -> String {
    let cache = cluster.cache();
    cache.pods.resource_version().to_string()
}

/// The time between the last two lists or watches of pods.
fn last_gap(cluster: &TestCluster) -> Duration {
    let reads = reads(cluster);
    let [.., before, last] = &*reads else {
        panic!("fewer than two requests");
    };
    last.started - before.started
}

/// Scales the ReplicaSet `a` to check that the daemon still receives events.
#[track_caller]
fn check_alive(cluster: &TestCluster, replicas: i64) {
    cluster.scale("a", replicas);
    cluster.stable("a");
    cluster.eventually_eq("pods", &replicas, || {
        i64::try_from(cluster.live().len()).expect("few pods")
    });
}

/// A daemon with a stable ReplicaSet `a` of one pod, and the resource version of its cache of pods.
/// Its watch of pods has delivered events and is older than [`NOT_VERY_SHORT`].
fn settled() -> (TestCluster, String) {
    settle(TestCluster::start())
}

/// [`settled`] with a daemon that reads JSON, for tests that inject watch events.
fn settled_in_json() -> (TestCluster, String) {
    settle(TestCluster::with(Setup::default().in_json()))
}

fn settle(mut cluster: TestCluster) -> (TestCluster, String) {
    cluster.start_daemon();
    cluster.synced();
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    cluster.waiting().pause(NOT_VERY_SHORT);
    let version = position(&cluster);
    (cluster, version)
}

/// Rejects streaming lists as an API server without the feature `WatchList` does.
fn no_streaming_lists() -> Rule {
    let message = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: \
                   sendInitialEvents is forbidden for watch unless the WatchList feature gate is \
                   enabled";
    Rule::new(
        streaming_lists_of("pods"),
        status_error(422, "Invalid", message),
    )
}

fn expired() -> Status {
    Status::new(410, "Expired", "too old resource version: 1 (2)")
}

fn too_many_requests() -> Status {
    Status::new(429, "TooManyRequests", "not so fast")
}

/// Injects an ERROR event into the watch of pods.
#[track_caller]
fn send_error(cluster: &TestCluster, status: &Status) {
    let event = json!({"type": "ERROR", "object": status.object()});
    let event = format!("{event}\n");
    let pods = Matcher::verb("watch", "pods");
    assert_eq!(cluster.faults().send_to_watches(&pods, event.as_bytes()), 1);
}

/// Ends the watch of pods.
#[track_caller]
fn sever(cluster: &TestCluster, ending: Ending) {
    let pods = Matcher::verb("watch", "pods");
    assert_eq!(cluster.faults().sever_watches(&pods, ending), 1);
}

#[test]
fn j_02_j_03_the_first_request_is_a_streaming_list() {
    let mut cluster = TestCluster::start();
    cluster.create_pod(&new_pod("p1"));
    cluster.start_daemon();
    cluster.synced();
    check_reads(&cluster, &["stream from -"]);
    let request = &reads(&cluster)[0].request;
    let query = |name| request.query_value(name);
    assert_eq!(query("resourceVersionMatch"), "NotOlderThan");
    assert_eq!(query("allowWatchBookmarks"), "true");
    assert_eq!(query("limit"), "");
    let expected = format!("/api/v1/namespaces/{}/pods", cluster.namespace());
    assert_eq!(request.path, expected);
    // A server that does not know the parameter takes the clause as if it were not there.
    let expected = "application/vnd.kubernetes.protobuf;drop=metadata.managedFields, \
        application/json;drop=metadata.managedFields, \
        application/vnd.kubernetes.protobuf, application/json";
    assert_eq!(request.header("accept"), expected);
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    check_alive(&cluster, 3);
}

#[test]
fn with_its_gate_off_the_daemon_streams_no_list() {
    let cluster = TestCluster::start();
    let _process = cluster.start_process(&["--feature-gates=WatchListClient=false"]);
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    let reads = described(&cluster);
    assert_eq!(reads[0], "list 0 limit 500");
    assert!(reads[1].starts_with("watch from"), "{reads:?}");
}

#[test]
fn j_01_j_03_without_streaming_lists_the_daemon_lists_pages() {
    let mut cluster = TestCluster::start();
    cluster.create_pod(&new_pod("p1"));
    cluster.faults().add(no_streaming_lists());
    cluster.start_daemon();
    cluster.synced();
    let version = position(&cluster);
    let expected = [
        "stream from -",
        "list 0 limit 500",
        &format!("watch from {version}"),
    ];
    check_reads(&cluster, &expected);
    let reads = reads(&cluster);
    let (list, watch) = (&reads[1].request, &reads[2].request);
    assert_eq!(list.query_value("allowWatchBookmarks"), "");
    assert_eq!(list.query_value("timeoutSeconds"), "");
    assert_eq!(watch.query_value("allowWatchBookmarks"), "true");
    for request in reads
        .iter()
        .map(|it| &it.request)
        .filter(|it| it.is_watch())
    {
        let seconds: u64 = request
            .query_value("timeoutSeconds")
            .parse()
            .expect("a number of seconds");
        assert!((300..=600).contains(&seconds), "{seconds}");
    }
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    check_alive(&cluster, 5);
}

/// Serves the daemon's lists of pods in pages of four, whatever the limit, and not from the API
/// server's watch cache.
struct SmallPages(Faults);

impl Handler for SmallPages {
    fn handle(&self, mut request: ApiRequest) -> Response {
        if request.verb() == "list" && request.resource() == "pods" {
            request.query.retain(|(name, _)| name != "resourceVersion");
            for (name, value) in &mut request.query {
                if name == "limit" {
                    "4".clone_into(value);
                }
            }
        }
        self.0.handle(request)
    }
}

#[test]
fn j_18_j_19_a_list_follows_all_pages_of_the_server() {
    let mut cluster = TestCluster::with(Setup::default().in_json());
    for number in 0..10 {
        cluster.create_pod(&new_pod(&format!("p{number}")));
    }
    cluster.faults().add(no_streaming_lists());
    let door = cluster.open_door("127.0.0.1:0", |faults| Arc::new(SmallPages(faults)));
    cluster.start_daemon_at(&door.url());
    cluster.synced();
    cluster.create_replica_set(&new_replica_set("a", 10));
    cluster.stable("a");
    let listed = "list - limit 4";
    let next = "next page limit 4";
    assert_eq!(described(&cluster)[1..4], [listed, next, next]);
    assert!(
        cluster.recorded("create", "pods").is_empty(),
        "ten pods exist already"
    );
    // A server that pages a list at version 0 has no watch cache, so the daemon limits lists at
    // other versions as well.
    send_error(&cluster, &expired());
    cluster.eventually("the daemon relists", || described(&cluster).len() >= 10);
    assert_eq!(described(&cluster)[6..9], [listed, next, next]);
}

#[test]
fn j_31_j_37_a_closed_watch_resumes_at_its_version() {
    let (cluster, version) = settled();
    sever(&cluster, Ending::Close);
    let expected = ["stream from -", &format!("watch from {version}")];
    check_reads(&cluster, &expected);
    check_alive(&cluster, 3);
    // Again, from a plain watch. The events in between are not missed.
    cluster.waiting().pause(NOT_VERY_SHORT);
    let version = position(&cluster);
    sever(&cluster, Ending::Close);
    check_alive(&cluster, 0);
    assert_eq!(described(&cluster)[2..], [format!("watch from {version}")]);
}

#[test]
fn j_37_a_broken_watch_resumes_at_its_version() {
    let (cluster, version) = settled();
    sever(&cluster, Ending::Cut);
    let expected = ["stream from -", &format!("watch from {version}")];
    check_reads(&cluster, &expected);
    check_alive(&cluster, 3);
}

#[test]
fn a_watch_resumes_at_the_version_of_a_bookmark() {
    let (cluster, _) = settled_in_json();
    // Another resource yields a version that no pod has.
    let account = json!({"metadata": {"name": "other"}});
    let account = cluster.create(Kind::ServiceAccounts, &account);
    let version = account["metadata"]["resourceVersion"].as_str();
    let version = version.expect("a stored object has a version");
    let event = json!({"type": "BOOKMARK", "object": {
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"resourceVersion": version, "creationTimestamp": null},
        "spec": {"containers": null}, "status": {},
    }});
    let pods = Matcher::verb("watch", "pods");
    let event = format!("{event}\n");
    cluster.faults().send_to_watches(&pods, event.as_bytes());
    cluster.eventually_eq("the cache's version", &version.to_owned(), || {
        position(&cluster)
    });
    sever(&cluster, Ending::Close);
    let expected = ["stream from -", &format!("watch from {version}")];
    check_reads(&cluster, &expected);
    check_alive(&cluster, 2);
}

#[test]
fn j_08_j_22_an_expired_watch_relists_at_its_version() {
    let (cluster, version) = settled_in_json();
    send_error(&cluster, &expired());
    let expected = ["stream from -", &format!("stream from {version}")];
    check_reads(&cluster, &expected);
    assert!(last_gap(&cluster) >= BACKOFF_MIN);
    let pods = Matcher::verb("watch", "pods");
    cluster.eventually_eq("the watch with the error is closed", &1, || {
        cluster.faults().n_watches(&pods)
    });
    check_alive(&cluster, 3);
    assert_eq!(described(&cluster).len(), 2);
}

/// Dev server only: a real API server loses its history only through a compaction of etcd and a
/// restart.
#[test]
fn j_22_a_relist_finds_changes_beyond_the_servers_history() {
    let (cluster, version) = settled();
    let Some(server) = cluster.dev_server() else {
        return;
    };
    let busy = Action::reject(too_many_requests());
    let rule = Rule::new(plain_watches_of("pods"), busy);
    let rule = cluster.faults().add(rule.times(1));
    sever(&cluster, Ending::Close);
    cluster.eventually("the watch is gone", || rule.hits() == 1);
    for pod in cluster.live() {
        cluster.kill_pod(&name(&pod));
    }
    server.forget_history();
    cluster.eventually_eq("the replacement", &1, || cluster.live().len());
    let again = format!("watch from {version}");
    let list = format!("stream from {version}");
    check_reads(&cluster, &["stream from -", &again, &again, &list]);
    check_alive(&cluster, 3);
}

#[test]
fn j_10_after_an_outage_the_watch_resumes() {
    let mut cluster = TestCluster::start();
    let mut door = cluster.open_door("127.0.0.1:0", |faults| Arc::new(faults));
    cluster.start_daemon_at(&door.url());
    cluster.synced();
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    cluster.waiting().pause(NOT_VERY_SHORT);
    let version = position(&cluster);
    let address = door.address();
    door.stop();
    // The daemon must neither miss the events of the outage nor relist.
    cluster.scale("a", 3);
    cluster.waiting().pause(BACKOFF_MIN / 2);
    let door = cluster.open_door(address, |faults| Arc::new(faults));
    cluster.eventually_eq("the new pods", &3, || cluster.live().len());
    cluster.stable("a");
    let expected = ["stream from -", &format!("watch from {version}")];
    check_reads(&cluster, &expected);
    assert!(last_gap(&cluster) >= BACKOFF_MIN);
    cluster.stop_daemon();
    drop(door);
}

/// Their back-off was as long again as the outage.
#[test]
fn after_an_outage_failed_syncs_are_retried_at_once() {
    let mut cluster = TestCluster::start();
    let mut door = cluster.open_door("127.0.0.1:0", |faults| Arc::new(faults));
    cluster.start_daemon_at(&door.url());
    cluster.synced();
    let denied = Status::new(405, "MethodNotAllowed", "denied by the test");
    let _rule = cluster.fault("create", "pods", Action::reject(denied));
    cluster.create_replica_set(&new_replica_set("a", 1));
    let n_tried = || cluster.recorded("create", "pods").len();
    cluster.eventually("the back-off is 5 s", || n_tried() >= 11);
    let address = door.address();
    door.stop();
    let n_before = n_tried();
    cluster.waiting().pause(BACKOFF_MIN / 2);
    let door = cluster.open_door(address, |faults| Arc::new(faults));
    // With the old back-off the seventh is due after ten minutes.
    cluster.eventually("seven more tries", || n_tried() >= n_before + 7);
    cluster.stop_daemon();
    drop(door);
}

#[test]
fn all_requests_stay_in_the_watched_namespace() {
    let (cluster, _) = settled();
    check_alive(&cluster, 2);
    let segment = format!("/namespaces/{}/", cluster.namespace());
    let requests = cluster.faults().recorder().requests();
    for request in requests.iter().map(|it| &it.request) {
        assert!(request.path.contains(&segment), "{}", request.path);
    }
    let agent = requests[0].request.header("user-agent");
    let words = format!("replicaset-controller/{}", env!("CARGO_PKG_VERSION"));
    assert!(agent.starts_with(&words), "{agent}");
}
