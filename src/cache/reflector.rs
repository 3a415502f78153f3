//! The reflector: a blocking loop that keeps one store equal to one collection on the server.
//!
//! Each reflector runs on its own thread (`watch-rs`, `watch-pods`), which the manager starts. It
//! executes the steps of a [`ListWatch`], applies the results to the [`Store`], and then calls the
//! handlers, on its own thread and without holding a lock. It blocks only on a request, a read, or
//! the delay after a failure; the stop signal ends all three.
//!
//! A quiet and healthy watch logs nothing at the default level, however often the server closes it
//! and the reflector reopens it.

mod end;
mod outage_log;
mod source;
mod unread_log;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::end::End;
use self::outage_log::OutageLog;
pub use self::source::{Body, Collection, Source};
use self::unread_log::UnreadLog;
use super::collector::Collector;
use super::decode::{Decode, Decoded, Frame, ListMetadata, ReadWatch, StreamError, Unread};
use super::encoding::{read_list, read_watch};
use super::event::CacheEvent;
use super::list_watch::{Effect, Failure, ListQuery, ListWatch, PageEnd, Seen, Step, WatchQuery};
use super::stats::{CacheStats, count};
use super::store::{Indexed, Store};
use crate::api::ResourceVersion;
use crate::api::interner::Interner;
use crate::client::ReadCoalescing;
use crate::stdx::activity;
use crate::stdx::clock::Clock;
use crate::stdx::report::report;
use crate::stdx::stop::Stop;
use crate::stdx::turns;

/// Receives the events of a watch. The watch thread calls it without holding a lock; a handler that
/// blocks delays the watch.
pub trait Handler<T>: Send {
    /// The server was restored from a backup: the store still shows a newer state than the list
    /// whose events follow. Writes since the backup may be lost, and the server issues versions
    /// a second time.
    fn on_rewind(&mut self);

    /// The store has changed.
    fn on_event(&mut self, event: &CacheEvent<T>);

    /// All events up to the store's version have been delivered.
    fn on_position(&mut self);
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

/// Options of a reflector.
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

/// The dependencies of a reflector.
pub struct ReflectorParts<T: Decode> {
    /// The store to keep equal to the server.
    pub store: Arc<Store<T::Object>>,
    /// Opens the lists and watches.
    pub source: Box<dyn Source>,
    /// Receives the events.
    pub handler: Box<dyn Handler<T::Object>>,
    /// The counters.
    pub stats: Arc<CacheStats>,
    /// Clock and waits.
    pub pace: Arc<dyn Pace>,
    /// Uniform in `0.0..1.0`.
    pub random: Box<dyn FnMut() -> f64 + Send>,
    /// Ends the reflector.
    pub stop: Stop,
}

/// Keeps one store equal to one collection on the server.
pub struct Reflector<T: Decode> {
    store: Arc<Store<T::Object>>,
    source: Box<dyn Source>,
    handler: Box<dyn Handler<T::Object>>,
    stats: Arc<CacheStats>,
    pace: Arc<dyn Pace>,
    stop: Stop,
    list_watch: ListWatch,
    /// The list that is being read.
    collector: Collector<T::Object>,
    interner: Interner,
    unread_log: UnreadLog,
    outage_log: OutageLog,
    coalesces_reads: bool,
    /// The open watch's switch, if `coalesces_reads`.
    coalescing: Option<ReadCoalescing>,
    resync_period: Duration,
    next_resync: Option<Instant>,
    started: Instant,
}

impl<T: Decode> Reflector<T> {
    /// Creates a reflector without starting it.
    pub fn new(options: ReflectorOptions, mut parts: ReflectorParts<T>) -> Self {
        let resync_period = options.min_resync_period.mul_f64(1.0 + (parts.random)());
        let started = parts.pace.now();
        Self {
            store: parts.store,
            source: parts.source,
            handler: parts.handler,
            stats: parts.stats,
            pace: parts.pace,
            stop: parts.stop,
            list_watch: ListWatch::new(options.streams_lists, parts.random),
            collector: Collector::default(),
            interner: Interner::default(),
            unread_log: UnreadLog::default(),
            outage_log: OutageLog::default(),
            coalesces_reads: options.coalesces_reads,
            coalescing: None,
            resync_period,
            next_resync: (!resync_period.is_zero()).then(|| started + resync_period),
            started,
        }
    }

