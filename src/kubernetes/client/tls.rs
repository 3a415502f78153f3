//! TLS configuration from PEM: which servers to trust and which client certificate to present.
//! Pure, except that it reads the system's certificate authorities from disk. `live_tls` calls it
//! whenever a source has changed.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use jiff::Timestamp;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::SingleCertAndKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, InvalidMessage,
    RootCertStore, SignatureScheme,
};

use crate::stdx::tls::{Certificate, certificates, certified_key, client_provider, in_words};

/// Certificate (with its intermediates) and key, in PEM.
pub(super) type Identity = (Vec<u8>, Vec<u8>);

#[derive(Clone)]
pub(super) struct Authorities {
    roots: Arc<RootCertStore>,
    /// The same, whole: a server may present one of them as its own certificate.
    listed: Arc<Vec<CertificateDer<'static>>>,
}

/// Builds the settings for connections to servers that `authorities` have signed, or to any server
/// for `insecure-skip-tls-verify`, with `identity` as the client certificate.
pub(super) fn client_config(
    authorities: Option<&Authorities>,
    identity: Option<&Identity>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(client_provider());
    let signed = authorities.map(|Authorities { roots, listed }| {
        let (roots, own) = (Arc::clone(roots), Arc::clone(&provider));
        let signed = WebPkiServerVerifier::builder_with_provider(roots, own).build();
        let signed = signed.map_err(|error| format!("the certificate authority: {error}"))?;
        Ok::<_, String>((Arc::clone(listed), signed))
    });
    let verifier = Verifier {
        algorithms: provider.signature_verification_algorithms,
        authorities: signed.transpose()?,
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificate = ("the client certificate", certificate.as_slice());
            let certified = certified_key(certificate, ("the client key", key))?;
            // Without rustls' check of the certificate, which only the server judges.
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
        }
    };
    // This client has no HTTP/2, so offer only HTTP/1.1 to a server that speaks both.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The certificate authorities in `pem`; the system's if `None`.
pub(super) fn authorities(pem: Option<&[u8]>) -> Result<Authorities, String> {
    let listed = match pem {
        Some(pem) => certificates("the certificate authority", pem)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    // As with Go, certificates that cannot serve as an authority do not invalidate the bundle.
    let (_, n_ignored) = roots.add_parsable_certificates(listed.iter().cloned());
    if pem.is_none() && roots.is_empty() {
        return Err("no certificate authority is configured and the system has none".to_owned());
    }
    if roots.is_empty() {
        return Err("the certificate authority contains no usable certificate".to_owned());
    }
    if pem.is_some() && n_ignored > 0 {
        log::warn!("{n_ignored} of the certificate authority's certificates cannot be used");
    }
    Ok(Authorities {
        roots: Arc::new(roots),
        listed: Arc::new(listed),
    })
}

impl Authorities {
    /// These and the system's, if it has any.
    pub(super) fn and_the_systems(&self) -> Self {
        let mut all = self.clone();
        if let Ok(system) = authorities(None) {
            let roots = Arc::make_mut(&mut all.roots);
            roots.roots.extend_from_slice(&system.roots.roots);
            Arc::make_mut(&mut all.listed).extend_from_slice(&system.listed);
        }
        all
    }
}

#[derive(Debug)]
struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    /// Trusts what the authorities have signed and, as Go does, a certificate that is one of
    /// theirs. `None` for `insecure-skip-tls-verify`: the connection is encrypted, but the server
    /// is not authenticated.
    authorities: Option<(Arc<Vec<CertificateDer<'static>>>, Arc<WebPkiServerVerifier>)>,
}

impl Verifier {
    /// The outcome of a check of the handshake's signature. A server that is not authenticated may
    /// have a certificate that the TLS library cannot read, such as of X.509 version 1.
    fn checked(
        &self,
        checked: Result<HandshakeSignatureValid, rustls::Error>,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        match checked {
            Err(rustls::Error::InvalidCertificate(problem))
                if self.authorities.is_none() && problem != CertificateError::BadSignature =>
            {
                Ok(HandshakeSignatureValid::assertion())
            }
            // Not that of a certificate: of a key that is too short, or not the certificate's.
            Err(Error::InvalidCertificate(CertificateError::BadSignature)) => {
                Err(Error::General(HANDSHAKE_UNSIGNED.to_owned()))
            }
            checked => checked,
        }
    }
}

const HANDSHAKE_UNSIGNED: &str = "the signature of the TLS handshake is not accepted: the key must \
                                  be the certificate's, and RSA with 2048 to 8192 bits, ECDSA or \
                                  Ed25519";

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some((listed, signed)) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        if !listed.contains(end_entity) {
            return signed.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            );
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        let certificate = Certificate::parse(end_entity).ok();
        let certificate = certificate.ok_or(CertificateError::BadEncoding)?;
        let (begin, end) = certificate.validity.ok_or(CertificateError::BadEncoding)?;
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(now.as_secs());
        if now < begin {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > end {
            return Err(CertificateError::Expired.into());
        }
        if !certificate.is_for_servers {
            return Err(CertificateError::InvalidPurpose.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.checked(verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.algorithms,
        ))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.checked(verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.algorithms,
        ))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The name to verify in the certificate of a connection to `host`. An IPv6 address may have
/// brackets, as in URLs.
pub(super) fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    // An IPv4 address written as one of IPv6 has no other name in certificates.
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(ServerName::IpAddress(address.to_canonical().into()));
    }
    ServerName::try_from(bare.to_owned())
        .map_err(|error| format!("{host:?} cannot be the name in a certificate: {error}"))
}

