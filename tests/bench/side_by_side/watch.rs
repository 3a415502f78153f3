//! Observes pods and ReplicaSets of one namespace, independently of both contestants.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use replicaset_controller::api::interner::Interner;
use replicaset_controller::api::{Pod, ReplicaSet, ReplicaSetStatus, Uid};
use replicaset_controller::cache::decode::{ContentType, Decode, Frame, Watch};
use replicaset_controller::cache::store::Indexed;
use replicaset_controller::client::{Client, ClientOptions, Request, StreamClient};
use replicaset_controller::stdx::stop::{Cause, Stop};

use crate::cluster::Cluster;
use crate::journal::Journal;
use crate::workloads::{collection, pods};

/// `timeoutSeconds` of the watches: longer than any run.
const WATCH_SECONDS: &str = "86400";

/// Two watches of one namespace, on two threads until drop. They request the same encoding as both
/// contestants, since the API server encodes each event once per encoding.
pub(crate) struct Observer {
    shared: Arc<Shared>,
    stop: Stop,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The observed state.
#[derive(Default)]
pub(crate) struct State {
    /// Living pods by UID, since a later pod may reuse a name.
    pub(crate) pods: HashMap<Uid, LivePod>,
    /// By owner, when its first pod after [`Observer::expect_pods`] was observed.
    pub(crate) first_pod: HashMap<String, Instant>,
    pub(crate) replica_sets: HashMap<String, Watched>,
    /// Sums over `replica_sets`, kept up to date: every event wakes a waiting scenario, which reads
    /// them. Adding up thousands of ReplicaSets each time would take a processor from the
    /// contestant.
    sums: Counts,
    owners: HashMap<String, Owner>,
    overshoot: usize,
    /// `None` before [`Observer::keep_journal`].
    journal: Option<Journal>,
    problem: Option<String>,
}

/// A living pod.
pub(crate) struct LivePod {
    pub(crate) name: String,
    pub(crate) is_ready: bool,
    owner: String,
}

/// The pods of an owner.
#[derive(Default)]
struct Owner {
    n_pods: usize,
    /// The maximum number of pods, `None` before [`Observer::expect_pods`].
    wanted: Option<usize>,
    /// Pods above `wanted` that were created since then.
    n_surplus: usize,
}

/// A ReplicaSet.
pub(crate) struct Watched {
    status: ReplicaSetStatus,
    /// Number of changes of its status.
    n_status_writes: usize,
}

/// Counts of one ReplicaSet or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) replicas: usize,
    pub(crate) ready: usize,
    /// Number of status changes.
    pub(crate) n_status_writes: usize,
}

impl Observer {
    /// Starts both watches, which begin with the existing objects.
    pub(crate) fn start(cluster: &Cluster, namespace: &str) -> Self {
        let shared = Arc::new(Shared::default());
        let stop = Stop::new();
        let client = Client::new(cluster.client.config(), &ClientOptions::default(), &stop);
        watch_resource::<Pod>(&client, pods(namespace), &shared, &stop, State::on_pod);
        let path = collection(namespace);
        watch_resource::<ReplicaSet>(&client, path, &shared, &stop, State::on_replica_set);
        Self { shared, stop }
    }

    /// Sets the maximum number of pods of an owner, and resets its surplus and its first pod.
    pub(crate) fn expect_pods(&self, owner: &str, wanted: usize) {
        let mut state = self.lock();
        let of = state.owners.entry(owner.to_owned()).or_default();
        of.wanted = Some(wanted);
        of.n_surplus = 0;
        state.first_pod.remove(owner);
    }

    /// Starts the journal.
    pub(crate) fn keep_journal(&self) {
        self.lock().journal = Some(Journal::default());
    }

