//! Lists and watches on the wire (group J): what is asked for, from which version, and how the daemon
//! goes on after ends, errors and refusals.
//!
//! All cases look at the requests for pods; those for ReplicaSets come from the same code.

use std::sync::Arc;
use std::time::Duration;

use replicaset_controller::api::Status;
use replicaset_controller::devserver::{
    Action, ApiCall, ApiRequest, Ending, Faults, Handler, Matcher, Recorded, Response, Rule,
    RuleHandle,
};
use serde_json::json;

use crate::support::{
    Kind, Setup, TestCluster, is_streamed_list, name, new_pod, new_replica_set, plain_watches_of,
    reads_of, refusal, streamed_lists_of,
};

/// The shortest first step of the back-off.
const BACKOFF_MIN: Duration = Duration::from_millis(800);

/// Longer than a watch that counts as very short.
const NOT_VERY_SHORT: Duration = Duration::from_millis(1100);

/// A request in the words of this file: `stream from V`, `list V limit N`, `next page limit N` or
/// `watch from V`; `-` stands for no version.
fn describe(request: &ApiRequest) -> String {
    let or_none = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
    let version = or_none(request.query_value("resourceVersion"));
    let limit = or_none(request.query_value("limit"));
    match request.verb() {
        "watch" if is_streamed_list(request) => format!("stream from {version}"),
        "watch" => format!("watch from {version}"),
        _ if request.query_value("continue").is_empty() => format!("list {version} limit {limit}"),
        _ => format!("next page limit {limit}"),
    }
}

/// The daemon's lists and watches of pods.
fn reads(cluster: &TestCluster) -> Vec<Arc<Recorded>> {
    let requests = cluster.faults().recorder().requests();
    let is_read = reads_of("pods");
    let reads = requests.into_iter();
    reads.filter(|it| is_read.matches(&it.request)).collect()
}

fn described(cluster: &TestCluster) -> Vec<String> {
    let reads = reads(cluster);
    reads.iter().map(|read| describe(&read.request)).collect()
}

/// Waits until these requests were made, and that nothing else comes after them.
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

/// How far the daemon's cache of pods has come.
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

/// Scales the ReplicaSet `a` to see that what happens in the cluster still reaches the daemon.
#[track_caller]
fn check_alive(cluster: &TestCluster, replicas: i64) {
    cluster.scale("a", replicas);
    cluster.stable("a");
    cluster.eventually_eq("pods", &replicas, || {
        i64::try_from(cluster.live().len()).expect("few pods")
    });
}

/// A daemon with a stable ReplicaSet `a` of one pod, whose watch of pods is older than a second and
/// has brought something; and the version to which that was.
fn settled() -> (TestCluster, String) {
    settle(TestCluster::start())
}

/// The same with a daemon that asks for JSON, for tests that send frames of their own.
fn settled_in_json() -> (TestCluster, String) {
    settle(TestCluster::with(Setup::default().in_json()))
}

