//! Live lists: a sync that cannot rely on the cache lists the pods from the API server.

use std::collections::HashSet;
use std::sync::Arc;

use replicaset_controller::api::workload_kind::REPLICA_SET;
use replicaset_controller::api::{Pod, ReplicaSet, Status};
use replicaset_controller::client::{Client, ClientConfig, ClientOptions};
use replicaset_controller::devserver::{Matcher, Rule};
use replicaset_controller::live::{LiveReader, RealLiveReader};
use replicaset_controller::writes::WriteError;

use crate::support::{TestCluster, new_pod, new_replica_set, status_error};

/// One more than two pages hold.
const PODS: usize = 1001;

fn cluster_with_pods() -> TestCluster {
    let cluster = TestCluster::start();
    cluster.create_replica_set(&new_replica_set("a", 0));
    for n in 0..PODS {
        cluster.create_pod(&new_pod(&format!("pod-{n}")));
    }
    cluster
}

/// A client for the live reads of a sync, and the ReplicaSet `a`.
fn reader(cluster: &TestCluster) -> (RealLiveReader, ReplicaSet) {
    let options = ClientOptions {
        qps: 0.0,
        ..ClientOptions::default()
    };
    let config = ClientConfig::plain(&cluster.url());
    let client = Client::new(&config, &options, cluster.stop());
    let live = RealLiveReader::new(client, &REPLICA_SET, Arc::default());
    let rs = cluster.replica_set("a").to_string();
    let rs = ReplicaSet::from_answer(&REPLICA_SET, rs.as_bytes());
    (live, rs.expect("a readable ReplicaSet"))
}

/// Lists the pods of `a` as a sync does.
fn list_pods(cluster: &TestCluster) -> Result<Vec<Pod>, WriteError> {
    let (live, rs) = reader(cluster);
    live.list_pods(&rs, rs.selector.as_ref().expect("a selector"))
}

#[test]
fn only_what_reads_field_managers_gets_them() {
    let cluster = TestCluster::start();
    cluster.create_replica_set(&new_replica_set("a", 0));
    cluster.create_pod(&new_pod("p1"));
    let (live, rs) = reader(&cluster);
    let selector = rs.selector.as_ref().expect("a selector");
    let accepted_by = |resource| {
        let requests = cluster.recorded("list", resource).into_iter();
        let requests = requests.chain(cluster.recorded("get", resource));
        let accepts = requests.map(|it| it.request.header("accept").to_owned());
        cluster.faults().recorder().clear();
        accepts.collect::<Vec<_>>()
    };
    accepted_by("pods");
    let without = "application/json;drop=metadata.managedFields, application/json";
    assert_eq!(live.list_pods(&rs, selector).expect("a list").len(), 1);
    assert_eq!(accepted_by("pods"), [without]);
    let found = live.find_pod(&rs, "p1").expect("a list");
    assert!(found.is_some());
    assert_eq!(accepted_by("pods"), [without]);
    live.owner_managers(&rs, "p1").expect("a list");
    assert_eq!(accepted_by("pods"), ["application/json"]);
}

#[test]
fn a_live_list_is_read_in_pages() {
    let cluster = cluster_with_pods();
    let pods = list_pods(&cluster).expect("a list");
    let names: HashSet<_> = pods.iter().map(|pod| &pod.key.name).collect();
    assert_eq!((names.len(), pods.len()), (PODS, PODS));
    let requests = cluster.recorded("list", "pods");
    assert_eq!(requests.len(), 3);
    for (n, page) in requests.iter().enumerate() {
        assert_eq!(page.request.query_value("limit"), "500");
        assert_eq!(page.request.query_value("labelSelector"), "app=conf");
        assert_eq!(page.request.query_value("continue").is_empty(), n == 0);
    }
}

/// The remaining pages would show another state, and a sync must not act on a partial list.
#[test]
fn a_live_list_with_an_expired_continue_token_is_an_error() {
    let cluster = cluster_with_pods();
    let pages = Matcher::verb("list", "pods");
    let pages = pages.and(|page| !page.query_value("continue").is_empty());
    let rule = Rule::new(pages, status_error(410, "Expired", "the token is too old"));
    cluster.faults().add(rule.after(1));
    let error = list_pods(&cluster).expect_err("the third page is expired");
    assert!(error.status().is_some_and(Status::is_expired));
}
