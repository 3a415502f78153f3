//! Watches: a cursor in the history of one resource. A slow client costs no memory. A client that
//! falls behind the history is disconnected and gets 410 on its next request, as with
//! kube-apiserver.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::body;
use crate::exchange::{ApiRequest, ChunkStream, Next, is_true};
use crate::list::{FUTURE_VERSION_WAIT, parse_version};
use crate::resource::Resource;
use crate::selector::Scope;
use crate::status_error::{FieldError, StatusError};
use crate::store::{Change, Event, Object, State, Store, Stored};
use crate::table::Form;

/// How often an idle watch sends a bookmark (apiserver
/// `pkg/storage/cacher/cacher.go:defaultBookmarkFrequency`).
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);

/// How long before its end a watch sends a bookmark (apiserver
/// `pkg/storage/cacher/cache_watcher.go:nextBookmarkTime`).
const CLOSING_BOOKMARK: Duration = Duration::from_secs(2);

/// The timeout of a watch without `timeoutSeconds` (apiserver
/// `pkg/server/config.go:MinRequestTimeout`, 1800 s to twice that).
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(30);

/// Maximum timeout: an `Instant` much further ahead may overflow.
const TIMEOUT_MAX: Duration = Duration::from_hours(24 * 365);

/// Maximum changes per chunk.
const EVENTS_PER_CHUNK: usize = 128;

pub(crate) struct Watch {
    store: Arc<Store>,
    resource: Resource,
    scope: Scope,
    form: Form,
    /// True after the first frame with an object.
    has_sent: bool,
    /// The version up to which all changes have been sent or skipped.
    cursor: u64,
    /// Initial objects not sent yet.
    initial: std::vec::IntoIter<Object>,
    /// True until the bookmark after the initial objects is sent.
    needs_initial_end: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    /// No reads of the state before this time, see [`Store::watch_pause`].
    paused_until: Instant,
    deadline: Instant,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The server must reach this version before the watch begins.
    Awaits {
        version: u64,
        since: Instant,
    },
    Begins {
        from: Option<u64>,
    },
    Runs,
    Failed(StatusError),
    Ended,
}

impl Watch {
    /// Creates the watch of `request`. Sends nothing and does not block.
    pub(crate) fn new(
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
        let seconds = body::number(request, "timeoutSeconds")?.unwrap_or(0);
        let seconds = u64::try_from(seconds).unwrap_or(0);
        let timeout = match seconds {
            0 => DEFAULT_TIMEOUT,
            seconds => Duration::from_secs(seconds),
        };
        let deadline = Instant::now() + timeout.min(TIMEOUT_MAX);
        let form = Form::requested_by(request)?;
        store.add_watch();
        Ok(Self {
            store,
            resource,
            scope,
            form,
            has_sent: false,
            cursor: 0,
            initial: Vec::new().into_iter(),
            needs_initial_end: streaming && bookmarks,
            bookmarks,
            next_bookmark: next_bookmark(deadline),
            paused_until: Instant::now(),
            deadline,
            phase,
        })
    }

    fn begin(&mut self, from: Option<u64>) {
        self.phase = Phase::Runs;
        let (resource, scope) = (self.resource, &self.scope);
        if let Some(version) = from {
            self.cursor = version;
            let forgotten = self
                .store
                .read(|state| state.collection(resource).forgotten);
            if version < forgotten {
                self.phase = Phase::Failed(StatusError::too_old(version, forgotten));
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
        if self.initial.len() == 0 && std::mem::take(&mut self.needs_initial_end) {
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
        let empty = &self.resource.row().empty;
        let mut object = format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata}\
             {empty}}}"
        );
        if self.form != Form::Whole {
            let whole: Value = serde_json::from_str(&object).expect("it was just written");
            object = self.form.frame_bookmark(self.resource, whole).to_string();
        }
        let frame = format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n");
        chunk.extend_from_slice(frame.as_bytes());
    }

    /// The changes since the cursor. Blocks for a change, at most for `timeout`.
    fn changes(&self, timeout: Duration) -> Option<Changes> {
        let (resource, cursor) = (self.resource, self.cursor);
        self.store.wait(resource, timeout, |state: &State| {
            let collection = state.collection(resource);
            if collection.forgotten > cursor {
                return Some(Changes::Forgotten);
            }
            let events: Vec<Event> = collection
                .events_after(cursor)
                .take(EVENTS_PER_CHUNK)
                .cloned()
                .collect();
            (!events.is_empty()).then_some(Changes::Events(events))
        })
    }

    /// Moves the cursor to the current version, which other resources advance. A quiet watch thus
    /// does not fall behind its own history.
    fn catch_up(&mut self) {
        let (resource, cursor) = (self.resource, self.cursor);
        let caught_up = self.store.read(|state| {
            let collection = state.collection(resource);
            let is_current =
                collection.forgotten <= cursor && collection.events_after(cursor).next().is_none();
            is_current.then_some(state.version)
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

    /// The frame type depends on whether the object was and is in the watch's scope.
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
                // The frame has the last state in scope, with the version of the change.
                let mut value = previous.value();
                value["metadata"]["resourceVersion"] = json!(event.version.to_string());
                let last_in_scope = Stored::new(&previous.key, event.version, &value);
                self.write_frame("DELETED", &last_in_scope, chunk);
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
            let converted = self.form.frame_object(self.resource, &whole, is_first);
            chunk.extend_from_slice(converted.to_string().as_bytes());
        }
        chunk.extend_from_slice(b"}\n");
    }

    /// True if a bookmark is due, even when a slow machine sees it only after the deadline.
    fn owes_bookmark(&self, now: Instant) -> bool {
        self.bookmarks && now >= self.next_bookmark && self.next_bookmark < self.deadline
    }

    fn run(&mut self, timeout: Duration) -> Next {
        if let Some(chunk) = self.initial_chunk() {
            return Next::Chunk(chunk);
        }
        let until = Instant::now() + timeout;
        loop {
            let now = Instant::now();
            if now >= self.deadline && !self.owes_bookmark(now) {
                self.phase = Phase::Ended;
                return Next::End;
            }
            let pause = self.paused_until.saturating_duration_since(now);
            if !pause.is_zero() {
                // An early wake-up is harmless, so the code does not check for it.
                thread::park_timeout(pause.min(until.saturating_duration_since(now)));
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
                    self.paused_until = Instant::now() + self.store.watch_pause();
                    if let Some(chunk) = self.chunk_of(&events) {
                        return Next::Chunk(chunk);
                    }
                }
                None => self.catch_up(),
            }
            let now = Instant::now();
            if self.owes_bookmark(now) {
                self.next_bookmark = next_bookmark(self.deadline);
                // A watch from a future version stays silent until the server reaches it (apiserver
                // `pkg/storage/cacher/cache_watcher.go:process`).
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
                // A change of another resource moves the version without waking this wait.
                let slice = timeout.min(Duration::from_millis(50));
                let reached = |state: &State| (state.version >= version).then_some(());
                if self.store.wait(self.resource, slice, reached).is_some() {
                    self.phase = Phase::Begins { from: None };
                } else if since.elapsed() >= FUTURE_VERSION_WAIT {
                    let current = self.store.read(|state| state.version);
                    self.phase = Phase::Failed(StatusError::too_large_version(version, current));
                }
                Next::Idle
            }
            Phase::Begins { from } => {
                self.begin(*from);
                Next::Idle
            }
            Phase::Failed(error) => {
                let frame = error.frame();
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