    /// Lists and watches until the stop signal, which also ends every wait: the source's requests
    /// and reads, and the delay after a failure.
    pub fn run(mut self) {
        while !self.stop.is_stopped() {
            self.resync_if_due();
            let end = match self.list_watch.next_step(self.pace.now()) {
                Step::Wait(timeout) => {
                    let _wait = activity::enter("waits to list or watch again", T::RESOURCE);
                    self.pace.wait(&self.stop, timeout);
                    continue;
                }
                Step::List(query) => {
                    let _list = activity::enter("list", T::RESOURCE);
                    self.list(&query)
                }
                Step::Watch(query) => {
                    let _watch = activity::enter("watch", T::RESOURCE);
                    self.watch(&query)
                }
            };
            // A stop makes requests fail too; such a failure needs no reaction.
            if !self.stop.is_stopped() {
                self.react(end);
            }
        }
    }

    /// Reads one page.
    fn list(&mut self, query: &ListQuery) -> End {
        if query.continue_token.is_empty() {
            // A list starts over: drop what an earlier, failed one has collected.
            self.collector = Collector::default();
        }
        let body = match self.source.open_list(query) {
            Ok(body) => body,
            Err(error) => return End::not_opened(&error),
        };
        self.outage_log.opened(T::RESOURCE, self.pace.now());
        let metadata = match self.read_page(body.recorded_in(&self.stats)) {
            Ok(metadata) => metadata,
            Err(error) => return End::Failed(Failure::Other, report(&error)),
        };
        match self.list_watch.on_page_end(&metadata, self.pace.now()) {
            PageEnd::Complete(resource_version) => self.replace(&resource_version),
            PageEnd::More => {}
            PageEnd::SamePage => {
                let why = "the API server returned the same continue token twice".to_owned();
                return End::Failed(Failure::Other, why);
            }
        }
        End::Page
    }

    fn read_page(&mut self, body: Body) -> Result<ListMetadata, StreamError> {
        let mut list = read_list::<T>(&body.content_type, body.reader)?;
        while let Some(object) = list.next_object(&mut self.interner)? {
            self.collect(object);
        }
        Ok(list.metadata().clone())
    }

    /// Opens a watch and reads it to its end.
    fn watch(&mut self, query: &WatchQuery) -> End {
        self.collector = Collector::default();
        let body = match self.source.open_watch(query) {
            Ok(body) => body,
            Err(error) => return End::not_opened(&error),
        };
        self.outage_log.opened(T::RESOURCE, self.pace.now());
        count(&self.stats.watches);
        self.coalescing = self.coalesces_reads.then(|| body.coalescing.clone());
        // With a streamed list, reads may wait only once the list is complete (see `on_frame`).
        if !query.send_initial_events {
            self.allow_coalescing();
        }
        let body = body.recorded_in(&self.stats);
        match read_watch(&body.content_type, body.reader) {
            Ok(watch) => self.read_watch(watch),
            Err(error) => End::Failed(Failure::Other, report(&error)),
        }
    }

    fn read_watch(&mut self, mut watch: Box<dyn ReadWatch<T>>) -> End {
        loop {
            match watch.next_frame(&mut self.interner) {
                Ok(Some(Frame::Error(status))) => {
                    return End::Failed(Failure::of(&status), status.to_string());
                }
                Ok(Some(frame)) => self.on_frame(frame),
                Ok(None) => return End::Closed(None),
                // A broken connection expires no version: the next watch continues from the last.
                Err(error @ StreamError::Io(_)) => return End::Closed(Some(error)),
                Err(error) => return End::Failed(Failure::Other, report(&error)),
            }
            if self.stop.is_stopped() {
                return End::Closed(None);
            }
            self.resync_if_due();
        }
    }

    fn on_frame(&mut self, frame: Frame<T::Object>) {
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
            Frame::Error(_) => return,
            Frame::Foreign(description) => {
                self.unread_log.log_foreign(T::RESOURCE, description);
                return;
            }
        };
        match self.list_watch.on_event(seen, &resource_version) {
            Effect::Skip => {}
            Effect::Collect => self.collect_frame(frame),
            Effect::Replace => {
                self.replace(&resource_version);
                self.allow_coalescing();
            }
            Effect::Apply => self.apply(frame, &resource_version),
        }
    }

