//! Client certificates in the TLS handshake, which accepts any certificate whose key the client
//! holds (as Go's `tls.RequestClientCert`). An untrusted certificate then yields code 401, or is
//! ignored beside a valid token, instead of a broken connection. `authentication` checks the
//! issuer. Only a chain beyond all that authorities issue breaks the connection, because each
//! certificate costs memory and, to verify, time.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Maximum certificates of a client, and their bytes together.
const CHAIN_MAX: usize = 5;
const CHAIN_BYTES_MAX: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct AnyCertificate {
    /// Sent to clients, so a client with several certificates can pick a suitable one.
    authorities: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyCertificate {
    pub(super) fn new(authorities: &[DistinguishedName], provider: &Arc<CryptoProvider>) -> Self {
        Self {
            authorities: authorities.to_vec(),
            algorithms: provider.signature_verification_algorithms,
        }
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.authorities
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes: usize = intermediates.iter().map(|der| der.len()).sum();
        if intermediates.len() >= CHAIN_MAX || end_entity.len() + bytes > CHAIN_BYTES_MAX {
            let text = format!(
                "the client's chain exceeds {CHAIN_MAX} certificates or {CHAIN_BYTES_MAX} bytes"
            );
            return Err(Error::General(text));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
