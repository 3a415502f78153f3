//! The serving certificate and the client CAs: loaded from files and reloaded when the files
//! change, or a self-signed certificate. Connection threads use them.
//!
//! DIFFERS: each new connection and each verified request checks the files, at most every ten
//! seconds, without a thread for it. Without files, the daemon signs a certificate for ten years,
//! where upstream's expires after one, even under a running daemon.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{Timestamp, ToSpan};
use parking_lot::{Mutex, MutexGuard};
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};

use super::authentication::AnyCertificate;
use crate::stdx::bounded_file;
use crate::stdx::tls::{certificates, certified_key, in_words, provider};
use crate::telemetry::Expiry;

/// Minimum time between two checks of the files. Renewed certificates overlap with old ones by
/// hours, and an operator who waits for a reload waits at most this long.
const CHECK_PERIOD: Duration = Duration::from_secs(10);

/// The outcome of a reload that found other files.
const CHANGED: &str = "changed and in use";

/// Validity of the self-signed certificate.
const YEARS: i64 = 10;

const ONLY_TLS13: &[&SupportedProtocolVersion] = &[&version::TLS13];
const ALL_VERSIONS: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate with its chain, and its key, both in PEM; self-signed if absent.
    pub serving: Option<(PathBuf, PathBuf)>,
    /// The CAs of trusted clients, in PEM. Without them the daemon ignores client certificates.
    pub client_ca: Option<PathBuf>,
}

pub(super) struct Certificates {
    files: CertificateFiles,
    versions: &'static [&'static SupportedProtocolVersion],
    /// The self-signed certificate and its key.
    generated: Option<(String, String)>,
    /// Held while the files are read and their contents installed. A handshake waits for it only if
    /// its own check is due.
    reloading: Mutex<()>,
    state: Mutex<State>,
}

struct State {
    checked: Instant,
    contents: Contents,
    built: Built,
    /// The problem that lasts, so that it is logged once.
    problem: Option<String>,
}

#[derive(PartialEq, Eq)]
struct Contents {
    chain: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// The TLS configuration built from the files.
#[derive(Clone)]
struct Built {
    config: Arc<ServerConfig>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    expiry: Option<Arc<Expiry>>,
}

impl Certificates {
    /// Reads the files, or signs a certificate for `names`.
    pub(super) fn load(
        files: CertificateFiles,
        names: Vec<String>,
        is_tls13_only: bool,
    ) -> Result<Self, String> {
        let generated = match &files.serving {
            Some(_) => None,
            None => Some(self_signed(names)?),
        };
        let versions = if is_tls13_only {
            ONLY_TLS13
        } else {
            ALL_VERSIONS
        };
        let contents = read(&files, generated.as_ref())?;
        let built = build(&files, &contents, versions)?;
        Ok(Self {
            files,
            versions,
            generated,
            reloading: Mutex::default(),
            state: Mutex::new(State {
                checked: Instant::now(),
                contents,
                built,
                problem: None,
            }),
        })
    }

    /// The TLS configuration for a new connection.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.refresh_if_due();
        Arc::clone(&self.state.lock().built.config)
    }

    /// The verifier of client certificates; `None` if they do not count.
    pub(super) fn verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        // An old connection must not outlast the authority that signed its client's certificate.
        self.refresh_if_due();
        self.state.lock().built.verifier.clone()
    }

    /// Reads the files again and returns the outcome. Unusable files leave the previous ones in
    /// use.
    pub(super) fn reload(&self) -> Result<String, String> {
        // ORDER: of two that read the files, the one that reads last installs last. Otherwise an
        // authority that was removed could come back.
        let reloading = self.reloading.lock();
        self.reload_locked(&reloading)
    }

    fn reload_locked(&self, _reloading: &MutexGuard<'_, ()>) -> Result<String, String> {
        let contents = read(&self.files, self.generated.as_ref())?;
        if contents == self.state.lock().contents {
            return Ok("unchanged".to_owned());
        }
        // Built without the lock, so handshakes continue with the previous configuration.
        let built = build(&self.files, &contents, self.versions)?;
        let mut state = self.state.lock();
        state.contents = contents;
        state.built = built;
        Ok(CHANGED.to_owned())
    }

    fn refresh_if_due(&self) {
        let now = Instant::now();
        let mut state = self.state.lock();
        if now.saturating_duration_since(state.checked) < CHECK_PERIOD {
            return;
        }
        state.checked = now;
        // Release the lock before reading the files, so that no other connection waits for them.
        drop(state);
        // Not while another thread reads them: on a hung file system all would wait, one by one.
        let Some(reloading) = self.reloading.try_lock() else {
            return;
        };
        let reloaded = self.reload_locked(&reloading);
        drop(reloading);
        if let Ok(outcome @ CHANGED) = reloaded.as_deref() {
            log::info!("the certificates of the HTTPS server: {outcome}");
        }
        let problem = reloaded.err();
        let mut state = self.state.lock();
        let before = std::mem::replace(&mut state.problem, problem.clone());
        let expiry = state.built.expiry.clone();
        drop(state);
        if problem != before
            && let Some(error) = problem
        {
            log::error!("{error}; the previous certificates stay in use");
        }
        if let Some(expiry) = expiry {
            expiry.warn_if_due();
        }
    }
}

