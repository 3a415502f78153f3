//! Decides whether a user may see a page: one group may do everything, and the API server decides
//! the rest. Runs on the connection's thread.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::authentication::User;
use super::gate;
use super::gate::Slots;
use crate::client::{Client, ClientError, Request};

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

// Token reviews and access reviews by the API server. They run on the connection's thread, with
// a bound on the time of each and on their number. An API server that hangs therefore never
// occupies all connections of the pages that need no review.

/// Timeout of one review. DIFFERS: upstream allows 10 s, which is as long as a monitor waits for
/// the whole page.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The API server's response is not a review.
    #[error("cannot parse the response: {0}")]
    Parse(#[from] serde_json::Error),
    /// The API server, such as the dev server, has no such reviews.
    #[error(
        "this API server has no {0}, which the secure port needs: use the plain port \
         (--insecure-port)"
    )]
    NotServed(&'static str),
    /// The maximum number of reviews is in progress.
    #[error("too many reviews are waiting for the API server")]
    TooMany,
}

/// The user of a token, or why the token is invalid.
pub(super) type TokenFinding = Result<User, String>;

pub(super) struct Reviews {
    client: Client,
    slots: Slots,
}

impl Reviews {
    /// `client` must have a throttle of its own, separate from the pod writes'.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            slots: Slots::default(),
        }
    }

    /// Returns the token's user, or why the token is invalid. `address` is the client's. Blocks for
    /// a slot and the API server, at most twice [`REVIEW_TIMEOUT`].
    pub(super) fn token(
        &self,
        token: &str,
        address: Option<IpAddr>,
    ) -> Result<TokenFinding, ReviewError> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let client = gate::Client {
            has_credentials: true,
            address,
        };
        let response: TokenReview = self.review(client, "TokenReview", path, &review)?;
        let status = response.status.unwrap_or_default();
        if status.authenticated != Some(true) {
            let why = status.error.filter(|why| !why.is_empty());
            return Ok(Err(
                why.unwrap_or_else(|| "the token is not valid".to_owned())
            ));
        }
        let info = status.user.unwrap_or_default();
        let user = User {
            name: info.username.unwrap_or_default(),
            uid: info.uid.unwrap_or_default(),
            groups: info.groups.unwrap_or_default(),
            extra: info.extra.unwrap_or_default(),
        };
        Ok(Ok(user.authenticated()))
    }

    /// Returns whether the user, at `address`, has access. Blocks for a slot and the API server, at
    /// most twice [`REVIEW_TIMEOUT`].
    pub(super) fn access(
        &self,
        user: &User,
        address: Option<IpAddr>,
        verb: &str,
        path: &str,
    ) -> Result<SubjectAccessReviewStatus, ReviewError> {
        let non_empty = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: non_empty(&user.name),
                uid: non_empty(&user.uid),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some(verb.to_owned()),
                }),
                resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let client = gate::Client {
            has_credentials: *user != User::anonymous(),
            address,
        };
        let response: SubjectAccessReview =
            self.review(client, "SubjectAccessReview", path, &review)?;
        Ok(response.status.unwrap_or_default())
    }

    fn review<T: DeserializeOwned>(
        &self,
        client: gate::Client,
        kind: &'static str,
        path: &str,
        review: &impl Serialize,
    ) -> Result<T, ReviewError> {
        let _slot = self.slots.take(client).ok_or(ReviewError::TooMany)?;
        self.send(path, review).map_err(|error| match error {
            ReviewError::Client(ClientError::Status(status)) if status.code() == 404 => {
                ReviewError::NotServed(kind)
            }
            error => error,
        })
    }

    fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        review: &impl Serialize,
    ) -> Result<T, ReviewError> {
        let request = Request::post(path)
            .body("application/json", serde_json::to_vec(review)?)
            .timeout(REVIEW_TIMEOUT)
            .once();
        let response = match self.client.send(&request) {
            // The server may have closed the idle connection just before this request. A review
            // changes nothing, so a second attempt is safe.
            Err(error) if error.is_closed() => self.client.send(&request),
            response => response,
        };
        Ok(serde_json::from_slice(&response?.body)?)
    }
}

/// Maximum entries. One daemon has few monitors and users; more entries mean a client that tries
/// credentials.
const ENTRIES_MAX: usize = 512;

/// A bounded map whose entries expire. The lock is held for map operations only.
pub(super) struct TtlCache<K, V>(Mutex<BTreeMap<K, (Instant, V)>>);

impl<K: Ord, V: Clone> TtlCache<K, V> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    pub(super) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let entries = self.0.lock();
        let (expires, value) = entries.get(key)?;
        (now < *expires).then(|| value.clone())
    }

    /// Keeps a value for `ttl`. A full cache drops the entry that expires first.
    pub(super) fn put(&self, key: K, value: V, now: Instant, ttl: Duration) {
        let mut entries = self.0.lock();
        if entries.len() >= ENTRIES_MAX {
            entries.retain(|_, (expires, _)| now < *expires);
        }
        if entries.len() >= ENTRIES_MAX {
            let first_expiry = entries.values().map(|(expires, _)| *expires).min();
            entries.retain(|_, (expires, _)| Some(*expires) != first_expiry);
        }
        entries.insert(key, (now + ttl, value));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{ENTRIES_MAX, TtlCache};

    #[test]
    fn entries_expire_and_their_number_is_bounded() {
        let cache = TtlCache::new();
        let start = Instant::now();
        let second = Duration::from_secs(1);
        cache.put(0, 'a', start, second);
        assert_eq!(cache.get(&0, start), Some('a'));
        assert_eq!(cache.get(&0, start + second), None);
        for key in 0..=ENTRIES_MAX {
            let offset = Duration::from_millis(key as u64);
            cache.put(key, 'b', start + offset, 10 * second);
        }
        assert_eq!(cache.get(&0, start), None);
        assert_eq!(cache.get(&ENTRIES_MAX, start), Some('b'));
    }
}
