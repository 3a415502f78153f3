//! TLS as it is configured at this moment: files with certificates and keys are looked at again every
//! five minutes and when a connection is opened, and what has changed takes effect without a restart.
//!
//! A new identity retires the connections that were made with the old one: those that are idle are
//! not used again, those that carry a request end with its answer, and watches are cut. A new
//! certificate authority counts for new connections. What cannot be read or used is logged, and the
//! old stays in use.
//!
//! Used by `access` and `connect` on whatever thread sends a request or reads a watch; one
//! [`LiveTls`] serves all clients of a configuration.

mod settings;

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use ureq::http::Uri;
use ureq::unversioned::transport::ShutdownHandle;

use self::settings::{settings, trust};
use super::pem::{Pem, why_refused};
use super::tls::{Identity, Trust, server_name};
use crate::stdx::clock::Clock;
use crate::telemetry::metrics;

/// How often files are looked at (client-go `transport/cert_rotation.go:CertCallbackRefreshDuration`
/// and `transport/ca_rotation.go`).
const CHECK_INTERVAL: Duration = Duration::from_mins(5);

/// How soon after a look that found something wrong, such as a certificate whose key is not there
/// yet, or after a server's certificate that was not accepted.
const CHECK_AGAIN: Duration = Duration::from_secs(10);

/// How many [`LiveTls`] there are, for the metrics.
static N_IN_USE: AtomicU32 = AtomicU32::new(0);

/// What TLS is made of.
#[derive(Clone, Default)]
pub(super) struct TlsSource {
    /// The certificate authorities that may vouch for the server; the system's if `None`.
    pub(super) certificate_authority: Option<Pem>,
    /// Certificate (with its intermediates) and key.
    pub(super) identity: Option<(Pem, Pem)>,
    /// The name that the server's certificate must be for, if not the URL's host.
    pub(super) server_name: Option<String>,
    /// Trust any certificate.
    pub(super) insecure: bool,
    /// The proxy is itself reached by TLS.
    pub(super) tls_proxy: bool,
}

/// The settings of new connections.
pub(super) struct Current {
    server_name: ServerName<'static>,
    server: Arc<ClientConfig>,
    /// For a proxy that is itself reached by TLS: no identity of ours, and beside the cluster's
    /// authorities the system's.
    proxy: Option<Arc<ClientConfig>>,
    /// Which identity it is; connections that were made with another one are retired.
    generation: u64,
}

/// TLS settings that follow their files.
pub(super) struct LiveTls {
    /// The API server; who else is connected to is a proxy.
    server: Uri,
    clock: Arc<dyn Clock>,
    started: Instant,
    current: ArcSwap<Current>,
    /// Held also while files are read, so that a slow reader does not bring back what is old.
    state: Mutex<State>,
    /// When files are looked at again, in milliseconds since `started`.
    check_at: AtomicU64,
    /// Connections that are to be cut when the identity changes.
    streams: Mutex<Vec<Weak<dyn ShutdownHandle>>>,
}

struct State {
    made_of: Ingredients,
    /// What was logged last, so that each problem is told once.
    problem: Option<String>,
}

/// What settings are made of.
#[derive(Clone)]
struct Ingredients {
    source: TlsSource,
    /// What was read last.
    material: Material,
    trust: Trust,
    /// Which credentials these are; a plugin of others presents nothing any more.
    credentials: u64,
}

#[derive(Clone, PartialEq, Eq)]
struct Material {
    certificate_authority: Option<Vec<u8>>,
    identity: Option<Identity>,
}

/// What has changed, for the log.
pub(super) type Changes = Vec<&'static str>;

const CLIENT_CERTIFICATE: &str = "client certificate";
const CERTIFICATE_AUTHORITY: &str = "certificate authority";

