//! An in-memory API server on loopback, for demos and tests. It behaves as kube-apiserver 1.37 does
//! in every way that this controller can observe; any difference is a bug of this server. Other
//! kinds, built in or custom, it only stores. Only `main` and the tests use it; it is not a
//! cluster.
//!
//! Each file uses only files of lines below its own, and those that an arrow on its line leads to;
//! a test checks that there is no dependency cycle. To follow a request, start at `api_server`.
//!
//! ```text
//! faults ─▶ faults::rule                        records requests; delays, rejects, cuts them
//! api_server                                    a request, its verb, its response
//! subresources                                  evictions, logs
//! discovery ─▶ reviews                          what there is; reviews and tokens
//! simulated ─▶ workloads, services             simulated controllers
//! kubelet ─▶ step · garbage · snapshot          simulated nodes; dependents; load and save
//! apply · delete · watch ─▶ list                the verbs
//! events                                        of simulated nodes and controllers
//! write ─▶ quota                                create, update, bind, remove; quotas
//! table · patch                                 what kubectl shows and sends
//! selector                                      the objects that a list or watch covers
//! store                                         objects, versions, history; the one lock
//! objects ─▶ workload, custom, rules            defaults and validation, by kind; of fields
//! metadata                                      what all objects have
//! kubelet::behaviour                            the annotations of simulated nodes
//! body ─▶ protobuf ─▶ schema ─▶ structural      objects and options of a request; types of fields
//! status_error ─▶ resource, exchange            errors; the table of kinds; requests, responses
//! json                                          access to trees
//! ```
//!
//! `faults` depends on no file but `exchange`, so a test can put it in front of a real API server.
//! HTTP is `crate::http_server`. Threads: `dev-accept`, one `dev-conn-N` per connection,
//! `dev-kubelet`, `dev-gc`, `dev-controllers`.
//!
//! DIFFERS: no authentication; the service account `default` need not exist; responses are JSON
//! only; events, and what a controller owns, have no managed fields until somebody applies them; no
//! pruning of unknown fields of built-in kinds; validation only for mistakes that tests and users
//! commonly make. Of the kinds that it only stores, it checks the types of fields, `rules`,
//! metadata, and pod templates.
//!
//! # Locks
//!
//! All threads but `dev-accept` take the lock of `store`, which guards the objects; none does I/O
//! under it. Connection threads and tests take those of `faults` (rules and
//! watches) and its recorder (requests).

mod api_server;
mod apply;
mod body;
mod cron;
mod custom;
mod delete;
mod discovery;
mod events;
mod exchange;
#[cfg(any(test, feature = "faults"))]
mod faults;
mod garbage;
mod json;
mod kubelet;
mod list;
mod metadata;
mod objects;
mod patch;
mod protobuf;
mod quota;
mod resource;
mod reviews;
mod rules;
mod schema;
mod selector;
mod simulated;
mod snapshot;
mod status_error;
mod store;
mod structural;
mod subresources;
mod table;
mod watch;
mod workload;
mod write;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;

use api_server::ApiServer;
use kubernetes::{api, http_server, stdx};
use resource::Resource;
use serde_json::{Value, json};
use store::{Settings, Store, key_of};

use crate::http_server::{Server, ServerOptions};
use crate::stdx::stop::{Cause, Stop};

pub use exchange::{
    ApiCall, ApiRequest, ChunkStream, Handler, Next, Response, ResponseBody, Target,
};
#[cfg(any(test, feature = "faults"))]
pub use faults::{Action, Ending, Faults, Matcher, Recorded, Recorder, Rule, RuleHandle};
pub use kubelet::{KubeletOptions, behaviour};
pub use simulated::names as simulated_controllers;
pub use snapshot::Rejected;
pub use store::Tally;

/// Requests kept by the recorder.
#[cfg(any(test, feature = "faults"))]
const RECORDER_LENGTH: usize = 100_000;

/// Maximum body bytes the server keeps: one more than the API's limit, so that the API can detect a
/// longer body (apiserver `pkg/server/config.go:MaxRequestBodyBytes`, 3 MiB).
const BODY_KEPT_BYTES: usize = 3 * 1024 * 1024 + 1;

