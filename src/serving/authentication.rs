//! Authenticates a request by the client's certificate or by its bearer token. A request with
//! neither is anonymous. Runs on the connection's thread.
//!
//! DIFFERS: no front proxy (`--requestheader-*`). kube-controller-manager's pages are not behind
//! the aggregation layer either, unless an operator configures it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;

use super::reviews::{Reviews, TokenFinding};
use super::ttl_cache::TtlCache;
use super::user::User;
use crate::http_server::{Peer, Request};
use crate::stdx::certificate::Certificate;
use crate::stdx::tls::in_words;

/// How long a token review stays valid (apiserver `pkg/server/options/authentication.go:CacheTTL`).
const TOKEN_TTL: Duration = Duration::from_secs(10);

/// The cache skips longer tokens, so that it has a bound in bytes.
const TOKEN_BYTES_KEPT: usize = 10_000;

/// Returns the current verifier of client certificates and its number; `None` if certificates do
/// not count.
pub(super) type ClientVerifier =
    Arc<dyn Fn() -> Option<(u64, Arc<dyn ClientCertVerifier>)> + Send + Sync>;

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
        let by_certificate = self.by_certificate(&request.peer);
        if let Ok(Some(user)) = by_certificate {
            return Ok(user);
        }
        // As in upstream, an invalid certificate does not overrule a valid token.
        match bearer_token(request.header("authorization")) {
            Some(token) => self.by_token(token, request.peer.address()),
            None => by_certificate.map(|_| User::anonymous()),
        }
    }

    fn by_certificate(&self, peer: &Peer) -> Result<Option<User>, String> {
        let Some((own, others)) = peer.certificates().split_first() else {
            return Ok(None);
        };
        let Some((generation, verifier)) = (self.verifier)() else {
            return Ok(None);
        };
        let refused = |why: &str| format!("the client's certificate is not accepted: {why}");
        peer.verified(generation, || {
            let others = others.iter();
            let others: Vec<_> = others.map(|der| der.as_slice().into()).collect();
            let verified =
                verifier.verify_client_cert(&own.as_slice().into(), &others, UnixTime::now());
            verified
                .map(drop)
                .map_err(|error| refused(&in_words(&error)))
        })?;
        let certificate = Certificate::parse(own)?;
        if certificate
            .validity
            .is_some_and(|(_, end)| SystemTime::now() > end)
        {
            return Err(refused("it has expired"));
        }
        User::of_certificate(&certificate)
    }

    fn by_token(&self, token: &str, address: Option<IpAddr>) -> Result<User, String> {
        let key = token.to_owned();
        if let Some(finding) = self.tokens.get(&key, Instant::now()) {
            return finding;
        }
        let reviewed = self.reviews.token(token, address);
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
