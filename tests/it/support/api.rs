//! The test's own requests to the API server, as its administrator. They bypass the fault layer and
//! the recorder.

use std::fmt::Debug;
use std::io::{BufRead, BufReader};

use replicaset_controller::api::Status;
use replicaset_controller::client::{
    Client, ClientConfig, ClientError, ClientOptions, Request, Response,
};
use replicaset_controller::stdx::stop::Stop;
use serde_json::{Value, json};

use super::objects::{LIVE, as_controller, name};

/// Resources that tests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Namespaces,
    ServiceAccounts,
    Pods,
    ReplicaSets,
    ReplicationControllers,
    Deployments,
    Leases,
    Events,
    Quotas,
}

impl Kind {
    /// The plural that paths contain.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::ServiceAccounts => "serviceaccounts",
            Self::Pods => "pods",
            Self::ReplicaSets => "replicasets",
            Self::ReplicationControllers => "replicationcontrollers",
            Self::Deployments => "deployments",
            Self::Leases => "leases",
            Self::Events => "events",
            Self::Quotas => "resourcequotas",
        }
    }

    fn collection(self, namespace: &str) -> String {
        let prefix = match self {
            Self::Namespaces => return "/api/v1/namespaces".to_owned(),
            Self::ReplicaSets | Self::Deployments => "/apis/apps/v1",
            Self::Leases => "/apis/coordination.k8s.io/v1",
            _ => "/api/v1",
        };
        format!("{prefix}/namespaces/{namespace}/{}", self.plural())
    }
}

/// A client for the test's namespace.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client,
    namespace: String,
    /// The kind that [`create_replica_set`](Api::create_replica_set) and the like use.
    workload: Kind,
}

impl Api {
    pub(crate) fn new(config: &ClientConfig, namespace: &str, workload: Kind, stop: &Stop) -> Self {
        let options = ClientOptions {
            qps: 0.0,
            ..ClientOptions::default()
        };
        Self {
            client: Client::new(config, &options, stop),
            namespace: namespace.to_owned(),
            workload,
        }
    }

