//! Who asks: by the client's certificate, else by the bearer token, else nobody in particular.
//! On the thread of the connection.
//!
//! DIFFERS: no front proxy (`--requestheader-*`): kube-controller-manager's pages are not reached
//! through the aggregation layer either, unless somebody builds that by hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;

use super::reviews::{Reviews, TokenFinding};
use super::ttl_cache::TtlCache;
use super::user::User;
use crate::http_server::Request;

/// How long what the API server said of a token counts
/// (apiserver `pkg/server/options/authentication.go:CacheTTL`).
const TOKEN_TTL: Duration = Duration::from_secs(10);

/// What is said of a longer token is not kept, so that the cache has a bound in bytes.
const TOKEN_BYTES_KEPT: usize = 10_000;

/// Gives what client certificates are checked against now; `None` if they count for nothing.
pub(super) type ClientVerifier = Arc<dyn Fn() -> Option<Arc<dyn ClientCertVerifier>> + Send + Sync>;

/// Finds out who asks.
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

    /// Who asks, or why what they show is no good. Blocks for the API server if they show a token that
    /// has not been seen lately.
    pub(super) fn user(&self, request: &Request) -> Result<User, String> {
        let by_certificate = self.by_certificate(request.peer.certificates());
        if let Ok(Some(user)) = by_certificate {
            return Ok(user);
        }
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
        let asked = self.reviews.token(token);
        let finding = asked.map_err(|error| format!("a token cannot be reviewed: {error}"))?;
        if key.len() <= TOKEN_BYTES_KEPT {
            self.tokens
                .put(key, finding.clone(), Instant::now(), TOKEN_TTL);
        }
        finding
    }
}

/// The token in a header `Authorization`
/// (apiserver `pkg/authentication/request/bearertoken/bearertoken.go`).
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
    fn bearer_tokens() {
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
