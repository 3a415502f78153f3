//! A scripted server, and a run of the reflector against it.

use std::collections::VecDeque;
use std::io;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;

use crate::api::{Pod, Status};
use crate::cache::list_watch::{ListQuery, WatchQuery};
use crate::cache::pods::CacheStats;
use crate::cache::reflector::{
    Body, Handler, Pace, Reflector, ReflectorOptions, ReflectorParts, Source,
};
use crate::cache::store::Store;
use crate::cache::{CacheEvent, PodStore};
use crate::client::{ClientError, StreamState, TransportError, TransportErrorKind};
use crate::stdx::clock::Clock;
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::testing::FakeClock;

/// Lists in pages; no resync.
pub(super) fn paged() -> ReflectorOptions {
    ReflectorOptions {
        streams_lists: false,
        ..streaming()
    }
}

/// Streams its lists; no resync.
pub(super) fn streaming() -> ReflectorOptions {
    ReflectorOptions {
        min_resync_period: Duration::ZERO,
        ..ReflectorOptions::default()
    }
}

/// One response of the server.
pub(super) enum Reply {
    /// A complete body.
    Body(String),
    /// A watch's messages. `stop`, `break`, `silence` and `blank`, which takes ten seconds, take
    /// the place of a message.
    Watch(Vec<String>, Duration),
    /// No response, or a status error.
    Fail(ClientError),
}

impl Reply {
    /// A list of pods such as `p1@5`, at this version and with this continue token.
    pub(super) fn list(version: &str, token: &str, pods: &[&str]) -> Self {
        let items: Vec<_> = pods.iter().map(|pod| pod_json(pod)).collect();
        let metadata = json!({"resourceVersion": version, "continue": token});
        Self::Body(json!({"kind": "PodList", "metadata": metadata, "items": items}).to_string())
    }

    /// A watch that sends these messages and is then closed.
    pub(super) fn watch(messages: &[String]) -> Self {
        Self::Watch(messages.to_vec(), Duration::ZERO)
    }

    /// The same watch, closed after `time`.
    pub(super) fn lasting(self, time: Duration) -> Self {
        match self {
            Self::Watch(messages, _) => Self::Watch(messages, time),
            other => other,
        }
    }
}

pub(super) fn pods(pods: &[&str]) -> Reply {
    Reply::list("1", "", pods)
}

pub(super) fn rejected(status: &Status) -> Reply {
    Reply::Fail(ClientError::Status(status.clone()))
}

pub(super) fn added(pod: &str) -> String {
    message("ADDED", &pod_json(pod))
}

pub(super) fn modified(pod: &str) -> String {
    message("MODIFIED", &pod_json(pod))
}

pub(super) fn deleted(pod: &str) -> String {
    message("DELETED", &pod_json(pod))
}

pub(super) fn bookmark(version: &str) -> String {
    let metadata = json!({"resourceVersion": version});
    message("BOOKMARK", &json!({"kind": "Pod", "metadata": metadata}))
}

pub(super) fn closing_bookmark(version: &str) -> String {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let metadata = json!({"resourceVersion": version, "annotations": annotations});
    message("BOOKMARK", &json!({"kind": "Pod", "metadata": metadata}))
}

pub(super) fn error(status: &Status) -> String {
    message(
        "ERROR",
        &serde_json::to_value(status.object()).expect("a status is JSON"),
    )
}

fn message(type_: &str, object: &serde_json::Value) -> String {
    json!({"type": type_, "object": object}).to_string()
}

fn pod_json(pod: &str) -> serde_json::Value {
    let (name, version) = pod.split_once('@').expect("name@version");
    json!({"kind": "Pod", "metadata": {
        "namespace": "n", "name": name, "uid": name, "resourceVersion": version,
    }})
}

fn text(pod: &Pod) -> String {
    format!("{}@{}", pod.key.name, pod.resource_version)
}

/// Everything that a run records, in order.
#[derive(Debug, Default)]
struct Notes {
    requests: Vec<String>,
    cached_at_requests: Vec<String>,
    outages_at_requests: Vec<Option<u64>>,
    delivered: Vec<String>,
    events: Vec<CacheEvent<Pod>>,
    synced_at_events: Vec<bool>,
    cached_at_events: Vec<String>,
    waits_ms: Vec<u128>,
    waits_allowed_at_reads: Vec<bool>,
    stop_at_event: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Notebook(Arc<Mutex<Notes>>);

impl Notebook {
    fn write<R>(&self, note: impl FnOnce(&mut Notes) -> R) -> R {
        note(&mut self.0.lock())
    }
}

/// One run of a reflector of pods.
pub(super) struct Run {
    pub(super) store: Arc<PodStore>,
    pub(super) stats: Arc<CacheStats>,
    options: ReflectorOptions,
    content_type: &'static str,
    notes: Notebook,
    stop: Stop,
}

impl Run {
    pub(super) fn new(options: ReflectorOptions) -> Self {
        Self {
            store: Arc::new(Store::new()),
            stats: Arc::default(),
            options,
            content_type: "application/json;stream=watch",
            notes: Notebook::default(),
            stop: Stop::new(),
        }
    }

