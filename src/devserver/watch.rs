//! Watches: a cursor in the history of one resource. A slow client costs no memory; one that falls
//! behind the history is cut off and finds out by its next request, as with the real server.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::exchange::{ApiRequest, ChunkStream, Next, is_true};
use super::list::{FUTURE_VERSION_WAIT, parse_version};
use super::options;
use super::resource::Resource;
use super::selector::Scope;
use super::status_error::{FieldError, StatusError};
use super::store::{Change, Event, Object, State, Store, Stored};
use super::table::Form;

/// How often an idle watch says how far it is
/// (apiserver `pkg/storage/cacher/cacher.go:defaultBookmarkFrequency`).
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);

/// How long before its end a watch says how far it is
/// (apiserver `pkg/storage/cacher/cache_watcher.go:nextBookmarkTime`).
const CLOSING_BOOKMARK: Duration = Duration::from_secs(2);

/// A watch without a timeout of its own ends after this
/// (apiserver `pkg/server/config.go:MinRequestTimeout`, 1800 s to twice that).
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);

/// No client waits longer, and a time further off than this may not be a time at all.
const TIMEOUT_MAX: Duration = Duration::from_hours(24 * 365);

/// Most changes that are put into one chunk.
const EVENTS_PER_CHUNK: usize = 128;

/// One watch, pulled by its connection.
pub(super) struct Watch {
    store: Arc<Store>,
    resource: Resource,
    scope: Scope,
    form: Form,
    /// A frame with an object has been sent.
    has_sent: bool,
    /// All changes up to this version have been sent, or were not asked for.
    cursor: u64,
    /// What is there at the beginning and still has to be sent.
    initial: std::vec::IntoIter<Object>,
    /// The bookmark that ends the initial objects is still owed.
    owes_initial_end: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    /// Until then it does not look for changes, see [`Store::watch_rest`].
    rests_until: Instant,
    deadline: Instant,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Before the state is looked at, the server must have come to this version.
    Awaits {
        version: u64,
        since: Instant,
    },
    Begins {
        from: Option<u64>,
    },
    Runs,
    Refused(StatusError),
    Ended,
}

impl Watch {
    /// The watch that `request` asks for. Nothing is sent and nothing waited for yet.
    pub(super) fn new(
        store: Arc<Store>,
        resource: Resource,
        scope: Scope,
        request: &ApiRequest,
    ) -> Result<Self, StatusError> {
        let send_initial = request.query_value("sendInitialEvents");
        check_match(send_initial, request.query_value("resourceVersionMatch"))?;
        let text = request.query_value("resourceVersion");
        let malformed = || StatusError::malformed_watch_version(text);
        let version = parse_version(text).ok_or_else(malformed)?;
        let version = Some(version).filter(|version| *version > 0);
        let streaming = is_true(send_initial);
        let bookmarks = is_true(request.query_value("allowWatchBookmarks"));
        let phase = match version {
            Some(version) if streaming => Phase::Awaits {
                version,
                since: Instant::now(),
            },
            _ if !streaming && !send_initial.is_empty() && version.is_none() => Phase::Begins {
                from: Some(store.read(|state| state.version)),
            },
            from => Phase::Begins { from },
        };
        let seconds = options::number(request, "timeoutSeconds")?.unwrap_or(0);
        let seconds = u64::try_from(seconds).unwrap_or(0);
        let timeout = match seconds {
            0 => DEFAULT_TIMEOUT,
            seconds => Duration::from_secs(seconds),
        };
        let deadline = Instant::now() + timeout.min(TIMEOUT_MAX);
        let form = Form::asked_by(request)?;
        store.add_watch();
        Ok(Self {
            store,
            resource,
            scope,
            form,
            has_sent: false,
            cursor: 0,
            initial: Vec::new().into_iter(),
            owes_initial_end: streaming && bookmarks,
            bookmarks,
            next_bookmark: next_bookmark(deadline),
            rests_until: Instant::now(),
            deadline,
            phase,
        })
    }

