//! Simulated controllers, so that Jobs complete, StatefulSets and DaemonSets get their pods,
//! Services their EndpointSlices, and PodDisruptionBudgets their status. Each does the common case
//! of kube-controller-manager's controller of the same name, without a claim of parity. They change
//! only objects of these kinds, and pods and slices that such an object controls.
//!
//! The thread `dev-controllers` looks at all objects of these kinds a moment after any change. Each
//! object gets the next step towards its spec; the step is a change, and leads to the next look.

mod services;
mod workloads;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::body::DeleteOptions;
use crate::delete::delete;
use crate::events;
use crate::json::{condition, drop_nulls, entries, hash_of, is_deleting, map_of, number, text};
use crate::resource::Resource;
use crate::stdx::stop::Stop;
use crate::stdx::thread;
use crate::store::{Object, State, Store, key_of};
use crate::write;

/// Minimum time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A controller: its name, the group and plural name of its resource, and a step of one object.
type Controller = (
    &'static str,
    &'static str,
    &'static str,
    fn(&mut State, &Served),
);

const ALL: [Controller; 5] = [
    ("job-controller", "batch", "jobs", workloads::sync_job),
    (
        "statefulset-controller",
        "apps",
        "statefulsets",
        workloads::sync_stateful_set,
    ),
    (
        "daemonset-controller",
        "apps",
        "daemonsets",
        workloads::sync_daemon_set,
    ),
    (
        "endpointslice-controller",
        "",
        "services",
        services::sync_endpoint_slice,
    ),
    (
        "disruption-controller",
        "policy",
        "poddisruptionbudgets",
        services::sync_disruption_budget,
    ),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|(name, ..)| name)
}

/// Starts the thread of the controllers that `names` contains. It ends with `stop`.
///
/// # Errors
/// If the thread cannot start.
pub(crate) fn start(
    store: &Arc<Store>,
    names: &[String],
    stop: &Stop,
) -> io::Result<JoinHandle<()>> {
    let (store, stopping, names) = (Arc::clone(store), stop.clone(), names.to_vec());
    thread::try_spawn("dev-controllers", stop, move || {
        let (mut seen, mut pause) = (0, LOOK_EVERY);
        while !stopping.wait_timeout(pause) {
            let version = store.read(|state| state.version);
            if version != seen {
                let begin = Instant::now();
                look(&store, &names);
                // Requests get the lock most of the time.
                pause = LOOK_EVERY.max(begin.elapsed() * 4);
                seen = version;
            }
        }
    })
}

/// Takes the next step of every object. The lock is released after each one.
pub(crate) fn look(store: &Store, names: &[String]) {
    for (_, group, plural, sync) in ALL
        .iter()
        .filter(|(name, ..)| names.iter().any(|it| it == name))
    {
        let resource = Resource::of(group, plural);
        let objects: Vec<Object> =
            store.read(|state| state.of_namespace(resource, None).cloned().collect());
        for object in objects {
            store.write(|state| {
                if let Some(object) = state.get(resource, &object.key).cloned() {
                    let value = object.value();
                    let served = Served {
                        resource,
                        object,
                        value,
                    };
                    sync(state, &served);
                }
            });
        }
    }
}

/// An object that a controller serves.
pub(crate) struct Served {
    resource: Resource,
    object: Object,
    value: Value,
}

impl Served {
    fn uid(&self) -> &str {
        text(&self.value, "/metadata/uid")
    }

    fn spec(&self, name: &str, default: i64) -> i64 {
        number(&self.value, &format!("/spec/{name}")).unwrap_or(default)
    }

    /// The pods that this object controls, by name.
    fn pods(&self, state: &State) -> Vec<Value> {
        let all = state.of_namespace(Resource::Pods, Some(self.object.namespace()));
        let owned = all.filter(|pod| pod.owners.iter().any(|owner| **owner == *self.uid()));
        let controls = |pod: &Value| {
            let mut owners = entries(pod, "/metadata/ownerReferences").iter();
            owners.any(|owner| owner["controller"] == true && text(owner, "/uid") == self.uid())
        };
        owned.map(|pod| pod.value()).filter(controls).collect()
    }

