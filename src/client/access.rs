//! Who the daemon is and whom it trusts, at this moment: headers and TLS together, one for all
//! clients of a configuration. Asked for every request, on the thread that sends it; put anew by
//! [`ClientConfig::reload`](super::ClientConfig::reload) on the thread `signal`.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ureq::http::HeaderMap;

use super::credentials::Credentials;
use super::exec_plugin::Issued;
use super::live_tls::{LiveTls, TlsSource};
use crate::stdx::stop::Stop;

/// Credentials and TLS settings that can be exchanged while requests are under way.
pub(super) struct Access {
    current: ArcSwap<Current>,
    /// Of a server that is reached by TLS.
    tls: Option<Arc<LiveTls>>,
}

struct Current {
    credentials: Credentials,
    /// By which [`LiveTls`] knows whether they are the current ones.
    number: u64,
}

/// What a request has shown.
pub(super) struct UsedCredentials {
    shown: Arc<Current>,
    issued: Option<Arc<Issued>>,
}

impl UsedCredentials {
    /// The API server has refused it, with code 401.
    pub(super) fn refuse(&self) {
        let credentials = &self.shown.credentials;
        credentials.refuse(self.issued.as_deref());
    }
}

impl Access {
    pub(super) fn new(credentials: Credentials, tls: Option<LiveTls>) -> Self {
        Self {
            current: ArcSwap::from_pointee(Current {
                credentials,
                number: 0,
            }),
            tls: tls.map(Arc::new),
        }
    }

    pub(super) fn tls(&self) -> Option<Arc<LiveTls>> {
        self.tls.clone()
    }

    /// Looks at the files with certificates if that is due.
    pub(super) fn check_files(&self) {
        if let Some(tls) = &self.tls {
            tls.check_if_due();
        }
    }

    /// Makes `headers` those that say who is asking, and sees to it that new connections show the same.
    /// May wait for a credential plugin, shorter once `stop` is given.
    ///
    /// # Errors
    /// Why there are no credentials, for people.
    pub(super) fn authorize(
        &self,
        headers: &mut HeaderMap,
        stop: &Stop,
    ) -> Result<UsedCredentials, String> {
        loop {
            let shown = self.current.load_full();
            let issued = shown.credentials.apply(headers, stop)?;
            if let (Some(tls), Some(issued)) = (&self.tls, &issued) {
                let presented = tls.present(issued.identity.as_ref(), shown.number);
                let is_current = presented
                    .map_err(|problem| format!("the credential plugin's answer: {problem}"))?;
                if !is_current {
                    // Others have been put in place while the plugin ran, or are in this moment.
                    headers.clear();
                    continue;
                }
            }
            return Ok(UsedCredentials { shown, issued });
        }
    }

    /// Uses these from now on, and says what they change. A plugin is run before anything changes,
    /// which may take as long as it does.
    ///
    /// # Errors
    /// Why they cannot be used; then everything is as it was.
    pub(super) fn replace(
        &self,
        credentials: Credentials,
        tls: Option<TlsSource>,
        stop: &Stop,
    ) -> Result<Vec<&'static str>, String> {
        let issued = credentials.try_out(stop)?;
        let current = self.current.load();
        let mut changes = current.credentials.changes(&credentials);
        let mut number = current.number;
        if let (Some(live), Some(source)) = (&self.tls, tls) {
            let identity = issued.and_then(|issued| issued.identity.clone());
            number += 1;
            changes.extend(live.replace(&source, identity, number)?);
        }
        let current = Current {
            credentials,
            number,
        };
        self.current.store(Arc::new(current));
        Ok(changes)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("credentials", &self.current.load().credentials)
            .field("tls", &self.tls)
            .finish()
    }
}