impl LiveTls {
    /// Settings for the API server at `server`. Reads the files.
    ///
    /// # Errors
    /// What is wrong with a certificate or a key, for people.
    pub(super) fn new(
        server: &Uri,
        source: TlsSource,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let made_of = Ingredients::read(source, None, 0)?;
        let current = settings(server, &made_of, 0)?;
        let started = clock.now();
        let live = Self {
            server: server.clone(),
            clock,
            started,
            current: ArcSwap::from_pointee(current),
            state: Mutex::new(State {
                made_of,
                problem: None,
            }),
            check_at: AtomicU64::new(0),
            streams: Mutex::default(),
        };
        live.check_in(CHECK_INTERVAL);
        let n_in_use = N_IN_USE.fetch_add(1, Ordering::Relaxed) + 1;
        metrics::global().credentials.transport_created(n_in_use);
        Ok(live)
    }

    /// Looks at the files if that is due. To be called often; costs a look at the clock.
    pub(super) fn check_if_due(&self) {
        let due = Duration::from_millis(self.check_at.load(Ordering::Relaxed));
        if self.clock.now().saturating_duration_since(self.started) < due {
            return;
        }
        // Others go on while this thread reads.
        self.check_in(CHECK_INTERVAL);
        self.refresh_certificate_authority();
        self.refresh_identity();
    }

    /// What to use in a connection that is being opened to `uri`, which is the API server's or a
    /// proxy's. Looks at the identity's files, so that a new connection never shows an old one.
    pub(super) fn towards(
        &self,
        uri: &Uri,
    ) -> Result<(Arc<ClientConfig>, ServerName<'static>, u64), String> {
        self.refresh_identity();
        let current = self.current.load_full();
        let generation = current.generation;
        match &current.proxy {
            Some(proxy) if uri.authority() != self.server.authority() => {
                let name = server_name(uri.host().unwrap_or_default())?;
                Ok((Arc::clone(proxy), name, generation))
            }
            _ => Ok((
                Arc::clone(&current.server),
                current.server_name.clone(),
                generation,
            )),
        }
    }

    /// Which identity new connections show.
    pub(super) fn generation(&self) -> u64 {
        self.current.load().generation
    }

    /// The server's certificate was not accepted: perhaps its authority is a new one.
    pub(super) fn server_not_accepted(&self) {
        let now = self.clock.now().saturating_duration_since(self.started);
        let soon = u64::try_from((now + CHECK_AGAIN).as_millis()).unwrap_or(u64::MAX);
        // ORDER: looked at now unless that was done a moment ago, and then soon again.
        if self.check_at.fetch_min(soon, Ordering::Relaxed) > soon {
            self.refresh_certificate_authority();
        }
    }