    fn begin(&mut self, from: Option<u64>) {
        self.phase = Phase::Runs;
        let (resource, scope) = (self.resource, &self.scope);
        if let Some(version) = from {
            self.cursor = version;
            let forgotten = self.store.read(|state| state.shelf(resource).forgotten);
            if version < forgotten {
                self.phase = Phase::Refused(StatusError::too_old(version, forgotten));
            }
            return;
        }
        let (version, objects) = self.store.read(|state| {
            let objects = state.of_namespace(resource, scope.namespace.as_deref());
            let objects: Vec<Object> = objects.cloned().collect();
            (state.version, objects)
        });
        let objects = objects.into_iter().filter(|object| scope.matches(object));
        self.cursor = version;
        self.initial = objects.collect::<Vec<_>>().into_iter();
    }

    fn initial_chunk(&mut self) -> Option<Vec<u8>> {
        let mut chunk = Vec::new();
        let objects: Vec<Object> = self.initial.by_ref().take(EVENTS_PER_CHUNK).collect();
        for object in objects {
            self.write_frame("ADDED", &object, &mut chunk);
        }
        if self.initial.len() == 0 && std::mem::take(&mut self.owes_initial_end) {
            self.write_bookmark(self.cursor, true, &mut chunk);
        }
        (!chunk.is_empty()).then_some(chunk)
    }

