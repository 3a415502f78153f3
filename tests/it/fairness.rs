//! Fairness: large ReplicaSets, however many, do not hold up small ones, and no namespace holds up
//! another.

use std::collections::BTreeSet;
use std::time::Duration;

use replicaset_controller::api::workload_kind::REPLICA_SET;
use replicaset_controller::api::{ObjectKey, Status};
use replicaset_controller::devserver::{Action, ApiRequest, Matcher, Rule, RuleHandle};
use replicaset_controller::manager::ManagerOptions;

use crate::support::{Kind, Setup, TestCluster, json_body, new_replica_set_labelled};

/// The names of the pods in the create requests, in the order of the requests.
fn posts(cluster: &TestCluster) -> Vec<String> {
    let recorded = cluster.recorded("create", "pods");
    let name = |body: serde_json::Value| body["metadata"]["name"].as_str().map(str::to_owned);
    recorded
        .iter()
        .filter_map(|request| name(json_body(request)))
        .collect()
}

fn cluster(options: ManagerOptions) -> TestCluster {
    TestCluster::running_with(Setup {
        options,
        ..Setup::default()
    })
}

/// More than there are workers.
const N_LARGE: usize = 6;

fn create_large_sets(cluster: &TestCluster, replicas: i64) {
    for n in 0..N_LARGE {
        let name = format!("large-{n}");
        cluster.create_replica_set(&new_replica_set_labelled(&name, replicas, &name));
    }
}

/// Holds all creates of large ReplicaSets, as a webhook that takes 10 s would, while smaller ones
/// are created.
#[track_caller]
fn check_pending_large_sets(kube_api_qps: f32, batch_parallelism: u16) {
    let cluster = cluster(ManagerOptions {
        kube_api_qps,
        kube_api_burst: 150,
        batch_parallelism,
        ..Setup::default().options
    });
    cluster.synced();
    create_large_sets(&cluster, 400);
    cluster.eventually("large batches are under way", || {
        posts(&cluster).len() > 130
    });
    let is_large = |request: &ApiRequest| {
        let body = String::from_utf8_lossy(&request.body);
        body.contains("large-")
    };
    let creates = Matcher::verb("create", "pods").and(is_large);
    let held = cluster.faults().add(Rule::new(creates, Action::Hold));
    cluster.create_replica_set(&new_replica_set_labelled("small", 1, "small"));
    cluster.create_replica_set(&new_replica_set_labelled("few", 20, "few"));
    for (name, n_pods) in [("small", 1), ("few", 20)] {
        let is_its = |pod: &String| pod.starts_with(&format!("{name}-"));
        let what = format!("{name} has its pods and its status");
        cluster.eventually(&what, || {
            let n_posts = posts(&cluster)
                .into_iter()
                .filter(|pod| is_its(pod))
                .count();
            n_posts == n_pods && cluster.replica_set(name)["status"]["replicas"] == n_pods
        });
    }
    held.remove();
}

#[test]
fn pending_creates_of_large_sets_do_not_delay_small_ones() {
    check_pending_large_sets(0.0, 48);
}

#[test]
fn pending_creates_do_not_delay_small_ones_with_few_threads() {
    check_pending_large_sets(99.0, 48);
    check_pending_large_sets(0.0, 4);
}

/// A single worker runs large syncs too. A small ReplicaSet waits for the large sync that is under
/// way, and for one more at most: one take in eight is of low priority.
#[test]
fn a_single_worker_takes_small_work_before_large() {
    let cluster = cluster(ManagerOptions {
        concurrent_replicaset_syncs: 1,
        ..Setup::default().options
    });
    cluster.synced();
    let held = cluster.fault("create", "pods", Action::Hold);
    create_large_sets(&cluster, 400);
    let queue = cluster.daemon().instance(&REPLICA_SET).queue();
    cluster.eventually_eq("all large ReplicaSets but one wait", &(N_LARGE - 1), || {
        queue.len()
    });
    cluster.eventually("the worker syncs one large ReplicaSet", || held.hits() >= 1);
    cluster.create_replica_set(&new_replica_set_labelled("small", 1, "small"));
    let small = ObjectKey::new(cluster.namespace(), "small");
    cluster.eventually("the small one waits too", || {
        queue.state_of(&small).is_waiting
    });
    held.remove();
    let is_small = |name: &String| name.starts_with("small-");
    cluster.eventually("the small one has its pod", || {
        posts(&cluster).iter().any(is_small)
    });
    let before = posts(&cluster).into_iter().take_while(|it| !is_small(it));
    let large: BTreeSet<String> = before.map(|it| it[.."large-0".len()].to_owned()).collect();
    assert!(large.len() <= 2, "{large:?} came first");
}

/// While 25 requests of large ReplicaSets wait for a token, the request of a new ReplicaSet gets
/// one after a few of theirs. The limit is one token per second, so that on a slow machine few of
/// them pass before the daemon sends the request of the new ReplicaSet.
#[test]
fn replica_sets_take_turns_at_the_rate_limit() {
    let cluster = cluster(ManagerOptions {
        kube_api_qps: 1.0,
        kube_api_burst: 80,
        batch_parallelism: 100,
        ..Setup::default().options
    });
    cluster.synced();
    create_large_sets(&cluster, 400);
    cluster.eventually("the burst is used up", || posts(&cluster).len() >= 80);
    let n_cached = || cluster.cache().replica_sets.len();
    cluster.create_replica_set(&new_replica_set_labelled("small", 1, "small"));
    cluster.eventually_eq("the daemon has received it", &(N_LARGE + 1), n_cached);
    let n_before = posts(&cluster).len();
    let at = || {
        posts(&cluster)
            .iter()
            .position(|pod| pod.starts_with("small-"))
    };
    cluster.eventually("the pod of the small one is created", || at().is_some());
    let n_between = at()
        .expect("the create is recorded")
        .saturating_sub(n_before);
    assert!(n_between <= 20, "{n_between} creates came first");
}

