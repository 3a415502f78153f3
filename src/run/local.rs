//! The commands `dev` and `demo`, which need no cluster: they run the controller on the dev server,
//! [`crate::devserver`]. Only with the feature `devserver`. `main` calls them on the main thread.

mod demo;
mod dev;
mod files;

use serde_json::Value;

use super::RunError;
use crate::cli::flags::LocalCommand;
use crate::stdx::stop::Stop;

/// Runs the command. Blocks until it has ended, or `stop` is given and all threads have ended.
///
/// # Errors
/// If the dev server cannot start, a file is not valid, a chapter of the demo failed, or the daemon
/// failed.
pub fn local(command: &LocalCommand, stop: &Stop) -> Result<(), RunError> {
    match command {
        LocalCommand::Dev(args) => dev::dev(args, stop),
        LocalCommand::Demo(args) => demo::demo(args, stop),
    }
}

/// A snapshot of the dev server's objects, for both commands. Read without the controller's code,
/// so that the demo checks the controller and not itself.
#[derive(Clone, Debug, Default)]
struct World {
    sets: Vec<SetFacts>,
    pods: Vec<PodFacts>,
    /// Oldest first.
    events: Vec<EventFacts>,
}

/// A ReplicaSet or ReplicationController.
#[derive(Clone, Debug, Default)]
struct SetFacts {
    /// In lower case, as in kubectl.
    kind: String,
    namespace: String,
    name: String,
    uid: String,
    desired: usize,
    current: usize,
    ready: usize,
    available: usize,
    /// True if the controller has observed the current generation.
    is_observed: bool,
    /// The message of the condition `ReplicaFailure`, if it is true.
    failure: Option<String>,
}

/// A pod.
#[derive(Clone, Debug, Default)]
struct PodFacts {
    name: String,
    uid: String,
    /// The UID of its controller; empty if it has none.
    owner: String,
    node: String,
    phase: String,
    is_ready: bool,
    is_deleting: bool,
    cost: i64,
    /// True if its mark says that no scale-down may take it.
    is_protected: bool,
}

/// An event about a ReplicaSet.
#[derive(Clone, Debug, Default)]
struct EventFacts {
    /// The ReplicaSet's name.
    name: String,
    is_warning: bool,
    reason: String,
    message: String,
    version: u64,
}

/// The annotation by which users rank the pods of a ReplicaSet
/// (kubernetes `pkg/apis/core/annotation_key_constants.go:PodDeletionCost`).
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The annotation by which users protect a pod of a ReplicaSet that opts in.
const SCALE_DOWN: &str = "replicaset-controller/scale-down";

impl World {
    /// Reads the objects of the three resources.
    fn read(sets: &[Value], pods: &[Value], events: &[Value]) -> Self {
        let mut events: Vec<EventFacts> = events.iter().filter_map(read_event).collect();
        events.sort_by_key(|event| event.version);
        Self {
            sets: sets.iter().map(read_set).collect(),
            pods: pods.iter().map(read_pod).collect(),
            events,
        }
    }

    /// The ReplicaSet of this name.
    fn set(&self, name: &str) -> Option<&SetFacts> {
        self.sets.iter().find(|set| set.name == name)
    }

    /// The pods of a ReplicaSet that are not terminating.
    fn pods_of(&self, set: &SetFacts) -> Vec<&PodFacts> {
        let owned = self.pods.iter().filter(|pod| pod.owner == set.uid);
        owned.filter(|pod| !pod.is_deleting).collect()
    }

    /// The pods of the ReplicaSet of this name that are not terminating.
    fn pods_of_name(&self, name: &str) -> Vec<&PodFacts> {
        self.set(name)
            .map(|set| self.pods_of(set))
            .unwrap_or_default()
    }

    /// The pod of this name.
    fn pod(&self, name: &str) -> Option<&PodFacts> {
        self.pods.iter().find(|pod| pod.name == name)
    }

