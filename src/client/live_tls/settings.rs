//! From what was configured to the settings of TLS. Reads files, on the thread that asks.

use std::sync::Arc;

use ureq::http::Uri;

use super::{Current, Material, TlsSource};
use crate::client::pem::Pem;
use crate::client::tls::{Trust, authorities, client_config, server_name};

impl Material {
    pub(super) fn read(source: &TlsSource) -> Result<Self, String> {
        let authority = source.certificate_authority.as_ref();
        let identity = source.identity.as_ref();
        Ok(Self {
            certificate_authority: authority.map(Pem::read).transpose()?,
            identity: identity
                .map(|(certificate, key)| Ok::<_, String>((certificate.read()?, key.read()?)))
                .transpose()?,
        })
    }
}

pub(super) fn trust(
    source: &TlsSource,
    certificate_authority: Option<&[u8]>,
) -> Result<Trust, String> {
    Ok(if source.insecure {
        Trust::Anyone
    } else {
        Trust::Authorities(Arc::new(authorities(certificate_authority)?))
    })
}

pub(super) fn settings(
    server: &Uri,
    source: &TlsSource,
    trust: &Trust,
    material: &Material,
) -> Result<Current, String> {
    let host = server.host().unwrap_or_default();
    let name = source.server_name.as_deref().unwrap_or(host);
    let proxy = source.tls_proxy.then(|| {
        let trust = match trust {
            Trust::Authorities(cluster) if source.certificate_authority.is_some() => {
                let mut roots = cluster.as_ref().clone();
                // A system without authorities leaves the cluster's.
                roots
                    .roots
                    .extend(authorities(None).map_or_else(|_| Vec::new(), |system| system.roots));
                Trust::Authorities(Arc::new(roots))
            }
            trust => trust.clone(),
        };
        client_config(&trust, None).map(Arc::new)
    });
    Ok(Current {
        server_name: server_name(name)?,
        server: Arc::new(client_config(trust, material.identity.as_ref())?),
        proxy: proxy.transpose()?,
        generation: 0,
    })
}
