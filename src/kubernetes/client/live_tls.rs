//! TLS settings that follow their files. All files are read every five minutes, those of the client
//! certificate also before each new connection; changes take effect without a restart.
//!
//! A change retires the older connections: idle ones are not used again, those with a request in
//! flight end with its response, and watches end at their next read. Only a new certificate
//! authority leaves them, and applies to new connections, as in client-go. If a file cannot be read
//! or used, the check logs that and the old settings stay.
//!
//! `access` and `connect` call this on whatever thread sends a request or reads a watch; one
//! [`LiveTls`] serves all clients of a configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use ureq::http::Uri;

use super::tls::{Identity, authorities, client_config, server_name};
use crate::stdx::bounded_file;
use crate::stdx::clock::Clock;
use crate::telemetry::{Expiry, metrics};

/// Interval between two checks of the files (client-go
/// `transport/cert_rotation.go:CertCallbackRefreshDuration` and `transport/ca_rotation.go`).
const CHECK_INTERVAL: Duration = Duration::from_mins(5);

/// Interval to the next check after a check that failed, for instance because the key of a new
/// certificate is not written yet, or after a rejected server certificate.
const CHECK_RETRY_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Default)]
pub(super) struct TlsSource {
    /// The certificate authorities to verify the server with; the system's if `None`.
    pub(super) certificate_authority: Option<Pem>,
    /// Certificate (with its intermediates) and key.
    pub(super) identity: Option<(Pem, Pem)>,
    /// The name to verify in the server's certificate, in place of the URL's host.
    pub(super) server_name: Option<String>,
    pub(super) insecure: bool,
    /// Connections to the proxy use TLS.
    pub(super) tls_proxy: bool,
}

pub(super) struct Current {
    server_name: ServerName<'static>,
    server: Arc<ClientConfig>,
    /// For a proxy with TLS: no client certificate, and the system's certificate authorities
    /// besides the cluster's.
    proxy: Option<Arc<ClientConfig>>,
    /// Number of the settings. Connections with another generation are retired.
    generation: u64,
    expiry: Option<Arc<Expiry>>,
}

pub(super) struct LiveTls {
    /// The API server; any other address is the proxy's.
    server: Uri,
    clock: Arc<dyn Clock>,
    current: ArcSwap<Current>,
    /// Also locked while a thread reads the files, so that a slow thread does not restore old
    /// contents.
    state: Mutex<State>,
    check_at: Mutex<Instant>,
}

struct State {
    source: TlsSource,
    material: Material,
    /// The problems that last, by what they are about, so that each is logged once.
    problems: BTreeMap<&'static str, String>,
}

