//! Lists: the version they show, and their pages.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::body;
use crate::exchange::{ApiRequest, ChunkStream, Next, Response};
use crate::resource::Resource;
use crate::selector::Scope;
use crate::status_error::{FieldError, StatusError};
use crate::store::{Object, State, Store, in_namespace};

/// How long a request waits for a future version (apiserver
/// `pkg/storage/cacher/watch_cache.go:blockTimeout`).
pub(crate) const FUTURE_VERSION_WAIT: Duration = Duration::from_secs(3);

/// Bytes of a list per chunk.
const CHUNK_BYTES: usize = 64 * 1024;

/// Responds with the list of the objects in `scope`.
pub(crate) fn list(
    store: &Store,
    resource: Resource,
    scope: &Scope,
    request: &ApiRequest,
) -> Result<Response, StatusError> {
    let options = Options::read(resource, request)?;
    if let Wanted::NotOlderThan(version) = options.wanted {
        await_version(store, resource, version)?;
    }
    let page = store.read(|state| options.page(state, resource, scope))?;
    Ok(Response::stream(ListStream::new(resource, page)))
}

/// Blocks until the server reaches `version`, at most for [`FUTURE_VERSION_WAIT`].
fn await_version(store: &Store, resource: Resource, version: u64) -> Result<(), StatusError> {
    // A change of another resource moves the version without waking this wait, so the loop polls.
    const SLICE: Duration = Duration::from_millis(50);
    let deadline = Instant::now() + FUTURE_VERSION_WAIT;
    let reached = |state: &State| (state.version >= version).then_some(());
    while store.wait(resource, SLICE, reached).is_none() {
        if Instant::now() >= deadline {
            let current = store.read(|state| state.version);
            return Err(StatusError::too_large_version(version, current));
        }
    }
    Ok(())
}

/// Parses a resource version; an empty one becomes 0, which means any version.
pub(crate) fn parse_version(text: &str) -> Option<u64> {
    if text.is_empty() {
        return Some(0);
    }
    text.parse().ok()
}

/// The state that a list shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Current,
    NotOlderThan(u64),
    Exact(u64),
}

struct Options {
    wanted: Wanted,
    /// 0 means no limit.
    limit: usize,
    /// The first key of the page.
    start: Option<String>,
}

struct Page {
    version: u64,
    objects: Vec<Object>,
    continue_token: Option<String>,
    n_remaining: Option<usize>,
}

