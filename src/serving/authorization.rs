//! Decides whether a user may see a page: one group may do everything, and the API server decides
//! the rest. Runs on the connection's thread.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::reviews::{ReviewError, Reviews};
use super::ttl_cache::TtlCache;
use super::user::User;

/// How long a decision stays valid, allowed or denied (apiserver
/// `pkg/server/options/authorization.go:AllowCacheTTL`, `DenyCacheTTL`).
const ACCESS_TTL: Duration = Duration::from_secs(10);

/// Maximum bytes of a user and path for the cache to keep their decision (apiserver
/// `plugin/pkg/authorizer/webhook/webhook.go:maxControlledAttrCacheSize`).
const ATTRIBUTE_BYTES_KEPT: usize = 10_000;

/// The group that may do everything (apiserver
/// `pkg/server/options/authorization.go:AlwaysAllowGroups`).
const PRIVILEGED_GROUP: &str = "system:masters";

/// Whether a user may send a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Allowed,
    /// With the API server's reason, possibly empty.
    Denied(String),
}

type Attributes = (User, String, String);

/// Authorizes requests, with a cache of decisions.
pub(super) struct Authorization {
    reviews: Reviews,
    decisions: TtlCache<Attributes, Decision>,
}

impl Authorization {
    pub(super) fn new(reviews: Reviews) -> Self {
        Self {
            reviews,
            decisions: TtlCache::new(),
        }
    }

    /// Decides whether `user`, at `address`, may do `verb` (an HTTP method in lower case) on
    /// `path`. Blocks for the API server unless the cache has a decision.
    pub(super) fn decide(
        &self,
        user: &User,
        address: Option<IpAddr>,
        verb: &str,
        path: &str,
    ) -> Result<Decision, ReviewError> {
        // This needs no API server, so administrators get in while it is down.
        if user.groups.iter().any(|it| it == PRIVILEGED_GROUP) {
            return Ok(Decision::Allowed);
        }
        let key = (user.clone(), verb.to_owned(), path.to_owned());
        if let Some(decision) = self.decisions.get(&key, Instant::now()) {
            return Ok(decision);
        }
        let status = self.reviews.access(user, address, verb, path)?;
        let decision = if status.allowed && status.denied != Some(true) {
            Decision::Allowed
        } else {
            Decision::Denied(status.reason.unwrap_or_default())
        };
        if bytes_of(&key) <= ATTRIBUTE_BYTES_KEPT {
            self.decisions
                .put(key, decision.clone(), Instant::now(), ACCESS_TTL);
        }
        Ok(decision)
    }
}

fn bytes_of((user, verb, path): &Attributes) -> usize {
    let groups: usize = user.groups.iter().map(String::len).sum();
    let extra = user.extra.iter();
    let extra: usize = extra
        .map(|(name, values)| name.len() + values.iter().map(String::len).sum::<usize>())
        .sum();
    user.name.len() + user.uid.len() + groups + extra + verb.len() + path.len()
}
