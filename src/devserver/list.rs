//! Lists: which version of the state they show, and their pages.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::json;

use super::exchange::{ApiRequest, ChunkStream, Next, Response};
use super::options;
use super::resource::Resource;
use super::selector::Scope;
use super::status_error::{FieldError, StatusError};
use super::store::{Object, State, Store, in_namespace};

/// How long a request waits for a version from the future
/// (apiserver `pkg/storage/cacher/watch_cache.go:blockTimeout`).
pub(super) const FUTURE_VERSION_WAIT: Duration = Duration::from_secs(3);

/// How much of a list is sent at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Answers a list of what is in `scope`.
pub(super) fn list(
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

/// Waits, at most for [`FUTURE_VERSION_WAIT`], until the server has come to `version`.
fn await_version(store: &Store, resource: Resource, version: u64) -> Result<(), StatusError> {
    // Another resource's change moves the version without waking this wait, so it looks again.
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

/// Reads a resource version of a query; an empty one reads as 0, which asks for any version.
pub(super) fn parse_version(text: &str) -> Option<u64> {
    if text.is_empty() {
        return Some(0);
    }
    text.parse().ok()
}

/// Which state a list shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Current,
    NotOlderThan(u64),
    Exact(u64),
}

struct Options {
    wanted: Wanted,
    /// 0 for no limit.
    limit: usize,
    /// The first key that may come.
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
        let limit = options::number(request, "limit")?.unwrap_or(0);
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
                // Answered from memory, which does not page. Events are not kept there.
                if resource != Resource::Events {
                    limit = 0;
                }
                Wanted::Current
            }
            version if version_match == "Exact" => Wanted::Exact(version),
            // Before there was a match parameter, a limit made a list exact.
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
        let token = BASE64_URL_SAFE_NO_PAD.decode(token.trim_end_matches('='));
        let token = token.ok().ok_or_else(invalid)?;
        let token: Option<serde_json::Value> = serde_json::from_slice(&token).ok();
        let token = token.ok_or_else(invalid)?;
        let version = token["rv"].as_i64().ok_or_else(invalid)?;
        let start = token["start"].as_str().ok_or_else(invalid)?;
        Ok(Self {
            // A version below zero asks for the rest as it is now.
            wanted: u64::try_from(version).map_or(Wanted::Current, Wanted::Exact),
            limit,
            start: Some(start.trim_start_matches('/').to_owned()),
        })
    }

    fn page(&self, state: &State, resource: Resource, scope: &Scope) -> Result<Page, StatusError> {
        let shelf = state.shelf(resource);
        let earlier;
        let (version, objects) = match self.wanted {
            Wanted::Exact(version) if version > state.version => {
                return Err(StatusError::too_large_version(version, state.version));
            }
            Wanted::Exact(version) => {
                let Some(objects) = shelf.objects_at(version) else {
                    return Err(match &self.start {
                        Some(start) => StatusError::continue_too_old(token_of(-1, start)),
                        None => StatusError::list_too_old(),
                    });
                };
                earlier = objects;
                (version, &earlier)
            }
            Wanted::Current | Wanted::NotOlderThan(_) => (state.version, &shelf.objects),
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
        let n_left = matching.count();
        let last = objects.last().filter(|_| n_left > 0);
        Page {
            version,
            // The key that comes directly after the last one on this page.
            continue_token: last.map(|last| {
                let version = i64::try_from(version).unwrap_or(i64::MAX);
                token_of(version, &format!("/{}\0", last.key))
            }),
            // With selectors the server cannot know without reading all.
            n_remaining: last.map(|_| n_left).filter(|_| !scope.has_selectors()),
            objects,
        }
    }
}

/// Refuses a version match that goes with no version, or that there is not.
pub(super) fn check_match(request: &ApiRequest) -> Result<(), StatusError> {
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
            let value = format!("\"{other}\"");
            let supported = "\"Exact\", \"NotOlderThan\", \"\"";
            let error = FieldError::not_supported("resourceVersionMatch", &value, supported);
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

/// A list as it is sent: never whole in memory as text.
struct ListStream {
    head: Option<Vec<u8>>,
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
        let (kind, api_version) = (resource.kind(), resource.api_version());
        let head = format!(
            "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\
             \"items\":["
        );
        Self {
            head: Some(head.into_bytes()),
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
            chunk.extend_from_slice(&object.json);
            self.n_sent += 1;
        }
        Next::Chunk(chunk)
    }
}
