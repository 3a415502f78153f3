//! The real API server, which gives the samples and checks the fixture.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use replicaset_controller::api::protobuf::MEDIA_TYPE;
use replicaset_controller::client::{
    Client, ClientConfig, ClientOptions, ConfigSource, Request, Response,
};
use replicaset_controller::stdx::stop::Stop;
use serde_json::{Value, json};

use crate::layout::{Layout, REPLICAS, path_of_pod};
use crate::sample::{pod_json, set_json, status_json};

/// Requests at once.
const CONNECTIONS: usize = 16;

const JSON: &str = "application/json";

/// Objects of a page.
const PAGE: usize = 500;

pub(crate) struct Cluster {
    client: Client,
    pub(crate) kubeconfig: PathBuf,
}

impl Cluster {
    /// The API server that `tests/control-plane/run.sh` has started.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let kubeconfig = std::env::var_os("CONTROL_PLANE_ADMIN_KUBECONFIG");
        let kubeconfig = kubeconfig.ok_or("there is no API server: run `make bench-million`")?;
        let source = ConfigSource {
            kubeconfig: Some(kubeconfig.clone().into()),
            ..ConfigSource::default()
        };
        let config = ClientConfig::load(&source).map_err(|error| error.to_string())?;
        let options = ClientOptions {
            qps: 0.0,
            connections: CONNECTIONS,
            // The name that the kubelet's and the daemon's managed fields have room for.
            user_agent: "replicaset-controller".to_owned(),
            ..ClientOptions::default()
        };
        Ok(Self {
            client: Client::new(&config, &options, &Stop::new()),
            kubeconfig: kubeconfig.into(),
        })
    }

    pub(crate) fn send(&self, request: &Request) -> Result<Response, String> {
        let response = self.client.send(request);
        response.map_err(|error| format!("{request}: {error}"))
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        let response = self.send(&Request::post(path).body(JSON, body.to_string()))?;
        serde_json::from_slice(&response.body).map_err(|error| format!("{path}: {error}"))
    }

    pub(crate) fn create_namespaces(&self, layout: Layout) -> Result<(), String> {
        for name in layout.namespaces() {
            self.post("/api/v1/namespaces", &json!({"metadata": {"name": name}}))?;
            let accounts = format!("/api/v1/namespaces/{name}/serviceaccounts");
            self.post(&accounts, &json!({"metadata": {"name": "default"}}))?;
        }
        Ok(())
    }

    /// Creates a ReplicaSet with its pods, all Ready, but without those that are missing.
    fn create_set(&self, layout: Layout, set: usize) -> Result<(), String> {
        let path = layout.set_path(set);
        let (collection, _) = path.rsplit_once('/').expect("a path of an object");
        let created = self.post(collection, &set_json(layout, set))?;
        let n = if layout.is_old(set) { 0 } else { REPLICAS };
        let status = json!({"status": {
            "replicas": n, "fullyLabeledReplicas": n, "readyReplicas": n, "availableReplicas": n,
            "terminatingReplicas": 0, "observedGeneration": 1,
        }});
        self.patch(&path, &status)?;
        let uid = created["metadata"]["uid"].as_str().unwrap_or_default();
        let pods = (set * REPLICAS..)
            .take(n)
            .filter(|pod| !layout.is_missing(*pod));
        for pod in pods {
            let path = path_of_pod(pod);
            let (collection, _) = path.rsplit_once('/').expect("a path of an object");
            self.post(collection, &pod_json(pod, uid))?;
            self.patch_pod(pod, true)?;
        }
        Ok(())
    }

    /// Writes the status of a pod as its kubelet does.
    pub(crate) fn patch_pod(&self, pod: usize, is_ready: bool) -> Result<(), String> {
        self.patch(&path_of_pod(pod), &status_json(is_ready))
    }

    fn patch(&self, path: &str, status: &Value) -> Result<(), String> {
        let request = Request::patch(format!("{path}/status"));
        let request = request.body("application/strategic-merge-patch+json", status.to_string());
        self.send(&request).map(drop)
    }

    /// Creates all objects of a layout but its namespaces.
    pub(crate) fn create_all(&self, layout: Layout) -> Result<(), String> {
        let (next, problem) = (AtomicUsize::new(0), Mutex::new(None));
        std::thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| {
                    while problem.lock().is_none() {
                        let set = next.fetch_add(1, Ordering::Relaxed);
                        if set >= layout.n_sets() {
                            break;
                        }
                        if let Err(found) = self.create_set(layout, set) {
                            problem.lock().get_or_insert(found);
                        }
                    }
                });
            }
        });
        problem.into_inner().map_or(Ok(()), Err)
    }

    /// Deletes all objects of a layout but its namespaces.
    pub(crate) fn delete_all(&self, layout: Layout) -> Result<(), String> {
        for namespace in layout.namespaces() {
            self.send(&Request::delete(format!(
                "/apis/apps/v1/namespaces/{namespace}/replicasets"
            )))?;
            let pods = Request::delete(format!("/api/v1/namespaces/{namespace}/pods"));
            self.send(&pods.query("gracePeriodSeconds", "0"))?;
        }
        Ok(())
    }

    /// The bytes of a pod in a list of pods.
    pub(crate) fn bytes_of_pod(&self) -> Result<usize, String> {
        let page = Request::get("/api/v1/pods").query("limit", PAGE.to_string());
        Ok(self.send(&page.accept(MEDIA_TYPE))?.body.len() / PAGE)
    }
}
