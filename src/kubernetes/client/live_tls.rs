//! TLS settings that follow their files. A check reads the files with certificates and keys every
//! five minutes, and opening a connection reads the identity; changes take effect without a
//! restart.
//!
//! A new identity retires the connections with the old one: idle ones are not used again, those
//! with a request in flight end with its response, and watches are closed. A new certificate
//! authority applies to new connections. If a file cannot be read or used, the check logs that and
//! the old settings stay.
//!
//! `access` and `connect` call this on whatever thread sends a request or reads a watch; one
//! [`LiveTls`] serves all clients of a configuration.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use ureq::http::Uri;
use ureq::unversioned::transport::ShutdownHandle;

use super::tls::{Identity, Trust, server_name};
use crate::client::tls::{authorities, client_config};
use crate::stdx::bounded_file;
use crate::stdx::clock::Clock;
use crate::telemetry::{Expiry, metrics};

/// Interval between two checks of the files (client-go
/// `transport/cert_rotation.go:CertCallbackRefreshDuration` and `transport/ca_rotation.go`).
const CHECK_INTERVAL: Duration = Duration::from_mins(5);

/// Interval to the next check after a check that failed, for instance because the key of a new
/// certificate is not written yet, or after a rejected server certificate.
const CHECK_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Number of existing [`LiveTls`], for the metrics.
static N_LIVE: AtomicU32 = AtomicU32::new(0);

/// The sources of the TLS settings.
#[derive(Clone, Default)]
pub(super) struct TlsSource {
    /// The certificate authorities to verify the server with; the system's if `None`.
    pub(super) certificate_authority: Option<Pem>,
    /// Certificate (with its intermediates) and key.
    pub(super) identity: Option<(Pem, Pem)>,
    /// The name to verify in the server's certificate, in place of the URL's host.
    pub(super) server_name: Option<String>,
    /// Accept any server certificate.
    pub(super) insecure: bool,
    /// Connections to the proxy use TLS.
    pub(super) tls_proxy: bool,
}

/// The settings of new connections.
pub(super) struct Current {
    server_name: ServerName<'static>,
    server: Arc<ClientConfig>,
    /// For a proxy with TLS: no client certificate, and the system's certificate authorities
    /// besides the cluster's.
    proxy: Option<Arc<ClientConfig>>,
    /// Number of the identity. Connections with another generation are retired.
    generation: u64,
    expiry: Option<Arc<Expiry>>,
}

pub(super) struct LiveTls {
    /// The API server; any other address is the proxy's.
    server: Uri,
    clock: Arc<dyn Clock>,
    started: Instant,
    current: ArcSwap<Current>,
    /// Also locked while a thread reads the files, so that a slow thread does not restore old
    /// contents.
    state: Mutex<State>,
    check_at: AtomicU64,
    /// Connections to close when the identity changes.
    streams: Mutex<Vec<Weak<dyn ShutdownHandle>>>,
}

struct State {
    ingredients: Ingredients,
    /// The problem that was logged last, so that each problem is logged once.
    problem: Option<String>,
}

/// Everything that the settings are built from.
#[derive(Clone)]
struct Ingredients {
    source: TlsSource,
    /// The contents that were read last.
    material: Material,
    trust: Trust,
    /// Number of the credentials. A plugin of other credentials may not present an identity any
    /// more.
    credentials: u64,
}

#[derive(Clone, PartialEq, Eq)]
struct Material {
    certificate_authority: Option<Vec<u8>>,
    identity: Option<Identity>,
}

/// The names of what changed, for the log.
pub(super) type Changes = Vec<&'static str>;

const CLIENT_CERTIFICATE: &str = "client certificate";
const CERTIFICATE_AUTHORITY: &str = "certificate authority";

