//! Serves the fixture's cluster as an API server does: over TLS, in protobuf, with streamed lists.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use replicaset_controller::api::Status;
use replicaset_controller::api::protobuf::MEDIA_TYPE;
use replicaset_controller::http_server::{
    ChunkStream, Handler, Next, Request, Response, ResponseBody, Server, ServerOptions,
};
use replicaset_controller::stdx::stop::Stop;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;

use crate::sample::{bookmark, put_frame};
use crate::world::{Kind, World};

/// Bytes that Go's HTTP server collects before it writes them.
const CHUNK_BYTES: usize = 4096;

/// Of a watch in protobuf.
const WATCH_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// The handler of the requests.
struct Api(Arc<World>);

/// The body of a watch.
struct Watch {
    world: Arc<World>,
    kind: Kind,
    /// The next object of the initial list; `None` after its end.
    next: Option<usize>,
    changes: Receiver<Vec<u8>>,
}

/// Starts a server, and writes a kubeconfig for it into this folder.
pub(crate) fn start(world: &Arc<World>, folder: &Path, stop: &Stop) -> Result<Server, String> {
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]);
    let own = own.map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            let builder = builder.with_no_client_auth();
            builder.with_single_cert(vec![own.cert.der().clone()], key)
        });
    let config = Arc::new(config.map_err(|error| error.to_string())?);
    let options = ServerOptions {
        accept_thread: "api-accept",
        connection_thread: "api-conn-",
        limits: None,
        body_bytes: 1 << 20,
        tls: Some(Arc::new(move || Arc::clone(&config))),
        accept_hosts: None,
    };
    let handler = Arc::new(Api(Arc::clone(world)));
    let server = Server::start("127.0.0.1:0", options, handler, stop);
    let server = server.map_err(|error| error.to_string())?;
    let kubeconfig = json!({
        "clusters": [{"name": "it", "cluster": {
            "server": server.url(), "certificate-authority": "ca.crt",
        }}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "users": [{"name": "it", "user": {"token": "any"}}],
        "current-context": "it",
    });
    std::fs::write(folder.join("ca.crt"), own.cert.pem())
        .and_then(|()| std::fs::write(folder.join("kubeconfig"), kubeconfig.to_string()))
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(server)
}

impl Handler for Api {
    fn handle(&self, request: Request) -> Response {
        let world = &self.0;
        let path: Vec<&str> = request.path.split('/').skip(1).collect();
        let object = match (&*request.method, &*path) {
            ("GET", ["version"]) => {
                return Response::object(200, &json!({"major": "1", "minor": "37"}));
            }
            ("GET", ["apis", "scheduling.k8s.io"]) => {
                return Response::object(200, &json!({"versions": []}));
            }
            ("POST", ["apis", "authorization.k8s.io", ..]) => {
                return Response::object(201, &json!({"status": {"allowed": true}}));
            }
            ("POST" | "PATCH", [.., "events"] | [.., "events", _]) => {
                return Response::json(201, request.body);
            }
            ("GET", ["api", "v1", "pods"]) => return self.watch(Kind::Pod, &request),
            ("GET", ["apis", "apps", "v1", "replicasets"]) => {
                return self.watch(Kind::ReplicaSet, &request);
            }
            ("GET", ["api", "v1", "replicationcontrollers"]) => {
                return self.watch(Kind::ReplicationController, &request);
            }
            ("GET", [.., "replicasets", name]) => {
                let set = world.layout.set_named(name);
                set.and_then(|set| world.object(Kind::ReplicaSet, set))
            }
            ("PUT", [.., "replicasets", name, "status"]) => {
                world.put_status(name, &request.body).ok()
            }
            ("POST", [.., "pods"]) => world.create_pod(&request.body).ok(),
            ("DELETE", [.., "pods", name]) => world.delete_pod(name),
            _ => self.unknown(&request),
        };
        match object {
            Some(object) => protobuf(MEDIA_TYPE, ResponseBody::Whole(object)),
            None => Response::status(&Status::new(404, "NotFound", "the fixture has it not")),
        }
    }
}

impl Api {
    fn watch(&self, kind: Kind, request: &Request) -> Response {
        let is_list = request.query_value("sendInitialEvents") == "true";
        if request.query_value("watch") != "true" {
            self.unknown(request);
            let why = "the fixture serves lists as the beginning of a watch only";
            return Response::status(&Status::new(400, "BadRequest", why));
        }
        let watch = Watch {
            world: Arc::clone(&self.0),
            kind,
            next: is_list.then_some(0),
            changes: self.0.watch(kind),
        };
        protobuf(WATCH_TYPE, ResponseBody::Stream(Box::new(watch)))
    }

    fn unknown(&self, request: &Request) -> Option<Vec<u8>> {
        let request = format!("{} {}", request.method, request.path_and_query);
        self.0.counts.unknown.lock().push(request);
        None
    }
}

fn protobuf(content_type: &str, body: ResponseBody) -> Response {
    Response {
        code: 200,
        content_type: content_type.to_owned(),
        headers: Vec::new(),
        body,
        closes: false,
    }
}

impl ChunkStream for Watch {
    fn next(&mut self, timeout: Duration) -> Next {
        let mut frames = Vec::with_capacity(2 * CHUNK_BYTES);
        while let Some(number) = self.next
            && frames.len() < CHUNK_BYTES
        {
            if number < self.world.end(self.kind) {
                if let Some(object) = self.world.object(self.kind, number) {
                    put_frame("ADDED", &object, &mut frames);
                }
                self.next = Some(number + 1);
            } else {
                let end = bookmark(self.kind.name(), self.world.version());
                put_frame("BOOKMARK", &end, &mut frames);
                self.next = None;
            }
        }
        if frames.is_empty() {
            match self.changes.recv_timeout(timeout) {
                Ok(frame) => frames = frame,
                Err(RecvTimeoutError::Timeout) => return Next::Idle,
                Err(RecvTimeoutError::Disconnected) => return Next::End,
            }
        }
        if self.next.is_none() {
            while frames.len() < CHUNK_BYTES
                && let Ok(frame) = self.changes.try_recv()
            {
                frames.extend_from_slice(&frame);
            }
        }
        Next::Chunk(frames)
    }
}