    fn write_bookmark(&self, version: u64, ends_initial: bool, chunk: &mut Vec<u8>) {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, api_version) = (self.resource.kind(), self.resource.api_version());
        let empty = self.resource.empty();
        let mut object = format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata}{empty}}}"
        );
        if self.form != Form::Whole {
            let whole: Value = serde_json::from_str(&object).expect("it was just written");
            object = self.form.frame_bookmark(self.resource, whole).to_string();
        }
        let frame = format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n");
        chunk.extend_from_slice(frame.as_bytes());
    }

    /// What has changed since the cursor. Waits for a change, at most for `timeout`.
    fn changes(&self, timeout: Duration) -> Option<Changes> {
        let (resource, cursor) = (self.resource, self.cursor);
        self.store.wait(resource, timeout, |state: &State| {
            let shelf = state.shelf(resource);
            if shelf.forgotten > cursor {
                return Some(Changes::Forgotten);
            }
            let events: Vec<Event> = shelf
                .events_after(cursor)
                .take(EVENTS_PER_CHUNK)
                .cloned()
                .collect();
            (!events.is_empty()).then_some(Changes::Events(events))
        })
    }

    /// Lets the cursor follow the version that the other resources move, so that a quiet watch does
    /// not fall behind its own history when that is forgotten.
    fn catch_up(&mut self) {
        let (resource, cursor) = (self.resource, self.cursor);
        let caught_up = self.store.read(|state| {
            let shelf = state.shelf(resource);
            let is_all = shelf.forgotten <= cursor && shelf.events_after(cursor).next().is_none();
            is_all.then_some(state.version)
        });
        if let Some(version) = caught_up {
            self.cursor = cursor.max(version);
        }
    }

    fn chunk_of(&mut self, events: &[Event]) -> Option<Vec<u8>> {
        let mut chunk = Vec::new();
        for event in events {
            self.cursor = event.version;
            self.write_event(event, &mut chunk);
        }
        (!chunk.is_empty()).then_some(chunk)
    }

    /// What a change means to a watch depends on whether the object was and is in its scope.
    fn write_event(&mut self, event: &Event, chunk: &mut Vec<u8>) {
        let previous = event.previous.as_ref();
        let previous = previous.filter(|previous| self.scope.matches(previous));
        let is_in_scope = event.change != Change::Deleted && self.scope.matches(&event.object);
        match (previous, is_in_scope) {
            (None, false) => {}
            (None, true) => self.write_frame("ADDED", &event.object, chunk),
            (Some(_), true) => self.write_frame("MODIFIED", &event.object, chunk),
            (Some(_), false) if event.change == Change::Deleted => {
                self.write_frame("DELETED", &event.object, chunk);
            }
            (Some(previous), false) => {
                // It is sent as it last was in scope, at the version at which it left.
                let mut value = previous.value();
                value["metadata"]["resourceVersion"] = json!(event.version.to_string());
                let left = Stored::new(&previous.key, event.version, &value);
                self.write_frame("DELETED", &left, chunk);
            }
        }
    }

    fn write_frame(&mut self, kind: &str, object: &Stored, chunk: &mut Vec<u8>) {
        chunk.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
        let is_first = !std::mem::replace(&mut self.has_sent, true);
        if self.form == Form::Whole {
            object.write_full(self.resource, chunk);
        } else {
            let mut whole = object.value();
            whole["kind"] = json!(self.resource.kind());
            whole["apiVersion"] = json!(self.resource.api_version());
            let formed = self.form.frame_object(self.resource, &whole, is_first);
            chunk.extend_from_slice(formed.to_string().as_bytes());
        }
        chunk.extend_from_slice(b"}\n");
    }

    fn run(&mut self, timeout: Duration) -> Next {
        if let Some(chunk) = self.initial_chunk() {
            return Next::Chunk(chunk);
        }
        let until = Instant::now() + timeout;
        loop {
            let now = Instant::now();
            if now >= self.deadline {
                self.phase = Phase::Ended;
                return Next::End;
            }
            let rest = self.rests_until.saturating_duration_since(now);
            if !rest.is_zero() {
                // Waking too early does no harm, so nobody has to be told apart here.
                thread::park_timeout(rest.min(until.saturating_duration_since(now)));
                if Instant::now() >= until {
                    return Next::Idle;
                }
                continue;
            }
            let wake = until.min(self.deadline).min(self.next_bookmark);
            match self.changes(wake.saturating_duration_since(now)) {
                Some(Changes::Forgotten) => {
                    self.phase = Phase::Ended;
                    return Next::End;
                }
                Some(Changes::Events(events)) => {
                    self.rests_until = Instant::now() + self.store.watch_rest();
                    if let Some(chunk) = self.chunk_of(&events) {
                        return Next::Chunk(chunk);
                    }
                }
                None => self.catch_up(),
            }
            let now = Instant::now();
            if self.bookmarks && now >= self.next_bookmark && now < self.deadline {
                self.next_bookmark = next_bookmark(self.deadline);
                // A watch from the future is silent until the server has come there
                // (apiserver `pkg/storage/cacher/cache_watcher.go:process`).
                if self.store.read(|state| state.version) < self.cursor {
                    continue;
                }
                let mut chunk = Vec::new();
                self.write_bookmark(self.cursor, false, &mut chunk);
                return Next::Chunk(chunk);
            }
            if now >= until {
                return Next::Idle;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.store.remove_watch();
    }
}

enum Changes {
    Events(Vec<Event>),
    /// The history no longer reaches back to the cursor.
    Forgotten,
}

impl ChunkStream for Watch {
    fn next(&mut self, timeout: Duration) -> Next {
        match &self.phase {
            Phase::Awaits { version, since } => {
                let (version, since) = (*version, *since);
                // Another resource's change moves the version without waking this wait.
                let slice = timeout.min(Duration::from_millis(50));
                let reached = |state: &State| (state.version >= version).then_some(());
                if self.store.wait(self.resource, slice, reached).is_some() {
                    self.phase = Phase::Begins { from: None };
                } else if since.elapsed() >= FUTURE_VERSION_WAIT {
                    let current = self.store.read(|state| state.version);
                    self.phase = Phase::Refused(StatusError::too_large_version(version, current));
                }
                Next::Idle
            }
            Phase::Begins { from } => {
                self.begin(*from);
                Next::Idle
            }
            Phase::Refused(refusal) => {
                let frame = refusal.frame();
                self.phase = Phase::Ended;
                Next::Chunk(frame)
            }
            Phase::Runs => self.run(timeout),
            Phase::Ended => Next::End,
        }
    }
}

fn check_match(send_initial: &str, version_match: &str) -> Result<(), StatusError> {
    let why = match (send_initial, version_match) {
        ("", "") => return Ok(()),
        ("", _) => {
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        }
        (_, "NotOlderThan") => return Ok(()),
        _ => "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    };
    let error = FieldError::forbidden("resourceVersionMatch", why);
    Err(StatusError::invalid_list_options(error))
}

fn next_bookmark(deadline: Instant) -> Instant {
    let now = Instant::now();
    let closing = deadline.checked_sub(CLOSING_BOOKMARK);
    let closing = closing.filter(|closing| *closing > now);
    closing.unwrap_or(deadline).min(now + BOOKMARK_PERIOD)
}