    /// True if the ReplicaSet has all its replicas, all are available, and its status shows that.
    fn is_complete(&self, name: &str) -> bool {
        let Some(set) = self.set(name) else {
            return false;
        };
        let pods = self.pods_of(set);
        let counts = [
            set.current,
            set.ready,
            set.available,
            pods.len(),
            pods.iter().filter(|pod| pod.is_ready).count(),
        ];
        set.is_observed && counts.iter().all(|count| *count == set.desired)
    }
}

fn text(object: &Value, pointer: &str) -> String {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

fn count(object: &Value, pointer: &str) -> usize {
    let found = object.pointer(pointer).and_then(Value::as_u64);
    found
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(0)
}

fn entries<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    let found = object.pointer(pointer).and_then(Value::as_array);
    found.into_iter().flatten()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = entries(object, "/status/conditions");
    conditions.find(|entry| entry["type"] == kind && entry["status"] == "True")
}

fn read_set(set: &Value) -> SetFacts {
    let failure = condition(set, "ReplicaFailure");
    SetFacts {
        kind: text(set, "/kind").to_lowercase(),
        namespace: text(set, "/metadata/namespace"),
        name: text(set, "/metadata/name"),
        uid: text(set, "/metadata/uid"),
        desired: count(set, "/spec/replicas"),
        current: count(set, "/status/replicas"),
        ready: count(set, "/status/readyReplicas"),
        available: count(set, "/status/availableReplicas"),
        is_observed: set["metadata"]["generation"] == set["status"]["observedGeneration"],
        failure: failure.map(|entry| text(entry, "/message")),
    }
}

fn read_pod(pod: &Value) -> PodFacts {
    let mut owners = entries(pod, "/metadata/ownerReferences");
    let owner = owners.find(|owner| owner["controller"] == true);
    let annotation = |name: &str| {
        let value = pod["metadata"]["annotations"].get(name);
        value.and_then(Value::as_str).unwrap_or_default()
    };
    PodFacts {
        name: text(pod, "/metadata/name"),
        uid: text(pod, "/metadata/uid"),
        owner: owner.map(|owner| text(owner, "/uid")).unwrap_or_default(),
        node: text(pod, "/spec/nodeName"),
        is_ready: condition(pod, "Ready").is_some(),
        phase: text(pod, "/status/phase"),
        is_deleting: pod.pointer("/metadata/deletionTimestamp").is_some(),
        cost: annotation(DELETION_COST).parse().unwrap_or(0),
        is_protected: annotation(SCALE_DOWN) == "never",
    }
}

fn read_event(event: &Value) -> Option<EventFacts> {
    let about = &event["involvedObject"];
    (about["kind"] == "ReplicaSet").then(|| EventFacts {
        name: text(about, "/name"),
        is_warning: event["type"] == "Warning",
        reason: text(event, "/reason"),
        message: text(event, "/message"),
        version: text(event, "/metadata/resourceVersion")
            .parse()
            .unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::World;

    #[test]
    fn a_set_is_complete_with_all_pods_and_a_matching_status() {
        let set = |ready: u64| {
            json!({
                "metadata": {"namespace": "n", "name": "web", "uid": "u", "generation": 2},
                "spec": {"replicas": 1},
                "status": {"replicas": 1, "readyReplicas": ready, "availableReplicas": ready,
                    "observedGeneration": 2},
            })
        };
        let pod = |owner: &str| {
            json!({
                "metadata": {"namespace": "n", "name": "web-1", "ownerReferences": [
                    {"uid": "x"}, {"uid": owner, "controller": true}]},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            })
        };
        let is_complete = |ready: u64, owner: &str| {
            World::read(&[set(ready)], &[pod(owner)], &[]).is_complete("web")
        };
        assert!(is_complete(1, "u"));
        assert!(!is_complete(0, "u"));
        assert!(!is_complete(1, "other"));
    }
}
