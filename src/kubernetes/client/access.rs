//! Current credentials and TLS settings, shared by all clients of a configuration. The sending
//! thread reads them for every request; [`ClientConfig::reload`](super::ClientConfig::reload)
//! replaces them on the thread `signal`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ureq::http::{HeaderMap, Uri};

use super::credentials::{Credentials, Rejections};
use super::exec_plugin::Issued;
use super::live_tls::{LiveTls, TlsSource};
use crate::stdx::clock::SystemClock;
use crate::stdx::stop::Stop;

pub(super) struct Access {
    credentials: ArcSwap<Credentials>,
    /// `None` if no connection uses TLS.
    pub(super) tls: Option<Arc<LiveTls>>,
    /// Held while credentials and TLS settings are replaced, and while a plugin's identity is
    /// presented: a replaced plugin must not present one, nor a slow thread an older one. The
    /// number of the plugin's run whose identity is presented.
    replacing: Mutex<u64>,
    pub(super) rejections: Rejections,
}

/// The credentials that a request was sent with.
pub(super) struct UsedCredentials {
    credentials: Arc<Credentials>,
    issued: Option<Arc<Issued>>,
}

impl Access {
    pub(super) fn new(credentials: Credentials, tls: Option<LiveTls>) -> Self {
        Self {
            credentials: ArcSwap::from_pointee(credentials),
            tls: tls.map(Arc::new),
            replacing: Mutex::default(),
            rejections: Rejections::new(Arc::new(SystemClock)),
        }
    }

    /// Call after the API server at `server` responded with code 401. The next request runs the
    /// plugin or reads the token file again.
    pub(super) fn note_rejected(&self, used: &UsedCredentials, server: &Uri) {
        let issued = used.issued.as_deref();
        used.credentials.note_rejected(issued);
        if self.rejections.is_due(used.credentials.renews_itself()) {
            let rejected = used.credentials.rejected(issued);
            let server = server.to_string();
            let server = server.trim_end_matches('/');
            log::error!("{server} rejected {rejected}");
        }
    }

    /// Reads the certificate files again if the check is due.
    pub(super) fn check_files(&self) {
        if let Some(tls) = &self.tls {
            tls.check_if_due();
        }
    }

    /// Adds the authentication headers to `headers` and presents the client certificate of the same
    /// plugin run on new connections. May block on a credential plugin; `stop` shortens that wait.
    pub(super) fn authorize(
        &self,
        headers: &mut HeaderMap,
        stop: &Stop,
    ) -> Result<UsedCredentials, String> {
        loop {
            let credentials = self.credentials.load_full();
            let issued = credentials.apply(headers, stop)?;
            if let (Some(tls), Some(issued)) = (&self.tls, &issued) {
                let mut presented = self.replacing.lock();
                if !Arc::ptr_eq(&credentials, &self.credentials.load()) {
                    // A reload replaced the credentials while the plugin ran.
                    headers.clear();
                    continue;
                }
                if issued.number >= *presented {
                    tls.present(issued.identity.as_ref())
                        .map_err(|problem| format!("the credential plugin's output: {problem}"))?;
                    *presented = issued.number;
                }
            }
            return Ok(UsedCredentials {
                credentials,
                issued,
            });
        }
    }

    /// Replaces the credentials and TLS settings and returns the changes, for the log. Runs a
    /// credential plugin first and blocks until it exits.
    ///
    /// # Errors
    /// Why the new ones cannot be used; the old ones stay.
    pub(super) fn replace(
        &self,
        credentials: Credentials,
        tls: Option<TlsSource>,
        stop: &Stop,
    ) -> Result<Vec<&'static str>, String> {
        // ORDER: run the plugin first, so that a failing plugin changes nothing.
        let issued = credentials.try_out(stop)?;
        let mut presented = self.replacing.lock();
        let mut changes = self.credentials.load().changes(&credentials);
        if let (Some(live), Some(source)) = (&self.tls, tls) {
            *presented = issued.as_ref().map_or(0, |issued| issued.number);
            let identity = issued.and_then(|issued| issued.identity.clone());
            changes.extend(live.replace(&source, identity)?);
        }
        self.credentials.store(Arc::new(credentials));
        Ok(changes)
    }
}