#[derive(Clone, Debug)]
pub struct DevServerOptions {
    /// The address to listen on; port 0 picks a free port.
    pub listen: String,
    /// Changes per resource kept for watches.
    pub history_length: usize,
    /// Runs the basic controllers of a control plane: they delete dependents shortly after their
    /// owner, and the contents of a namespace shortly after the namespace, and create the
    /// ServiceAccount `default` (which pods do not need) and the ConfigMap `kube-root-ca.crt` in
    /// each new namespace.
    pub garbage_collection: bool,
    /// Allows addresses off loopback, where any client can connect: the server has no
    /// authentication.
    pub insecure_listen: bool,
    /// Accepted host names besides the loopback names and the listen address.
    pub accept_hosts: Vec<String>,
    /// The controllers that act, by kube-controller-manager's names: here, those of
    /// [`simulated_controllers`]; any other one beside the server. A new object whose controller
    /// does not act gets a warning.
    pub controllers: Vec<String>,
    /// The simulated nodes. Without nodes, pods keep the status that clients write.
    pub kubelet: Option<KubeletOptions>,
}

impl Default for DevServerOptions {
    /// A bare control plane for tests: no garbage collector, no nodes.
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".to_owned(),
            history_length: 50_000,
            garbage_collection: false,
            insecure_listen: false,
            accept_hosts: Vec::new(),
            controllers: Vec::new(),
            kubelet: None,
        }
    }
}

/// A running server with its state. Dropping it stops it.
#[derive(Debug)]
pub struct DevServer {
    server: Server,
    #[cfg(any(test, feature = "faults"))]
    faults: Faults,
    store: Arc<Store>,
    /// Those of the simulated nodes and controllers.
    threads: Vec<JoinHandle<()>>,
    /// Ends the threads of this server alone.
    own_stop: Stop,
}

impl DevServer {
    /// Starts a server with only the namespaces of an empty cluster. It runs until
    /// [`DevServer::stop`] or the signal `stop`.
    ///
    /// # Errors
    /// If the server cannot bind the address, if the address is off loopback without
    /// [`DevServerOptions::insecure_listen`], or if a thread cannot start.
    pub fn start(options: &DevServerOptions, stop: &Stop) -> io::Result<Self> {
        check_listen(options)?;
        let settings = Settings {
            history_length: options.history_length,
            garbage_collection: options.garbage_collection,
            controllers: options.controllers.clone().into(),
        };
        let store = new_store(settings);
        let own_stop = own_stop(stop);
        let handler = api_of(&store);
        #[cfg(any(test, feature = "faults"))]
        let faults = Faults::new(handler, Recorder::new(RECORDER_LENGTH), &own_stop);
        #[cfg(any(test, feature = "faults"))]
        let handler: Arc<dyn Handler> = Arc::new(faults.clone());
        let server_options = server_options(Some(options.accept_hosts.clone()));
        let address = options.listen.as_str();
        let server = Server::start(address, server_options, handler, &own_stop)?;
        publish(&store, server.address());
        let mut threads = Vec::new();
        if let Some(options) = options.kubelet {
            threads.push(kubelet::start(&store, options, &own_stop)?);
        }
        if options.garbage_collection {
            threads.push(garbage::start(&store, &own_stop)?);
        }
        if simulated::names().any(|name| options.controllers.iter().any(|it| it == name)) {
            let names = &options.controllers;
            threads.push(simulated::start(&store, names, &own_stop)?);
        }
        Ok(Self {
            server,
            #[cfg(any(test, feature = "faults"))]
            faults,
            store,
            threads,
            own_stop,
        })
    }

    /// The address as a URL without a path.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The layer that records requests and injects faults. Only with the feature `faults`.
    #[cfg(any(test, feature = "faults"))]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The API without that layer, for a test's own access through a second [`Server`]: nothing is
    /// recorded and no fault applies.
    pub fn handler(&self) -> Arc<dyn Handler> {
        api_of(&self.store)
    }

    /// Drops the history. Watches that are up to date continue. A request from an older version
    /// gets 410 Expired.
    pub fn forget_history(&self) {
        self.store.forget_history();
    }

    pub fn version(&self) -> u64 {
        self.store.read(|state| state.version)
    }

