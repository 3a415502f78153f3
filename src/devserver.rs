//! An in-memory API server on loopback, for trying the controller out and for tests. It behaves as
//! kube-apiserver 1.36 does in everything that this controller can tell; where the two differ, this
//! one is wrong. Only `main` and the tests use it, and nobody should use it as a cluster.
//!
//! From the wire inwards:
//!
//! | layer | file | what it does |
//! |---|---|---|
//! | HTTP | `crate::http_server`, `exchange` | connections, requests, answers, streams |
//! | faults | `faults`, `recorder` | records requests; delays, refuses, cuts, holds back |
//! | API | `api_server`, `target`, `body`, `protobuf`, `options`, `refusal` | what a request asks for, and the words to say no |
//! | clients | `discovery`, `openapi`, `table`, `columns` | what kubectl wants to know and to show |
//! | nodes | `kubelet` | a scheduler and kubelets, simulated |
//! | verbs | `create`, `update`, `scale`, `delete`, `removal`, `list`, `watch`, `selector` | what the API server does |
//! | patches | `patching`, `patch`, `json_patch`, `apply`, `managers` | the four kinds of patch |
//! | kinds | `objects`, `shape`, `strict`, `resource`, `quota`, `garbage` | defaults, validation, admission |
//! | state | `store`, `tally`, `snapshot` | objects, versions, history |
//!
//! HTTP and faults know nothing of the rest, so that a test can put them in front of a real API
//! server. Threads: `dev-accept`, one `dev-conn-N` per connection, `dev-kubelet`, `dev-gc`. The one
//! lock of the state is held by no one who does I/O.
//!
//! DIFFERS: no authentication; pods need no service account; answers are JSON only (requests may be
//! YAML, and of a few kinds protobuf); managed fields only of objects that have been applied; no
//! pruning of members that the schema does not know; validation only of what tests and people run
//! into.

mod api_server;
mod apply;
mod body;
mod columns;
mod create;
mod delete;
mod discovery;
mod exchange;
mod faults;
mod garbage;
mod json_patch;
mod kubelet;
mod list;
mod managers;
mod objects;
mod openapi;
mod options;
mod patch;
mod patching;
mod protobuf;
mod quota;
mod recorder;
mod removal;
mod resource;
mod reviews;
mod scale;
mod selector;
mod shape;
mod snapshot;
mod status_error;
mod store;
mod strict;
mod table;
mod tally;
mod target;
#[cfg(test)]
mod tests;
mod update;
mod watch;

use std::io;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use api_server::ApiServer;
use resource::Resource;
use store::{Settings, Store, key_of};

use crate::http_server::{Limits, Server, ServerOptions};
use crate::stdx::stop::{Cause, Stop};

pub use exchange::{
    ApiCall, ApiRequest, ChannelStream, ChunkStream, Handler, Next, Response, ResponseBody,
};
pub use faults::{Action, Ending, Faults, Matcher, Rule, RuleHandle};
pub use kubelet::{KubeletOptions, behaviour};
pub use recorder::{Recorded, Recorder};
pub use snapshot::Rejected;
pub use tally::Tally;
pub use target::Target;

/// Longest body that is kept, plus one byte so that the API can tell that there was more
/// (apiserver `pkg/server/config.go:MaxRequestBodyBytes`, 3 MiB).
const BODY_KEPT_BYTES: usize = 3 * 1024 * 1024 + 1;

/// Namespaces that every cluster has.
const INITIAL_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// How a [`DevServer`] is set up.
#[derive(Clone, Debug)]
pub struct DevServerOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: String,
    /// How many changes of each resource are remembered for watches.
    pub history_length: usize,
    /// How many requests are remembered.
    pub recorder_length: usize,
    /// Whether the small controllers of a control plane are at work: dependents go a moment after
    /// their owner, contents after their namespace, and each namespace is born with its service
    /// account `default` (which pods do not need).
    pub garbage_collection: bool,
    /// Whether it may listen elsewhere than on loopback, where anyone can reach it: there is no
    /// authentication.
    pub insecure_listen: bool,
    /// Names beside those of loopback and the address listened at by which it may be called.
    pub accept_hosts: Vec<String>,
    /// The simulated nodes; without any, pods stay as they are.
    pub kubelet: Option<KubeletOptions>,
}

impl Default for DevServerOptions {
    /// As a bare control plane for tests: no garbage collector, no nodes.
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".to_owned(),
            history_length: 50_000,
            recorder_length: 100_000,
            garbage_collection: false,
            insecure_listen: false,
            accept_hosts: Vec::new(),
            kubelet: None,
        }
    }
}

/// A running server with its state. Dropping it stops it.
#[derive(Debug)]
pub struct DevServer {
    server: Server,
    faults: Faults,
    store: Arc<Store>,
    kubelet: Option<JoinHandle<()>>,
    collector: Option<JoinHandle<()>>,
    /// Ends what belongs to this server alone.
    own_stop: Stop,
}