impl LiveTls {
    /// Creates the settings for the API server at `server`. Reads the files.
    pub(super) fn new(
        server: &Uri,
        source: TlsSource,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let ingredients = Ingredients::read(source, None, 0)?;
        let current = settings(server, &ingredients, 0)?;
        let started = clock.now();
        let live = Self {
            server: server.clone(),
            clock,
            started,
            current: ArcSwap::from_pointee(current),
            state: Mutex::new(State {
                ingredients,
                problem: None,
            }),
            check_at: AtomicU64::new(0),
            streams: Mutex::default(),
        };
        live.check_in(CHECK_INTERVAL);
        let n_live = N_LIVE.fetch_add(1, Ordering::Relaxed) + 1;
        metrics::global().credentials.transport_created(n_live);
        Ok(live)
    }

    /// Checks the files if the check is due. Cheap enough for every request and read: it reads the
    /// clock.
    pub(super) fn check_if_due(&self) {
        let due = Duration::from_millis(self.check_at.load(Ordering::Relaxed));
        if self.clock.now().saturating_duration_since(self.started) < due {
            return;
        }
        // Set the next check first, so that other threads do not wait while this one reads the
        // files.
        self.check_in(CHECK_INTERVAL);
        self.refresh_certificate_authority();
        self.refresh_identity();
        if let Some(expiry) = &self.current.load().expiry {
            expiry.warn_if_due();
        }
    }