/// Which settings may correct a failure, by the names that the user gave them with.
#[derive(Debug)]
pub(super) struct Hints {
    authority: &'static str,
    server_name: &'static str,
    plain: &'static str,
}

impl Hints {
    pub(super) const KUBECONFIG: Self = Self {
        authority: "certificate-authority in the kubeconfig",
        server_name: "tls-server-name in the kubeconfig sets the expected name",
        plain: "http:// as its URL in the kubeconfig",
    };
    /// For a server outside of any kubeconfig.
    pub(super) const FLAGS: Self = Self {
        authority: "--certificate-authority=FILE names another, --insecure-skip-tls-verify accepts \
                    any",
        server_name: "--insecure-skip-tls-verify accepts any",
        plain: "--server=http://...",
    };
}

/// Describes a failure on a connection to `peer`, which is "the server" or "the proxy".
pub(super) fn describe(peer: &str, hints: &Hints, error: &Error) -> String {
    match error {
        Error::InvalidCertificate(problem) => certificate_problem(peer, hints, problem),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => format!(
            "{peer} does not speak TLS; does it serve plain HTTP ({})?",
            hints.plain
        ),
        Error::PeerIncompatible(_) => nothing_in_common(peer),
        Error::General(why) => format!("{peer}: {why}"),
        Error::AlertReceived(alert) => match alert {
            AlertDescription::HandshakeFailure
            | AlertDescription::ProtocolVersion
            | AlertDescription::InsufficientSecurity => nothing_in_common(peer),
            AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
                format!("{peer} requires a client certificate")
            }
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied => format!(
                "{peer} does not accept the client certificate: {}",
                in_words(&format!("{alert:?}")).to_lowercase()
            ),
            alert => {
                let alert = in_words(&format!("{alert:?}")).to_lowercase();
                format!("{peer} has ended the TLS handshake: {alert}")
            }
        },
        error => format!("TLS: {}", in_words(error)),
    }
}

fn nothing_in_common(peer: &str) -> String {
    format!(
        "{peer} and this program have no TLS version, cipher suite or signature algorithm in \
         common: {peer}, or the load balancer in front of it, must offer TLS 1.3, or TLS 1.2 with \
         an ECDHE suite with AES-GCM or ChaCha20-Poly1305 (CBC suites are not supported), and have \
         an RSA, ECDSA or Ed25519 key"
    )
}