impl DevServer {
    /// Starts a server that has nothing but the namespaces of an empty cluster. It runs until
    /// [`DevServer::stop`] or the signal `stop`.
    ///
    /// # Errors
    /// If the address cannot be listened at, or is not on loopback and
    /// [`DevServerOptions::insecure_listen`] does not allow that, or the system refuses a thread.
    pub fn start(options: &DevServerOptions, stop: &Stop) -> io::Result<Self> {
        check_listen(options)?;
        let settings = Settings {
            history_length: options.history_length,
            garbage_collection: options.garbage_collection,
        };
        let store = Arc::new(Store::new(settings));
        store.write(|state| {
            for name in INITIAL_NAMESPACES {
                let namespace = json!({"metadata": {"name": name}});
                create::create(state, Resource::Namespaces, None, namespace)
                    .expect("an empty server takes a good namespace");
            }
        });
        let own_stop = own_stop(stop);
        let recorder = Recorder::new(options.recorder_length);
        let faults = Faults::new(api_of(&store), recorder, &own_stop);
        let handler: Arc<dyn Handler> = Arc::new(faults.clone());
        let server_options = server_options(Some(options.accept_hosts.clone()));
        let address = options.listen.as_str();
        let server = Server::start(address, server_options, handler, &own_stop)?;
        let kubelet = options.kubelet;
        let kubelet = kubelet.map(|options| kubelet::start(&store, options, &own_stop));
        let kubelet = kubelet.transpose()?;
        let collects = options.garbage_collection;
        let collector = collects.then(|| garbage::start(&store, &own_stop));
        let collector = collector.transpose()?;
        Ok(Self {
            server,
            faults,
            store,
            kubelet,
            collector,
            own_stop,
        })
    }

    /// Where it listens, as a URL without a path.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The layer that records requests and breaks them on demand.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The API without that layer, for a second [`Server`] that nothing is recorded of and nothing
    /// breaks: a test's own way in.
    pub fn handler(&self) -> Arc<dyn Handler> {
        api_of(&self.store)
    }

    /// Drops the history: running watches that are up to date go on, everything that starts from an
    /// older version is told that it is expired.
    pub fn forget_history(&self) {
        self.store.forget_history();
    }

    /// The current resource version.
    pub fn version(&self) -> u64 {
        self.store.read(|state| state.version)
    }

    /// An object as it is now, without `kind` and `apiVersion`. `resource` is `pods`, `replicasets`
    /// and so on; `namespace` is empty for objects outside namespaces.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = find(resource)?;
        let key = key_of(Some(namespace).filter(|text| !text.is_empty()), name);
        let object = self.store.read(|state| state.get(resource, &key).cloned());
        object.map(|object| object.value())
    }

    /// All objects of a resource in a namespace (in all, if it is empty), in the order of lists.
    pub fn objects(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let Some(resource) = find(resource) else {
            return Vec::new();
        };
        let namespace = Some(namespace).filter(|text| !text.is_empty());
        let objects: Vec<store::Object> = self.store.read(|state| {
            let objects = state.of_namespace(resource, namespace);
            objects.cloned().collect()
        });
        objects.iter().map(|object| object.value()).collect()
    }

    /// Ends all connections and waits for the server's threads. Stopping twice does nothing.
    pub fn stop(&mut self) {
        let cause = Cause::Requested("the server is stopped".to_owned());
        self.own_stop.stop(cause);
        self.server.stop();
        let threads = [self.kubelet.take(), self.collector.take()];
        for thread in threads.into_iter().flatten() {
            // `thread::try_spawn` catches panics, reports them and gives the signal to stop.
            thread.join().unwrap_or_default();
        }
    }
}

impl Drop for DevServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Serves `handler` over plain HTTP at `address` (port 0 takes a free one), without any limit and
/// by any name, until the server is stopped or the signal `stop` is given. A panic in a handler
/// gives that signal.
///
/// # Errors
/// If the address cannot be listened at.
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
        limits: Limits {
            connections: None,
            request: None,
            idle: None,
            answer: None,
            body_bytes: BODY_KEPT_BYTES,
        },
        tls: None,
        accept_hosts,
    }
}

/// Refuses an address that others than this machine can reach, unless that is wanted.
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

fn api_of(store: &Arc<Store>) -> Arc<dyn Handler> {
    Arc::new(ApiServer {
        store: Arc::clone(store),
    })
}

/// A signal that is given when `stop` is, and that gives `stop` if it tells of a failure.
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

fn find(plural: &str) -> Option<Resource> {
    let mut all = Resource::ALL.into_iter();
    all.find(|resource| resource.plural() == plural)
}
