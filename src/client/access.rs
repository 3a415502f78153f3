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
    credentials: ArcSwap<Credentials>,
    /// Of a server that is reached by TLS.
    tls: Option<Arc<LiveTls>>,
}

/// What a request has shown.
pub(super) struct Proof {
    credentials: Arc<Credentials>,
    issued: Option<Arc<Issued>>,
}

impl Proof {
    /// The API server has refused it, with code 401.
    pub(super) fn refuse(&self) {
        self.credentials.refuse(self.issued.as_deref());
    }
}

impl Access {
    pub(super) fn new(credentials: Credentials, tls: Option<LiveTls>) -> Self {
        Self {
            credentials: ArcSwap::from_pointee(credentials),
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

    /// Adds the headers that say who is asking, and sees to it that new connections show the same.
    /// May wait for a credential plugin, shorter once `stop` is given.
    ///
    /// # Errors
    /// Why there are no credentials, for people.
    pub(super) fn authorize(&self, headers: &mut HeaderMap, stop: &Stop) -> Result<Proof, String> {
        let credentials = self.credentials.load_full();
        let issued = credentials.apply(headers, stop)?;
        if let (Some(tls), Some(issued)) = (&self.tls, &issued) {
            let presented = tls.present(issued.identity.as_ref());
            presented.map_err(|problem| format!("the credential plugin's answer: {problem}"))?;
        }
        Ok(Proof {
            credentials,
            issued,
        })
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
        let mut changes = self.credentials.load().changes(&credentials);
        if let (Some(live), Some(source)) = (&self.tls, tls) {
            let identity = issued.and_then(|issued| issued.identity.clone());
            changes.extend(live.replace(&source, identity)?);
        }
        self.credentials.store(Arc::new(credentials));
        Ok(changes)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("credentials", &self.credentials.load())
            .field("tls", &self.tls)
            .finish()
    }
}
