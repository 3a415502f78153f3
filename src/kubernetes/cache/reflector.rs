//! The reflector: a blocking loop that keeps one store equal to one collection on the server.
//!
//! Each reflector runs on its own thread (`watch-rs`, `watch-pods`), which the manager starts. It
//! executes the steps of a [`ListWatch`], applies the results to the [`Store`], and then calls the
//! handlers, on its own thread and without holding a lock. It blocks only on a request, a read, or
//! the delay after a failure; the stop signal ends all three.
//!
//! A server whose newest list is older than the store has lost writes, as after a restore of etcd,
//! and issues their versions a second time. The reflector then ends the daemon.
//!
//! A quiet and healthy watch logs nothing at the default level, however often the server closes it
//! and the reflector reopens it.

mod outage_log;

use std::fmt::Debug;
use std::io;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::outage_log::{Due, OutageLog, UnreadLog};
use super::decode::{Decode, Decoded, Frame, ListMetadata, StreamError, Unread, Watch, read_list};
use super::list_watch::{Effect, Failure, ListQuery, ListWatch, PageEnd, Seen, Step, WatchQuery};
use super::pods::{CacheStats, count};
use super::store::{CacheEvent, Collector, Indexed, Store};
use crate::api::ResourceVersion;
use crate::api::interner::Interner;
use crate::cache::decode::INITIAL_EVENTS_END;
use crate::cache::list_watch::{Older, Reaction};
use crate::client::{BodyStream, ClientError, Request, StreamClient, StreamState};
use crate::stdx::clock::Clock;
use crate::stdx::escape::report;
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::{thread, turns};

/// How long bytes may arrive without an object or message that can be read. Bookmarks come once in
/// 60 to 75 s.
const UNREADABLE_MAX: Duration = Duration::from_secs(90);

/// Receives the events of a watch. The watch thread calls it without holding a lock; a handler that
/// blocks delays the watch.
pub trait Handler<T>: Send {
    fn on_event(&mut self, event: &CacheEvent<T>);

    fn on_position(&mut self);

    /// The API server answers again after an outage: a watch is open, or a list is complete.
    fn on_recovered(&mut self) {}
}

/// The clock and the waits of the loop.
pub trait Pace: Clock {
    /// Blocks for `timeout`, or until `stop` is triggered.
    fn wait(&self, stop: &Stop, timeout: Duration);
}

