//! What happens in one namespace, seen from outside of both contestants.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use replicaset_controller::client::{Client, ClientOptions, Request};
use replicaset_controller::stdx::stop::{Cause, Stop};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::workloads::{collection, pods};

/// Metadata alone: what is watched here shall cost the API server as little as can be.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Two watches of one namespace, on threads of their own until dropped.
pub(crate) struct Observer {
    shared: Arc<Shared>,
    stop: Stop,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// What has been seen so far.
#[derive(Default)]
pub(crate) struct State {
    /// Living pods by UID, since a name may come again.
    pub(crate) pods: HashMap<String, LivePod>,
    /// When the first pod of each owner was seen that came after [`Observer::expect_pods`].
    pub(crate) first_pod: HashMap<String, Instant>,
    pub(crate) replica_sets: HashMap<String, Counts>,
    n_pods_of: HashMap<String, usize>,
    wanted: HashMap<String, usize>,
    /// The most pods that any owner had above what it wanted.
    pub(crate) overshoot: usize,
    problem: Option<String>,
}

/// One living pod.
pub(crate) struct LivePod {
    pub(crate) name: String,
    owner: String,
}

/// Of one ReplicaSet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) replicas: usize,
    pub(crate) ready: usize,
    /// How often its status was written.
    pub(crate) n_status_writes: usize,
}

impl Observer {
    /// Begins to watch; what there is already is taken in first.
    pub(crate) fn start(cluster: &Cluster, namespace: &str) -> Result<Self, String> {
        let shared = Arc::new(Shared::default());
        let stop = Stop::new();
        let client = Client::new(cluster.client.config(), &ClientOptions::default(), &stop);
        let client = client.map_err(|error| error.to_string())?;
        follow(
            &client,
            pods(namespace),
            METADATA,
            &shared,
            &stop,
            State::on_pod,
        );
        let path = collection(namespace);
        follow(
            &client,
            path,
            "application/json",
            &shared,
            &stop,
            State::on_replica_set,
        );
        Ok(Self { shared, stop })
    }

    /// Says how many pods an owner may have from now on.
    pub(crate) fn expect_pods(&self, owner: &str, wanted: usize) {
        let mut state = self.lock();
        state.wanted.insert(owner.to_owned(), wanted);
        state.first_pod.remove(owner);
    }

    /// Waits until `is_reached`; when that was.
    pub(crate) fn wait(
        &self,
        what: &str,
        within: Duration,
        mut is_reached: impl FnMut(&State) -> bool,
    ) -> Result<Instant, String> {
        let deadline = Instant::now() + within;
        let mut state = self.lock();
        loop {
            if let Some(problem) = &state.problem {
                return Err(problem.clone());
            }
            if is_reached(&state) {
                return Ok(Instant::now());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (n_pods, n_sets) = (state.pods.len(), state.replica_sets.len());
                return Err(format!(
                    "{what} was not reached within {within:?}: {n_pods} pods, {n_sets} ReplicaSets"
                ));
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.stop(Cause::Requested("enough seen".to_owned()));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The sums over all ReplicaSets.
    pub(crate) fn sums(&self) -> Counts {
        let mut sums = Counts::default();
        for counts in self.replica_sets.values() {
            sums.replicas += counts.replicas;
            sums.ready += counts.ready;
            sums.n_status_writes += counts.n_status_writes;
        }
        sums
    }

    fn on_pod(&mut self, type_: &str, pod: &Value) {
        let metadata = &pod["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, uid) = (text(&metadata["name"]), text(&metadata["uid"]));
        let is_gone = type_ == "DELETED" || metadata["deletionTimestamp"].is_string();
        if is_gone {
            if let Some(pod) = self.pods.remove(&uid)
                && let Some(n) = self.n_pods_of.get_mut(&pod.owner)
            {
                *n -= 1;
            }
            return;
        }
        let owner = text(&metadata["ownerReferences"][0]["name"]);
        let pod = LivePod {
            name,
            owner: owner.clone(),
        };
        if self.pods.insert(uid, pod).is_some() {
            return;
        }
        let n = self.n_pods_of.entry(owner.clone()).or_default();
        *n += 1;
        if let Some(wanted) = self.wanted.get(&owner) {
            self.overshoot = self.overshoot.max(n.saturating_sub(*wanted));
        }
        self.first_pod.entry(owner).or_insert_with(Instant::now);
    }

    fn on_replica_set(&mut self, type_: &str, rs: &Value) {
        let name = rs["metadata"]["name"].as_str().unwrap_or_default();
        if type_ == "DELETED" {
            self.replica_sets.remove(name);
            return;
        }
        let count = |field: &str| {
            let count = rs["status"][field].as_u64().unwrap_or(0);
            usize::try_from(count).unwrap_or(0)
        };
        let (replicas, ready) = (count("replicas"), count("readyReplicas"));
        let known = self.replica_sets.entry(name.to_owned()).or_default();
        // A change of the spec alone keeps the counts as they are.
        let is_write = type_ == "MODIFIED" && (known.replicas, known.ready) != (replicas, ready);
        known.n_status_writes += usize::from(is_write);
        (known.replicas, known.ready) = (replicas, ready);
    }
}

/// Watches `path` and tells `take` each change, until `stop`.
fn follow(
    client: &Client,
    path: String,
    accept: &'static str,
    shared: &Arc<Shared>,
    stop: &Stop,
    take: fn(&mut State, &str, &Value),
) {
    let (client, shared, stopping) = (client.stream_client(), Arc::clone(shared), stop.clone());
    let watch = move || {
        let request = Request::get(path)
            .query("watch", "true")
            .query("timeoutSeconds", "3600")
            .accept(accept);
        let problem = match client.open_watch(&request) {
            Ok(body) => {
                let mut lines = BufReader::new(body);
                let mut line = Vec::new();
                loop {
                    line.clear();
                    match lines.read_until(b'\n', &mut line) {
                        Ok(n) if n > 0 => {}
                        _ => break "a watch of the benchmark has ended".to_owned(),
                    }
                    let event: Value = serde_json::from_slice(&line).unwrap_or_default();
                    let type_ = event["type"].as_str().unwrap_or_default();
                    if type_ == "ERROR" {
                        break format!("a watch of the benchmark failed: {event}");
                    }
                    take(&mut shared.lock(), type_, &event["object"]);
                    shared.changed.notify_all();
                }
            }
            Err(error) => format!("{request}: {error}"),
        };
        if !stopping.is_stopped() {
            shared.lock().problem = Some(problem);
            shared.changed.notify_all();
        }
    };
    drop(replicaset_controller::stdx::thread::spawn(
        "observer", stop, watch,
    ));
}