    /// Has a connection cut when the identity changes.
    pub(super) fn cut_at_change(&self, connection: Weak<dyn ShutdownHandle>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|handle| handle.strong_count() > 0);
        streams.push(connection);
    }

    /// Appears as `identity` from now on, which a plugin of `credentials` gave; false if those are not the
    /// current ones any more.
    ///
    /// # Errors
    /// What is wrong with it; the old one stays.
    pub(super) fn present(
        &self,
        identity: Option<&Identity>,
        credentials: u64,
    ) -> Result<bool, String> {
        let state = self.lock();
        if state.made_of.credentials != credentials {
            return Ok(false);
        }
        if state.made_of.material.identity.as_ref() != identity {
            let mut new = state.made_of.clone();
            new.material.identity = identity.cloned();
            self.adopt(state, new)?;
        }
        Ok(true)
    }

    /// Reads everything again, from `source` from now on, which belongs to `credentials`. Their plugin's
    /// identity is `plugin`.
    ///
    /// # Errors
    /// What cannot be read or used; then nothing has changed.
    pub(super) fn replace(
        &self,
        source: &TlsSource,
        plugin: Option<Identity>,
        credentials: u64,
    ) -> Result<Changes, String> {
        let replaced = self.try_replace(source, plugin, credentials);
        let pem = source.certificate_authority.as_ref();
        if let Some(pem) = pem.filter(|pem| pem.is_file()) {
            metrics::global().credentials.ca_reloaded(match &replaced {
                Ok(changes) => Ok(changes.contains(&CERTIFICATE_AUTHORITY)),
                Err(_) => pem
                    .read()
                    .map_err(|_problem| "read_error")
                    .and_then(|bytes| {
                        trust(source, Some(&bytes)).map_err(|_problem| why_refused(&bytes))
                    })
                    .map(|_| false),
            });
        }
        replaced
    }

    fn try_replace(
        &self,
        source: &TlsSource,
        plugin: Option<Identity>,
        credentials: u64,
    ) -> Result<Changes, String> {
        let state = self.lock();
        let new = Ingredients::read(source.clone(), plugin, credentials)?;
        self.check_in(CHECK_INTERVAL);
        self.adopt(state, new)
    }

    fn refresh_identity(&self) {
        let state = self.lock();
        let mut new = state.made_of.clone();
        let Some((certificate, key)) = &new.source.identity else {
            return;
        };
        if !certificate.is_file() && !key.is_file() {
            return;
        }
        let read = certificate
            .read()
            .and_then(|certificate| Ok((certificate, key.read()?)));
        let refreshed = read.and_then(|identity| {
            if state.made_of.material.identity.as_ref() == Some(&identity) {
                return Ok(Changes::new());
            }
            new.material.identity = Some(identity);
            self.adopt(state, new)
        });
        self.tell(CLIENT_CERTIFICATE, refreshed);
    }

    fn refresh_certificate_authority(&self) {
        let state = self.lock();
        let mut new = state.made_of.clone();
        let pem = new.source.certificate_authority.as_ref();
        let Some(pem) = pem.filter(|pem| pem.is_file()) else {
            return;
        };
        let refreshed = pem.read().map_err(|problem| ("read_error", problem));
        let refreshed = refreshed.and_then(|bytes| {
            if state.made_of.material.certificate_authority.as_ref() == Some(&bytes) {
                return Ok(Changes::new());
            }
            let reason = why_refused(&bytes);
            let adopted = trust(&new.source, Some(&bytes)).and_then(|trust| {
                new.trust = trust;
                new.material.certificate_authority = Some(bytes);
                self.adopt(state, new)
            });
            adopted.map_err(|problem| (reason, problem))
        });
        metrics::global().credentials.ca_reloaded(match &refreshed {
            Ok(changes) => Ok(!changes.is_empty()),
            Err((reason, _)) => Err(reason),
        });
        let refreshed = refreshed.map_err(|(_, problem)| problem);
        self.tell(CERTIFICATE_AUTHORITY, refreshed);
    }

    /// Makes `new` the settings of new connections.
    fn adopt(&self, mut state: MutexGuard<'_, State>, new: Ingredients) -> Result<Changes, String> {
        let changes = state.made_of.changes(&new);
        let new_identity = changes.contains(&CLIENT_CERTIFICATE);
        let generation = self.generation() + u64::from(new_identity);
        let current = settings(&self.server, &new, generation)?;
        state.made_of = new;
        if !changes.is_empty() {
            self.current.store(Arc::new(current));
        }
        drop(state);
        if new_identity {
            self.cut_streams();
        }
        Ok(changes)
    }

    fn cut_streams(&self) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = std::mem::take(&mut *streams);
        drop(streams);
        for handle in cut.iter().filter_map(Weak::upgrade) {
            handle.shutdown();
        }
    }

    /// Logs what a look at a file has found; what is wrong once, until it is something else.
    fn tell(&self, what: &str, refreshed: Result<Changes, String>) {
        let problem = refreshed.as_ref().err().cloned();
        let mut state = self.lock();
        // Two files are looked at: that one is fine says nothing of the other's problem.
        let is_news = problem.is_some() && state.problem != problem;
        if is_news {
            state.problem.clone_from(&problem);
        } else if refreshed.as_ref().is_ok_and(|changes| !changes.is_empty()) {
            state.problem = None;
        }
        drop(state);
        match refreshed {
            Ok(changes) => {
                for change in changes {
                    log::info!("the {change} has changed and is used from now on");
                }
            }
            Err(problem) => {
                self.check_in(CHECK_AGAIN);
                if is_news {
                    log::warn!(error:% = problem; "the {what} that was read before stays in use");
                }
            }
        }
    }

    fn check_in(&self, after: Duration) {
        let due = self.clock.now().saturating_duration_since(self.started) + after;
        let due = u64::try_from(due.as_millis()).unwrap_or(u64::MAX);
        self.check_at.store(due, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LiveTls {
    fn drop(&mut self) {
        N_IN_USE.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for LiveTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveTls")
            .field("server", &self.server)
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
