//! Whole syncs of a ReplicaSet whose node rejects its pods for a while, over minutes of virtual
//! time, with and without a back-off.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use serde_json::json;

use crate::api::conditions::{Condition, REPLICA_FAILURE, get_condition};
use crate::api::pod::PodFailure;
use crate::api::{CompactTimestamp, Pod, PodPhase, ReplicaSet};
use crate::controller::decide::optional::failed_pods::FAILED_POD_BACKOFF;
use crate::controller::memory::Memory;
use crate::controller::testing::{
    Fixture, Write, fixture, key, owned_pod, read_replica_set, rejected, replica_set_json,
    seconds_ago,
};
use crate::stdx::clock::Clock;

const TICK: Duration = Duration::from_millis(100);

/// Pods turn Ready so long after their creation.
const READY_AFTER: Duration = Duration::from_secs(1);

/// A ReplicaSet on one node, whose kubelet, API server and watches act at each tick.
struct Cluster {
    fixture: Fixture,
    rejects: Cell<bool>,
    n_created: Cell<usize>,
    version: Cell<u64>,
    pods: RefCell<Vec<Pod>>,
    warnings: RefCell<Vec<String>>,
}

impl Cluster {
    fn new(replicas: i32, annotations: &[(&str, &str)]) -> Self {
        let mut object = replica_set_json("web", replicas);
        for (name, value) in annotations {
            object["metadata"]["annotations"][format!("replicaset-controller/{name}")] =
                json!(value);
        }
        let fixture = Fixture::new();
        fixture.deliver_replica_set(read_replica_set(&object));
        Self {
            fixture,
            rejects: Cell::new(true),
            n_created: Cell::new(0),
            version: Cell::new(1),
            pods: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    fn rs(&self) -> ReplicaSet {
        let rs = self.fixture.cache.replica_sets.get(&key("web"));
        (*rs.expect("it is there")).clone()
    }

    fn next_version(&self) -> String {
        self.version.set(self.version.get() + 1);
        self.version.get().to_string()
    }

    /// The time as the API stores it.
    fn second(&self) -> CompactTimestamp {
        let second = self.fixture.clock.wall().as_second();
        jiff::Timestamp::from_second(second).expect("a time").into()
    }

    fn n_running(&self) -> usize {
        self.pods.borrow().iter().filter(|pod| pod.is_ready).count()
    }

    fn n_backed_off(&self) -> usize {
        self.fixture.controller.inspector().totals().pods_backed_off
    }

    fn condition(&self) -> Option<Condition> {
        get_condition(&self.rs().status.conditions, REPLICA_FAILURE).cloned()
    }

    fn advance(&self, time: Duration) {
        let end = self.fixture.clock.now() + time;
        while self.fixture.clock.now() < end {
            self.fixture.clock.advance(TICK);
            self.fixture.queue.advance(self.fixture.clock.now());
            self.settle();
        }
    }

    /// Serves all writes and runs all due syncs.
    fn settle(&self) {
        loop {
            self.run_node();
            let Some(key) = self.fixture.queue.try_get() else {
                return;
            };
            self.fixture.process(&key);
            for write in self.fixture.writes.take() {
                self.serve(write);
            }
            self.warnings
                .borrow_mut()
                .extend(self.fixture.writes.take_warnings());
        }
    }

    fn serve(&self, write: Write) {
        match write {
            Write::Create(name) => {
                self.n_created.set(self.n_created.get() + 1);
                let pod = Pod {
                    phase: PodPhase::Pending,
                    creation: Some(self.second()),
                    resource_version: self.next_version().as_str().into(),
                    ..owned_pod(&name, &self.rs())
                };
                self.pods.borrow_mut().push(pod.clone());
                self.fixture.deliver_pod(pod);
            }
            Write::Delete(name) => {
                let mut pods = self.pods.borrow_mut();
                let i = pods.iter().position(|pod| *pod.key.name == *name);
                let pod = pods.remove(i.expect("a stored pod"));
                drop(pods);
                self.fixture.deliver_pod_deleted(pod);
            }
            Write::UpdateStatus(status) => {
                let mut rs = self.rs();
                rs.status = status;
                rs.resource_version = self.next_version().as_str().into();
                self.fixture.deliver_replica_set(rs);
            }
            _ => {}
        }
    }

    /// The kubelet admits or rejects new pods, and the admitted ones turn Ready.
    fn run_node(&self) {
        let (now, second) = (self.fixture.clock.wall(), self.second());
        let mut changed = Vec::new();
        for pod in self.pods.borrow_mut().iter_mut() {
            let age = pod.creation.map(|at| at.age(now)).unwrap_or_default();
            match pod.phase {
                PodPhase::Pending if self.rejects.get() => {
                    pod.phase = PodPhase::Failed;
                    // As a kubelet: a reason and a start time, but no condition.
                    pod.failure = Some(Box::new(PodFailure {
                        reason: "OutOfcpu".into(),
                        at: Some(second),
                    }));
                }
                PodPhase::Pending => pod.phase = PodPhase::Running,
                PodPhase::Running if !pod.is_ready && age.unsigned_abs() >= READY_AFTER => {
                    pod.is_ready = true;
                    pod.ready_transition = Some(second);
                }
                _ => continue,
            }
            pod.resource_version = self.next_version().as_str().into();
            changed.push(pod.clone());
        }
        for pod in changed {
            self.fixture.deliver_pod(pod);
        }
    }
}

/// Rejects everything for ten minutes, then recovers. Returns the pods created until then.
fn ten_minutes(waits: &str, recovers_within: Duration) -> usize {
    let cluster = Cluster::new(10, &[("failed-pod-backoff", waits)]);
    cluster.advance(Duration::from_mins(10));
    let n_created = cluster.n_created.get();
    cluster.rejects.set(false);
    cluster.advance(recovers_within);
    assert_eq!(
        cluster.n_running(),
        10,
        "all run within {recovers_within:?} of the recovery"
    );
    assert_eq!(cluster.condition(), None);
    n_created
}

#[test]
fn a_node_that_rejects_everything_costs_few_pods() {
    let n_created = ten_minutes("10s..5m", Duration::from_secs(300 + 5));
    assert!(n_created <= 40, "{n_created}");
    let n_created = ten_minutes("10s..20s", Duration::from_secs(25));
    assert!(n_created <= 45, "{n_created}");
}

#[test]
fn the_way_back_never_takes_longer_than_one_wait() {
    for minutes in 1..=9 {
        let cluster = Cluster::new(10, &[("failed-pod-backoff", "2s..16s")]);
        cluster.advance(Duration::from_secs(7 * minutes));
        cluster.rejects.set(false);
        cluster.advance(Duration::from_secs(16 + 5));
        assert_eq!(cluster.n_running(), 10);
    }
}

#[test]
fn one_ready_probe_brings_the_rest_at_once() {
    let cluster = Cluster::new(10, &[("failed-pod-backoff", "10s..5m")]);
    cluster.advance(Duration::from_secs(15));
    assert_eq!(cluster.n_created.get(), 11);
    cluster.rejects.set(false);
    while cluster.n_running() == 0 {
        cluster.advance(TICK);
    }
    assert_eq!(
        cluster.n_created.get(),
        21,
        "ten and two trials failed or run, nine follow"
    );
    cluster.advance(2 * READY_AFTER);
    assert_eq!(cluster.n_running(), 10);
    assert_eq!(cluster.n_backed_off(), 0);
}

#[test]
fn without_opting_in_each_failed_pod_is_replaced_at_once() {
    let cluster = Cluster::new(2, &[]);
    let limit = 500;
    while cluster.n_created.get() < limit {
        let Some(key) = cluster.fixture.queue.try_get() else {
            panic!("only {} pods were created", cluster.n_created.get());
        };
        cluster.fixture.process(&key);
        for write in cluster.fixture.writes.take() {
            cluster.serve(write);
        }
        cluster.run_node();
    }
    assert_eq!(cluster.condition(), None);
    assert_eq!(cluster.fixture.writes.take_warnings(), [""; 0]);
}

#[test]
fn each_step_has_one_event_and_one_condition() {
    let cluster = Cluster::new(10, &[("failed-pod-backoff", "10s..5m")]);
    let mut messages = Vec::new();
    for _ in 0..750 {
        cluster.advance(TICK);
        let message = cluster.condition().and_then(|condition| condition.message);
        if messages.last() != Some(&message) {
            messages.push(message);
        }
    }
    // Steps begin at 0, 10, 30 and 70 s.
    let expected = [
        (10, "10 pods have failed, "),
        (20, "11 pods have failed in 2 rounds, "),
        (40, "12 pods have failed in 3 rounds, "),
        (80, "13 pods have failed in 4 rounds, "),
    ];
    assert_eq!(messages.len(), 1 + expected.len(), "{messages:?}");
    assert_eq!(messages[0], None);
    let warnings = cluster.warnings.borrow();
    assert_eq!(warnings.len(), expected.len());
    for (i, (wait, begin)) in expected.iter().enumerate() {
        let message = messages[i + 1].as_ref().expect("a message");
        assert!(message.starts_with(begin), "{message}");
        assert!(message.contains(&format!("every {wait} s")), "{message}");
        assert_eq!(warnings[i], format!("{FAILED_POD_BACKOFF}: {message}"));
    }
    assert_eq!(cluster.n_backed_off(), 10);
}

#[test]
fn a_restart_loses_no_state_and_repeats_no_event() {
    let cluster = Cluster::new(10, &[("failed-pod-backoff", "10s..5m")]);
    cluster.advance(Duration::from_secs(35));
    let n_created = cluster.n_created.get();
    let before = (
        n_created,
        cluster.condition(),
        cluster.warnings.borrow().len(),
    );
    let cluster = Cluster {
        fixture: cluster.fixture.restarted(),
        ..cluster
    };
    cluster.advance(Duration::from_secs(30));
    let after = (
        cluster.n_created.get(),
        cluster.condition(),
        cluster.warnings.borrow().len(),
    );
    assert_eq!(after, before, "the next probe is due 70 s after the start");
    cluster.advance(Duration::from_secs(10));
    assert_eq!(cluster.n_created.get(), n_created + 1);
}

#[test]
fn the_first_pods_and_replacements_of_deleted_pods_do_not_wait() {
    let cluster = Cluster::new(5, &[("failed-pod-backoff", "10s..5m")]);
    cluster.rejects.set(false);
    cluster.advance(Duration::from_secs(20));
    assert_eq!((cluster.n_created.get(), cluster.n_running()), (5, 5));
    // Another client deletes a pod.
    let name = cluster.pods.borrow()[0].key.name.to_string();
    cluster.serve(Write::Delete(name));
    cluster.settle();
    assert_eq!(cluster.n_created.get(), 6);
}

#[test]
fn deleting_the_failed_pods_ends_the_back_off() {
    let cluster = Cluster::new(3, &[("failed-pod-backoff", "10s..5m")]);
    cluster.advance(Duration::from_secs(2));
    assert_eq!(cluster.n_created.get(), 3);
    cluster.rejects.set(false);
    let failed: Vec<_> = cluster
        .pods
        .borrow()
        .iter()
        .map(|pod| pod.key.name.to_string())
        .collect();
    for name in failed {
        cluster.serve(Write::Delete(name));
    }
    cluster.settle();
    assert_eq!(cluster.n_created.get(), 6);
    assert_eq!(cluster.condition(), None);
}

#[test]
fn backed_off_pods_are_no_convergence_and_old_failures_expire() {
    let cluster = Cluster::new(1, &[("failed-pod-backoff", "1s..1s")]);
    cluster.advance(Duration::from_millis(500));
    assert_eq!(cluster.fixture.metrics.converge.get_sample_count(), 0);
    // The probe runs, but never turns Ready: the condition stays while the failures count.
    cluster.rejects.set(false);
    cluster.advance(Duration::from_secs(1));
    for pod in cluster.pods.borrow_mut().iter_mut() {
        if pod.phase != PodPhase::Failed {
            pod.phase = PodPhase::Unknown;
        }
    }
    cluster.advance(Duration::from_secs(590));
    assert!(cluster.condition().is_some());
    cluster.advance(Duration::from_secs(12));
    assert_eq!(cluster.condition(), None, "the window is ten minutes");
}

#[test]
fn the_pods_that_wait_are_counted_while_creates_fail() {
    let mut object = replica_set_json("web", 3);
    object["metadata"]["annotations"] =
        json!({"replicaset-controller/failed-pod-backoff": "10s..5m"});
    let rs = read_replica_set(&object);
    let failed = ["a", "b"].map(|name| Pod {
        phase: PodPhase::Failed,
        failure: Some(Box::new(PodFailure {
            reason: "Rejected".into(),
            at: Some(seconds_ago(1)),
        })),
        ..owned_pod(name, &rs)
    });
    let fixture = fixture(&rs, failed);
    fixture
        .writes
        .on_create(|_, _| Some(Err(rejected(403, "Forbidden", "no"))));
    fixture.sync("web").expect_err("rejected");
    let n_backed_off = |memory: &mut Memory| memory.history.n_backed_off;
    let memories = &fixture.controller.memories;
    assert_eq!(memories.get(&rs, n_backed_off), Some(2));
}