fn read(
    files: &CertificateFiles,
    generated: Option<&(String, String)>,
) -> Result<Contents, String> {
    let (chain, key) = match (&files.serving, generated) {
        (Some((chain, key)), _) => (
            read_file("--tls-cert-file", chain)?,
            read_file("--tls-private-key-file", key)?,
        ),
        (None, Some((chain, key))) => (chain.clone().into_bytes(), key.clone().into_bytes()),
        (None, None) => return Err("there is no serving certificate".to_owned()),
    };
    let client_ca = files.client_ca.as_ref();
    let client_ca = client_ca.map(|path| read_file("--client-ca-file", path));
    Ok(Contents {
        chain,
        key,
        client_ca: client_ca.transpose()?,
    })
}

fn read_file(flag: &str, path: &Path) -> Result<Vec<u8>, String> {
    bounded_file::read_regular(path).map_err(|error| format!("{flag} {}: {error}", path.display()))
}

fn build(
    files: &CertificateFiles,
    contents: &Contents,
    versions: &'static [&'static SupportedProtocolVersion],
) -> Result<Built, String> {
    let name = |flag: &str, path: Option<&PathBuf>| {
        path.map_or_else(
            || "the self-signed certificate".to_owned(),
            |path| format!("{flag} {}", path.display()),
        )
    };
    let serving = files.serving.as_ref();
    let chain_name = name("--tls-cert-file", serving.map(|(chain, _)| chain));
    let key_name = name("--tls-private-key-file", serving.map(|(_, key)| key));
    let certified = certified_key((&chain_name, &contents.chain), (&key_name, &contents.key))?;

    let provider = provider();
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder
        .with_protocol_versions(versions)
        .map_err(|error| format!("no TLS with these versions: {error}"))?;
    let (builder, verifier) = match &contents.client_ca {
        None => (builder.with_no_client_auth(), None),
        Some(pem) => {
            let ca_name = name("--client-ca-file", files.client_ca.as_ref());
            let verifier = client_verifier(&ca_name, pem, &provider)?;
            let any = AnyCertificate::new(verifier.root_hint_subjects(), &provider);
            let builder = builder.with_client_cert_verifier(Arc::new(any));
            (builder, Some(verifier))
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    // Monitors return within a minute, on the same connection. A stored session or a ticket holds
    // its client's certificates, which any client can make large.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    // Clients that offer HTTP/2 too need ALPN to choose HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Built {
        config: Arc::new(config),
        verifier,
        expiry: Expiry::of(
            "serving",
            serving.map(|(file, _)| file.as_path()),
            &contents.chain,
        ),
    })
}

fn client_verifier(
    name: &str,
    pem: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(name, pem)?);
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let verifier = verifier.build();
    verifier.map_err(|error| {
        let error = in_words(&error);
        format!("{name}: no certificate that can be used: {error}")
    })
}

/// A self-signed certificate for `names` and its key, in PEM.
fn self_signed(names: Vec<String>) -> Result<(String, String), String> {
    let failed = |error: rcgen::Error| format!("cannot create a serving certificate: {error}");
    let mut params = CertificateParams::new(names).map_err(failed)?;
    let day = |at: jiff::Zoned| {
        let number = |part: i8| u8::try_from(part).unwrap_or(1);
        date_time_ymd(at.year().into(), number(at.month()), number(at.day()))
    };
    let today = Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
    // The clients' clocks may be behind.
    params.not_before = day(today.saturating_sub(1.day()));
    params.not_after = day(today.saturating_add(YEARS.years()));
    params
        .distinguished_name
        .push(DnType::CommonName, "replicaset-controller");
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok((certificate.pem(), key.serialize_pem()))
}