fn certificate_problem(peer: &str, hints: &Hints, problem: &CertificateError) -> String {
    let at = |time: &UnixTime| {
        let seconds = i64::try_from(time.as_secs()).ok();
        let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        time.map_or_else(String::new, |time| format!(" at {time}"))
    };
    let hint = match problem {
        // `BadSignature` is an authority of the same name with another key: most clusters call
        // theirs "kubernetes".
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!(
                "it is not signed by a certificate authority that is trusted here ({})",
                hints.authority
            )
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "it is valid for {}, not for {} ({})",
            names(presented),
            expected.to_str(),
            hints.server_name
        ),
        CertificateError::NotValidForName => {
            format!("it is for another name ({})", hints.server_name)
        }
        CertificateError::Expired => "it has expired".to_owned(),
        CertificateError::ExpiredContext { not_after, .. } => {
            format!(
                "it, or one of its authorities, has expired{}",
                at(not_after)
            )
        }
        CertificateError::NotValidYet => "it is not valid yet; check the clock".to_owned(),
        CertificateError::NotValidYetContext { not_before, .. } => format!(
            "it, or one of its authorities, is not valid before{}; check the clock",
            at(not_before)
        ),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its extended key usage is not that of a server".to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it, or one of its authorities, is signed in a way that is not supported: supported \
             are RSA from 2048 bits, P-256 and P-384 with SHA-256 or SHA-384, P-521, and Ed25519"
                .to_owned()
        }
        CertificateError::Other(other) => match other.to_string().as_str() {
            "CaUsedAsEndEntity" => format!(
                "it is a CA certificate (CA:TRUE): list it as trusted ({}), or give the server one \
                 of its own",
                hints.authority
            ),
            "UnsupportedCertVersion" => {
                "it, or one of its authorities, is not of X.509 version 3".to_owned()
            }
            other => in_words(&other).to_lowercase(),
        },
        problem => in_words(problem).to_lowercase(),
    };
    format!("{peer}'s certificate is not accepted: {hint}")
}

/// The names in a certificate, of which rustls has only the Debug form, such as `DnsName("a")`.
fn names(presented: &[String]) -> String {
    let bare = presented.iter().map(|name| {
        let name = name.split_once('(').map_or(name.as_str(), |(_, name)| name);
        name.trim_end_matches(')').trim_matches('"')
    });
    let bare: Vec<&str> = bare.collect();
    if bare.is_empty() {
        return "none".to_owned();
    }
    bare.join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{
        AlertDescription, CertificateError, Error, InvalidMessage, OtherError, PeerMisbehaved,
    };

    use super::{HANDSHAKE_UNSIGNED, Hints, describe, server_name};

    #[test]
    fn an_address_has_one_name_however_it_is_written() {
        let names = ["10.0.0.1", "[::ffff:10.0.0.1]"].map(server_name);
        assert!(names[0].is_ok() && names[0] == names[1], "{names:?}");
    }

    #[test]
    fn failures_are_described_in_words() {
        let expected = ServerName::try_from("a.example").expect("a name");
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let other = |text: &'static str| OtherError(std::sync::Arc::from(Box::from(text)));
        for (error, part) in [
            (
                Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "the server does not speak TLS; does it serve plain HTTP (http:// as its URL",
            ),
            (
                Error::AlertReceived(AlertDescription::HandshakeFailure),
                "CBC suites are not supported",
            ),
            (
                Error::General(HANDSHAKE_UNSIGNED.to_owned()),
                "the server: the signature of the TLS handshake is not accepted",
            ),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                "the server does not accept the client certificate: unknown ca",
            ),
            (
                Error::PeerMisbehaved(PeerMisbehaved::MissingKeyShare),
                "TLS: peer misbehaved: Missing key share",
            ),
            (
                CertificateError::NotValidForNameContext {
                    expected,
                    presented: vec![r#"DnsName("b")"#.to_owned(), "IpAddress(::1)".to_owned()],
                }
                .into(),
                "it is valid for b, ::1, not for a.example (",
            ),
            (
                CertificateError::ExpiredContext {
                    time: at(9),
                    not_after: at(5),
                }
                .into(),
                "has expired at 1970-01-01T00:00:05Z",
            ),
            (
                CertificateError::Other(other("CaUsedAsEndEntity")).into(),
                "it is a CA certificate (CA:TRUE)",
            ),
            (
                CertificateError::Other(other("MissingOrMalformedExtensions")).into(),
                "not accepted: missing or malformed extensions",
            ),
        ] {
            let text = describe("the server", &Hints::KUBECONFIG, &error);
            assert!(text.contains(part), "{text}");
            assert!(!text.contains('{') && !text.contains("Error"), "{text}");
        }
    }
}