/// The contents that were read last.
#[derive(Clone)]
struct Material {
    certificate_authority: Option<Vec<u8>>,
    /// The files', else the credential plugin's.
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
        let material = source.read(None)?;
        let current = settings(server, &source, &material, 0)?;
        Ok(Self {
            server: server.clone(),
            current: ArcSwap::from_pointee(current),
            state: Mutex::new(State {
                source,
                material,
                problems: BTreeMap::new(),
            }),
            check_at: Mutex::new(clock.now() + CHECK_INTERVAL),
            clock,
        })
    }

    /// Checks the files if the check is due. Cheap enough for every request and read.
    pub(super) fn check_if_due(&self) {
        let now = self.clock.now();
        let mut check_at = self.check_at.lock();
        if now < *check_at {
            return;
        }
        // Set the next check first, so that other threads do not wait while this one reads the
        // files.
        *check_at = now + CHECK_INTERVAL;
        drop(check_at);
        self.refresh_certificate_authority();
        self.refresh_identity();
        if let Some(expiry) = &self.current.load().expiry {
            expiry.warn_if_due();
        }
    }

    /// Lets the next check come soon; returns false if it was due that soon anyway.
    fn check_soon(&self) -> bool {
        let soon = self.clock.now() + CHECK_RETRY_INTERVAL;
        let mut check_at = self.check_at.lock();
        let was_later = *check_at > soon;
        *check_at = soon.min(*check_at);
        was_later
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
        let (config, name) = match &current.proxy {
            Some(proxy) if self.is_proxy(uri) => {
                (proxy, server_name(uri.host().unwrap_or_default())?)
            }
            _ => (&current.server, current.server_name.clone()),
        };
        Ok((Arc::clone(config), name, current.generation))
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
        if self.check_soon() {
            self.refresh_certificate_authority();
        }
    }

    /// Presents `identity`, which a credential plugin issued, on new connections.
    ///
    /// # Errors
    /// What is wrong with the identity; the old one stays.
    pub(super) fn present(&self, identity: Option<&Identity>) -> Result<(), String> {
        let mut state = self.state.lock();
        if state.material.identity.as_ref() != identity {
            let (source, mut material) = (state.source.clone(), state.material.clone());
            material.identity = identity.cloned();
            self.adopt(&mut state, source, material)?;
        }
        Ok(())
    }

    /// Replaces the sources by `source` and reads the files. `plugin` is the identity that a
    /// credential plugin issued.
    ///
    /// # Errors
    /// What cannot be read or used; the old settings stay.
    pub(super) fn replace(
        &self,
        source: &TlsSource,
        plugin: Option<Identity>,
    ) -> Result<Changes, String> {
        let mut state = self.state.lock();
        let read = source.read(plugin);
        let replaced = read.and_then(|new| self.adopt(&mut state, source.clone(), new));
        if replaced.is_ok() {
            *self.check_at.lock() = self.clock.now() + CHECK_INTERVAL;
        }
        count_authority_reload(source, &replaced);
        replaced
    }

    fn refresh_identity(&self) {
        let mut state = self.state.lock();
        let (source, mut material) = (state.source.clone(), state.material.clone());
        let files = source.identity.as_ref();
        if !files.is_some_and(|(certificate, key)| certificate.is_file() || key.is_file()) {
            return;
        }
        let refreshed = source.read_identity().and_then(|identity| {
            material.identity = identity;
            self.adopt(&mut state, source.clone(), material)
        });
        self.log_refresh(&mut state, CLIENT_CERTIFICATE, refreshed);
    }

    fn refresh_certificate_authority(&self) {
        let mut state = self.state.lock();
        let (source, mut material) = (state.source.clone(), state.material.clone());
        let Some(pem) = source.authority_file() else {
            return;
        };
        let refreshed = pem.read().and_then(|bytes| {
            material.certificate_authority = Some(bytes);
            self.adopt(&mut state, source.clone(), material)
        });
        count_authority_reload(&source, &refreshed);
        self.log_refresh(&mut state, CERTIFICATE_AUTHORITY, refreshed);
    }

    /// Makes `source` and `material` the settings of new connections.
    fn adopt(
        &self,
        state: &mut State,
        source: TlsSource,
        material: Material,
    ) -> Result<Changes, String> {
        let (old, new) = (&state.material, &material);
        let mut changes = Changes::new();
        if old.identity != new.identity {
            changes.push(CLIENT_CERTIFICATE);
        }
        if old.certificate_authority != new.certificate_authority {
            changes.push(CERTIFICATE_AUTHORITY);
        }
        if state.source.insecure != source.insecure {
            changes.push("insecure-skip-tls-verify");
        }
        if state.source.server_name != source.server_name {
            changes.push("tls-server-name");
        }
        if !changes.is_empty() {
            // With another server name, or once servers are verified, an older connection may be to
            // a server that would be rejected now.
            let retires = changes.iter().any(|it| *it != CERTIFICATE_AUTHORITY);
            let generation = self.generation() + u64::from(retires);
            let current = settings(&self.server, &source, &material, generation)?;
            self.current.store(Arc::new(current));
        }
        (state.source, state.material) = (source, material);
        Ok(changes)
    }

    /// Logs the result of a check: each change, and each problem once while it lasts.
    fn log_refresh(
        &self,
        state: &mut State,
        name: &'static str,
        refreshed: Result<Changes, String>,
    ) {
        match refreshed {
            Ok(changes) => {
                state.problems.remove(name);
                for change in changes {
                    log::info!("the {change} has changed and is in use");
                }
            }
            Err(problem) => {
                // Not later than due: one file's problem must not postpone the check of the other.
                self.check_soon();
                if state.problems.get(name) != Some(&problem) {
                    log::warn!(error:% = problem; "the {name} that was read before stays in use");
                    state.problems.insert(name, problem);
                }
            }
        }
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

impl TlsSource {
    /// Reads the files. `plugin` is the identity if no file is.
    fn read(&self, plugin: Option<Identity>) -> Result<Material, String> {
        let authority = self.certificate_authority.as_ref();
        Ok(Material {
            certificate_authority: authority.map(Pem::read).transpose()?,
            identity: self.read_identity()?.or(plugin),
        })
    }

    fn read_identity(&self) -> Result<Option<Identity>, String> {
        let identity = self.identity.as_ref();
        let read = identity.map(|(certificate, key)| Ok((certificate.read()?, key.read()?)));
        read.transpose()
    }

    fn authority_file(&self) -> Option<&Pem> {
        let pem = self.certificate_authority.as_ref();
        pem.filter(|pem| pem.is_file())
    }
}

fn settings(
    server: &Uri,
    source: &TlsSource,
    material: &Material,
    generation: u64,
) -> Result<Current, String> {
    let host = server.host().unwrap_or_default();
    let name = source.server_name.as_deref().unwrap_or(host);
    let authority = material.certificate_authority.as_deref();
    let trusted = (!source.insecure).then(|| authorities(authority));
    let trusted = trusted.transpose()?;
    let proxy = source.tls_proxy.then(|| {
        let all = trusted.as_ref().map(|cluster| match authority {
            Some(_) => cluster.and_the_systems(),
            None => cluster.clone(),
        });
        client_config(all.as_ref(), None).map(Arc::new)
    });
    // A plugin renews its own certificate.
    let configured = source.identity.as_ref().zip(material.identity.as_ref());
    Ok(Current {
        server_name: server_name(name)?,
        server: Arc::new(client_config(trusted.as_ref(), material.identity.as_ref())?),
        proxy: proxy.transpose()?,
        generation,
        expiry: configured.and_then(|((file, _), (pem, _))| Expiry::of("client", file.path(), pem)),
    })
}

/// Counts that the authority's file was read again, with why it is unusable (client-go
/// `transport/ca_rotation.go`).
fn count_authority_reload(source: &TlsSource, reloaded: &Result<Changes, String>) {
    let Some(pem) = source.authority_file() else {
        return;
    };
    let result = match (reloaded, pem.read()) {
        (Ok(changes), _) => Ok(changes.contains(&CERTIFICATE_AUTHORITY)),
        (Err(_), Err(_)) => Err("read_error"),
        (Err(_), Ok(bytes)) if bytes.trim_ascii().is_empty() => Err("empty"),
        (Err(_), Ok(bytes)) if authorities(Some(&bytes)).is_err() => Err("ca_parse_error"),
        // The problem is another file's.
        (Err(_), Ok(_)) => Ok(false),
    };
    metrics::global().credentials.ca_reloaded(result);
}

// The source of a certificate or key: the configuration itself, or a file that may be replaced
// at any time. `live_tls` reads it on the thread that runs a check.

#[derive(Clone)]
pub(super) enum Pem {
    Data(Vec<u8>),
    /// PEM in a file; `name` is the configuration's name for it.
    File {
        name: &'static str,
        path: PathBuf,
    },
}

impl Pem {
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

#[cfg(test)]
mod tests;
