//! The daemon's own pages: health, metrics, configuration, what its threads do; and who may see them.
//!
//! Rooms that have something to show offer a function that adds it to [`Pages`]; `manager` calls
//! these, so that this room knows nothing of the controller. Threads: `http` accepts, `http-N` serve
//! one connection each; `plain` and `plain-N` do that for plain HTTP, if it is asked for.
//!
//! The pages are there from the first moment on, also on a standby, and last until everything else has
//! ended. None of them waits for the API server; only the reviews before them may (`reviews`).
//!
//! # Locks
//!
//! All are taken by `http-N`. `pages` guards which page answers which path, `certificates` the
//! files as read last, `ttl_cache` the results of reviews, and `gate` the time of the last warning.

mod authentication;
mod authorization;
mod certificates;
mod client_certificates;
pub mod debug;
mod gate;
mod health_pages;
mod pages;
mod reviews;
mod ttl_cache;
mod user;
mod zpages;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;

pub use authorization::AllowedPaths;
pub use certificates::CertificateFiles;
pub use pages::Pages;
pub use zpages::{SetVerbosity, ZPages};

use authentication::Authentication;
use authorization::Authorization;
use certificates::Certificates;
use gate::{Gate, PlainGate};
use reviews::Reviews;

use crate::client::{Client, ClientConfig, ClientError, ClientOptions};
use crate::http_server::{Handler, Limits, Response, Server, ServerOptions};
use crate::stdx::stop::Stop;
use crate::telemetry::health::Health;
use crate::telemetry::metrics;

/// Requests per second for reviews, and how many at once: high, since they hold up people
/// (apiserver `pkg/server/options/authorization.go:getClient`).
const REVIEW_QPS: f32 = 200.0;
const REVIEW_BURST: u32 = 400;

/// Connections to the API server that are kept for reviews.
const REVIEW_CONNECTIONS: usize = 4;

/// What clients may take: a few monitors and people at a time; a request is one line and some headers;
/// monitors come back within a minute (the idle time of Go's server is longer, that of HTTP clients
/// mostly 90 s, and a closed connection costs them one handshake).
const LIMITS: Limits = Limits {
    connections: Some(100),
    request: Some(Duration::from_secs(10)),
    idle: Some(Duration::from_secs(90)),
    answer: Some(Duration::from_secs(30)),
    body_bytes: 4 * 1024,
};

/// Where and to whom the pages are served.
#[derive(Clone, Debug)]
pub struct ServingOptions {
    /// Where HTTPS is served.
    pub bind_address: IpAddr,
    /// Its port; 0 serves no HTTPS. `None` takes any free port, for tests.
    pub secure_port: Option<u16>,
    /// Port for plain HTTP on 127.0.0.1; 0 serves none.
    pub insecure_port: u16,
    /// Names beside those of loopback by which plain HTTP may be asked.
    pub accept_hosts: Vec<String>,
    /// Certificates.
    pub certificates: CertificateFiles,
    /// No TLS below 1.3.
    pub tls13_only: bool,
    /// The cluster that says whose a token is.
    pub authentication: ClientConfig,
    /// The cluster that says what a user may.
    pub authorization: ClientConfig,
    /// Paths that everybody may see.
    pub allowed_paths: AllowedPaths,
    /// Whether there are pages under `/debug/`.
    pub debug: bool,
}

