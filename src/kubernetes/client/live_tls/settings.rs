//! Builds TLS settings from their sources. Reads files, on the calling thread.

use std::sync::Arc;

use ureq::http::Uri;

use super::TlsSource;
use super::{CERTIFICATE_AUTHORITY, CLIENT_CERTIFICATE, Changes, Current, Ingredients, Material};
use crate::client::pem::Pem;
use crate::client::tls::{Identity, Trust, authorities, client_config, server_name};
use crate::telemetry::expiry::Expiry;

impl Ingredients {
    /// Reads the files that `source` names. `plugin` is the identity if `source` names none.
    pub(super) fn read(
        source: TlsSource,
        plugin: Option<Identity>,
        credentials: u64,
    ) -> Result<Self, String> {
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
    pub(super) fn changes(&self, new: &Self) -> Changes {
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

pub(super) fn trust(
    source: &TlsSource,
    certificate_authority: Option<&[u8]>,
) -> Result<Trust, String> {
    Ok(if source.insecure {
        Trust::Anyone
    } else {
        Trust::Authorities(authorities(certificate_authority)?)
    })
}

pub(super) fn settings(
    server: &Uri,
    ingredients: &Ingredients,
    generation: u64,
) -> Result<Current, String> {
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
