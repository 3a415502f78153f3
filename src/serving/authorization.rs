//! Decides whether a user may see a page: some paths are open to every client, one group may do
//! everything, and the API server decides the rest. Runs on the connection's thread.

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

/// The paths that any client may read. Each is an exact path or, with a trailing `*`, a prefix. The
/// leading `/` is optional (apiserver `pkg/authorization/path/path.go`).
///
/// DIFFERS: for reading only. Upstream opens these paths for writes too, which a `*` does not
/// suggest.
#[derive(Clone, Debug, Default)]
pub struct AllowedPaths {
    exact: Vec<String>,
    prefixes: Vec<String>,
}

impl AllowedPaths {
    /// Parses the values of `--authorization-always-allow-paths`.
    ///
    /// # Errors
    /// A sentence that names the path with a `*` before its end.
    pub fn parse<T: AsRef<str>>(paths: &[T]) -> Result<Self, String> {
        let mut allowed = Self::default();
        for path in paths {
            let path = path.as_ref();
            let bare = path.strip_prefix('/').unwrap_or(path);
            match bare.strip_suffix('*') {
                Some(prefix) if !prefix.contains('*') => allowed.prefixes.push(prefix.to_owned()),
                None if !bare.contains('*') => allowed.exact.push(bare.to_owned()),
                _ => return Err(format!("only a trailing * is allowed in path {path:?}")),
            }
        }
        Ok(allowed)
    }

    /// True if any client may send this HTTP method to this path.
    pub fn allow(&self, method: &str, path: &str) -> bool {
        let is_read = ["GET", "HEAD"]
            .iter()
            .any(|it| method.eq_ignore_ascii_case(it));
        let bare = path.strip_prefix('/').unwrap_or(path);
        let is_listed = || {
            self.exact.iter().any(|exact| exact == bare)
                || self.prefixes.iter().any(|prefix| bare.starts_with(prefix))
        };
        is_read && is_listed()
    }
}

type Attributes = (User, String, String);

/// Authorizes requests, with a cache of decisions.
pub(super) struct Authorization {
    pub(super) allowed_paths: AllowedPaths,
    reviews: Reviews,
    decisions: TtlCache<Attributes, Decision>,
}

impl Authorization {
    pub(super) fn new(allowed_paths: AllowedPaths, reviews: Reviews) -> Self {
        Self {
            allowed_paths,
            reviews,
            decisions: TtlCache::new(),
        }
    }

    /// Decides whether `user` may do `verb` (an HTTP method in lower case) on `path`. Blocks for
    /// the API server unless the cache has a decision.
    pub(super) fn decide(
        &self,
        user: &User,
        verb: &str,
        path: &str,
    ) -> Result<Decision, ReviewError> {
        // These two need no API server, so probes and administrators get in while it is down.
        let is_open = self.allowed_paths.allow(verb, path);
        if is_open || user.groups.iter().any(|it| it == PRIVILEGED_GROUP) {
            return Ok(Decision::Allowed);
        }
        let key = (user.clone(), verb.to_owned(), path.to_owned());
        if let Some(decision) = self.decisions.get(&key, Instant::now()) {
            return Ok(decision);
        }
        let status = self.reviews.access(user, verb, path)?;
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

#[cfg(test)]
mod tests {
    use super::AllowedPaths;

    #[test]
    fn paths_are_whole_or_prefixes() {
        let allowed = AllowedPaths::parse(&["/healthz", "readyz", "/debug/*", "/"]);
        let allowed = allowed.expect("good paths");
        for (path, expected) in [
            ("/healthz", true),
            ("/healthz/ping", false),
            ("/readyz", true),
            ("/debug/threads", true),
            ("/debug", false),
            ("/", true),
            ("/metrics", false),
        ] {
            assert_eq!(allowed.allow("GET", path), expected, "{path}");
            assert_eq!(allowed.allow("head", path), expected, "{path}");
            assert!(!allowed.allow("PUT", path), "{path}");
        }
        for path in ["/a*b", "/a**"] {
            AllowedPaths::parse(&[path]).expect_err(path);
        }
        let all = AllowedPaths::parse(&["*"]).expect("all paths");
        assert!(all.allow("GET", "/a"));
    }
}