impl Options {
    fn read(resource: Resource, request: &ApiRequest) -> Result<Self, StatusError> {
        let version = request.query_value("resourceVersion");
        let version_match = request.query_value("resourceVersionMatch");
        let limit = body::number(request, "limit")?.unwrap_or(0);
        let mut limit = usize::try_from(limit).unwrap_or(0);
        let token = request.query_value("continue");
        if !request.query_value("sendInitialEvents").is_empty() {
            let why = "sendInitialEvents is forbidden for list";
            let error = FieldError::forbidden("sendInitialEvents", why);
            return Err(StatusError::invalid_list_options(error));
        }
        if !token.is_empty() {
            let options = Self::of_token(token, limit)?;
            if !matches!(version, "" | "0") {
                return Err(StatusError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            return Ok(options);
        }
        check_match(request)?;
        let malformed = || StatusError::malformed_list_version(version);
        let wanted = match parse_version(version).ok_or_else(malformed)? {
            0 if version.is_empty() => Wanted::Current,
            0 => {
                // Upstream serves this from its watch cache, which does not page. The cache has no
                // events.
                if resource != Resource::Events {
                    limit = 0;
                }
                Wanted::Current
            }
            version if version_match == "Exact" => Wanted::Exact(version),
            // Before `resourceVersionMatch` existed, a limit made the version exact.
            version if version_match.is_empty() && limit > 0 => Wanted::Exact(version),
            version => Wanted::NotOlderThan(version),
        };
        Ok(Self {
            wanted,
            limit,
            start: None,
        })
    }

    fn of_token(token: &str, limit: usize) -> Result<Self, StatusError> {
        let invalid =
            || StatusError::bad_request("invalid continue token: continue key is not valid");
        let token = BASE64_URL_SAFE_NO_PAD
            .decode(token.trim_end_matches('='))
            .ok();
        let token = token.and_then(|token| serde_json::from_slice::<Value>(&token).ok());
        let token = token.ok_or_else(invalid)?;
        let version = token["rv"].as_i64().ok_or_else(invalid)?;
        let start = token["start"].as_str().ok_or_else(invalid)?;
        Ok(Self {
            // A negative version asks for the remaining items in the current state.
            wanted: u64::try_from(version).map_or(Wanted::Current, Wanted::Exact),
            limit,
            start: Some(start.trim_start_matches('/').to_owned()),
        })
    }

    fn page(&self, state: &State, resource: Resource, scope: &Scope) -> Result<Page, StatusError> {
        let collection = state.collection(resource);
        let earlier;
        let (version, objects) = match self.wanted {
            Wanted::Exact(version) if version > state.version => {
                return Err(StatusError::too_large_version(version, state.version));
            }
            Wanted::Exact(version) => {
                let Some(objects) = collection.objects_at(version) else {
                    return Err(match &self.start {
                        Some(start) => StatusError::continue_too_old(token_of(-1, start)),
                        None => StatusError::list_too_old(),
                    });
                };
                earlier = objects;
                (version, &earlier)
            }
            Wanted::Current | Wanted::NotOlderThan(_) => (state.version, &collection.objects),
        };
        Ok(self.cut(version, objects, scope))
    }

    fn cut(&self, version: u64, objects: &BTreeMap<Box<str>, Object>, scope: &Scope) -> Page {
        let start = self.start.as_deref().unwrap_or_default();
        let mut matching = in_namespace(objects, scope.namespace.as_deref())
            .filter(|object| *object.key >= *start && scope.matches(object));
        let limit = if self.limit == 0 {
            usize::MAX
        } else {
            self.limit
        };
        let objects: Vec<Object> = matching.by_ref().take(limit).cloned().collect();
        let n_remaining = matching.count();
        let last = objects.last().filter(|_| n_remaining > 0);
        Page {
            version,
            // The smallest key after the last one of this page.
            continue_token: last.map(|last| {
                let version = i64::try_from(version).unwrap_or(i64::MAX);
                token_of(version, &format!("/{}\0", last.key))
            }),
            // With selectors, kube-apiserver cannot count without reading all objects.
            n_remaining: last.map(|_| n_remaining).filter(|_| !scope.has_selectors()),
            objects,
        }
    }
}

/// Rejects a `resourceVersionMatch` that is unknown or does not fit the version.
pub(crate) fn check_match(request: &ApiRequest) -> Result<(), StatusError> {
    let version = request.query_value("resourceVersion");
    let version_match = request.query_value("resourceVersionMatch");
    if !request.query_value("continue").is_empty() {
        return Ok(());
    }
    let why = match (version_match, version) {
        ("NotOlderThan" | "Exact", "") => {
            "resourceVersionMatch is forbidden unless resourceVersion is provided"
        }
        ("Exact", "0") => "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ("" | "NotOlderThan" | "Exact", _) => return Ok(()),
        (other, _) => {
            let (field, supported) = ("resourceVersionMatch", ["Exact", "NotOlderThan", ""]);
            let error = FieldError::not_supported(field, other, &supported);
            return Err(StatusError::invalid_list_options(error));
        }
    };
    let error = FieldError::forbidden("resourceVersionMatch", why);
    Err(StatusError::invalid_list_options(error))
}

fn token_of(version: i64, start: &str) -> String {
    let token = json!({"v": "meta.k8s.io/v1", "rv": version, "start": start});
    BASE64_URL_SAFE_NO_PAD.encode(token.to_string())
}

/// A list in transit, never fully in memory as text.
struct ListStream {
    head: Option<Vec<u8>>,
    resource: Resource,
    objects: std::vec::IntoIter<Object>,
    n_sent: usize,
}

impl ListStream {
    fn new(resource: Resource, page: Page) -> Self {
        let mut metadata = json!({"resourceVersion": page.version.to_string()});
        if let Some(token) = page.continue_token {
            metadata["continue"] = json!(token);
        }
        if let Some(n_remaining) = page.n_remaining {
            metadata["remainingItemCount"] = json!(n_remaining);
        }
        let (kind, api_version) = (&resource.row().list_kind, resource.api_version());
        let head = format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\
             \"items\":["
        );
        Self {
            head: Some(head.into_bytes()),
            resource,
            objects: page.objects.into_iter(),
            n_sent: 0,
        }
    }
}

impl ChunkStream for ListStream {
    fn next(&mut self, _: Duration) -> Next {
        let mut chunk = self.head.take().unwrap_or_default();
        if self.n_sent == usize::MAX {
            return Next::End;
        }
        while chunk.len() < CHUNK_BYTES {
            let Some(object) = self.objects.next() else {
                self.n_sent = usize::MAX;
                chunk.extend_from_slice(b"]}");
                break;
            };
            if self.n_sent > 0 {
                chunk.push(b',');
            }
            chunk.extend_from_slice(&object.text(self.resource));
            self.n_sent += 1;
        }
        Next::Chunk(chunk)
    }
}
