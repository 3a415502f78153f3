//! What happens in one namespace, seen from outside of both contestants.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use replicaset_controller::api::interner::Interner;
use replicaset_controller::api::{Pod, ReplicaSet, ReplicaSetStatus, Uid};
use replicaset_controller::cache::decode::{Decode, Frame};
use replicaset_controller::cache::encoding::{ContentType, read_watch};
use replicaset_controller::cache::store::Indexed;
use replicaset_controller::client::{Client, ClientOptions, Request, StreamClient};
use replicaset_controller::stdx::stop::{Cause, Stop};

use crate::cluster::Cluster;
use crate::journal::Journal;
use crate::workloads::{collection, pods};

/// When the API server ends a watch, in seconds: not within any run.
const WATCH_SECONDS: &str = "86400";

/// Two watches of one namespace, on threads of their own until dropped. They ask for the encoding that
/// both contestants ask for, since the API server writes an event out once for each encoding.
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
    pub(crate) pods: HashMap<Uid, LivePod>,
    /// When the first pod of each owner was seen that came after [`Observer::expect_pods`].
    pub(crate) first_pod: HashMap<String, Instant>,
    pub(crate) replica_sets: HashMap<String, Watched>,
    /// Over `replica_sets`. Every event wakes a waiting scenario, which asks for them: with thousands
    /// of ReplicaSets, to add them up each time would take a processor from the contestant.
    sums: Counts,
    owners: HashMap<String, Owner>,
    overshoot: usize,
    /// Once somebody asked for it.
    journal: Option<Journal>,
    problem: Option<String>,
}

/// One living pod.
pub(crate) struct LivePod {
    pub(crate) name: String,
    pub(crate) is_ready: bool,
    owner: String,
}

/// Whose pods are counted.
#[derive(Default)]
struct Owner {
    n_pods: usize,
    /// How many it may have, once somebody has said so.
    wanted: Option<usize>,
    /// Pods that have come since then and were too many.
    n_surplus: usize,
}

/// One ReplicaSet.
pub(crate) struct Watched {
    status: ReplicaSetStatus,
    /// How often its status was written.
    n_status_writes: usize,
}

/// Of all ReplicaSets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) replicas: usize,
    pub(crate) ready: usize,
    /// How often a status was written.
    pub(crate) n_status_writes: usize,
}

impl Observer {
    /// Begins to watch; what there is already is taken in first.
    pub(crate) fn start(cluster: &Cluster, namespace: &str) -> Result<Self, String> {
        let shared = Arc::new(Shared::default());
        let stop = Stop::new();
        let client = Client::new(cluster.client.config(), &ClientOptions::default(), &stop);
        let client = client.map_err(|error| error.to_string())?;
        follow::<Pod>(&client, pods(namespace), &shared, &stop, State::on_pod);
        let path = collection(namespace);
        follow::<ReplicaSet>(&client, path, &shared, &stop, State::on_replica_set);
        Ok(Self { shared, stop })
    }

    /// Says how many pods an owner may have from now on.
    pub(crate) fn expect_pods(&self, owner: &str, wanted: usize) {
        let mut state = self.lock();
        let of = state.owners.entry(owner.to_owned()).or_default();
        of.wanted = Some(wanted);
        of.n_surplus = 0;
        state.first_pod.remove(owner);
    }

    /// From now on, all that is seen is kept.
    pub(crate) fn keep_journal(&self) {
        self.lock().journal = Some(Journal::default());
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

    /// The most pods that came to any owner above what it wanted, since this was last asked. Those
    /// that an owner had when it came to want fewer are none of them.
    pub(crate) fn take_overshoot(&self) -> usize {
        std::mem::take(&mut self.lock().overshoot)
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
    /// True if there is no pod, and no ReplicaSet says that it has any.
    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.sums().replicas == 0
    }

    /// How many living pods belong to `owner`.
    pub(crate) fn n_pods_of(&self, owner: &str) -> usize {
        self.owners.get(owner).map_or(0, |owner| owner.n_pods)
    }

    /// The sums over all ReplicaSets.
    pub(crate) fn sums(&self) -> Counts {
        self.sums
    }

    /// What was seen since it was asked for; `None` if it was not.
    pub(crate) fn journal(&mut self) -> Option<&mut Journal> {
        self.journal.as_mut()
    }

    /// How often the statuses of some ReplicaSets were written.
    pub(crate) fn n_status_writes(&self, is_meant: impl Fn(&str) -> bool) -> usize {
        let meant = self.replica_sets.iter().filter(|(name, _)| is_meant(name));
        meant.map(|(_, rs)| rs.n_status_writes).sum()
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
        // A change of the spec alone keeps the status as it is.
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

/// Watches `path` and tells `take` each change, until `stop`.
fn follow<T: Decode>(
    client: &Client,
    path: String,
    shared: &Arc<Shared>,
    stop: &Stop,
    take: fn(&mut State, &T::Object, bool),
) {
    let (client, shared, stopping) = (client.stream_client(), Arc::clone(shared), stop.clone());
    let watch = move || {
        let tell = |object: &T::Object, is_gone| {
            take(&mut shared.lock(), object, is_gone);
            shared.changed.notify_all();
        };
        let mut version = String::new();
        // The API server ends a watch that it finds slow, as any is while the machine stalls.
        let problem = loop {
            let request = Request::get(&*path)
                .query("watch", "true")
                .query("allowWatchBookmarks", "true")
                .query("resourceVersion", &*version)
                .query("timeoutSeconds", WATCH_SECONDS)
                .accept(ContentType::Protobuf.accept());
            match read_to_end::<T>(&client, &request, &mut version, &tell) {
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

/// Reads one watch to its end, and notes in `version` where to go on.
fn read_to_end<T: Decode>(
    client: &StreamClient,
    request: &Request,
    version: &mut String,
    tell: &impl Fn(&T::Object, bool),
) -> Result<(), String> {
    let body = client.open_watch(request);
    let body = body.map_err(|error| format!("{request}: {error}"))?;
    let content_type = body.content_type().to_owned();
    let mut watch =
        read_watch::<T>(&content_type, Box::new(body)).map_err(|error| error.to_string())?;
    let mut interner = Interner::default();
    loop {
        let (object, is_gone) = match watch.next_frame(&mut interner) {
            Ok(Some(Frame::Added(Ok(object)) | Frame::Modified(Ok(object)))) => (object, false),
            Ok(Some(Frame::Deleted(Ok(object)))) => (object, true),
            Ok(Some(Frame::Bookmark {
                resource_version, ..
            })) => {
                *version = resource_version.to_string();
                continue;
            }
            Ok(None) => return Ok(()),
            Ok(Some(other)) => return Err(format!("a watch of the benchmark failed: {other:?}")),
            Err(error) => return Err(format!("a watch of the benchmark failed: {error}")),
        };
        *version = object.resource_version().to_string();
        tell(&object, is_gone);
    }
}