    fn allow_coalescing(&self) {
        if let Some(coalescing) = &self.coalescing {
            coalescing.allow();
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
            Ok(object) => self.collector.upsert(object, &self.store),
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
            Frame::Added(Ok(object)) | Frame::Modified(Ok(object)) => self.store.apply(object),
            Frame::Deleted(Ok(object)) => self.store.apply_deleted(object),
            Frame::Added(Err(unread))
            | Frame::Modified(Err(unread))
            | Frame::Deleted(Err(unread)) => {
                self.on_unread(&unread);
                // An undecodable object still advances the version: a sync may be waiting for it.
                // In one step with a removal: no sync takes the store for current before it.
                if let Some(key) = &unread.key {
                    self.store.apply_unread(key, resource_version, is_deleted)
                } else {
                    self.store.apply_bookmark(resource_version);
                    None
                }
            }
            Frame::Bookmark { .. } => {
                self.store.apply_bookmark(resource_version);
                None
            }
            Frame::Error(_) | Frame::Foreign(_) => None,
        };
        if let Some(event) = event {
            self.deliver(&event);
        }
        self.handler.on_position();
    }

    /// Makes the collected objects the store's contents.
    fn replace(&mut self, resource_version: &ResourceVersion) {
        let (objects, unread) = std::mem::take(&mut self.collector).finish();
        let n_objects = objects.len();
        if self.store.is_ahead_of(resource_version) {
            log::warn!(
                "the API server has gone back from version {} to {resource_version}, as after a \
                 restore: the cached {} are replaced",
                self.store.resource_version(),
                T::RESOURCE
            );
            // ORDER: handlers must forget the positions that they wait for before older versions
            // arrive.
            self.handler.on_rewind();
            turns::reached("reflector: rewound, before the store is replaced");
        }
        let events = self.store.replace(objects, &unread, resource_version);
        let n_events = events.len();
        turns::reached("reflector: replaced, before the handlers are told");
        // The store already has the new state, so a handler that reads it never sees an older one.
        for event in events {
            self.deliver(&event);
        }
        let resource = T::RESOURCE;
        if self.store.has_synced() {
            count(&self.stats.relists);
            log::debug!(
                "listed {n_objects} {resource} again, at version {resource_version}: \
                 {n_events} differences"
            );
        } else {
            let seconds = (self.pace.now() - self.started).as_secs_f64();
            log::info!("{n_objects} {resource} listed in {seconds:.1} s");
            // ORDER: the workers start to sync once both stores have synced, and by then the
            // handlers must have seen the complete first list.
            turns::reached("reflector: listed, before the store has synced");
            self.store.set_synced();
        }
        self.handler.on_position();
    }

    /// Delivers every object as an update to itself when the resync is due. The loop checks this
    /// between messages: a bookmark arrives about once a minute, and the period is hours. The
    /// handlers only compare and enqueue, so a resync takes milliseconds.
    fn resync_if_due(&mut self) {
        let now = self.pace.now();
        if self.next_resync.is_none_or(|due| due > now) || !self.store.has_synced() {
            return;
        }
        self.next_resync = Some(now + self.resync_period);
        for object in self.store.list() {
            let old = Arc::clone(&object);
            self.deliver(&CacheEvent::Updated { old, new: object });
        }
    }

    fn deliver(&mut self, event: &CacheEvent<T::Object>) {
        count(&self.stats.events);
        let (change, object) = match event {
            CacheEvent::Added(object) => ("added", object),
            CacheEvent::Updated { new, .. } => ("updated", new),
            CacheEvent::Deleted(object) => ("deleted", object),
        };
        let (key, version) = (object.key(), object.resource_version());
        log::debug!("{} {key} is {change} at version {version}", T::KIND);
        self.handler.on_event(event);
    }

    fn on_unread(&mut self, unread: &Unread) {
        count(&self.stats.unread_objects);
        self.unread_log.log(T::KIND, unread);
    }
}

impl<T: Decode> fmt::Debug for Reflector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("resource", &T::RESOURCE)
            .field("source", &self.source)
            .field("list_watch", &self.list_watch)
            .finish_non_exhaustive()
    }
}

impl<T: Decode> fmt::Debug for ReflectorParts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReflectorParts")
            .field("resource", &T::RESOURCE)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

fn version_of<T: Indexed>(object: &Decoded<T>) -> ResourceVersion {
    match object {
        Ok(object) => object.resource_version().clone(),
        Err(unread) => unread.resource_version.clone(),
    }
}

#[cfg(test)]
mod tests;