    pub(super) fn stop(&self) {
        stop(&self.stop);
    }

    pub(super) fn stop_at_event(self, event: &str) -> Self {
        self.notes
            .write(|notes| notes.stop_at_event = Some(event.to_owned()));
        self
    }

    pub(super) fn with_content_type(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    /// Why the daemon ends; empty if the script ended the run.
    pub(super) fn failure(&self) -> String {
        match self.stop.cause() {
            Some(Cause::Failed(why)) => why,
            _ => String::new(),
        }
    }

    /// Runs until the first request without a scripted response.
    pub(super) fn play(self, replies: impl IntoIterator<Item = Reply>) -> Self {
        let pace = Arc::new(FakePace {
            clock: FakeClock::default(),
            notes: self.notes.clone(),
        });
        let source = ScriptedSource {
            replies: replies.into_iter().collect(),
            content_type: self.content_type,
            notes: self.notes.clone(),
            store: Arc::clone(&self.store),
            stats: Arc::clone(&self.stats),
            pace: Arc::clone(&pace),
            stop: self.stop.clone(),
        };
        let handler = Listener {
            notes: self.notes.clone(),
            store: Arc::clone(&self.store),
            stop: self.stop.clone(),
        };
        let parts = ReflectorParts::<Pod> {
            store: Arc::clone(&self.store),
            source: Box::new(source),
            handler: Box::new(handler),
            stats: Arc::clone(&self.stats),
            pace,
            if_forbidden: Some("bind a role".to_owned()),
            stop: self.stop.clone(),
        };
        Reflector::new(self.options, parts, || 0.0).run();
        self
    }

    #[track_caller]
    pub(super) fn requested(&self, expected: &[&str]) {
        assert_eq!(self.notes.write(|notes| notes.requests.clone()), expected);
    }

    /// The requests as `list 0`, `watch 10` or `stream 10`.
    pub(super) fn short_requests(&self) -> Vec<String> {
        let requests = self.notes.write(|notes| notes.requests.clone());
        let short = |request: &String| {
            let (verb, parameters) = request.split_once(' ')?;
            let mut parameters = parameters.split('&');
            let is_stream = request.contains("sendInitialEvents");
            let verb = if is_stream { "stream" } else { verb };
            let version = parameters.find_map(|p| p.strip_prefix("resourceVersion="));
            Some(format!("{verb} {}", version.unwrap_or_default()))
        };
        requests.iter().filter_map(short).collect()
    }

    /// Checks events, as `add p@1`, and positions, as `position 1`.
    #[track_caller]
    pub(super) fn delivered(&self, expected: &[&str]) {
        assert_eq!(self.notes.write(|notes| notes.delivered.clone()), expected);
    }

    pub(super) fn delivered_changes(&self) -> Vec<String> {
        let delivered = self.notes.write(|notes| notes.delivered.clone());
        let changes = delivered
            .into_iter()
            .filter(|line| !line.starts_with("position") && line != "recovered");
        changes.collect()
    }

    pub(super) fn cached(&self) -> Vec<String> {
        self.store.list().iter().map(|pod| text(pod)).collect()
    }

    pub(super) fn cached_at_requests(&self) -> Vec<String> {
        self.notes.write(|notes| notes.cached_at_requests.clone())
    }

    /// For each request, the seconds of the current outage.
    pub(super) fn outages_at_requests(&self) -> Vec<Option<u64>> {
        self.notes.write(|notes| notes.outages_at_requests.clone())
    }

    pub(super) fn events(&self) -> Vec<CacheEvent<Pod>> {
        self.notes.write(|notes| notes.events.clone())
    }

    pub(super) fn synced_at_events(&self) -> Vec<bool> {
        self.notes.write(|notes| notes.synced_at_events.clone())
    }

    pub(super) fn cached_at_events(&self) -> Vec<String> {
        self.notes.write(|notes| notes.cached_at_events.clone())
    }

    /// For each message of a watch, whether the read before it was allowed to wait.
    pub(super) fn waits_allowed_at_reads(&self) -> Vec<bool> {
        self.notes
            .write(|notes| notes.waits_allowed_at_reads.clone())
    }

    pub(super) fn waits(&self) -> Vec<u128> {
        self.notes.write(|notes| notes.waits_ms.clone())
    }
}

fn stop(stop: &Stop) {
    stop.stop(Cause::Requested("the script has ended".to_owned()));
}

/// A clock that each wait advances.
#[derive(Debug)]
struct FakePace {
    clock: FakeClock,
    notes: Notebook,
}

impl Clock for FakePace {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn wall(&self) -> Timestamp {
        self.clock.wall()
    }
}

impl Pace for FakePace {
    fn wait(&self, _stop: &Stop, timeout: Duration) {
        self.notes
            .write(|notes| notes.waits_ms.push(timeout.as_millis()));
        self.clock.advance(timeout);
    }
}

struct Listener {
    notes: Notebook,
    store: Arc<PodStore>,
    stop: Stop,
}

impl Handler<Pod> for Listener {
    fn on_event(&mut self, event: &CacheEvent<Pod>) {
        let (line, key) = match event {
            CacheEvent::Added(new) => (format!("add {}", text(new)), &new.key),
            CacheEvent::Updated { old, new } => {
                (format!("update {} {}", text(old), text(new)), &new.key)
            }
            CacheEvent::Deleted(last) => (format!("delete {}", text(last)), &last.key),
        };
        let cached = self
            .store
            .get(key)
            .map(|pod| text(&pod))
            .unwrap_or_default();
        let has_synced = self.store.has_synced();
        let is_last = self.notes.write(|notes| {
            notes.delivered.push(line.clone());
            notes.events.push(event.clone());
            notes.cached_at_events.push(cached);
            notes.synced_at_events.push(has_synced);
            notes.stop_at_event.as_ref() == Some(&line)
        });
        if is_last {
            stop(&self.stop);
        }
    }

