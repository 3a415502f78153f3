//! The daemon's own pages: health, metrics, configuration and thread activity, with authentication
//! and authorization.
//!
//! Each module that has a page exports a function that adds the page to [`Pages`]. `manager` calls
//! these functions, so this module does not depend on the controller. Threads: `http` accepts, and
//! `http-N` serves one connection each; `plain` and `plain-N` do the same for plain HTTP, if
//! enabled.
//!
//! The pages are available from startup to the end of shutdown, on a standby too. No page waits for
//! the API server; only the reviews before a page may (`reviews`).
//!
//! # Locks
//!
//! The threads `http-N` take all of them. `pages` guards the registry of pages, `certificates` the
//! loaded files (`signal` takes it too, for a reload), `ttl_cache` the review results, `slots` the
//! numbers of reviews in progress, and `gate` the time of the last warning.

mod authentication;
mod authorization;
mod certificates;
mod gate;
pub mod pages;
mod zpages;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use authentication::Authentication;
use authorization::{Authorization, Reviews};
use certificates::Certificates;
use gate::{Gate, PlainGate};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::client::{Client, ClientConfig, ClientOptions};
use crate::http_server::{Handler, Limits, Response, Server, ServerOptions};
use crate::stdx::stop::Stop;
use crate::telemetry::{Health, metrics};

pub use certificates::CertificateFiles;
pub use gate::AllowedPaths;
pub use pages::{Facts, Pages};
pub use zpages::ZPages;

/// Requests per second for reviews, and their burst. Both are high, because a review delays a page
/// (apiserver `pkg/server/options/authorization.go:getClient`).
const REVIEW_QPS: f32 = 200.0;
const REVIEW_BURST: u32 = 400;

/// Connections to the API server kept for reviews.
const REVIEW_CONNECTIONS: usize = 4;

/// Limits for a few monitors and people at a time. A request is one line and some headers. Monitors
/// return within a minute. Go's server keeps idle connections longer, most HTTP clients for 90 s; a
/// closed connection costs a client one handshake.
const LIMITS: Limits = Limits {
    connections: 100,
    request: Duration::from_secs(10),
    idle: Duration::from_secs(90),
    answer: Duration::from_secs(30),
};

/// Maximum bytes of a body: a level of verbosity is a few digits.
const BODY_BYTES_MAX: usize = 4 * 1024;

/// Where the pages are served, and for which clients.
#[derive(Clone, Debug)]
pub struct ServingOptions {
    pub bind_address: IpAddr,
    /// The port for HTTPS; 0 disables it.
    pub secure_port: u16,
    /// The port for plain HTTP on 127.0.0.1; 0 disables it.
    pub insecure_port: u16,
    pub accept_hosts: Vec<String>,
    pub certificates: CertificateFiles,
    pub tls13_only: bool,
    pub authentication: ClientConfig,
    pub authorization: ClientConfig,
    /// Paths that any client may read.
    pub allowed_paths: AllowedPaths,
    /// Serves the pages under `/debug/`.
    pub debug: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    #[error(
        "{address} is in use already, probably by kube-controller-manager or another \
         replicaset-controller: choose another port with {flag} (0 serves nothing), or stop \
         the other"
    )]
    InUse {
        address: SocketAddr,
        flag: &'static str,
    },
    #[error("cannot listen at {address} ({flag})")]
    Listen {
        address: SocketAddr,
        flag: &'static str,
        source: io::Error,
    },
    /// A certificate or key is unusable.
    #[error("{0}")]
    Certificates(String),
}

/// The running servers. Dropping the value stops them.
pub struct Serving {
    secure: Option<Server>,
    plain: Option<Server>,
    certificates: Option<Arc<Certificates>>,
    /// Aborted at the end, so that no review delays the shutdown.
    review_clients: Vec<Client>,
}

