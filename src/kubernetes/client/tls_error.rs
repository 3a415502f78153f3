//! TLS failures in an operator's words: which side, what is wrong and the way out. Pure.

use jiff::Timestamp;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use crate::stdx::tls::in_words;

/// Describes a failure on a connection to `peer`, which is "the server" or "the proxy".
pub(super) fn describe(peer: &str, error: &Error) -> String {
    match error {
        Error::InvalidCertificate(problem) => certificate_problem(peer, problem),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => format!(
            "{peer} does not speak TLS; does it serve plain HTTP (http:// as its URL in the \
             kubeconfig)?"
        ),
        Error::PeerIncompatible(_) => nothing_in_common(peer),
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
         common: {peer}, or the appliance before it, must offer TLS 1.3, or TLS 1.2 with an ECDHE \
         suite with AES-GCM or ChaCha20-Poly1305 (suites with CBC do not suffice), and have an \
         RSA, ECDSA or Ed25519 key"
    )
}

fn certificate_problem(peer: &str, problem: &CertificateError) -> String {
    let at = |time: &UnixTime| {
        let seconds = i64::try_from(time.as_secs()).ok();
        let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        time.map_or_else(String::new, |time| format!(" at {time}"))
    };
    let hint = match problem {
        // `BadSignature` is an authority of the same name with another key: most clusters call
        // theirs "kubernetes".
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it is not signed by a certificate authority that is trusted here \
             (certificate-authority in the kubeconfig)"
                .to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "it is for another name than {}, namely for {} (tls-server-name in the kubeconfig says \
             which to expect)",
            expected.to_str(),
            names(presented)
        ),
        CertificateError::NotValidForName => {
            "it is for another name (tls-server-name in the kubeconfig says which to expect)"
                .to_owned()
        }
        CertificateError::Expired => "it has expired".to_owned(),
        CertificateError::ExpiredContext { not_after, .. } => {
            format!(
                "it, or one of its authorities, has expired{}",
                at(not_after)
            )
        }
        CertificateError::NotValidYet => "it is not valid yet; is the clock right?".to_owned(),
        CertificateError::NotValidYetContext { not_before, .. } => format!(
            "it, or one of its authorities, becomes valid only{}; is the clock right?",
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
            "CaUsedAsEndEntity" => "it is an authority's (CA:TRUE): list it in the kubeconfig's \
                                    certificate-authority, or give the server one of its own"
                .to_owned(),
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

    use super::describe;

    #[test]
    fn failures_are_told_in_words() {
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
                "suites with CBC do not suffice",
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
                "another name than a.example, namely for b, ::1 (",
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
                "it is an authority's (CA:TRUE)",
            ),
            (
                CertificateError::Other(other("MissingOrMalformedExtensions")).into(),
                "not accepted: missing or malformed extensions",
            ),
        ] {
            let text = describe("the server", &error);
            assert!(text.contains(part), "{text}");
            assert!(!text.contains('{') && !text.contains("Error"), "{text}");
        }
    }
}
