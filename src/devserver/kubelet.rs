//! A simulated scheduler and kubelet. It binds pods to nodes, runs them until they are ready, and
//! finishes deletions. Annotations request faults (see [`behaviour`]). The thread `dev-kubelet`
//! follows the store's pods and takes due steps, many pods under one lock.

pub mod behaviour;
mod step;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::metadata;
use crate::resource::Resource;
use crate::stdx::stop::Stop;
use crate::stdx::thread;

use step::{Step, next_step, node_name};

use crate::store::{Change, Object, State, Store};
use crate::write::create;
pub use step::KubeletOptions;

/// How long the thread waits for pods before it checks for a stop.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Maximum steps under one lock, so that requests get the lock in between.
const STEPS_PER_LOCK: usize = 32;

struct Kubelet {
    store: Arc<Store>,
    options: KubeletOptions,
    /// The version up to which the kubelet has seen pod changes.
    cursor: u64,
    /// The number of pods bound to nodes so far.
    n_assigned: usize,
    /// The next step of each pod that has one: when it is due, and since when it is planned.
    planned: HashMap<Box<str>, (Instant, Step, Instant)>,
    /// The same, earliest first. Entries that are no longer in `planned` are stale and skipped.
    due: BinaryHeap<Reverse<(Instant, Box<str>)>>,
}

/// Creates the nodes and starts the thread, which ends with `stop`.
///
/// # Errors
/// If the thread cannot start.
pub(crate) fn start(
    store: &Arc<Store>,
    options: KubeletOptions,
    stop: &Stop,
) -> io::Result<JoinHandle<()>> {
    store.write(|state| create_nodes(state, options.n_nodes.max(1)));
    let mut kubelet = Kubelet::new(store, options);
    let stopped = stop.clone();
    thread::try_spawn("dev-kubelet", stop, move || {
        while !stopped.is_stopped() {
            kubelet.observe();
            kubelet.act();
        }
    })
}

/// The changed pods in their current state; `None` for a deleted pod.
type Changed = HashMap<Box<str>, Option<Object>>;

impl Kubelet {
    fn new(store: &Arc<Store>, options: KubeletOptions) -> Self {
        Self {
            store: Arc::clone(store),
            options,
            cursor: 0,
            n_assigned: 0,
            planned: HashMap::new(),
            due: BinaryHeap::new(),
        }
    }

    /// Waits for pod changes until the next step is due, and plans the pods' next steps.
    fn observe(&mut self) {
        let due = self.due.peek().map(|Reverse((due, _))| *due);
        let wait = due.map_or(STOP_CHECK, |due| {
            due.saturating_duration_since(Instant::now())
                .min(STOP_CHECK)
        });
        let cursor = self.cursor;
        let changed = self.store.wait(Resource::Pods, wait, |state| {
            let collection = state.collection(Resource::Pods);
            // If the history no longer covers the cursor, all pods count as changed.
            let is_forgotten = collection.forgotten > cursor;
            let changed: Changed = if is_forgotten {
                let objects = collection.objects.iter();
                objects
                    .map(|(key, object)| (key.clone(), Some(Arc::clone(object))))
                    .collect()
            } else {
                let events = collection.events_after(cursor);
                let now = |object: &Object, change| {
                    (change != Change::Deleted).then(|| Arc::clone(object))
                };
                events
                    .map(|event| (event.object.key.clone(), now(&event.object, event.change)))
                    .collect()
            };
            let has_changes = is_forgotten || !changed.is_empty();
            has_changes.then_some((state.version, is_forgotten, changed))
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
            let pod = pod.map(|pod| pod.value());
            self.plan(key, pod.as_ref(), now);
        }
    }

    /// Plans the pod's next step. If this step is planned already, its delay still counts from
    /// then: an unrelated change must not postpone it.
    fn plan(&mut self, key: Box<str>, pod: Option<&Value>, now: Instant) {
        let next = pod.and_then(|pod| next_step(pod, &self.options));
        let Some((step, delay)) = next else {
            self.planned.remove(&key);
            return;
        };
        let known = self.planned.get(&key).filter(|known| known.1 == step);
        let since = known.map_or(now, |(_, _, since)| *since);
        let due = since + delay;
        if known.is_none_or(|(known_due, _, _)| *known_due != due) {
            self.planned.insert(key.clone(), (due, step, since));
            self.due.push(Reverse((due, key)));
        }
    }

    fn act(&mut self) {
        loop {
            let due = self.take_due(Instant::now());
            if due.is_empty() {
                return;
            }
            let options = self.options;
            self.store.write(|state| {
                for (step, key, node) in due {
                    if let Err(error) = step::take(state, step, &key, &node, &options) {
                        log::debug!("{step:?} of pod {key}: {error:?}");
                    }
                }
            });
        }
    }

    /// Takes the steps that are due, at most [`STEPS_PER_LOCK`], each with the node that is next in
    /// turn.
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
            let Some((_, step, _)) = self.planned.get(&key).filter(|known| known.0 == due) else {
                continue;
            };
            let node = node_name(self.n_assigned % self.options.n_nodes.max(1));
            self.n_assigned += usize::from(*step == Step::Bind);
            steps.push((*step, key.clone(), node));
            self.planned.remove(&key);
        }
        steps
    }
}

