//! A simulated scheduler and kubelet: assigns pods to nodes, lets them run and become ready, and
//! finishes deletions. One thread (`dev-kubelet`) that follows the pods of the store.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::delete::{DeleteOptions, delete};
use super::objects::{entries, meta, text};
use super::resource::Resource;
use super::store::{Object, State, Store};
use super::update::{self, Part};
use crate::stdx::stop::Stop;
use crate::stdx::thread;

/// How long it waits for pods before it looks whether the server stops.
const STOP_CHECK: Duration = Duration::from_millis(100);

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
            n_nodes: 3,
            ready_after: Duration::from_millis(500),
            terminate_after: Duration::from_millis(200),
        }
    }
}

/// What is next for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Assign,
    Run,
    BeReady,
    End,
}

struct Kubelet {
    store: Arc<Store>,
    options: KubeletOptions,
    /// All changes of pods up to this version have been looked at.
    cursor: u64,
    next_node: usize,
    /// What to do to which pod, earliest first.
    steps: BinaryHeap<Reverse<(Instant, Step, Box<str>)>>,
}

/// Starts the thread. It ends with `stop`.
pub(super) fn start(store: &Arc<Store>, options: KubeletOptions, stop: &Stop) -> JoinHandle<()> {
    let mut kubelet = Kubelet {
        store: Arc::clone(store),
        options,
        cursor: 0,
        next_node: 0,
        steps: BinaryHeap::new(),
    };
    let stopped = stop.clone();
    thread::spawn("dev-kubelet", stop, move || {
        while !stopped.is_stopped() {
            kubelet.observe();
            kubelet.act();
        }
    })
}

impl Kubelet {
    /// Waits for changes of pods until the next step is due, and plans what they ask for.
    fn observe(&mut self) {
        let due = self.steps.peek().map(|Reverse((due, _, _))| *due);
        let wait = due.map_or(STOP_CHECK, |due| {
            due.saturating_duration_since(Instant::now())
                .min(STOP_CHECK)
        });
        let cursor = self.cursor;
        let pods = self.store.wait(Resource::Pods, wait, |state| {
            let shelf = state.shelf(Resource::Pods);
            let pods: Vec<Object> = if shelf.forgotten > cursor {
                shelf.objects.values().cloned().collect()
            } else {
                let events = shelf.events_after(cursor);
                events.map(|event| Arc::clone(&event.object)).collect()
            };
            (state.version > cursor && !pods.is_empty()).then_some((state.version, pods))
        });
        let Some((version, pods)) = pods else {
            return;
        };
        self.cursor = version;
        let now = Instant::now();
        for pod in pods {
            if let Some((step, delay)) = self.next_step(&pod.value()) {
                self.steps
                    .push(Reverse((now + delay, step, pod.key.clone())));
            }
        }
    }

    fn next_step(&self, pod: &Value) -> Option<(Step, Duration)> {
        let is_assigned = !text(pod, "/spec/nodeName").is_empty();
        if pod.pointer("/metadata/deletionTimestamp").is_some() {
            let seconds = pod["metadata"]["deletionGracePeriodSeconds"].as_u64();
            let grace = Duration::from_secs(seconds.unwrap_or(0));
            let is_released = seconds == Some(0);
            let delay = self.options.terminate_after.min(grace);
            return (is_assigned && !is_released).then_some((Step::End, delay));
        }
        match text(pod, "/status/phase") {
            "Pending" if is_assigned => Some((Step::Run, Duration::ZERO)),
            "Pending" => Some((Step::Assign, Duration::ZERO)),
            "Running" if !is_ready(pod) => Some((Step::BeReady, self.options.ready_after)),
            _ => None,
        }
    }

    fn act(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((due, step, key))) = self.steps.pop() {
            if due > now {
                self.steps.push(Reverse((due, step, key)));
                return;
            }
            self.next_node = (self.next_node + 1) % self.options.n_nodes.max(1);
            let node = format!("node-{}", self.next_node);
            self.store
                .write(|state| take_step(state, step, &key, &node));
        }
    }
}

/// Does what was planned, unless the pod has changed or gone meanwhile.
fn take_step(state: &mut State, step: Step, key: &str, node: &str) {
    let Some(pod) = state.get(Resource::Pods, key).cloned() else {
        return;
    };
    let mut value = pod.value();
    let is_deleting = value.pointer("/metadata/deletionTimestamp").is_some();
    let done = match step {
        Step::End if is_deleting => {
            let options = DeleteOptions {
                grace_period_seconds: Some(0),
                ..DeleteOptions::default()
            };
            delete(state, Resource::Pods, key, &options).map(|_| ())
        }
        _ if is_deleting => return,
        Step::Assign => update::bind(state, key, &json!({"target": {"name": node}})),
        Step::Run if text(&value, "/status/phase") == "Pending" => {
            set_running(&mut value, false);
            update::replace(state, Resource::Pods, &pod, Part::Status, value).map(|_| ())
        }
        Step::BeReady if text(&value, "/status/phase") == "Running" && !is_ready(&value) => {
            set_running(&mut value, true);
            update::replace(state, Resource::Pods, &pod, Part::Status, value).map(|_| ())
        }
        Step::End | Step::Run | Step::BeReady => return,
    };
    if let Err(refusal) = done {
        log::debug!("{step:?} of pod {key}: {refusal:?}");
    }
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = entries(pod, "/status/conditions").iter();
    conditions.any(|condition| {
        text(condition, "/type") == "Ready" && text(condition, "/status") == "True"
    })
}

fn set_running(pod: &mut Value, ready: bool) {
    let containers = entries(pod, "/spec/containers").iter();
    let statuses: Vec<Value> = containers
        .map(|container| {
            json!({
                "name": container["name"], "image": container["image"], "imageID": "",
                "ready": ready, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": meta::now()}},
            })
        })
        .collect();
    pod["status"]["phase"] = json!("Running");
    pod["status"]["containerStatuses"] = json!(statuses);
    if pod["status"]["startTime"].is_null() {
        pod["status"]["startTime"] = json!(meta::now());
        update::set_condition(pod, "Initialized", "True");
    }
    let status = if ready { "True" } else { "False" };
    update::set_condition(pod, "ContainersReady", status);
    update::set_condition(pod, "Ready", status);
}
