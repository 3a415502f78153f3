//! Authenticates a request by the client's certificate or by its bearer token. A request with
//! neither is anonymous. Runs on the connection's thread.
//!
//! DIFFERS: no front proxy (`--requestheader-*`). kube-controller-manager's pages are not behind
//! the aggregation layer either, unless an operator configures it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;

use super::reviews::{Reviews, TokenFinding};
use super::ttl_cache::TtlCache;
use super::user::User;
use crate::http_server::Request;

/// How long a token review stays valid (apiserver `pkg/server/options/authentication.go:CacheTTL`).
const TOKEN_TTL: Duration = Duration::from_secs(10);

/// The cache skips longer tokens, so that it has a bound in bytes.
const TOKEN_BYTES_KEPT: usize = 10_000;

/// Returns the current verifier of client certificates; `None` if certificates do not count.
pub(super) type ClientVerifier = Arc<dyn Fn() -> Option<Arc<dyn ClientCertVerifier>> + Send + Sync>;

/// Authenticates requests, with a cache of token reviews.
pub(super) struct Authentication {
    verifier: ClientVerifier,
    reviews: Reviews,
    tokens: TtlCache<String, TokenFinding>,
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
        let by_certificate = self.by_certificate(request.peer.certificates());
        if let Ok(Some(user)) = by_certificate {
            return Ok(user);
        }
        // As in upstream, an invalid certificate does not overrule a valid token.
        match bearer_token(request.header("authorization")) {
            Some(token) => self.by_token(token),
            None => by_certificate.map(|_| User::anonymous()),
        }
    }

    fn by_certificate(&self, chain: &[Vec<u8>]) -> Result<Option<User>, String> {
        let (Some(verifier), Some((own, others))) = ((self.verifier)(), chain.split_first()) else {
            return Ok(None);
        };
        let others: Vec<_> = others
            .iter()
            .map(|der| CertificateDer::from(der.as_slice()))
            .collect();
        let own_der = CertificateDer::from(own.as_slice());
        verifier
            .verify_client_cert(&own_der, &others, UnixTime::now())
            .map_err(|error| format!("the client's certificate is not accepted: {error}"))?;
        User::of_certificate(own)
    }

    fn by_token(&self, token: &str) -> Result<User, String> {
        let key = token.to_owned();
        if let Some(finding) = self.tokens.get(&key, Instant::now()) {
            return finding;
        }
        let reviewed = self.reviews.token(token);
        let finding = reviewed.map_err(|error| format!("a token cannot be reviewed: {error}"))?;
        if key.len() <= TOKEN_BYTES_KEPT {
            self.tokens
                .put(key, finding.clone(), Instant::now(), TOKEN_TTL);
        }
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

#[cfg(test)]
mod tests {
    use super::bearer_token;

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
}