impl Pace for crate::stdx::clock::SystemClock {
    fn wait(&self, stop: &Stop, timeout: Duration) {
        stop.wait_timeout(timeout);
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ReflectorOptions {
    /// Requests a list as the beginning of a watch, and in pages if that fails. False: in pages
    /// only.
    pub streams_lists: bool,
    /// Period of the resync, which delivers every object as an update to itself. The reflector
    /// multiplies it once by a random factor from 1 to 2. Zero disables the resync.
    pub min_resync_period: Duration,
    /// Lets a busy watch wait up to 10 ms before the next read, which saves most of its wake-ups.
    /// Never applies before the list is complete.
    pub coalesces_reads: bool,
}

impl Default for ReflectorOptions {
    fn default() -> Self {
        Self {
            streams_lists: true,
            // kube-controller-manager `--min-resync-period`.
            min_resync_period: Duration::from_hours(12),
            coalesces_reads: false,
        }
    }
}

pub struct ReflectorParts<T: Decode> {
    pub store: Arc<Store<T::Object>>,
    pub source: Box<dyn Source>,
    pub handler: Box<dyn Handler<T::Object>>,
    pub stats: Arc<CacheStats>,
    pub pace: Arc<dyn Pace>,
    /// The log message while the account may not list or watch: the consequence and the remedy.
    pub if_forbidden: Option<String>,
    pub stop: Stop,
}

/// Keeps one store equal to one collection on the server.
pub struct Reflector<T: Decode> {
    parts: ReflectorParts<T>,
    list_watch: ListWatch,
    /// The list that is being read.
    collector: Collector<T::Object>,
    interner: Interner,
    unread_log: UnreadLog,
    outage_log: OutageLog,
    coalesces_reads: bool,
    /// The open watch's switch.
    stream: Option<StreamState>,
    resync_period: Duration,
    next_resync: Option<Instant>,
    /// Time of the request for the list that is being read, or for its first page.
    list_began: Instant,
}

impl<T: Decode> Reflector<T> {
    /// `random` is uniform in `0.0..1.0`.
    pub fn new(
        options: ReflectorOptions,
        parts: ReflectorParts<T>,
        mut random: impl FnMut() -> f64 + Send + 'static,
    ) -> Self {
        let resync_period = options.min_resync_period.mul_f64(1.0 + random());
        let started = parts.pace.now();
        Self {
            parts,
            list_watch: ListWatch::new(options.streams_lists, random),
            collector: Collector::default(),
            interner: Interner::default(),
            unread_log: UnreadLog::default(),
            outage_log: OutageLog::default(),
            coalesces_reads: options.coalesces_reads,
            stream: None,
            resync_period,
            next_resync: (!resync_period.is_zero()).then(|| started + resync_period),
            list_began: started,
        }
    }

    /// Lists and watches until the stop signal, which also ends every wait: the source's requests
    /// and reads, and the delay after a failure.
    pub fn run(mut self) {
        while !self.parts.stop.is_stopped() {
            self.resync_if_due();
            let end = match self.list_watch.next_step(self.parts.pace.now()) {
                Step::Wait(timeout) => {
                    let _wait = thread::enter("waits to list or watch again", T::RESOURCE);
                    self.parts.pace.wait(&self.parts.stop, timeout);
                    continue;
                }
                Step::List(query) => {
                    let _list = thread::enter("list", T::RESOURCE);
                    self.list(&query)
                }
                Step::Watch(query) => {
                    let _watch = thread::enter("watch", T::RESOURCE);
                    self.watch(&query)
                }
            };
            // A stop makes requests fail too; such a failure needs no reaction.
            if !self.parts.stop.is_stopped() {
                self.react(end);
            }
        }
    }

    fn list(&mut self, query: &ListQuery) -> End {
        if query.continue_token.is_empty() {
            self.begin_list();
        }
        let body = match self.parts.source.open_list(query) {
            Ok(body) => body,
            Err(error) => return End::not_opened(&error),
        };
        let metadata = match self.read_page(body) {
            Ok(metadata) => metadata,
            Err(error) => return End::unread(&error),
        };
        match self
            .list_watch
            .on_page_end(&metadata, self.parts.pace.now())
        {
            PageEnd::Complete(resource_version) => self.replace(&resource_version),
            PageEnd::More => {}
            PageEnd::Older(older) => return End::Older(older),
            PageEnd::SamePage => {
                let why = "the API server returned the same continue token twice".to_owned();
                return End::Failed(Failure::Other, why);
            }
        }
        End::Page
    }

    fn read_page(&mut self, body: Body) -> Result<ListMetadata, StreamError> {
        // Lent, since each object is collected while the list is read.
        let mut interner = std::mem::take(&mut self.interner);
        let reader = self.bounded(body.reader);
        let mut collect = |object| {
            self.parts.stats.heard(self.parts.pace.now());
            self.collect(object);
        };
        let page = read_list::<T>(&body.content_type, reader, &mut interner, &mut collect);
        self.interner = interner;
        page
    }

    /// Opens a watch and reads it to its end.
    fn watch(&mut self, query: &WatchQuery) -> End {
        self.begin_list();
        let body = match self.parts.source.open_watch(query) {
            Ok(body) => body,
            Err(error) => return End::not_opened(&error),
        };
        count(&self.parts.stats.watches);
        let watch = match Watch::new(&body.content_type, self.bounded(body.reader)) {
            Ok(watch) => watch,
            Err(error) => return End::unread(&error),
        };
        self.stream = Some(body.state);
        // With a streamed list, the watch begins once the list is complete (see `on_frame`).
        if !query.send_initial_events {
            self.begin_watch();
            if self.outage_log.reopened() {
                self.parts.handler.on_recovered();
            }
        }
        self.read_watch(watch)
    }

    fn read_watch(&mut self, mut watch: Watch) -> End {
        loop {
            match watch.next_frame::<T>(&mut self.interner) {
                Ok(Some(Frame::Error(status))) => {
                    return End::Failed(Failure::of(&status), status.to_string());
                }
                Ok(Some(frame)) => match self.on_frame(frame) {
                    Effect::GiveUp => return End::Unended,
                    Effect::Older(older) => return End::Older(older),
                    Effect::Skip | Effect::Collect | Effect::Replace | Effect::Apply => {}
                },
                Ok(None) => return End::Closed(None),
                // A broken connection expires no version: the next watch continues from the last.
                Err(error @ StreamError::Io(_)) if Unreadable::in_error(&error).is_none() => {
                    return End::Closed(Some(error));
                }
                Err(error) => return End::unread(&error),
            }
            if self.parts.stop.is_stopped() {
                return End::Closed(None);
            }
            self.resync_if_due();
        }
    }

    fn on_frame(&mut self, frame: Frame<T::Object>) -> Effect {
        let (seen, resource_version) = match &frame {
            Frame::Added(object) => (Seen::Added, version_of(object)),
            Frame::Modified(object) | Frame::Deleted(object) => (Seen::Changed, version_of(object)),
            Frame::Bookmark {
                resource_version,
                is_initial_events_end,
            } => {
                let is_initial_events_end = *is_initial_events_end;
                let seen = Seen::Bookmark {
                    is_initial_events_end,
                };
                (seen, resource_version.clone())
            }
            Frame::Error(_) => return Effect::Skip,
            Frame::Foreign(description) => {
                self.unread_log.log_foreign(T::RESOURCE, description);
                return Effect::Skip;
            }
        };
        let now = self.parts.pace.now();
        self.parts.stats.heard(now);
        let effect = self.list_watch.on_event(seen, &resource_version, now);
        match effect {
            Effect::Skip | Effect::GiveUp | Effect::Older(_) => {}
            Effect::Collect => self.collect_frame(frame),
            Effect::Replace => {
                self.replace(&resource_version);
                self.begin_watch();
            }
            Effect::Apply => {
                self.end_outage(true);
                self.apply(frame, &resource_version);
            }
        }
        effect
    }

    fn bounded(&self, body: Box<dyn Read + Send>) -> Box<dyn Read + Send> {
        Box::new(Bounded {
            body,
            stats: Arc::clone(&self.parts.stats),
            pace: Arc::clone(&self.parts.pace),
            unread: None,
        })
    }

    /// Drops what an earlier, failed list has collected.
    fn begin_list(&mut self) {
        self.collector = Collector::default();
        self.list_began = self.parts.pace.now();
    }

    fn begin_watch(&self) {
        if let Some(stream) = &self.stream {
            stream.begin_watch(self.coalesces_reads);
        }
    }

    fn collect_frame(&mut self, frame: Frame<T::Object>) {
        match frame {
            Frame::Added(object) | Frame::Modified(object) => self.collect(object),
            Frame::Deleted(Ok(object)) => self.collector.remove(object.key()),
            Frame::Deleted(Err(unread)) => {
                self.on_unread(&unread);
                if let Some(unread) = unread.key {
                    self.collector.remove(&unread.key);
                }
            }
            Frame::Bookmark { .. } | Frame::Error(_) | Frame::Foreign(_) => {}
        }
    }

    fn collect(&mut self, object: Decoded<T::Object>) {
        match object {
            Ok(object) => self.collector.upsert(object, &self.parts.store),
            Err(unread) => {
                self.on_unread(&unread);
                if let Some(unread) = unread.key {
                    self.collector.upsert_unread(unread);
                }
            }
        }
    }

    fn apply(&mut self, frame: Frame<T::Object>, resource_version: &ResourceVersion) {
        let is_deleted = matches!(frame, Frame::Deleted(_));
        let event = match frame {
            Frame::Added(Ok(object)) | Frame::Modified(Ok(object)) => {
                self.parts.store.apply(object)
            }
            Frame::Deleted(Ok(object)) => self.parts.store.apply_deleted(object),
            Frame::Added(Err(unread))
            | Frame::Modified(Err(unread))
            | Frame::Deleted(Err(unread)) => {
                self.on_unread(&unread);
                // An undecodable object still advances the version: a sync may be waiting for it.
                // In one step with a removal: no sync takes the store for current before it.
                if let Some(key) = &unread.key {
                    self.parts
                        .store
                        .apply_unread(key, resource_version, is_deleted)
                } else {
                    self.parts.store.apply_bookmark(resource_version);
                    None
                }
            }
            Frame::Bookmark { .. } => {
                self.parts.store.apply_bookmark(resource_version);
                None
            }
            Frame::Error(_) | Frame::Foreign(_) => None,
        };
        if let Some(event) = event {
            self.deliver(&event);
        }
        self.parts.handler.on_position();
    }

    /// Makes the collected objects the store's contents.
    fn replace(&mut self, resource_version: &ResourceVersion) {
        self.parts.stats.heard(self.parts.pace.now());
        self.end_outage(false);
        let (objects, unread) = std::mem::take(&mut self.collector).finish();
        let n_objects = objects.len();
        let events = self.parts.store.replace(objects, &unread, resource_version);
        let n_events = events.len();
        turns::reached("reflector: replaced, before the handlers see it");
        // The store already has the new state, so a handler that reads it never sees an older one.
        for event in events {
            self.deliver(&event);
        }
        let resource = T::RESOURCE;
        if self.parts.store.has_synced() {
            count(&self.parts.stats.relists);
            log::debug!(
                "listed {n_objects} {resource} again, at version {resource_version}: \
                 {n_events} differences"
            );
        } else {
            let took = self.parts.pace.now() - self.list_began;
            log::info!("{n_objects} {resource} listed in {took:.1?}");
            // ORDER: the workers start to sync once both stores have synced, and by then the
            // handlers must have seen the complete first list.
            turns::reached("reflector: listed, before the store has synced");
            self.parts.store.set_synced();
        }
        self.parts.handler.on_position();
    }

    /// Delivers every object as an update to itself when the resync is due. The loop checks this
    /// between messages: a bookmark arrives about once a minute, and the period is hours. The
    /// handlers only compare and enqueue, so a resync takes milliseconds.
    fn resync_if_due(&mut self) {
        let now = self.parts.pace.now();
        if self.next_resync.is_none_or(|due| due > now) || !self.parts.store.has_synced() {
            return;
        }
        self.next_resync = Some(now + self.resync_period);
        let objects = self.parts.store.list();
        log::debug!("resync of {} {}", objects.len(), T::RESOURCE);
        for object in objects {
            let old = Arc::clone(&object);
            count(&self.parts.stats.events);
            self.parts
                .handler
                .on_event(&CacheEvent::Updated { old, new: object });
        }
    }

    fn deliver(&mut self, event: &CacheEvent<T::Object>) {
        count(&self.parts.stats.events);
        let (change, object) = match event {
            CacheEvent::Added(object) => ("added", object),
            CacheEvent::Updated { new, .. } => ("updated", new),
            CacheEvent::Deleted(object) => ("deleted", object),
        };
        let (key, version) = (object.key(), object.resource_version());
        // The first list is one line.
        if self.parts.store.has_synced() {
            log::debug!("{} {key} is {change} at version {version}", T::KIND);
        }
        self.parts.handler.on_event(event);
    }

    fn on_unread(&mut self, unread: &Unread) {
        count(&self.parts.stats.unread_objects);
        self.unread_log.log(T::KIND, unread);
    }
}

fn version_of<T: Indexed>(object: &Decoded<T>) -> ResourceVersion {
    match object {
        Ok(object) => object.resource_version().clone(),
        Err(unread) => unread.resource_version.clone(),
    }
}

enum End {
    Page,
    /// The watch is closed; with the reason, unless the server closed it.
    Closed(Option<StreamError>),
    /// The streamed list has no end.
    Unended,
    /// The list is complete, but older than the store.
    Older(Older),
    Failed(Failure, String),
    /// Since then only bytes arrived, and nothing that can be read.
    Unreadable(Instant, String),
}

impl<T: Decode> Reflector<T> {
    /// Reports the end of a request to the state machine and logs the reaction.
    fn react(&mut self, end: End) {
        match end {
            End::Page => {}
            End::Closed(error) => self.on_closed(error.as_ref()),
            End::Unended => {
                let reaction = self.list_watch.on_unended();
                self.log_unended(reaction);
            }
            End::Older(older) => self.on_older(older),
            End::Failed(failure, reason) => self.on_failed(failure, reason),
            End::Unreadable(since, reason) => {
                let (now, is_watch) = (self.parts.pace.now(), self.list_watch.is_watch());
                let reaction = self.list_watch.on_error(Failure::Other, now);
                self.fail(Failure::Other, reason, reaction, since);
                if is_watch {
                    self.outage_log.await_message();
                }
            }
        }
    }

    /// The store keeps what it has: nothing in this process may mix two histories.
    fn on_older(&mut self, older: Older) {
        let (resource, cached) = (T::RESOURCE, self.list_watch.last_resource_version());
        match older {
            Older::Lags(version) => {
                let reason = format!("the list has version {version}, older than {cached}");
                self.on_failed(Failure::TooLargeResourceVersion, reason);
            }
            Older::Restored(version) => self.parts.stop.stop(Cause::Failed(format!(
                "the resource version of {resource} went back from {cached} to {version}, as after \
                 an etcd restore; exiting so that the supervisor restarts the daemon with empty \
                 caches"
            ))),
        }
    }

    fn on_closed(&mut self, error: Option<&StreamError>) {
        let (now, resource) = (self.parts.pace.now(), T::RESOURCE);
        let reason = match error {
            Some(error) => report(error),
            None => "closed by the server".to_owned(),
        };
        let is_silent = error.is_some_and(StreamError::is_timeout);
        let reaction = if is_silent {
            self.list_watch.on_silent(now)
        } else {
            self.list_watch.on_closed(now)
        };
        match reaction {
            Reaction::FallBack if is_silent => self.log_unended(reaction),
            Reaction::Retry if error.is_none() => {
                log::debug!("watch of {resource} closed by the server, reopening it");
            }
            Reaction::Retry => {
                log::info!(error:% = reason; "watch of {resource} was interrupted; reopening it");
            }
            // A collection without changes has a silent watch. If there is another reason, the list
            // shows it.
            Reaction::Check(_) => {
                log::debug!(error:% = reason; "watch of {resource} was silent, {reaction}");
            }
            Reaction::BackOff(_) => self.fail(Failure::Other, reason, reaction, now),
            Reaction::EndCycle(_) | Reaction::FallBack => {
                log::warn!(error:% = reason; "watch of {resource} ended unexpectedly, {reaction}");
            }
        }
    }

    fn on_failed(&mut self, failure: Failure, reason: String) {
        let (resource, now) = (T::RESOURCE, self.parts.pace.now());
        match self.list_watch.on_error(failure, now) {
            reaction @ (Reaction::Retry | Reaction::FallBack) => {
                let is_known = self.outage_log.is_on();
                let level = [log::Level::Info, log::Level::Debug][usize::from(is_known)];
                log::log!(level, error:% = reason; "cannot list or watch {resource}, {reaction}");
            }
            reaction @ Reaction::EndCycle(_) if failure == Failure::Expired => {
                log::info!(error:% = reason; "watch of {resource} fell behind, {reaction}");
            }
            reaction => self.fail(failure, reason, reaction, now),
        }
    }

    /// Records and logs a failure that may be part of an outage. If it begins one, it does so at
    /// `since`.
    fn fail(&mut self, failure: Failure, reason: String, reaction: Reaction, since: Instant) {
        let resource = T::RESOURCE;
        let (began, due) = self
            .outage_log
            .failed(failure, since, self.parts.pace.now());
        let denied = self.parts.if_forbidden.as_deref();
        let denied = denied.filter(|_| failure == Failure::Forbidden);
        match denied {
            // The client reports rejected credentials itself, for all of its users.
            _ if due == Due::No || failure == Failure::Unauthorized => {
                log::debug!(error:% = reason; "cannot list or watch {resource}, {reaction}");
            }
            Some(denied) => {
                let is_first = due == Due::First;
                let level = [log::Level::Error, log::Level::Warn][usize::from(is_first)];
                log::log!(level, error:% = reason; "{denied}");
            }
            None => log::warn!(error:% = reason; "cannot list or watch {resource}, {reaction}"),
        }
        self.parts.stats.set_outage(Some((began, reason)));
    }

    fn log_unended(&self, reaction: Reaction) {
        let (resource, n_objects) = (T::RESOURCE, self.collector.len());
        log::warn!(
            "the streamed list of {resource} did not end: no bookmark with the annotation \
             {INITIAL_EVENTS_END} after {n_objects} objects; {reaction}, as with \
             --feature-gates=WatchListClient=false"
        );
    }

    /// Ends the outage, if there is one: a list is complete, or a message of a watch has arrived.
    fn end_outage(&mut self, by_message: bool) {
        let now = self.parts.pace.now();
        let Some((duration, was_reopened)) = self.outage_log.end(by_message, now) else {
            return;
        };
        self.parts.stats.set_outage(None);
        let (resource, seconds) = (T::RESOURCE, duration.as_secs_f64());
        log::info!("{resource} can be listed and watched again after {seconds:.1} s");
        if !was_reopened {
            self.parts.handler.on_recovered();
        }
    }
}

impl End {
    /// A list or a message cannot be read.
    fn unread(error: &StreamError) -> Self {
        match Unreadable::in_error(error) {
            Some(unreadable) => Self::Unreadable(unreadable.since, report(error)),
            None => Self::Failed(Failure::Other, report(error)),
        }
    }

    fn not_opened(error: &ClientError) -> Self {
        let failure = match error.status() {
            Some(status) => Failure::of(status),
            None if error.is_connection_refused() => Failure::ConnectionRefused,
            None if error.is_closed() => Failure::Unreachable,
            None => Failure::Other,
        };
        Self::Failed(failure, report(error))
    }
}

/// Opens lists and watches of one collection.
pub trait Source: Send {
    /// Requests a list or one page of it. Blocks until the response begins; the stop signal ends
    /// the wait.
    fn open_list(&mut self, query: &ListQuery) -> Result<Body, ClientError>;

    /// Opens a watch. Blocks until the response begins; the stop signal ends the wait.
    fn open_watch(&mut self, query: &WatchQuery) -> Result<Body, ClientError>;
}

pub struct Body {
    pub content_type: String,
    /// The response's body. Reads block until bytes arrive. They fail once the stop signal is
    /// triggered, or when no bytes arrive for too long.
    pub reader: Box<dyn Read + Send>,
    pub state: StreamState,
}

/// A body that fails if bytes arrive for too long without anything that can be read: blanks, or a
/// message without end. The body's own timeouts only limit its silence.
struct Bounded {
    body: Box<dyn Read + Send>,
    stats: Arc<CacheStats>,
    pace: Arc<dyn Pace>,
    /// What has arrived since something was read.
    unread: Option<Unreadable>,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{n_bytes} bytes without a whole message; they begin with {start:?}")]
struct Unreadable {
    /// Arrival of the first byte and of the last one.
    since: Instant,
    last: Instant,
    n_bytes: usize,
    start: String,
}

impl Unreadable {
    fn in_error(error: &StreamError) -> Option<&Self> {
        let StreamError::Io(error) = error else {
            return None;
        };
        error.get_ref()?.downcast_ref()
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let is_long =
            |from: Instant, to: Instant| to.saturating_duration_since(from) > UNREADABLE_MAX;
        self.unread
            .take_if(|unread| self.stats.was_notified_since(unread.since));
        if let Some(unread) = &self.unread
            && is_long(unread.since, self.pace.now())
        {
            return Err(io::Error::other(unread.clone()));
        }
        let n = self.body.read(buffer)?;
        let now = self.pace.now();
        // What arrives after a silence, which has its own limits, begins a message.
        self.unread.take_if(|unread| is_long(unread.last, now));
        if n > 0 {
            let unread = self.unread.get_or_insert_with(|| Unreadable {
                since: now,
                last: now,
                n_bytes: 0,
                start: String::from_utf8_lossy(&buffer[..n.min(32)]).into_owned(),
            });
            (unread.last, unread.n_bytes) = (now, unread.n_bytes + n);
        }
        Ok(n)
    }
}

pub struct Collection {
    client: StreamClient,
    path: String,
    accept: &'static str,
}

impl Collection {
    /// The collection at `path`, such as `/api/v1/pods`, requested in the encodings `accept`
    /// ([`ContentType::accept`](crate::cache::decode::ContentType::accept)).
    pub fn new(client: StreamClient, path: impl Into<String>, accept: &'static str) -> Self {
        Self {
            client,
            path: path.into(),
            accept,
        }
    }

    fn request(&self, parameters: Vec<(&'static str, String)>) -> Request {
        let request = Request::get(&*self.path).accept(self.accept);
        let parameters = parameters.into_iter();
        parameters.fold(request, |request, (name, value)| request.query(name, value))
    }
}

impl Source for Collection {
    fn open_list(&mut self, query: &ListQuery) -> Result<Body, ClientError> {
        let request = self.request(query.parameters());
        Ok(self.client.open_list(&request)?.into())
    }

    fn open_watch(&mut self, query: &WatchQuery) -> Result<Body, ClientError> {
        let request = self.request(query.parameters());
        Ok(self.client.open_watch(&request)?.into())
    }
}

impl From<BodyStream> for Body {
    fn from(body: BodyStream) -> Self {
        Self {
            content_type: body.content_type().to_owned(),
            state: body.state().clone(),
            reader: Box::new(body),
        }
    }
}

#[cfg(test)]
mod tests;
