//! TLS configuration from PEM: which servers to trust and which client certificate to present.
//! Pure, except that it reads the system's certificate authorities from disk. `live_tls` calls it
//! whenever a source has changed.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

/// Certificate (with its intermediates) and key, in PEM.
pub(super) type Identity = (Vec<u8>, Vec<u8>);

/// Which servers to trust.
#[derive(Clone)]
pub(super) enum Trust {
    /// Servers whose certificates these authorities have signed.
    Authorities(Arc<RootCertStore>),
    /// Any server.
    Anyone,
}

/// Builds the settings for connections to servers that `trust` accepts, with `identity` as the
/// client certificate.
///
/// # Errors
/// What is wrong with the certificate or the key, as text.
pub(super) fn client_config(
    trust: &Trust,
    identity: Option<&Identity>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3");
    let builder = match trust {
        Trust::Anyone => {
            let verifier = Arc::new(TrustAnyone(provider));
            builder
                .dangerous()
                .with_custom_certificate_verifier(verifier)
        }
        Trust::Authorities(roots) => builder.with_root_certificates(Arc::clone(roots)),
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let (chain, key) = parse_identity(certificate, key)?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => {
                        "the client key does not belong to the client certificate".to_owned()
                    }
                    rustls::Error::InvalidCertificate(_) => format!(
                        "the client certificate cannot be used, is it one of X.509 version 3? \
                         {error}"
                    ),
                    rustls::Error::General(_) => {
                        "the client key is of a kind that cannot be used: give it an RSA, P-256, \
                         P-384 or Ed25519 key"
                            .to_owned()
                    }
                    error => format!("the client certificate or key cannot be used: {error}"),
                })?
        }
    };
    // This client has no HTTP/2, so offer only HTTP/1.1 to a server that speaks both.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The certificate authorities in `pem`; the system's if `None`.
///
/// # Errors
/// What is wrong with them, as text.
pub(super) fn authorities(pem: Option<&[u8]>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    if let Some(pem) = pem {
        let all = certificates(pem, "the certificate authority")?;
        // As with Go, certificates that cannot serve as an authority do not invalidate the bundle.
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

fn parse_identity(
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

fn certificates(pem: &[u8], name: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| format!("{name} is not valid PEM: {error}"))?;
    if all.is_empty() {
        return Err(format!("{name} holds no certificate in PEM"));
    }
    Ok(all)
}

/// Describes a TLS failure for the log.
pub(super) fn describe(error: &rustls::Error) -> String {
    let problem = match error {
        rustls::Error::InvalidCertificate(problem) => problem,
        rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => {
            return "the server does not speak TLS; does it serve plain HTTP \
                    (http:// as the server of the kubeconfig)?"
                .to_owned();
        }
        error => return format!("TLS: {error}"),
    };
    let hint = match problem {
        // `BadSignature` is an authority of the same name with another key: most clusters call
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

/// `insecure-skip-tls-verify`: the connection is encrypted, but the server is not authenticated.
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

/// The name to verify in the certificate of a connection to `host`. An IPv6 address may have
/// brackets, as in URLs.
///
/// # Errors
/// If `host` is neither a valid DNS name nor an IP address.
pub(super) fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned())
        .map_err(|error| format!("{host:?} cannot be the name in a certificate: {error}"))
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn a_server_of_plain_http_is_named_as_such() {
        let error = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        let text = describe(&error);
        assert!(text.contains("plain HTTP"), "{text}");
        assert!(
            text.contains("http:// as the server of the kubeconfig"),
            "{text}"
        );
    }
}