    /// Returns configuration, server name and generation for a new connection to `uri`, the API
    /// server or the proxy. Reads the identity's files, so that a new connection never shows an old
    /// identity.
    pub(super) fn settings_for(
        &self,
        uri: &Uri,
    ) -> Result<(Arc<ClientConfig>, ServerName<'static>, u64), String> {
        self.refresh_identity();
        let current = self.current.load_full();
        let generation = current.generation;
        match &current.proxy {
            Some(proxy) if self.is_proxy(uri) => {
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

    fn is_proxy(&self, uri: &Uri) -> bool {
        uri.authority() != self.server.authority()
    }

    /// Names the other end of a connection to `uri` for messages.
    pub(super) fn peer(&self, uri: &Uri) -> &'static str {
        if self.is_proxy(uri) {
            "the proxy"
        } else {
            "the server"
        }
    }

    /// The generation of the identity that new connections show.
    pub(super) fn generation(&self) -> u64 {
        self.current.load().generation
    }

    /// Call after a handshake rejected the server's certificate: its authority may be a new one.
    pub(super) fn server_certificate_rejected(&self) {
        let soon = self.millis_at(CHECK_RETRY_INTERVAL);
        // ORDER: set the next check before reading. The read is skipped if a check is due this soon
        // anyway.
        if self.check_at.fetch_min(soon, Ordering::Relaxed) > soon {
            self.refresh_certificate_authority();
        }
    }

    /// Registers a connection to be closed when the identity changes.
    pub(super) fn close_on_change(&self, connection: Weak<dyn ShutdownHandle>) {
        let mut streams = self.streams.lock();
        streams.retain(|handle| handle.strong_count() > 0);
        streams.push(connection);
    }

    /// Presents `identity`, which the plugin of `credentials` issued, on new connections. Returns
    /// false if a reload has replaced those credentials.
    ///
    /// # Errors
    /// What is wrong with the identity; the old one stays.
    pub(super) fn present(
        &self,
        identity: Option<&Identity>,
        credentials: u64,
    ) -> Result<bool, String> {
        let state = self.state.lock();
        if state.ingredients.credentials != credentials {
            return Ok(false);
        }
        if state.ingredients.material.identity.as_ref() != identity {
            let mut new = state.ingredients.clone();
            new.material.identity = identity.cloned();
            self.adopt(state, new)?;
        }
        Ok(true)
    }

    /// Replaces the sources by `source`, which belongs to `credentials`, and reads the files.
    /// `plugin` is the identity that the credentials' plugin issued.
    ///
    /// # Errors
    /// What cannot be read or used; the old settings stay.
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
                        trust(source, Some(&bytes)).map_err(|_problem| rejection_reason(&bytes))
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
        let state = self.state.lock();
        let new = Ingredients::read(source.clone(), plugin, credentials)?;
        self.check_in(CHECK_INTERVAL);
        self.adopt(state, new)
    }

    fn refresh_identity(&self) {
        let state = self.state.lock();
        let mut new = state.ingredients.clone();
        let Some((certificate, key)) = &new.source.identity else {
            return;
        };
        if !certificate.is_file() && !key.is_file() {
            return;
        }
        let read = certificate
            .read()
            .and_then(|certificate| Ok((certificate, key.read()?)));
        // The closure owns the guard, so `log_refresh` can lock again.
        let refreshed = read.and_then(|identity| {
            if state.ingredients.material.identity.as_ref() == Some(&identity) {
                return Ok(Changes::new());
            }
            new.material.identity = Some(identity);
            self.adopt(state, new)
        });
        self.log_refresh(CLIENT_CERTIFICATE, refreshed);
    }

    fn refresh_certificate_authority(&self) {
        let state = self.state.lock();
        let mut new = state.ingredients.clone();
        let pem = new.source.certificate_authority.as_ref();
        let Some(pem) = pem.filter(|pem| pem.is_file()) else {
            return;
        };
        let refreshed = pem.read().map_err(|problem| ("read_error", problem));
        let refreshed = refreshed.and_then(|bytes| {
            if state.ingredients.material.certificate_authority.as_ref() == Some(&bytes) {
                return Ok(Changes::new());
            }
            let reason = rejection_reason(&bytes);
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
        self.log_refresh(CERTIFICATE_AUTHORITY, refreshed);
    }

    /// Makes `new` the settings of new connections.
    fn adopt(&self, mut state: MutexGuard<'_, State>, new: Ingredients) -> Result<Changes, String> {
        let changes = state.ingredients.changes(&new);
        if changes.is_empty() {
            state.ingredients = new;
            return Ok(changes);
        }
        let new_identity = changes.contains(&CLIENT_CERTIFICATE);
        let generation = self.generation() + u64::from(new_identity);
        let current = settings(&self.server, &new, generation)?;
        state.ingredients = new;
        self.current.store(Arc::new(current));
        drop(state);
        if new_identity {
            // ORDER: the new settings are public by now, so the reopened watches present the new
            // identity.
            self.close_streams();
        }
        Ok(changes)
    }

    fn close_streams(&self) {
        let mut streams = self.streams.lock();
        // Take the list first: the lock must not be held while sockets are shut down.
        let closing = std::mem::take(&mut *streams);
        drop(streams);
        for handle in closing.iter().filter_map(Weak::upgrade) {
            handle.shutdown();
        }
    }

    /// Logs the result of a check: each change, and each problem once until another one occurs.
    fn log_refresh(&self, name: &str, refreshed: Result<Changes, String>) {
        let problem = refreshed.as_ref().err().cloned();
        let mut state = self.state.lock();
        // A success does not clear the problem, which may be the other file's; only a change does.
        let is_new_problem = problem.is_some() && state.problem != problem;
        if is_new_problem {
            state.problem.clone_from(&problem);
        } else if refreshed.as_ref().is_ok_and(|changes| !changes.is_empty()) {
            state.problem = None;
        }
        drop(state);
        match refreshed {
            Ok(changes) => {
                for change in changes {
                    log::info!("the {change} has changed and is in use");
                }
            }
            Err(problem) => {
                // Not later than due: one file's problem must not postpone the check of the other.
                let soon = self.millis_at(CHECK_RETRY_INTERVAL);
                self.check_at.fetch_min(soon, Ordering::Relaxed);
                if is_new_problem {
                    log::warn!(error:% = problem; "the {name} that was read before stays in use");
                }
            }
        }
    }

    fn check_in(&self, after: Duration) {
        self.check_at
            .store(self.millis_at(after), Ordering::Relaxed);
    }

    /// The time in this long, as in `check_at`.
    fn millis_at(&self, after: Duration) -> u64 {
        let at = self.clock.now().saturating_duration_since(self.started) + after;
        u64::try_from(at.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Drop for LiveTls {
    fn drop(&mut self) {
        N_LIVE.fetch_sub(1, Ordering::Relaxed);
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

impl Ingredients {
    /// Reads the files that `source` names. `plugin` is the identity if `source` names none.
    fn read(source: TlsSource, plugin: Option<Identity>, credentials: u64) -> Result<Self, String> {
        let identity = source.identity.as_ref();
        let identity =
            identity.map(|(certificate, key)| Ok::<_, String>((certificate.read()?, key.read()?)));
        let authority = source.certificate_authority.as_ref();
        let material = Material {
            certificate_authority: authority.map(Pem::read).transpose()?,
            identity: identity.transpose()?.or(plugin),
        };
        Ok(Self {
            trust: trust(&source, material.certificate_authority.as_deref())?,
            source,
            material,
            credentials,
        })
    }

    /// Returns the names of what differs in `new`.
    fn changes(&self, new: &Self) -> Changes {
        let (material, source) = (&self.material, &self.source);
        let candidates = [
            (
                material.identity != new.material.identity,
                CLIENT_CERTIFICATE,
            ),
            (
                material.certificate_authority != new.material.certificate_authority,
                CERTIFICATE_AUTHORITY,
            ),
            (
                source.insecure != new.source.insecure,
                "insecure-skip-tls-verify",
            ),
            (
                source.server_name != new.source.server_name,
                "tls-server-name",
            ),
        ];
        let changed = candidates.into_iter().filter(|(changed, _)| *changed);
        changed.map(|(_, name)| name).collect()
    }
}

fn trust(source: &TlsSource, certificate_authority: Option<&[u8]>) -> Result<Trust, String> {
    Ok(if source.insecure {
        Trust::Anyone
    } else {
        Trust::Authorities(authorities(certificate_authority)?)
    })
}

fn settings(server: &Uri, ingredients: &Ingredients, generation: u64) -> Result<Current, String> {
    let Ingredients {
        source,
        trust,
        material,
        ..
    } = ingredients;
    let host = server.host().unwrap_or_default();
    let name = source.server_name.as_deref().unwrap_or(host);
    let proxy = source.tls_proxy.then(|| {
        let trust = match trust {
            Trust::Authorities(cluster) if source.certificate_authority.is_some() => {
                Trust::Authorities(cluster.and_the_systems())
            }
            trust => trust.clone(),
        };
        client_config(&trust, None).map(Arc::new)
    });
    Ok(Current {
        server_name: server_name(name)?,
        server: Arc::new(client_config(trust, material.identity.as_ref())?),
        proxy: proxy.transpose()?,
        generation,
        expiry: expiry(ingredients),
    })
}

/// The life of the configured client certificate. A plugin looks after its own.
fn expiry(ingredients: &Ingredients) -> Option<Arc<Expiry>> {
    let (source, _) = ingredients.source.identity.as_ref()?;
    let (certificate, _) = ingredients.material.identity.as_ref()?;
    Expiry::of("client", source.path(), certificate)
}

// The source of a certificate or key: the configuration itself, or a file that may be replaced
// at any time. `live_tls` reads it on the thread that runs a check.

/// A source of PEM.
#[derive(Clone)]
pub(super) enum Pem {
    /// PEM in the configuration itself.
    Data(Vec<u8>),
    /// PEM in a file; `name` is the configuration's name for it.
    File { name: &'static str, path: PathBuf },
}

impl Pem {
    /// Returns the current bytes.
    pub(super) fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Data(bytes) => Ok(bytes.clone()),
            Self::File { name, path } => bounded_file::read_regular(path)
                .map_err(|error| format!("{name} {} cannot be read: {error}", path.display())),
        }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Data(_) => None,
            Self::File { path, .. } => Some(path),
        }
    }

    /// True if the source may change after it was read.
    pub(super) fn is_file(&self) -> bool {
        self.path().is_some()
    }
}

/// Returns why an authority's file is rejected, as the metrics' label (client-go
/// `transport/ca_rotation.go`).
pub(super) fn rejection_reason(bytes: &[u8]) -> &'static str {
    let is_empty = bytes.trim_ascii().is_empty();
    if is_empty { "empty" } else { "ca_parse_error" }
}

#[cfg(test)]
mod tests;