impl Serving {
    /// Serves `pages`, plus the health pages of `health`, the metrics and `zpages`, until
    /// [`Serving::stop`]. The signal `stop` does not end the servers, so an operator can still
    /// inspect a daemon that hangs during shutdown. A server that fails gives that signal. Blocks
    /// only to read files.
    pub fn start(
        options: &ServingOptions,
        pages: &Arc<Pages>,
        health: &Arc<Health>,
        zpages: ZPages,
        stop: &Stop,
    ) -> Result<Self, ServingError> {
        self::zpages::add_health(pages, health);
        pages.page("/metrics", "metrics for Prometheus", |_| {
            Response::text(200, &metrics::global().render())
                .with_content_type(metrics::CONTENT_TYPE)
        });
        zpages::add(pages, zpages, Timestamp::now());
        self::pages::add(pages);
        if !options.debug {
            pages.hide("/debug/");
        }
        if options.secure_port == 0 {
            // The plain port is read-only.
            pages.hide("/debug/flags/");
        }
        let mut serving = Self {
            secure: None,
            plain: None,
            certificates: None,
            review_clients: Vec::new(),
        };
        let failed = &linked_to(stop);
        if options.secure_port != 0 {
            serving.start_secure(options, pages, stop, failed)?;
        }
        if options.insecure_port != 0 {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.insecure_port));
            let handler = Arc::new(PlainGate(Arc::clone(pages)));
            let server = ServerOptions {
                accept_thread: "plain",
                connection_thread: "plain-",
                limits: Some(LIMITS),
                body_bytes: BODY_BYTES_MAX,
                tls: None,
                accept_hosts: Some(options.accept_hosts.clone()),
            };
            serving.plain = Some(listen(address, "--insecure-port", server, handler, failed)?);
        }
        for server in [&serving.secure, &serving.plain].into_iter().flatten() {
            log::info!(
                "serving health, metrics and debug pages at {}",
                server.url()
            );
        }
        Ok(serving)
    }

    /// Returns a function that reads the certificate files again, for SIGHUP, and returns the
    /// outcome. Unusable files leave the previous certificates in use. `None` without HTTPS.
    pub fn reloader(&self) -> Option<impl Fn() -> Result<String, String> + Send + Sync + 'static> {
        let certificates = Arc::clone(self.certificates.as_ref()?);
        Some(move || certificates.reload())
    }

    /// Ends all connections and aborts reviews. Waits for no page in progress. A second call does
    /// nothing.
    pub fn stop(&mut self) {
        for client in self.review_clients.drain(..) {
            client.abort();
        }
        for server in [&mut self.secure, &mut self.plain].into_iter().flatten() {
            server.stop();
        }
    }

    fn start_secure(
        &mut self,
        options: &ServingOptions,
        pages: &Arc<Pages>,
        stop: &Stop,
        failed: &Stop,
    ) -> Result<(), ServingError> {
        let certificates = Certificates::load(
            options.certificates.clone(),
            names(options.bind_address),
            options.tls13_only,
        );
        let certificates = Arc::new(certificates.map_err(ServingError::Certificates)?);
        let verifying = Arc::clone(&certificates);
        let handler = Arc::new(Gate {
            authentication: Authentication::new(
                Arc::new(move || verifying.verifier()),
                self.reviews(&options.authentication, stop),
            ),
            authorization: Authorization::new(self.reviews(&options.authorization, stop)),
            allowed_paths: options.allowed_paths.clone(),
            pages: Arc::clone(pages),
            last_warning: Mutex::default(),
        });
        let configured = Arc::clone(&certificates);
        let server = ServerOptions {
            accept_thread: "http",
            connection_thread: "http-",
            limits: Some(LIMITS),
            body_bytes: BODY_BYTES_MAX,
            tls: Some(Arc::new(move || configured.config())),
            accept_hosts: None,
        };
        let address = SocketAddr::from((options.bind_address, options.secure_port));
        self.secure = Some(listen(address, "--secure-port", server, handler, failed)?);
        self.certificates = Some(certificates);
        Ok(())
    }

    /// Reviews continue after `stop`. The signal only shortens the client's waits before a request.
    fn reviews(&mut self, config: &ClientConfig, stop: &Stop) -> Reviews {
        let options = ClientOptions {
            qps: REVIEW_QPS,
            burst: REVIEW_BURST,
            connections: REVIEW_CONNECTIONS,
            ..ClientOptions::default()
        };
        let client = Client::new(config, &options, stop);
        self.review_clients.push(client.clone());
        Reviews::new(client)
    }
}

fn listen(
    address: SocketAddr,
    flag: &'static str,
    options: ServerOptions,
    handler: Arc<dyn Handler>,
    stop: &Stop,
) -> Result<Server, ServingError> {
    let server = Server::start(address, options, handler, stop);
    server.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ServingError::InUse { address, flag },
        _ => ServingError::Listen {
            address,
            flag,
            source,
        },
    })
}

/// The names in the self-signed certificate (apiserver
/// `pkg/server/options/serving.go:MaybeDefaultWithSelfSignedCerts`).
fn names(bind_address: IpAddr) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    if !bind_address.is_unspecified() && !bind_address.is_loopback() {
        names.push(bind_address.to_string());
    }
    names
}

/// A signal that only a server's failure gives, and that passes the failure on to `stop`.
fn linked_to(stop: &Stop) -> Stop {
    let own = Stop::new();
    let (outer, inner) = (stop.clone(), own.clone());
    own.on_stop(move || {
        if let Some(cause) = inner.cause() {
            outer.stop(cause);
        }
    });
    own
}
