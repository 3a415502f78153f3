//! The API server that both contestants use.

use std::fs;
use std::num::ParseIntError;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use replicaset_controller::client::{
    Client, ClientConfig, ClientOptions, ConfigSource, Request, Response,
};
use replicaset_controller::stdx::stop::Stop;
use serde_json::{Value, json};

use crate::cpu::cpu_seconds;

/// Connections that send in parallel.
pub(crate) const SENDERS: usize = 16;

/// Objects that one request deletes.
const DELETE_PAGE: &str = "500";

/// The API server, accessed as its administrator.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) binaries: PathBuf,
    /// Holds `NAME.pid` of each server, and is removed at the end.
    pub(crate) folder: PathBuf,
    n_namespaces: AtomicUsize,
}

impl Cluster {
    /// The API server that `tests/control-plane/run.sh` has started.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let path = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .ok_or_else(|| format!("{name} is not set: run `make bench`"))
        };
        let kubeconfig = path("CONTROL_PLANE_ADMIN_KUBECONFIG")?;
        let source = ConfigSource {
            kubeconfig: Some(kubeconfig.clone()),
            ..ConfigSource::default()
        };
        let config = ClientConfig::load(&source).map_err(|error| error.to_string())?;
        let options = ClientOptions {
            qps: 0.0,
            connections: SENDERS,
            user_agent: "side-by-side".to_owned(),
            ..ClientOptions::default()
        };
        let client = Client::new(&config, &options, &Stop::new());
        Ok(Self {
            client,
            kubeconfig,
            binaries: path("CONTROL_PLANE_BIN")?,
            folder: path("CONTROL_PLANE_DIR")?,
            n_namespaces: AtomicUsize::new(0),
        })
    }

    /// CPU time of the API server and etcd so far, in seconds.
    pub(crate) fn cpu(&self) -> Result<f64, String> {
        let of = |server: &str| {
            let file = self.folder.join(format!("{server}.pid"));
            let text = fs::read_to_string(&file)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            let pid = text
                .trim()
                .parse()
                .map_err(|error: ParseIntError| format!("{}: {error}", file.display()))?;
            cpu_seconds(pid)
        };
        Ok(of("kube-apiserver")? + of("etcd")?)
    }

    pub(crate) fn send(&self, request: &Request) -> Result<Response, String> {
        let result = self.client.send(request);
        result.map_err(|error| format!("{request}: {error}"))
    }

    pub(crate) fn json(&self, request: &Request) -> Result<Value, String> {
        let response = self.send(request)?;
        serde_json::from_slice(&response.body).map_err(|error| format!("{request}: {error}"))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.json(&Request::post(path).body("application/json", body.to_string()))
    }

    /// Deletes all objects of the collection that this request names, page by page. The API server
    /// returns the deleted objects, and the client accepts thousands of them only in a response to
    /// a request with `limit`.
    pub(crate) fn delete_collection(&self, collection: &Request) -> Result<(), String> {
        let mut page = collection.clone();
        loop {
            let list = self.json(&page.query("limit", DELETE_PAGE))?;
            match list["metadata"]["continue"].as_str() {
                None | Some("") => return Ok(()),
                Some(next) => page = collection.clone().query("continue", next),
            }
        }
    }

    /// Makes the API server run Go's garbage collector. Otherwise a collection may start during the
    /// next measurement and take half a second on all processors. The earlier work decides which
    /// contestant that hits.
    pub(crate) fn collect_garbage(&self) -> Result<(), String> {
        self.send(&Request::get("/debug/pprof/heap").query("gc", "1"))?;
        Ok(())
    }

    /// Creates a fresh namespace that pods can be created in.
    pub(crate) fn new_namespace(&self) -> Result<String, String> {
        let n = self.n_namespaces.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench-{n}");
        self.post("/api/v1/namespaces", &json!({"metadata": {"name": name}}))?;
        let account = json!({"metadata": {"name": "default"}});
        self.post(
            &format!("/api/v1/namespaces/{name}/serviceaccounts"),
            &account,
        )?;
        Ok(name)
    }
}