/// A cluster with the default rate limit, threads and workers, whose daemon controls all
/// namespaces, and a second namespace.
struct Neighbours {
    cluster: TestCluster,
    slow: String,
}

impl Neighbours {
    fn start(qps: f32) -> Self {
        let cluster = TestCluster::running_with(Setup {
            all_namespaces: true,
            options: ManagerOptions {
                kube_api_qps: qps,
                ..ManagerOptions::default()
            },
            ..Setup::default()
        });
        let slow = format!("{}-slow", cluster.namespace());
        cluster.create_namespace(&slow);
        cluster.synced();
        Self { cluster, slow }
    }

    /// Creates ReplicaSets in the second namespace.
    fn create_slow(&self, n_replica_sets: usize, replicas: i64) {
        let slow = self.cluster.in_namespace(&self.slow);
        for n in 0..n_replica_sets {
            let name = format!("slow-{n}");
            slow.create_replica_set(&new_replica_set_labelled(&name, replicas, &name));
        }
    }

    fn scale_slow(&self, n_replica_sets: usize, replicas: i64) {
        let slow = self.cluster.in_namespace(&self.slow);
        for n in 0..n_replica_sets {
            slow.scale(&format!("slow-{n}"), replicas);
        }
    }

    fn n_slow_pods(&self) -> usize {
        let slow = self.cluster.in_namespace(&self.slow);
        slow.list(Kind::Pods, "").len()
    }

    /// Applies `action` to the requests of the daemon with this method for pods or statuses of the
    /// second namespace.
    fn fault(&self, method: &'static str, action: Action) -> RuleHandle {
        let part = format!("/namespaces/{}/", self.slow);
        let rule = Rule::new(Matcher::path(method, &part), action);
        self.cluster.faults().add(rule)
    }

    /// Creates a ReplicaSet in the first namespace, and waits for its pods and its status.
    #[track_caller]
    fn check_other(&self, replicas: i64) {
        let cluster = &self.cluster;
        cluster.create_replica_set(&new_replica_set_labelled("other", replicas, "other"));
        cluster.eventually_eq("the other has its pods and its status", &replicas, || {
            let status = cluster.status("other");
            status["replicas"].as_i64().unwrap_or_default()
        });
    }
}

/// The threads for batches are all in requests that hang, and the batch of the other ReplicaSet
/// neither gets nor awaits one.
#[test]
fn hanging_deletes_delay_no_other_namespace() {
    let neighbours = Neighbours::start(0.0);
    neighbours.create_slow(2, 31);
    neighbours
        .cluster
        .eventually_eq("all pods exist", &62, || neighbours.n_slow_pods());
    let held = neighbours.fault("DELETE", Action::Hold);
    neighbours.scale_slow(2, 0);
    // Both workers, and half of the 12 threads for small syncs: what one namespace may occupy.
    neighbours
        .cluster
        .eventually("the threads hang", || held.hits() >= 8);
    neighbours.check_other(3);
    held.remove();
}

/// As many syncs as there are workers, and more, hang in one request each.
#[test]
fn hanging_syncs_delay_no_other_namespace() {
    for method in ["POST", "PUT"] {
        let neighbours = Neighbours::start(0.0);
        let held = neighbours.fault(method, Action::Hold);
        neighbours.create_slow(10, 1);
        let queue = neighbours.cluster.daemon().instance(&REPLICA_SET).queue();
        neighbours
            .cluster
            .eventually("syncs hang, and the others wait", || {
                held.hits() >= 3 && queue.len() >= 7
            });
        neighbours.check_other(1);
        held.remove();
    }
}

/// An overloaded API server asks for another try later: the key waits for that, and no worker does.
#[test]
fn a_retry_after_takes_no_worker() {
    for method in ["POST", "PUT", "DELETE"] {
        let neighbours = Neighbours::start(0.0);
        if method == "DELETE" {
            neighbours.create_slow(10, 1);
            neighbours
                .cluster
                .eventually_eq("all pods exist", &10, || neighbours.n_slow_pods());
        }
        let busy = Status::new(429, "TooManyRequests", "try again later");
        let busy = busy.or_retry_after(Some(60));
        let busy = neighbours.fault(method, Action::reject(busy));
        if method == "DELETE" {
            neighbours.scale_slow(10, 0);
        } else {
            neighbours.create_slow(10, 1);
        }
        let queue = neighbours.cluster.daemon().instance(&REPLICA_SET).queue();
        let slow = |n| ObjectKey::new(neighbours.slow.clone(), format!("slow-{n}"));
        neighbours
            .cluster
            .eventually("all keys wait for another try", || {
                let due = |n| queue.state_of(&slow(n)).due_in;
                (0..10).all(|n| due(n).is_some_and(|due| due > Duration::from_secs(1)))
            });
        neighbours.check_other(1);
        busy.remove();
    }
}

/// Many ReplicaSets of one namespace wait for the rate limit, for workers and in the queue. The
/// pod and the status of another namespace pass after a few of their requests. The limit is one
/// token per second, so that on a slow machine few of them pass before the daemon receives the
/// other ReplicaSet.
#[test]
fn a_namespace_with_many_replica_sets_delays_no_other() {
    let neighbours = Neighbours::start(1.0);
    neighbours.create_slow(100, 31);
    let cluster = &neighbours.cluster;
    cluster.eventually("the burst is used up", || cluster.n_writes() >= 30);
    let n_before = cluster.n_writes();
    neighbours.check_other(1);
    let n_between = cluster.n_writes() - n_before;
    assert!(n_between <= 15, "{n_between} writes came first");
}