/// The same with a server that cannot stream lists. The rule is the last thing to be removed.
fn settled_in_pages() -> (TestCluster, RuleHandle, String) {
    let cluster = TestCluster::with(Setup::default().in_json());
    let rule = cluster.faults().add(no_streamed_lists());
    let (cluster, version) = settle(cluster);
    (cluster, rule, version)
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

/// As a server refuses that does not know streamed lists.
fn no_streamed_lists() -> Rule {
    let why = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: \
               sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
    Rule::new(streamed_lists_of("pods"), refusal(422, "Invalid", why))
}

fn expired() -> Status {
    Status::new(410, "Expired", "too old resource version: 1 (2)")
}

fn too_many_requests() -> Status {
    Status::new(429, "TooManyRequests", "not so fast")
}

/// Sends an ERROR frame into the watch of pods.
#[track_caller]
fn send_error(cluster: &TestCluster, status: &Status) {
    let frame = json!({"type": "ERROR", "object": status.object()});
    let frame = format!("{frame}\n");
    let pods = Matcher::verb("watch", "pods");
    assert_eq!(cluster.faults().send_to_watches(&pods, frame.as_bytes()), 1);
}

/// Ends the watch of pods.
#[track_caller]
fn sever(cluster: &TestCluster, ending: Ending) {
    let pods = Matcher::verb("watch", "pods");
    assert_eq!(cluster.faults().sever_watches(&pods, ending), 1);
}

#[test]
fn j_02_j_03_the_start_is_one_watch_that_begins_with_a_list() {
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
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    check_alive(&cluster, 3);
}

#[test]
fn j_01_j_03_without_streamed_lists_pages_are_listed() {
    let mut cluster = TestCluster::start();
    cluster.create_pod(&new_pod("p1"));
    cluster.faults().add(no_streamed_lists());
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

/// Gives the daemon's lists of pods in pages of four, whatever it asks for, and none out of a cache.
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
fn j_18_j_19_a_list_comes_in_as_many_pages_as_the_server_makes() {
    let mut cluster = TestCluster::with(Setup::default().in_json());
    for number in 0..10 {
        cluster.create_pod(&new_pod(&format!("p{number}")));
    }
    cluster.faults().add(no_streamed_lists());
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
        "ten pods were there"
    );
    // A server that makes pages of a list at version 0 has no cache to answer from, so that the list
    // at another version is limited as well.
    send_error(&cluster, &expired());
    cluster.eventually("it is listed again", || described(&cluster).len() >= 10);
    assert_eq!(described(&cluster)[6..9], [listed, next, next]);
}

#[test]
fn j_29_a_server_that_is_busy_is_asked_the_same_again() {
    let mut cluster = TestCluster::start();
    let busy = Action::refuse(too_many_requests());
    let rule = Rule::new(streamed_lists_of("pods"), busy);
    cluster.faults().add(rule.times(2));
    cluster.start_daemon();
    cluster.synced();
    check_reads(&cluster, &["stream from -"; 3]);
    assert!(last_gap(&cluster) >= BACKOFF_MIN);
}

#[test]
fn j_31_j_37_a_closed_watch_resumes_at_its_version() {
    let (cluster, version) = settled();
    sever(&cluster, Ending::Close);
    let expected = ["stream from -", &format!("watch from {version}")];
    check_reads(&cluster, &expected);
    check_alive(&cluster, 3);
    // Once more, now that it is a plain watch; what comes meanwhile is not missed.
    cluster.waiting().pause(NOT_VERY_SHORT);
    let version = position(&cluster);
    sever(&cluster, Ending::Close);
    check_alive(&cluster, 0);
    assert_eq!(described(&cluster)[2..], [format!("watch from {version}")]);
}

#[test]
fn j_37_a_watch_whose_connection_breaks_goes_on_where_it_was() {
    let (cluster, version) = settled();
    sever(&cluster, Ending::Cut);
    let expected = ["stream from -", &format!("watch from {version}")];
    check_reads(&cluster, &expected);
    check_alive(&cluster, 3);
}

#[test]
fn a_bookmark_moves_the_version_from_which_a_watch_goes_on() {
    let (cluster, _) = settled_in_json();
    // Something that is no pod makes a version that no pod has.
    let account = json!({"metadata": {"name": "other"}});
    let account = cluster.create(Kind::ServiceAccounts, &account);
    let version = account["metadata"]["resourceVersion"].as_str();
    let version = version.expect("what is stored has a version");
    let frame = json!({"type": "BOOKMARK", "object": {
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"resourceVersion": version, "creationTimestamp": null},
        "spec": {"containers": null}, "status": {},
    }});
    let pods = Matcher::verb("watch", "pods");
    let frame = format!("{frame}\n");
    cluster.faults().send_to_watches(&pods, frame.as_bytes());
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

#[test]
fn j_32_a_refused_watch_relists_at_its_version() {
    let (cluster, version) = settled();
    let rule = Rule::new(plain_watches_of("pods"), Action::refuse(expired()));
    cluster.faults().add(rule.times(1));
    sever(&cluster, Ending::Close);
    let expected = [
        "stream from -",
        &format!("watch from {version}"),
        &format!("stream from {version}"),
    ];
    check_reads(&cluster, &expected);
    check_alive(&cluster, 3);
}

/// A real API server forgets only what etcd has compacted, and only when it is restarted too.
#[test]
fn j_22_a_relist_finds_changes_beyond_the_servers_history() {
    let (cluster, version) = settled();
    let Some(server) = cluster.dev_server() else {
        return;
    };
    let busy = Action::refuse(too_many_requests());
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

/// A streamed list at the last version is refused like this: one at any version follows.
#[track_caller]
fn check_streamed_list_at_any_version(refused: Status) {
    let (cluster, version) = settled_in_json();
    let rule = Rule::new(streamed_lists_of("pods"), Action::refuse(refused));
    cluster.faults().add(rule.times(1));
    send_error(&cluster, &expired());
    let expected = [
        "stream from -",
        &format!("stream from {version}"),
        "stream from -",
    ];
    check_reads(&cluster, &expected);
    assert!(last_gap(&cluster) < BACKOFF_MIN, "at once");
    check_alive(&cluster, 3);
}

#[test]
fn an_expired_streamed_list_is_repeated_without_version() {
    check_streamed_list_at_any_version(expired());
}

#[test]
fn a_too_new_streamed_list_is_repeated_without_version() {
    check_streamed_list_at_any_version(too_large_by_cause());
}

#[test]
fn j_14_j_19_a_relist_is_unpaged_and_at_least_as_new() {
    let (cluster, _rule, version) = settled_in_pages();
    let before = described(&cluster);
    send_error(&cluster, &expired());
    cluster.eventually("it is listed again", || described(&cluster).len() >= 6);
    assert_eq!(before[..2], ["stream from -", "list 0 limit 500"]);
    let listed = [
        format!("stream from {version}"),
        format!("list {version} limit -"),
    ];
    assert_eq!(described(&cluster)[3..5], listed);
    check_alive(&cluster, 3);
}

/// A list at the last version is refused like this: one at any version follows at once.
#[track_caller]
fn check_list_at_any_version(refused: Status) {
    let (cluster, _rule, version) = settled_in_pages();
    let is_first = |request: &ApiRequest| request.query_value("resourceVersion") == "0";
    let later = Matcher::verb("list", "pods").and(move |request| !is_first(request));
    let rule = Rule::new(later, Action::refuse(refused));
    cluster.faults().add(rule.times(1));
    send_error(&cluster, &expired());
    cluster.eventually("it is listed again", || described(&cluster).len() >= 7);
    let expected = [
        format!("stream from {version}"),
        format!("list {version} limit -"),
        "list - limit 500".to_owned(),
    ];
    assert_eq!(described(&cluster)[3..6], expected);
    let reads = reads(&cluster);
    assert!(reads[5].started - reads[4].started < BACKOFF_MIN, "at once");
    check_alive(&cluster, 3);
}

fn too_large_by_cause() -> Status {
    Status::new(504, "Timeout", "Timeout: not there yet")
        .with_cause("ResourceVersionTooLarge", "not there yet")
}

#[test]
fn j_15_an_expired_list_is_repeated_without_version() {
    check_list_at_any_version(expired());
}

#[test]
fn j_17_too_new_by_cause_type_lists_without_version() {
    check_list_at_any_version(too_large_by_cause());
}

#[test]
fn j_17_too_new_by_cause_message_lists_without_version() {
    let status = Status::new(504, "Timeout", "Timeout: not there yet");
    check_list_at_any_version(status.with_cause("", "Too large resource version"));
}

#[test]
fn j_17_too_new_by_message_lists_without_version() {
    let message = "Timeout: Too large resource version: 1000, current: 1";
    check_list_at_any_version(Status::new(504, "Timeout", message));
}

#[test]
fn j_09_a_very_short_watch_backs_off_and_relists() {
    let (cluster, version) = settled();
    let empty = Action::answer(|_| Response::json(200, Vec::new()));
    let rule = Rule::new(plain_watches_of("pods"), empty);
    cluster.faults().add(rule.times(1));
    sever(&cluster, Ending::Close);
    let expected = [
        "stream from -",
        &format!("watch from {version}"),
        &format!("stream from {version}"),
    ];
    check_reads(&cluster, &expected);
    assert!(last_gap(&cluster) >= BACKOFF_MIN);
    check_alive(&cluster, 3);
}

#[test]
fn j_09_watches_that_always_end_at_once_do_not_spin() {
    let (cluster, rule, _) = settled_in_pages();
    let empty = Action::answer(|_| Response::json(200, Vec::new()));
    let empty = cluster
        .faults()
        .add(Rule::new(plain_watches_of("pods"), empty));
    sever(&cluster, Ending::Close);
    cluster.eventually("three rounds", || empty.hits() >= 3);
    let watches = cluster.recorded("watch", "pods");
    let plain = plain_watches_of("pods");
    let watches: Vec<_> = watches
        .iter()
        .filter(|it| plain.matches(&it.request))
        .collect();
    for pair in watches[1..].windows(2) {
        let gap = pair[1].started - pair[0].started;
        assert!(gap >= BACKOFF_MIN, "{gap:?}");
    }
    empty.remove();
    rule.remove();
    check_alive(&cluster, 3);
}

#[test]
fn j_12_a_busy_server_costs_a_pause_each_time_and_no_list() {
    let (cluster, version) = settled_in_json();
    let busy = Action::refuse(too_many_requests());
    let rule = Rule::new(plain_watches_of("pods"), busy);
    cluster.faults().add(rule.times(1));
    sever(&cluster, Ending::Close);
    let again = format!("watch from {version}");
    check_reads(&cluster, &["stream from -", &again, &again]);
    assert!(last_gap(&cluster) >= BACKOFF_MIN);
    send_error(&cluster, &too_many_requests());
    check_reads(&cluster, &["stream from -", &again, &again, &again]);
    assert!(last_gap(&cluster) >= BACKOFF_MIN);
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
    // What happens meanwhile must not be missed, and must not be listed either.
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

#[test]
fn watches_of_one_namespace_stay_in_it() {
    let (cluster, _) = settled();
    check_alive(&cluster, 2);
    let there = format!("/namespaces/{}/", cluster.namespace());
    let requests = cluster.faults().recorder().requests();
    for request in requests.iter().map(|it| &it.request) {
        assert!(request.path.contains(&there), "{}", request.path);
    }
    let agent = requests[0].request.header("user-agent");
    let words = format!("replicaset-controller/{}", env!("CARGO_PKG_VERSION"));
    assert!(agent.starts_with(&words), "{agent}");
}