/// Why the pages cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// Somebody else is there.
    #[error(
        "{address} is in use already, probably by kube-controller-manager or another \
         replicaset-controller: choose another port with {flag} (0 serves nothing), or stop the other"
    )]
    InUse {
        /// Where it was to be.
        address: SocketAddr,
        /// What says where.
        flag: &'static str,
    },
    /// It cannot be listened there.
    #[error("cannot listen at {address} ({flag})")]
    Listen {
        /// Where it was to be.
        address: SocketAddr,
        /// What says where.
        flag: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// A certificate or key is of no use.
    #[error("{0}")]
    Certificates(String),
    /// The configuration makes no client for reviews.
    #[error("cannot make a client for token and access reviews")]
    Client(#[from] ClientError),
}

/// The running servers. Dropping it stops them.
#[derive(Debug)]
pub struct Serving {
    secure: Option<Server>,
    plain: Option<Server>,
    certificates: Option<Arc<Certificates>>,
    /// Cut at the end, so that no review holds it up.
    review_clients: Vec<Client>,
}

impl Serving {
    /// Serves `pages`, with those of `health`, the metrics and `zpages` added, until
    /// [`Serving::stop`]: the signal `stop` does not end it, so that a daemon that hangs while it stops
    /// can still be looked at, but a server that fails gives that signal. Blocks for nothing but the
    /// files' reading.
    ///
    /// # Errors
    /// [`ServingError`] that names address or file and what to do.
    pub fn start(
        options: &ServingOptions,
        pages: &Arc<Pages>,
        health: &Arc<Health>,
        zpages: ZPages,
        stop: &Stop,
    ) -> Result<Self, ServingError> {
        health_pages::add(pages, health);
        pages.page("/metrics", |_| {
            Response::text(200, &metrics::render()).with_content_type(metrics::CONTENT_TYPE)
        });
        zpages::add(pages, zpages, Timestamp::now());
        if !options.debug {
            pages.hide("/debug/");
        }
        let mut serving = Self {
            secure: None,
            plain: None,
            certificates: None,
            review_clients: Vec::new(),
        };
        let failed = &failing_into(stop);
        if options.secure_port != Some(0) {
            serving.start_secure(options, pages, stop, failed)?;
        }
        if options.insecure_port != 0 {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.insecure_port));
            let handler = Arc::new(PlainGate(Arc::clone(pages)));
            let server = ServerOptions {
                accept_thread: "plain",
                connection_thread: "plain-",
                limits: LIMITS,
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

    /// Where HTTPS is served.
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.secure.as_ref().map(Server::address)
    }

    /// Reads the certificate files again when it is called, as at SIGHUP, and says what came of it; if
    /// they cannot be used, what was read before stays in use. `None` if no HTTPS is served.
    pub fn reloader(&self) -> Option<impl Fn() -> Result<String, String> + Send + Sync + 'static> {
        let certificates = Arc::clone(self.certificates.as_ref()?);
        Some(move || certificates.reload())
    }

    /// Ends all connections and cuts reviews. Waits for pages that are being made. Stopping twice does
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
                self.reviews(&options.authentication, stop)?,
            ),
            authorization: Authorization::new(
                options.allowed_paths.clone(),
                self.reviews(&options.authorization, stop)?,
            ),
            pages: Arc::clone(pages),
            last_warning: Mutex::default(),
        });
        let configured = Arc::clone(&certificates);
        let server = ServerOptions {
            accept_thread: "http",
            connection_thread: "http-",
            limits: LIMITS,
            tls: Some(Arc::new(move || configured.config())),
            accept_hosts: None,
        };
        let port = options.secure_port.unwrap_or(0);
        let address = SocketAddr::from((options.bind_address, port));
        self.secure = Some(listen(address, "--secure-port", server, handler, failed)?);
        self.certificates = Some(certificates);
        Ok(())
    }

    /// They are sent after `stop` too, which shortens what a request waits for before it is.
    fn reviews(&mut self, config: &ClientConfig, stop: &Stop) -> Result<Reviews, ClientError> {
        let options = ClientOptions {
            qps: REVIEW_QPS,
            burst: REVIEW_BURST,
            connections: REVIEW_CONNECTIONS,
            ..ClientOptions::default()
        };
        let client = Client::new(config, &options, stop)?;
        self.review_clients.push(client.clone());
        Ok(Reviews::new(client))
    }
}

impl fmt::Debug for ZPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZPages").finish_non_exhaustive()
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

/// What a certificate that is made here is for
/// (apiserver `pkg/server/options/serving.go:MaybeDefaultWithSelfSignedCerts`).
fn names(bind_address: IpAddr) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    if !bind_address.is_unspecified() && !bind_address.is_loopback() {
        names.push(bind_address.to_string());
    }
    names
}

/// A signal that only a failure gives, which then fails `stop` too.
fn failing_into(stop: &Stop) -> Stop {
    let own = Stop::new();
    let (outer, inner) = (stop.clone(), own.clone());
    own.on_stop(move || {
        if let Some(cause) = inner.cause() {
            outer.stop(cause);
        }
    });
    own
}