    /// Waits until `is_reached` and returns when that was. Fails after `within`, and when a watch
    /// fails.
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
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                let (n_pods, n_sets) = (state.pods.len(), state.replica_sets.len());
                return Err(format!(
                    "{what} was not reached within {within:?}: {n_pods} pods, {n_sets} ReplicaSets"
                ));
            }
            let waited = self.shared.changed.wait_timeout(state, remaining);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns and resets the overshoot: the maximum number of pods created above the limit of any
    /// owner. Pods from before a lower limit do not count.
    pub(crate) fn take_overshoot(&self) -> usize {
        std::mem::take(&mut self.lock().overshoot)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop
            .stop(Cause::Requested("the observer is dropped".to_owned()));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// True if there is no pod, and no status reports one.
    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.sums().replicas == 0
    }

    /// Number of living pods of `owner`.
    pub(crate) fn n_pods_of(&self, owner: &str) -> usize {
        self.owners.get(owner).map_or(0, |owner| owner.n_pods)
    }

    /// The sums over all ReplicaSets.
    pub(crate) fn sums(&self) -> Counts {
        self.sums
    }

    /// The journal; `None` before [`Observer::keep_journal`].
    pub(crate) fn journal(&mut self) -> Option<&mut Journal> {
        self.journal.as_mut()
    }

    /// Number of status changes of the ReplicaSets that `is_selected` selects by name.
    pub(crate) fn n_status_writes(&self, is_selected: impl Fn(&str) -> bool) -> usize {
        let all = self.replica_sets.iter();
        let selected = all.filter(|(name, _)| is_selected(name));
        selected.map(|(_, rs)| rs.n_status_writes).sum()
    }

    fn on_pod(&mut self, pod: &Pod, is_gone: bool) {
        if let Some(journal) = &mut self.journal {
            journal.on_pod(pod, is_gone);
        }
        if is_gone || pod.is_terminating() {
            if let Some(pod) = self.pods.remove(&pod.uid)
                && let Some(owner) = self.owners.get_mut(&pod.owner)
            {
                owner.n_pods -= 1;
            }
            return;
        }
        let owner = pod
            .controller
            .as_ref()
            .map(|owner| (*owner.name).to_owned());
        let owner = owner.unwrap_or_default();
        let living = LivePod {
            name: (*pod.key.name).to_owned(),
            is_ready: pod.is_ready,
            owner: owner.clone(),
        };
        if self.pods.insert(pod.uid.clone(), living).is_some() {
            return;
        }
        let of = self.owners.entry(owner.clone()).or_default();
        of.n_pods += 1;
        if let Some(wanted) = of.wanted
            && of.n_pods > wanted
        {
            of.n_surplus += 1;
            self.overshoot = self.overshoot.max((of.n_pods - wanted).min(of.n_surplus));
        }
        self.first_pod.entry(owner).or_insert_with(Instant::now);
    }

    fn on_replica_set(&mut self, rs: &ReplicaSet, is_gone: bool) {
        let name = &*rs.key.name;
        if let Some(journal) = &mut self.journal {
            journal.on_replica_set(rs);
        }
        if is_gone {
            if let Some(known) = self.replica_sets.remove(name) {
                self.sums.subtract(known.counts());
            }
            return;
        }
        let Some(known) = self.replica_sets.get_mut(name) else {
            let first = Watched {
                status: rs.status.clone(),
                n_status_writes: 0,
            };
            self.sums.add(first.counts());
            self.replica_sets.insert(name.to_owned(), first);
            return;
        };
        // An event may be a change of the spec alone.
        if known.status != rs.status {
            self.sums.subtract(known.counts());
            known.status = rs.status.clone();
            known.n_status_writes += 1;
            self.sums.add(known.counts());
        }
    }
}

impl Watched {
    fn counts(&self) -> Counts {
        let count = |count: i32| usize::try_from(count).unwrap_or(0);
        Counts {
            replicas: count(self.status.replicas),
            ready: count(self.status.ready_replicas),
            n_status_writes: self.n_status_writes,
        }
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.replicas += other.replicas;
        self.ready += other.ready;
        self.n_status_writes += other.n_status_writes;
    }

    fn subtract(&mut self, other: Self) {
        self.replicas -= other.replicas;
        self.ready -= other.ready;
        self.n_status_writes -= other.n_status_writes;
    }
}

/// Watches `path` on a new thread and passes each change to `apply`, until `stop` trips.
fn watch_resource<T: Decode>(
    client: &Client,
    path: String,
    shared: &Arc<Shared>,
    stop: &Stop,
    apply: fn(&mut State, &T::Object, bool),
) {
    let (client, shared, stopping) = (client.stream_client(), Arc::clone(shared), stop.clone());
    let watch = move || {
        let on_change = |object: &T::Object, is_gone| {
            apply(&mut shared.lock(), object, is_gone);
            shared.changed.notify_all();
        };
        let mut version = String::new();
        // The API server ends a slow watch, as happens when the machine stalls.
        let problem = loop {
            let request = Request::get(&*path)
                .query("watch", "true")
                .query("allowWatchBookmarks", "true")
                .query("resourceVersion", &*version)
                .query("timeoutSeconds", WATCH_SECONDS)
                .accept(ContentType::Protobuf.accept());
            match read_to_end::<T>(&client, &request, &mut version, &on_change) {
                Ok(()) if stopping.is_stopped() => return,
                Ok(()) => {}
                Err(problem) => break problem,
            }
        };
        if !stopping.is_stopped() {
            shared.lock().problem = Some(problem);
            shared.changed.notify_all();
        }
    };
    let thread = replicaset_controller::stdx::thread::try_spawn("observer", stop, watch);
    drop(thread.expect("the system starts another thread"));
}

/// Reads a watch until it ends, and stores the last resource version in `version`.
fn read_to_end<T: Decode>(
    client: &StreamClient,
    request: &Request,
    version: &mut String,
    on_change: &impl Fn(&T::Object, bool),
) -> Result<(), String> {
    let body = client.open_watch(request);
    let body = body.map_err(|error| format!("{request}: {error}"))?;
    let content_type = body.content_type().to_owned();
    let mut watch = Watch::new(&content_type, Box::new(body)).map_err(|error| error.to_string())?;
    let mut interner = Interner::default();
    loop {
        let (object, is_gone) = match watch.next_frame::<T>(&mut interner) {
            Ok(Some(Frame::Added(Ok(object)) | Frame::Modified(Ok(object)))) => (object, false),
            Ok(Some(Frame::Deleted(Ok(object)))) => (object, true),
            Ok(Some(Frame::Bookmark {
                resource_version, ..
            })) => {
                *version = resource_version.to_string();
                continue;
            }
            Ok(None) => return Ok(()),
            // The next watch continues where this one fell silent.
            Err(error) if error.is_timeout() => return Ok(()),
            Ok(Some(other)) => return Err(format!("a watch of the benchmark failed: {other:?}")),
            Err(error) => return Err(format!("a watch of the benchmark failed: {error}")),
        };
        *version = object.resource_version().to_string();
        on_change(&object, is_gone);
    }
}
