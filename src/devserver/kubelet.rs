//! A simulated scheduler and kubelet: assigns pods to nodes, lets them run and become ready, and
//! finishes deletions; annotations ask for worse (see [`behaviour`]). One thread (`dev-kubelet`) that
//! follows the pods of the store and does what is due, many pods under one lock.

pub mod behaviour;
mod nodes;
mod pod_status;
mod step;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::step::{Step, next_step};
use super::resource::Resource;
use super::store::{Change, Object, Store};
use crate::stdx::stop::Stop;
use crate::stdx::thread;

/// How long it waits for pods before it looks whether the server stops.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Most steps under one lock, so that requests come in between.
const STEPS_PER_LOCK: usize = 32;

/// How the simulated nodes behave.
#[derive(Clone, Copy, Debug)]
pub struct KubeletOptions {
    /// How many nodes there are, called `node-0` and so on. At least one.
    pub n_nodes: usize,
    /// How long a pod runs before it is ready.
    pub ready_after: Duration,
    /// How long a pod takes to end, if its grace period is not shorter.
    pub terminate_after: Duration,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        Self {
            n_nodes: 5,
            ready_after: Duration::from_millis(500),
            terminate_after: Duration::from_millis(200),
        }
    }
}

struct Kubelet {
    store: Arc<Store>,
    options: KubeletOptions,
    /// All changes of pods up to this version have been looked at.
    cursor: u64,
    /// How many pods have been given a node.
    n_assigned: usize,
    /// What is next for each pod that does not stay as it is.
    planned: HashMap<Box<str>, (Instant, Step)>,
    /// The same, earliest first. What is not in `planned` any more is passed over.
    due: BinaryHeap<Reverse<(Instant, Box<str>)>>,
}

/// Makes the nodes and starts the thread, which ends with `stop`.
///
/// # Errors
/// That the system refuses the thread.
pub(super) fn start(
    store: &Arc<Store>,
    options: KubeletOptions,
    stop: &Stop,
) -> io::Result<JoinHandle<()>> {
    store.write(|state| nodes::create_all(state, options.n_nodes.max(1)));
    let mut kubelet = Kubelet {
        store: Arc::clone(store),
        options,
        cursor: 0,
        n_assigned: 0,
        planned: HashMap::new(),
        due: BinaryHeap::new(),
    };
    let stopped = stop.clone();
    thread::try_spawn("dev-kubelet", stop, move || {
        while !stopped.is_stopped() {
            kubelet.observe();
            kubelet.act();
        }
    })
}

/// The pods that have changed, each as it is now; `None` for one that is gone.
type Changed = HashMap<Box<str>, Option<Object>>;

impl Kubelet {
    /// Waits for changes of pods until the next step is due, and plans what they ask for.
    fn observe(&mut self) {
        let due = self.due.peek().map(|Reverse((due, _))| *due);
        let wait = due.map_or(STOP_CHECK, |due| {
            due.saturating_duration_since(Instant::now())
                .min(STOP_CHECK)
        });
        let cursor = self.cursor;
        let changed = self.store.wait(Resource::Pods, wait, |state| {
            let shelf = state.shelf(Resource::Pods);
            let is_forgotten = shelf.forgotten > cursor;
            let changed: Changed = if is_forgotten {
                let objects = shelf.objects.iter();
                objects
                    .map(|(key, object)| (key.clone(), Some(Arc::clone(object))))
                    .collect()
            } else {
                let events = shelf.events_after(cursor);
                let now = |object: &Object, change| {
                    (change != Change::Deleted).then(|| Arc::clone(object))
                };
                events
                    .map(|event| (event.object.key.clone(), now(&event.object, event.change)))
                    .collect()
            };
            let is_news = is_forgotten || !changed.is_empty();
            is_news.then_some((state.version, is_forgotten, changed))
        });
        let Some((version, is_forgotten, changed)) = changed else {
            return;
        };
        self.cursor = version;
        if is_forgotten {
            self.planned.retain(|key, _| changed.contains_key(key));
        }
        let now = Instant::now();
        for (key, pod) in changed {
            self.plan(key, pod.as_ref(), now);
        }
    }

    /// A pod that changes otherwise keeps the time at which its next step is due.
    fn plan(&mut self, key: Box<str>, pod: Option<&Object>, now: Instant) {
        let next = pod.and_then(|pod| next_step(&pod.value(), &self.options));
        let Some((step, delay)) = next else {
            self.planned.remove(&key);
            return;
        };
        let due = now + delay;
        let known = self.planned.get(&key);
        if known.is_some_and(|(known_due, known)| *known == step && *known_due <= due) {
            return;
        }
        self.planned.insert(key.clone(), (due, step));
        self.due.push(Reverse((due, key)));
    }

    /// Does what is due.
    fn act(&mut self) {
        loop {
            let due = self.take_due(Instant::now());
            if due.is_empty() {
                return;
            }
            let options = self.options;
            self.store.write(|state| {
                for (step, key, node) in due {
                    if let Err(refusal) = step::take(state, step, &key, &node, &options) {
                        log::debug!("{step:?} of pod {key}: {refusal:?}");
                    }
                }
            });
        }
    }

    /// The next steps that are due, with the node whose turn it is.
    fn take_due(&mut self, now: Instant) -> Vec<(Step, Box<str>, String)> {
        let mut steps = Vec::new();
        while steps.len() < STEPS_PER_LOCK {
            let Some(Reverse((due, key))) = self.due.pop() else {
                break;
            };
            if due > now {
                self.due.push(Reverse((due, key)));
                break;
            }
            let Some((_, step)) = self.planned.get(&key).filter(|known| known.0 == due) else {
                continue;
            };
            let node = nodes::name(self.n_assigned % self.options.n_nodes.max(1));
            self.n_assigned += usize::from(*step == Step::Assign);
            steps.push((*step, key.clone(), node));
            self.planned.remove(&key);
        }
        steps
    }
}
