//! TLS settings: whom to trust, as whom to appear. Built once when the configuration is loaded,
//! so that bad certificates are found before the first connection.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

/// What TLS is made of; everything in PEM.
#[derive(Default)]
pub(super) struct TlsSource {
    /// The certificate authorities that may vouch for the server; the system's if `None`.
    pub(super) certificate_authority: Option<Vec<u8>>,
    /// Certificate (with its intermediates) and key.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that the server's certificate must be for, if not the URL's host.
    pub(super) server_name: Option<String>,
    /// Trust any certificate.
    pub(super) insecure: bool,
}

/// How connections are secured. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    /// The URL's host.
    host: String,
    server_name: ServerName<'static>,
    server: Arc<ClientConfig>,
    /// For a proxy that is itself reached by TLS: no identity of ours, the system's authorities.
    proxy: Option<Arc<ClientConfig>>,
}

impl Tls {
    /// Settings for the API server at `host`.
    ///
    /// # Errors
    /// What is wrong with a certificate or a key, for people.
    pub(super) fn new(host: &str, source: &TlsSource) -> Result<Self, String> {
        let name = source.server_name.as_deref().unwrap_or(host);
        Ok(Self {
            host: host.to_owned(),
            server_name: server_name(name)?,
            server: Arc::new(client_config(source)?),
            proxy: None,
        })
    }

    /// The same, able to reach a proxy by TLS as well.
    ///
    /// # Errors
    /// The system has no certificate authorities.
    pub(super) fn with_tls_proxy(mut self) -> Result<Self, String> {
        self.proxy = Some(Arc::new(client_config(&TlsSource::default())?));
        Ok(self)
    }

    /// What to use in a connection to `host`, which is the API server or a proxy.
    pub(super) fn towards(
        &self,
        host: &str,
    ) -> Result<(Arc<ClientConfig>, ServerName<'static>), String> {
        match &self.proxy {
            Some(proxy) if host != self.host => Ok((Arc::clone(proxy), server_name(host)?)),
            _ => Ok((Arc::clone(&self.server), self.server_name.clone())),
        }
    }
}

fn client_config(source: &TlsSource) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3");
    let builder = if source.insecure {
        let verifier = Arc::new(TrustAnyone(provider));
        builder
            .dangerous()
            .with_custom_certificate_verifier(verifier)
    } else {
        builder.with_root_certificates(roots(source.certificate_authority.as_deref())?)
    };
    let mut config = match &source.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let (chain, key) = identity(certificate, key)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => {
                        "the client key does not belong to the client certificate".to_owned()
                    }
                    error => format!("the client certificate or key cannot be used: {error}"),
                })?
        }
    };
    // HTTP/2 does not exist here, and a server that can speak both must be told so.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    if let Some(pem) = pem {
        let all = certificates(pem, "the certificate authority")?;
        // As with Go, those that nobody could be checked against don't spoil the bundle.
        let (_, n_ignored) = store.add_parsable_certificates(all);
        if store.is_empty() {
            return Err(
                "the certificate authority holds no certificate that can be used".to_owned(),
            );
        }
        if n_ignored > 0 {
            log::warn!("{n_ignored} of the certificate authority's certificates cannot be used");
        }
    } else {
        let system = rustls_native_certs::load_native_certs();
        store.add_parsable_certificates(system.certs);
        if store.is_empty() {
            return Err(
                "no certificate authority is configured and the system has none".to_owned(),
            );
        }
    }
    Ok(store)
}

fn identity(
    certificate: &[u8],
    key: &[u8],
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let chain = certificates(certificate, "the client certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => {
            "the client key holds no unencrypted private key in PEM".to_owned()
        }
        error => format!("the client key is not valid PEM: {error}"),
    })?;
    Ok((chain, key))
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| format!("{what} is not valid PEM: {error}"))?;
    if all.is_empty() {
        return Err(format!("{what} holds no certificate in PEM"));
    }
    Ok(all)
}

/// A TLS failure for people.
pub(super) fn describe(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(problem) = error else {
        return format!("TLS: {error}");
    };
    let hint = match problem {
        // The latter is an authority of the same name but with another key: most clusters call
        // theirs "kubernetes".
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it is not signed by a certificate authority that is trusted here \
             (certificate-authority in the kubeconfig)"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name (tls-server-name in the kubeconfig says which to expect)"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet; is the clock right?"
        }
        _ => "it cannot be used",
    };
    format!("the server's certificate is not accepted, {hint}: {problem}")
}

/// `insecure-skip-tls-verify`: the connection is secret, but from whom nobody knows.
#[derive(Debug)]
struct TrustAnyone(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The name that a certificate must be for when `host` is connected to. An IPv6 address may stand
/// in brackets, as it does in URLs.
fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned())
        .map_err(|error| format!("{host:?} cannot be the name in a certificate: {error}"))
}