    /// The same administrator in another namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Self {
        Self {
            client: self.client.clone(),
            namespace: namespace.to_owned(),
            workload: self.workload,
        }
    }

    /// The workload kind under test.
    pub(crate) fn workload(&self) -> Kind {
        self.workload
    }

    /// The test's namespace.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The path of a collection in the test's namespace.
    pub(crate) fn collection(&self, kind: Kind) -> String {
        kind.collection(&self.namespace)
    }

    /// The path of an object in the test's namespace; `name` may end with `/status`.
    pub(crate) fn path(&self, kind: Kind, name: &str) -> String {
        format!("{}/{name}", self.collection(kind))
    }

    /// Sends a request. A status error is returned; any other error fails the test.
    #[track_caller]
    pub(crate) fn send(&self, request: &Request) -> Result<Value, Status> {
        match self.client.send(request) {
            Ok(Response { body, .. }) => {
                Ok(serde_json::from_slice(&body).expect("the API server sends JSON"))
            }
            Err(ClientError::Status(status)) => Err(status),
            Err(error) => panic!("{request}: {error}"),
        }
    }

    /// [`send`](Self::send) for a request that may fail in any way.
    pub(crate) fn try_send(&self, request: &Request) -> Result<Response, ClientError> {
        self.client.send(request)
    }

    /// Creates an object and returns it as the API server stored it.
    #[track_caller]
    pub(crate) fn create(&self, kind: Kind, object: &Value) -> Value {
        succeed(self.try_create(kind, object), object)
    }

    /// Creates an object, or returns the status error.
    #[track_caller]
    pub(crate) fn try_create(&self, kind: Kind, object: &Value) -> Result<Value, Status> {
        self.send(&with_json(Request::post(self.collection(kind)), object))
    }

    /// Gets an object; `None` if it does not exist.
    #[track_caller]
    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<Value> {
        match self.send(&Request::get(self.path(kind, name))) {
            Ok(object) => Some(object),
            Err(status) if status.is_not_found() => None,
            Err(status) => panic!("get {kind:?} {name}: {status}"),
        }
    }

    /// Lists the objects that match a label selector.
    #[track_caller]
    pub(crate) fn list(&self, kind: Kind, selector: &str) -> Vec<Value> {
        let request = Request::get(self.collection(kind)).query("labelSelector", selector);
        let mut list = succeed(self.send(&request), &kind);
        match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }

    /// Gets an object, changes it and updates it. Retries conflicts.
    #[track_caller]
    pub(crate) fn update(&self, kind: Kind, name: &str, change: impl Fn(&mut Value)) -> Value {
        succeed(self.try_update(kind, name, name, change), &(kind, name))
    }

    /// [`update`](Self::update) for the status subresource.
    #[track_caller]
    pub(crate) fn update_status(
        &self,
        kind: Kind,
        name: &str,
        change: impl Fn(&mut Value),
    ) -> Value {
        let target = format!("{name}/status");
        succeed(self.try_update(kind, name, &target, change), &(kind, name))
    }

    /// Gets `name`, changes it and puts it to `target`, or returns the status error. Retries
    /// conflicts.
    #[track_caller]
    pub(crate) fn try_update(
        &self,
        kind: Kind,
        name: &str,
        target: &str,
        change: impl Fn(&mut Value),
    ) -> Result<Value, Status> {
        loop {
            let mut object = self.send(&Request::get(self.path(kind, name)))?;
            change(&mut object);
            match self.send(&with_json(Request::put(self.path(kind, target)), &object)) {
                Err(status) if status.is_conflict() => {}
                result => return result,
            }
        }
    }

    /// Applies a JSON merge patch.
    #[track_caller]
    pub(crate) fn merge_patch(&self, kind: Kind, name: &str, patch: &Value) -> Value {
        let request = Request::patch(self.path(kind, name));
        let request = request.body("application/merge-patch+json", patch.to_string());
        succeed(self.send(&request), &(kind, name))
    }

    /// Deletes an object without options.
    #[track_caller]
    pub(crate) fn delete(&self, kind: Kind, name: &str) {
        self.delete_with(kind, name, &json!({}));
    }

    /// Deletes an object. A missing object counts as deleted.
    #[track_caller]
    pub(crate) fn delete_with(&self, kind: Kind, name: &str, options: &Value) {
        let request = with_json(Request::delete(self.path(kind, name)), options);
        match self.send(&request) {
            Ok(_) => {}
            Err(status) if status.is_not_found() => {}
            Err(status) => panic!("delete {kind:?} {name}: {status}"),
        }
    }

    /// Deletes a pod at once, even if it is bound to a node.
    #[track_caller]
    pub(crate) fn kill_pod(&self, name: &str) {
        self.delete_with(Kind::Pods, name, &json!({"gracePeriodSeconds": 0}));
    }

    /// The events of a watch. `next` blocks until the next event, and ends with the connection.
    #[track_caller]
    pub(crate) fn watch(&self, kind: Kind) -> impl Iterator<Item = Value> + use<> {
        let request = Request::get(self.collection(kind)).query("watch", "1");
        let stream = self.client.stream_client().open_watch(&request);
        let stream = BufReader::new(stream.expect("the API server opens the watch"));
        stream.lines().map_while(|line| {
            let line = line.ok()?;
            Some(serde_json::from_str(&line).expect("a watch event is JSON"))
        })
    }

    // Shortcuts. "ReplicaSet" stands for the workload kind under test, so that one test body covers
    // both kinds.

    /// The pods that match [`LIVE`].
    #[track_caller]
    pub(crate) fn live(&self) -> Vec<Value> {
        self.list(Kind::Pods, LIVE)
    }

    /// Gets a pod. The test fails if it does not exist.
    #[track_caller]
    pub(crate) fn pod(&self, name: &str) -> Value {
        let pod = self.get(Kind::Pods, name);
        pod.unwrap_or_else(|| panic!("pod {name} does not exist"))
    }

    /// Gets a ReplicaSet. The test fails if it does not exist.
    #[track_caller]
    pub(crate) fn replica_set(&self, name: &str) -> Value {
        let rs = self.get(self.workload, name);
        rs.unwrap_or_else(|| panic!("ReplicaSet {name} does not exist"))
    }

    /// A ReplicaSet's status.
    #[track_caller]
    pub(crate) fn status(&self, name: &str) -> Value {
        self.replica_set(name)["status"].take()
    }

    /// Creates a ReplicaSet, or the equivalent ReplicationController.
    #[track_caller]
    pub(crate) fn create_replica_set(&self, rs: &Value) -> Value {
        match self.workload {
            Kind::ReplicationControllers => self.create(self.workload, &as_controller(rs)),
            _ => self.create(self.workload, rs),
        }
    }

    /// Creates a pod.
    #[track_caller]
    pub(crate) fn create_pod(&self, pod: &Value) -> Value {
        self.create(Kind::Pods, pod)
    }

    /// Sets `spec.replicas`.
    #[track_caller]
    pub(crate) fn scale(&self, name: &str, replicas: i64) -> Value {
        self.update(self.workload, name, |rs| {
            rs["spec"]["replicas"] = json!(replicas);
        })
    }

    /// Sets `spec.replicas` through the scale subresource, and returns the scale.
    #[track_caller]
    pub(crate) fn change_scale(&self, name: &str, replicas: i64) -> Value {
        let path = self.path(self.workload, &format!("{name}/scale"));
        let mut scale = succeed(self.send(&Request::get(&path)), &path);
        scale["spec"]["replicas"] = json!(replicas);
        succeed(self.send(&with_json(Request::put(&path), &scale)), &path)
    }

    /// Sets members of a pod's status and keeps the others.
    #[track_caller]
    pub(crate) fn set_pod_status(&self, pod: &str, status: &Value) -> Value {
        let members = status.as_object().expect("a status is an object");
        self.update_status(Kind::Pods, pod, |pod| {
            for (member, value) in members {
                pod["status"][member] = value.clone();
            }
        })
    }

    /// True if the API server keeps `terminatingReplicas` in the status of this ReplicaSet. Its
    /// feature gate decides, which is off by default before Kubernetes 1.35.
    #[track_caller]
    pub(crate) fn keeps_terminating_replicas(&self, name: &str) -> bool {
        let patch = json!({"status": {"terminatingReplicas": 1}});
        let request = Request::patch(self.path(Kind::ReplicaSets, &format!("{name}/status")))
            .query("dryRun", "All")
            .body("application/merge-patch+json", patch.to_string());
        let stored = succeed(self.send(&request), &name);
        stored["status"]["terminatingReplicas"] == json!(1)
    }

    /// The events about an object, oldest first.
    #[track_caller]
    pub(crate) fn events_of(&self, object: &str) -> Vec<Value> {
        let mut events = self.list(Kind::Events, "");
        events.retain(|event| event["involvedObject"]["name"] == json!(object));
        events.sort_by_key(name);
        events
    }
}

fn with_json(request: Request, body: &Value) -> Request {
    request.body("application/json", body.to_string())
}

#[track_caller]
fn succeed<T>(result: Result<T, Status>, what: &dyn Debug) -> T {
    result.unwrap_or_else(|status| panic!("{status} for {what:?}"))
}