    fn on_position(&mut self) {
        let line = format!("position {}", self.store.resource_version());
        self.notes.write(|notes| notes.delivered.push(line));
    }

    fn on_recovered(&mut self) {
        self.notes
            .write(|notes| notes.delivered.push("recovered".to_owned()));
    }
}

struct ScriptedSource {
    replies: VecDeque<Reply>,
    content_type: &'static str,
    notes: Notebook,
    store: Arc<PodStore>,
    stats: Arc<CacheStats>,
    pace: Arc<FakePace>,
    stop: Stop,
}

impl std::fmt::Debug for ScriptedSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedSource").finish_non_exhaustive()
    }
}

impl ScriptedSource {
    fn respond(
        &mut self,
        verb: &str,
        parameters: &[(&'static str, String)],
    ) -> Result<Body, ClientError> {
        let parameters = parameters.iter().filter(|(name, _)| *name != "watch");
        let parameters: Vec<_> = parameters
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let cached: Vec<_> = self.store.list().iter().map(|pod| text(pod)).collect();
        self.notes.write(|notes| {
            notes
                .requests
                .push(format!("{verb} {}", parameters.join("&")));
            notes.cached_at_requests.push(cached.join(" "));
            let outage = self.stats.outage(self.pace.now());
            let seconds = outage.map(|(outage, _)| outage.as_secs());
            notes.outages_at_requests.push(seconds);
        });
        let state = StreamState::new(Duration::from_mins(1));
        let body: Box<dyn Read + Send> = match self.replies.pop_front() {
            Some(Reply::Body(body)) => Box::new(io::Cursor::new(body)),
            Some(Reply::Watch(messages, time)) => Box::new(ScriptedWatch {
                messages: messages.into(),
                time,
                state: state.clone(),
                notes: self.notes.clone(),
                pace: Arc::clone(&self.pace),
                stop: self.stop.clone(),
            }),
            Some(Reply::Fail(error)) => return Err(error),
            None => {
                stop(&self.stop);
                return Err(ClientError::Stopped);
            }
        };
        Ok(Body {
            content_type: self.content_type.to_owned(),
            reader: body,
            state,
        })
    }
}

impl Source for ScriptedSource {
    fn open_list(&mut self, query: &ListQuery) -> Result<Body, ClientError> {
        self.respond("list", &query.parameters())
    }

    fn open_watch(&mut self, query: &WatchQuery) -> Result<Body, ClientError> {
        self.respond("watch", &query.parameters())
    }
}

/// Returns one message per read, so that the reflector handles each message before it reads the
/// next.
struct ScriptedWatch {
    messages: VecDeque<String>,
    time: Duration,
    state: StreamState,
    notes: Notebook,
    pace: Arc<FakePace>,
    stop: Stop,
}

impl Read for ScriptedWatch {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.messages.pop_front().as_deref() {
            Some("stop") => {
                stop(&self.stop);
                Err(io::Error::other(ClientError::Stopped))
            }
            last @ (None | Some("break" | "silence")) => {
                self.pace.clock.advance(std::mem::take(&mut self.time));
                match last {
                    None => Ok(0),
                    Some("silence") => Err(io::Error::other(silence())),
                    Some(_) => Err(io::ErrorKind::ConnectionReset.into()),
                }
            }
            Some("blank") => {
                self.pace.clock.advance(Duration::from_secs(10));
                buffer[0] = b'\n';
                Ok(1)
            }
            Some(message) => {
                let is_allowed = self.state.coalesces();
                self.notes
                    .write(|notes| notes.waits_allowed_at_reads.push(is_allowed));
                let line = format!("{message}\n");
                buffer[..line.len()].copy_from_slice(line.as_bytes());
                Ok(line.len())
            }
        }
    }
}

/// The error of a body's read after the silence timeout.
fn silence() -> ClientError {
    ClientError::Transport(TransportError {
        kind: TransportErrorKind::TimedOut,
        sent: true,
        message: "silent for 300 s".to_owned(),
    })
}

impl Drop for ScriptedWatch {
    fn drop(&mut self) {
        self.notes
            .write(|notes| notes.requests.push("close".to_owned()));
    }
}
