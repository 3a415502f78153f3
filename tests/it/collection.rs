//! The garbage collector beside the controller: the controller does not replace pods that are
//! deleted together with their ReplicaSet.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use replicaset_controller::client::ClientConfig;
use replicaset_controller::controller::Options;
use replicaset_controller::devserver::{DevServer, DevServerOptions, KubeletOptions};
use replicaset_controller::manager::ManagerOptions;
use replicaset_controller::stdx::stop::{Cause, Stop};
use replicaset_controller::stdx::thread::Thread;
use serde_json::json;

use crate::support::{Api, Daemon, Kind, TestCluster, Waiting, name, new_replica_set, number_at};

/// Number of ReplicaSets to delete; `FOREGROUND_DELETIONS` in the environment overrides it.
const RUNS: usize = 20;

const REPLICAS: i64 = 8;

/// A pause of this process that is long enough for the wait for a deletion (25 ms) to end before
/// the watch thread has run. A quota of half a processor stops a process for 50 ms.
const STALL: Duration = Duration::from_millis(8);

/// The longest pause of this process, in nanoseconds.
#[derive(Clone, Default)]
struct LongestPause(Arc<AtomicU64>);

impl LongestPause {
    /// Measures with a thread until `stop`.
    fn measured(stop: &Stop) -> (Self, Thread) {
        let (longest, until) = (Self::default(), stop.clone());
        let measured = longest.clone();
        let thread = Thread::spawn("pauses", stop, move || {
            let mut before = Instant::now();
            while !until.wait_timeout(Duration::from_millis(1)) {
                let pause = before.elapsed();
                let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
                measured.0.fetch_max(nanos, Ordering::Relaxed);
                before = Instant::now();
            }
        });
        (longest, thread)
    }

    fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Ordering::Relaxed))
    }
}

/// Deletes ReplicaSets in the foreground, one after the other, and checks that no pod is created
/// after the deletion. A run in which this process was stopped for a while proves nothing.
fn delete_in_the_foreground(api: &Api, waiting: &Waiting) {
    let runs = env::var("FOREGROUND_DELETIONS").ok();
    let runs = runs.map_or(RUNS, |runs| runs.parse().expect("a number"));
    let mut created_again = Vec::new();
    let stop = Stop::new();
    let (longest_pause, _thread) = LongestPause::measured(&stop);
    for run in 0..runs {
        longest_pause.take();
        let web = format!("web-{run}");
        let mut pod_events = api.watch(Kind::Pods);
        api.create_replica_set(&new_replica_set(&web, REPLICAS));
        waiting.eventually("all pods are created", || {
            number_at(&api.status(&web), "/replicas") == REPLICAS
        });
        let options = json!({"propagationPolicy": "Foreground"});
        api.delete_with(Kind::ReplicaSets, &web, &options);
        waiting.eventually("the ReplicaSet is gone", || {
            api.get(Kind::ReplicaSets, &web).is_none()
        });
        let marker = json!({
            "metadata": {"name": format!("marker-{run}")},
            "spec": {"containers": [{"name": "c", "image": "example.invalid/none:0"}]},
        });
        let marker = name(&api.create_pod(&marker));
        let events = pod_events.by_ref().map(|event| {
            let is_added = event["type"] == json!("ADDED");
            (is_added, name(&event["object"]))
        });
        let events = events.take_while(|(_, pod)| *pod != marker);
        let is_its = |(is_added, pod): &(bool, String)| *is_added && pod.starts_with(&web);
        let created = events.filter(is_its).count();
        let pause = longest_pause.take();
        if created != usize::try_from(REPLICAS).expect("a few") {
            log::info!("run {run}: {created} pods created; longest pause {pause:?}");
            if pause < STALL {
                created_again.push((run, created));
            }
        }
        api.kill_pod(&marker);
    }
    stop.stop(Cause::Requested("the last run is over".to_owned()));
    assert_eq!(
        created_again,
        [],
        "runs of {runs} with further creates: (run, pods created)"
    );
}

#[test]
fn foreground_deletion_creates_no_pods() {
    if TestCluster::is_real() {
        if env::var("KCM_CONTROLLERS").is_ok_and(|it| it.contains("garbage-collector")) {
            let cluster = TestCluster::running();
            delete_in_the_foreground(cluster.api(), cluster.waiting());
        }
        return;
    }
    let stop = Stop::new();
    let options = DevServerOptions {
        garbage_collection: true,
        kubelet: Some(KubeletOptions {
            ready_after: Duration::from_millis(1),
            terminate_after: Duration::from_millis(1),
            ..KubeletOptions::default()
        }),
        ..DevServerOptions::default()
    };
    let server = DevServer::start(&options, &stop).expect("a free port");
    let config = ClientConfig::plain(&server.url());
    let options = ManagerOptions {
        kube_api_qps: 0.0,
        controller: Options {
            status_update_interval: Duration::ZERO,
            ..Options::default()
        },
        ..ManagerOptions::default()
    };
    let _daemon = Daemon::start(&config, &options);
    let api = Api::new(&config, "default", Kind::ReplicaSets, &stop);
    delete_in_the_foreground(&api, &Waiting::new(&stop));
}
