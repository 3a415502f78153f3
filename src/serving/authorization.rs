//! Decides whether a user may see a page: one group may do everything, and the API server decides
//! the rest. Runs on the connection's thread.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash, RandomState};
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
use super::gate::{Slots, Standing};
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
    /// The API server, such as the dev server, has no such reviews.
    #[error(
        "this API server has no {0}, which the secure port needs: use the plain port \
         (--insecure-port)"
    )]
    NotServed(&'static str),
    #[error("too many reviews are waiting for the API server")]
    TooMany,
}

/// The user of a token, or why the token is invalid.
pub(super) type TokenFinding = Result<User, String>;

/// How long an accepted token and its address are known: longer than the pause of any monitor, and
/// than the lifetime of the tokens that pods have.
const KNOWN_TTL: Duration = Duration::from_hours(2);

pub(super) struct Reviews {
    client: Client,
    slots: Slots,
    /// Hashes of accepted tokens and of their addresses. A collision gives a token precedence, no
    /// access.
    known: TtlCache<u64, ()>,
    hasher: RandomState,
}

impl Reviews {
    /// `client` must have a throttle of its own, separate from the pod writes'.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            slots: Slots::default(),
            known: TtlCache::new(),
            hasher: RandomState::new(),
        }
    }

    fn is_known(&self, what: impl Hash) -> bool {
        let hash = self.hasher.hash_one(what);
        self.known.get(&hash, Instant::now()).is_some()
    }

    fn note_known(&self, what: impl Hash) {
        let hash = self.hasher.hash_one(what);
        self.known.put(hash, (), Instant::now(), KNOWN_TTL);
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
        let standing = match address {
            _ if self.is_known(token) => Standing::Known,
            Some(address) if self.is_known(address) => Standing::KnownAddress,
            _ => Standing::Unknown,
        };
        let client = gate::Client { standing, address };
        let response: TokenReview = self.review(client, "TokenReview", path, &review)?;
        let status = response.status.unwrap_or_default();
        if status.authenticated != Some(true) {
            let why = status.error.filter(|why| !why.is_empty());
            return Ok(Err(
                why.unwrap_or_else(|| "the token is not valid".to_owned())
            ));
        }
        self.note_known(token);
        if let Some(address) = address {
            self.note_known(address);
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
        let is_anonymous = *user == User::anonymous();
        let standing = [Standing::Known, Standing::Anonymous][usize::from(is_anonymous)];
        let client = gate::Client { standing, address };
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
            ClientError::Status(status) if status.code() == 404 => ReviewError::NotServed(kind),
            error => error.into(),
        })
    }

    fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        review: &impl Serialize,
    ) -> Result<T, ClientError> {
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
        entries.retain(|_, (expires, _)| now < *expires);
        if entries.len() >= ENTRIES_MAX {
            let first_expiry = entries.values().map(|(expires, _)| *expires).min();
            entries.retain(|_, (expires, _)| Some(*expires) != first_expiry);
        }
        entries.insert(key, (now + ttl, value));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::{Duration, Instant};

    use serde_json::{Value, json};

    use super::{ENTRIES_MAX, ReviewError, Reviews, TtlCache};
    use crate::client::{Client, ClientConfig, ClientOptions};
    use crate::http_server::{Handler, Request, Response, Server, ServerOptions};
    use crate::stdx::stop::{Latch, Stop};

    /// Accepts the tokens that begin with "good", and holds the reviews of others.
    #[derive(Default)]
    struct Reviewer(Latch);

    impl Handler for Reviewer {
        fn handle(&self, request: Request) -> Response {
            let mut review: Value = serde_json::from_slice(&request.body).expect("a review");
            let token = review["spec"]["token"].as_str().expect("a token");
            let is_good = token.starts_with("good");
            if !is_good {
                self.0.wait_timeout(Duration::from_mins(2));
            }
            let user = json!({"username": "monitor"});
            review["status"] = json!({"authenticated": is_good, "user": user});
            Response::json(201, review.to_string().into_bytes())
        }
    }

    #[test]
    fn new_tokens_keep_no_known_client_out() {
        let (reviewer, stop) = (Arc::<Reviewer>::default(), Stop::new());
        let options = ServerOptions {
            accept_thread: "t-accept",
            connection_thread: "t-conn-",
            limits: None,
            body_bytes: 1 << 20,
            tls: None,
            accept_hosts: None,
        };
        let server = Server::start("127.0.0.1:0", options, Arc::clone(&reviewer) as _, &stop);
        let server = server.expect("a free port");
        let config = ClientConfig::plain(&server.url());
        let reviews = Reviews::new(Client::new(&config, &ClientOptions::default(), &stop));
        let is_accepted = |token: &str, host: u8| {
            let found = reviews.token(token, Some([10, 0, 0, host].into()));
            found.map(|user| user.is_ok())
        };
        assert_eq!(is_accepted("good", 1).ok(), Some(true));
        std::thread::scope(|scope| {
            let (failed, failures) = mpsc::channel();
            for number in 0..32 {
                let (failed, is_accepted) = (failed.clone(), &is_accepted);
                scope.spawn(move || {
                    if let Err(error) = is_accepted(&format!("bad-{number}"), 2 + number % 8) {
                        failed.send(error).expect("the test waits");
                    }
                });
            }
            // Those that have a slot or wait for one are at most half of them.
            for error in failures.iter().take(16) {
                assert!(matches!(error, ReviewError::TooMany), "{error}");
            }
            assert_eq!(is_accepted("good", 1).ok(), Some(true));
            assert_eq!(is_accepted("good", 9).ok(), Some(true), "another address");
            assert_eq!(is_accepted("good, renewed", 1).ok(), Some(true));
            reviewer.0.set();
        });
    }

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
