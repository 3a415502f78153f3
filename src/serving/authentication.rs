//! Authenticates a request by the client's certificate or by its bearer token. A request with
//! neither is anonymous. Runs on the connection's thread.
//!
//! DIFFERS: no front proxy (`--requestheader-*`). kube-controller-manager's pages are not behind
//! the aggregation layer either, unless an operator configures it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use sha2::{Digest as _, Sha256};

use super::authorization::{Reviews, TokenFinding, TtlCache};
use crate::http_server::{Peer, Request};
use crate::stdx::tls::{Certificate, in_words};

const TOKEN_TTL: Duration = Duration::from_secs(10);

/// Returns the current verifier of client certificates; `None` if they do not count.
pub(super) type ClientVerifier = Arc<dyn Fn() -> Option<Arc<dyn ClientCertVerifier>> + Send + Sync>;

/// Authenticates requests, with a cache of token reviews.
pub(super) struct Authentication {
    verifier: ClientVerifier,
    reviews: Reviews,
    /// By digest: tokens that clients sent do not stay in memory.
    tokens: TtlCache<[u8; 32], TokenFinding>,
}

impl Authentication {
    pub(super) fn new(verifier: ClientVerifier, reviews: Reviews) -> Self {
        Self {
            verifier,
            reviews,
            tokens: TtlCache::new(),
        }
    }

    /// Returns the user, or why the credentials are invalid. Blocks for the API server if the cache
    /// has no review of the token.
    pub(super) fn user(&self, request: &Request) -> Result<User, String> {
        let by_certificate = self.by_certificate(&request.peer);
        if let Ok(Some(user)) = by_certificate {
            return Ok(user);
        }
        // As in upstream, an invalid certificate does not overrule a valid token.
        match bearer_token(request.header("authorization")) {
            Some(token) => self.by_token(token, request.peer.address),
            None => by_certificate.map(|_| User::anonymous()),
        }
    }

    fn by_certificate(&self, peer: &Peer) -> Result<Option<User>, String> {
        let Some((own, others)) = peer.certificates.split_first() else {
            return Ok(None);
        };
        let Some(verifier) = (self.verifier)() else {
            return Ok(None);
        };
        let rejected = |why: &str| format!("the client's certificate is not accepted: {why}");
        let others: Vec<_> = others.iter().map(|der| der.as_slice().into()).collect();
        verifier
            .verify_client_cert(&own.as_slice().into(), &others, UnixTime::now())
            .map_err(|error| rejected(&in_words(&error)))?;
        let certificate = Certificate::parse(own)?;
        if certificate
            .validity
            .is_some_and(|(_, end)| SystemTime::now() > end)
        {
            return Err(rejected("it has expired"));
        }
        User::of_certificate(&certificate)
    }

    fn by_token(&self, token: &str, address: Option<IpAddr>) -> Result<User, String> {
        let key = Sha256::digest(token).into();
        if let Some(finding) = self.tokens.get(&key, Instant::now()) {
            return finding;
        }
        let reviewed = self.reviews.token(token, address);
        let finding = reviewed.map_err(|error| format!("a token cannot be reviewed: {error}"))?;
        self.tokens
            .put(key, finding.clone(), Instant::now(), TOKEN_TTL);
        finding
    }
}

/// The token in the header `Authorization` (apiserver
/// `pkg/authentication/request/bearertoken/bearertoken.go`).
fn bearer_token(header: &str) -> Option<&str> {
    let mut parts = header.trim().splitn(3, ' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The group of all authenticated users (apiserver
/// `pkg/authentication/user/user.go:AllAuthenticated`).
const AUTHENTICATED: &str = "system:authenticated";

/// The attributes of a certificate's subject that hold name and groups (X.520).
const COMMON_NAME_OID: &[u8] = &[0x55, 4, 3];
const ORGANIZATION_OID: &[u8] = &[0x55, 4, 10];

/// The attribute of a certificate's subject that holds a UID, 1.3.6.1.4.1.57683.2
/// (apiserver `pkg/authentication/request/x509:uidOID`, feature AllowParsingUserUIDFromCertAuth).
const UID_OID: &[u8] = &[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2];

/// A user with its groups, as RBAC knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a request without certificate and token.
    pub(super) fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..Self::default()
        }
    }

    /// The user that a certificate names: the common name, with the organizations as groups.
    /// `Ok(None)` if the certificate has no common name.
    ///
    /// DIFFERS: the certificate's digest is not passed on as a credential ID.
    pub(super) fn of_certificate(certificate: &Certificate) -> Result<Option<Self>, String> {
        let name = certificate.values(COMMON_NAME_OID).last();
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let uids: Vec<&str> = certificate.values(UID_OID).collect();
        if uids.len() > 1 || uids.contains(&"") {
            return Err("the certificate's subject has no single, plain UID".to_owned());
        }
        let groups = certificate.values(ORGANIZATION_OID);
        let user = Self {
            name: name.to_owned(),
            uid: uids.concat(),
            groups: groups.map(str::to_owned).collect(),
            extra: BTreeMap::new(),
        };
        Ok(Some(user.authenticated()))
    }

    /// The same user in the group of all authenticated users (apiserver
    /// `pkg/authentication/group/authenticated_group_adder.go`).
    pub(super) fn authenticated(mut self) -> Self {
        let is_authentication =
            |group: &String| group == AUTHENTICATED || group == "system:unauthenticated";
        if !self.groups.iter().any(is_authentication) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

// Client certificates in the TLS handshake, which accepts any certificate whose key the client
// holds (as Go's `tls.RequestClientCert`). An untrusted certificate then yields code 401, or is
// ignored beside a valid token, instead of a broken connection. `authentication` checks the
// issuer. Only a chain beyond all that authorities issue breaks the connection, because each
// certificate costs memory and, to verify, time.

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

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::{Certificate, User, bearer_token};

    #[test]
    fn bearer_tokens_are_parsed() {
        for (header, expected) in [
            ("Bearer abc", Some("abc")),
            ("  bearer abc ", Some("abc")),
            ("BEARER abc def", Some("abc")),
            ("Bearer  abc", None),
            ("Bearer", None),
            ("Basic abc", None),
            ("", None),
        ] {
            assert_eq!(bearer_token(header), expected, "{header:?}");
        }
    }

    fn certificate(parts: &[(DnType, &str)]) -> Certificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (part, value) in parts {
            params.distinguished_name.push(part.clone(), *value);
        }
        let key = KeyPair::generate().expect("there is enough entropy");
        let certificate = params.self_signed(&key).expect("the parameters are good");
        Certificate::parse(certificate.der()).expect("it is a certificate")
    }

    #[test]
    fn a_certificate_names_a_user_and_groups() {
        let alice = certificate(&[
            (DnType::CommonName, "alice"),
            (DnType::OrganizationName, "system:monitoring"),
        ]);
        let user = User::of_certificate(&alice)
            .expect("no UID")
            .expect("a name");
        assert_eq!(user.name, "alice");
        assert_eq!(user.groups, ["system:monitoring", "system:authenticated"]);
        let nobody = certificate(&[(DnType::OrganizationName, "system:masters")]);
        assert_eq!(User::of_certificate(&nobody), Ok(None));
    }
}