    /// The current object, without `kind` and `apiVersion`. `resource` is `pods`, `replicasets` and
    /// so on; `namespace` is empty for cluster-scoped objects.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = self.find(resource)?;
        let key = key_of(Some(namespace).filter(|text| !text.is_empty()), name);
        let object = self.store.read(|state| state.get(resource, &key).cloned());
        object.map(|object| object.value())
    }

    /// All objects of a resource in list order; an empty `namespace` means all namespaces.
    pub fn objects(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let Some(resource) = self.find(resource) else {
            return Vec::new();
        };
        self.store
            .objects_of(resource, Some(namespace).filter(|text| !text.is_empty()))
    }

    fn find(&self, plural: &str) -> Option<Resource> {
        self.store.read(|state| {
            let mut all = state.resources();
            all.find(|resource| resource.plural() == plural)
        })
    }

    /// Loads objects with `kind` and `apiVersion`, owners before dependents. Existing objects stay
    /// unchanged, but for those of every cluster, such as the namespace `default`.
    ///
    /// # Errors
    /// All documents that failed to load; the others are loaded.
    pub fn load(&self, documents: &[Value]) -> Result<(), Vec<Rejected>> {
        let loaded = snapshot::load(&self.store, documents);
        publish(&self.store, self.server.address());
        loaded
    }

    /// Exports all objects that [`DevServer::load`] needs to restore the state.
    pub fn dump(&self) -> Vec<Value> {
        snapshot::dump(&self.store)
    }

    /// Counts the changes after version `since` in a namespace; an empty `namespace` means all.
    pub fn tally(&self, resource: &str, namespace: &str, since: u64) -> Tally {
        let nothing = Tally {
            version: since,
            is_complete: true,
            ..Tally::default()
        };
        let resource = self.find(resource);
        resource.map_or(nothing, |resource| {
            let store = &self.store;
            store.read(|state| state.tally(resource, namespace, since))
        })
    }

    /// Ends all connections, and joins the other threads of the server. A second call does nothing.
    pub fn stop(&mut self) {
        let cause = Cause::Requested("the server is stopped".to_owned());
        self.own_stop.stop(cause);
        self.server.stop();
        for thread in self.threads.drain(..) {
            // `thread::try_spawn` has caught a panic, logged it and given the stop signal.
            thread.join().unwrap_or_default();
        }
    }
}

impl Drop for DevServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Serves `handler` over plain HTTP at `address` (port 0 picks a free port), with no limits and
/// under any host name, until the server or the signal `stop` stops it. A panic in a handler gives
/// that signal.
///
/// # Errors
/// If the server cannot bind the address.
pub fn serve(
    address: impl ToSocketAddrs,
    handler: Arc<dyn Handler>,
    stop: &Stop,
) -> io::Result<Server> {
    Server::start(address, server_options(None), handler, stop)
}

fn server_options(accept_hosts: Option<Vec<String>>) -> ServerOptions {
    ServerOptions {
        accept_thread: "dev-accept",
        connection_thread: "dev-conn-",
        limits: None,
        body_bytes: BODY_KEPT_BYTES,
        tls: None,
        accept_hosts,
    }
}

/// Rejects an address off loopback, unless the options allow it.
fn check_listen(options: &DevServerOptions) -> io::Result<()> {
    let mut addresses = options.listen.to_socket_addrs()?;
    if options.insecure_listen || addresses.all(|address| address.ip().is_loopback()) {
        return Ok(());
    }
    let why = format!(
        "{} is not on loopback, and the dev server has no authentication",
        options.listen
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

fn new_store(settings: Settings) -> Arc<Store> {
    let store = Arc::new(Store::new(settings));
    store.write(self::write::create_initial);
    store
}

/// Writes the address of this server into the endpoints of the Service `kubernetes`.
fn publish(store: &Store, address: SocketAddr) {
    let (slices, key) = (
        Resource::of("discovery.k8s.io", "endpointslices"),
        "default/kubernetes",
    );
    store.write(|state| {
        let Some(old) = state.get(slices, key).cloned() else {
            return;
        };
        let (ip, mut slice) = (address.ip().to_string(), old.value());
        slice["endpoints"] = json!([{"addresses": [ip], "conditions": {"ready": true}}]);
        slice["ports"] = json!([{"name": "https", "port": address.port(), "protocol": "TCP"}]);
        if slice == old.value() {
            return;
        }
        let published = state.put(slices, key, slice).version;
        if state.initial.contains(&old.version) {
            state.initial.insert(published);
        }
    });
}

/// The API of an empty cluster, without server and threads, for a fuzzer.
pub fn new_api() -> Arc<dyn Handler> {
    let store = new_store(Settings {
        history_length: 1000,
        garbage_collection: false,
        controllers: Arc::new([]),
    });
    api_of(&store)
}

fn api_of(store: &Arc<Store>) -> Arc<dyn Handler> {
    Arc::new(ApiServer {
        store: Arc::clone(store),
    })
}

/// A signal that `stop` gives, and that passes a failure on to `stop`.
fn own_stop(stop: &Stop) -> Stop {
    let own = Stop::new();
    let (outer, inner) = (stop.clone(), own.clone());
    own.on_stop(move || {
        if let Some(cause @ Cause::Failed(_)) = inner.cause() {
            outer.stop(cause);
        }
    });
    let inner = own.clone();
    stop.on_stop(move || {
        let cause = Cause::Requested("the daemon stops".to_owned());
        inner.stop(cause);
    });
    own
}

#[cfg(test)]
mod tests;