    /// The reference to this object in what it controls.
    fn reference(&self) -> Value {
        json!([{
            "apiVersion": self.resource.api_version(), "kind": self.resource.kind(),
            "name": self.object.name(), "uid": self.uid(), "controller": true,
            "blockOwnerDeletion": true,
        }])
    }

    /// Creates a pod of the template, with these metadata and what `adapt` changes in its spec.
    fn create_pod(&self, state: &mut State, metadata: &Value, adapt: impl FnOnce(&mut Value)) {
        let template = &self.value["spec"]["template"];
        let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
        let own = map_of(&mut pod, "metadata");
        for (name, value) in metadata.as_object().into_iter().flatten() {
            match (own.get_mut(name).and_then(Value::as_object_mut), value) {
                (Some(own), Value::Object(more)) => own.extend(more.clone()),
                _ => drop(own.insert(name.clone(), value.clone())),
            }
        }
        pod["metadata"]["ownerReferences"] = self.reference();
        adapt(&mut pod);
        self.create(state, Resource::Pods, pod);
    }

    /// Creates an object, with an event for a pod, and one if the server rejects it.
    fn create(&self, state: &mut State, resource: Resource, object: Value) {
        let namespace = Some(self.object.namespace());
        match write::create(state, resource, namespace, object) {
            Ok(pod) if resource == Resource::Pods => {
                let message = format!("Created pod: {}", pod.name());
                self.record(state, "Normal", "SuccessfulCreate", &message);
            }
            Ok(_) => {}
            // Only the first one: each event leads to the next attempt.
            Err(error) => {
                let message = format!("Error creating: {}", error.message());
                let event = self.event("Warning", "FailedCreate", &message);
                events::record_first(state, self.resource, &self.value, "", event);
            }
        }
    }

    fn record(&self, state: &mut State, kind: &str, reason: &str, message: &str) {
        let event = self.event(kind, reason, message);
        events::record(state, self.resource, &self.value, message, event);
    }

    fn event(&self, kind: &str, reason: &str, message: &str) -> Value {
        let controller = ALL.iter().find(|(_, group, plural, _)| {
            self.resource.group() == *group && self.resource.plural() == *plural
        });
        let component = controller.map_or("", |(name, ..)| name);
        json!({
            "type": kind, "reason": reason, "message": message, "source": {"component": component},
        })
    }

    fn delete_pod(&self, state: &mut State, pod: &Value) {
        if is_deleting(pod) {
            return;
        }
        let key = key_of(Some(self.object.namespace()), text(pod, "/metadata/name"));
        let options = DeleteOptions::default();
        match delete(state, Resource::Pods, &key, &options) {
            Ok(_) => {
                let message = format!("Deleted pod: {}", text(pod, "/metadata/name"));
                self.record(state, "Normal", "SuccessfulDelete", &message);
            }
            Err(error) => log::debug!("pod {key}: {error:?}"),
        }
    }

    /// Writes the status, unless it is the current one.
    fn set_status(&self, state: &mut State, status: Value) {
        let mut value = self.value.clone();
        value["status"] = status;
        if self.resource.kind() != "Job" {
            value["status"]["observedGeneration"] = value["metadata"]["generation"].clone();
        }
        drop_nulls(&mut value["status"]);
        let part = write::Part::Status;
        if let Err(error) = write::replace(state, self.resource, &self.object, part, value) {
            log::debug!("status of {}: {error:?}", self.object.key);
        }
    }

    /// The label of pods of the current template.
    fn revision(&self) -> String {
        let template = self.value["spec"]["template"].to_string();
        format!("{:08x}", hash_of(&template) >> 32)
    }
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == "True" && !is_deleting(pod)
}

/// The number of these pods as JSON.
fn count<'a>(pods: impl IntoIterator<Item = &'a Value>, is: impl Fn(&Value) -> bool) -> i64 {
    let n_pods = pods.into_iter().filter(|pod| is(pod)).count();
    i64::try_from(n_pods).unwrap_or(i64::MAX)
}