/// The pod capacity in a node's status; nothing enforces it.
const CAPACITY_PODS: &str = "10000";

/// Creates the nodes that do not exist yet.
pub(crate) fn create_nodes(state: &mut State, n_nodes: usize) {
    for number in 0..n_nodes {
        let node_name = node_name(number);
        if state.get(Resource::Nodes, &node_name).is_some() {
            continue;
        }
        let object = json!({
            "metadata": {"name": node_name, "labels": {
                "kubernetes.io/hostname": node_name, "kubernetes.io/os": "linux",
            }},
            "spec": {},
        });
        match create(state, Resource::Nodes, None, object) {
            Ok(node) => {
                let mut value = node.value();
                value["status"] = node_status(number);
                state.put(Resource::Nodes, &node_name, value);
            }
            Err(error) => log::warn!("cannot create node {node_name}: {error:?}"),
        }
    }
}

fn node_status(number: usize) -> Value {
    let now = metadata::now();
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": CAPACITY_PODS});
    let [.., a, b] = (number + 1).to_be_bytes();
    json!({
        "capacity": resources,
        "allocatable": resources,
        "addresses": [{"type": "InternalIP", "address": format!("192.168.{a}.{b}")}],
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady",
            "message": "a simulated kubelet is ready",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }],
        "nodeInfo": {
            "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION"), "-simulated"),
            "containerRuntimeVersion": "none", "osImage": "none", "kernelVersion": "none",
            "operatingSystem": "linux", "architecture": "simulated", "machineID": "",
            "systemUUID": "", "bootID": "", "kubeProxyVersion": "",
        },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::{Kubelet, KubeletOptions};
    use crate::store::{Settings, Store};

    #[test]
    fn a_changed_ready_after_moves_the_planned_step() {
        let mut kubelet = Kubelet::new(
            &Arc::new(Store::new(Settings::default())),
            KubeletOptions::default(),
        );
        let begun = Instant::now();
        let mut planned_after = |at: u64, ready_after: &str| {
            let pod = json!({
                "metadata": {"annotations": {"dev.replicaset-controller/ready-after": ready_after}},
                "spec": {"nodeName": "n"}, "status": {"phase": "Running"},
            });
            let seen = begun + Duration::from_secs(at);
            kubelet.plan("default/p".into(), Some(&pod), seen);
            (kubelet.planned["default/p"].0 - begun).as_secs()
        };
        let due = [(0, "5s"), (1, "60s"), (2, "60s"), (3, "4s")];
        assert_eq!(
            due.map(|(at, text)| planned_after(at, text)),
            [5, 60, 60, 4]
        );
    }
}
