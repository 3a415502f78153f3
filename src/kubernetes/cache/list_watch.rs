//! Decides when to list and when to watch, from which version, and how to recover from failures.
//!
//! A state machine without I/O, clock, thread or objects: the [`reflector`](super::reflector)
//! requests the next [`Step`], executes it, and reports the result. It mirrors client-go
//! `tools/cache/reflector.go:ListAndWatch`.
//!
//! One *cycle* is a list and the watches that continue from it. The list is streamed if the server
//! supports that (a watch that begins with all objects and marks their end with a bookmark), else
//! read in pages. After a watch has ended normally, the reflector opens the next one from its last
//! version. The next cycle begins one step of the back-off after the end of this one.
//!
//! DIFFERS: upstream waits forever for the end of a streamed list. A proxy may drop the bookmark
//! that marks it, and an API server may not know `sendInitialEvents` and send an ordinary watch.
//! The machine then lists in pages. Since the server may only have stalled, the first list after a
//! watch that worked is streamed again. If that one has no end either, lists stay in pages.

use std::fmt;
use std::time::{Duration, Instant};

use super::decode::ListMetadata;
use crate::api::{ResourceVersion, Status};
use crate::stdx::clock::{Backoff, BackoffParameters};

/// The reflector's next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for this time.
    Wait(Duration),
    /// Request a list or one page of it; the first page if it has no continue token.
    List(ListQuery),
    /// Open a watch, which sends the initial list first if the query requests it.
    Watch(WatchQuery),
}

/// The kind of a message from an open watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// An object was added.
    Added,
    /// An object was modified or deleted.
    Changed,
    Bookmark {
        /// True if it closes the initial list.
        is_initial_events_end: bool,
    },
}

/// How to treat a message from an open watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ignore it.
    Skip,
    /// Collect it as part of the initial list.
    Collect,
    /// The initial list is complete at the bookmark's version: make it the store's contents.
    Replace,
    /// The initial list is complete, but older than the store. Report [`ListWatch::on_error`] or
    /// stop.
    Older(Older),
    /// Apply it to the store.
    Apply,
    /// The initial list has no end: close the watch and report [`ListWatch::on_unended`].
    GiveUp,
}

/// The result of a complete page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageEnd {
    /// More pages follow; keep the objects.
    More,
    /// The continue token repeats, so the next page would be the same: the list has failed.
    SamePage,
    /// The list is complete at this version.
    Complete(ResourceVersion),
    /// The list is complete, but older than the store. Report [`ListWatch::on_error`] or stop.
    Older(Older),
}

/// Why a complete list, at this version, is older than the last list or message of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Older {
    /// The server that answered lags behind the one before.
    Lags(ResourceVersion),
    /// The history has gone back, as after a restore of etcd.
    Restored(ResourceVersion),
}

/// How the machine continues after a failure or the end of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Retry at once with another request of the same kind.
    Retry,
    /// Retry the same request after this time.
    BackOff(Duration),
    /// The server cannot stream the list, or not at the moment: list in pages.
    FallBack,
    /// The cycle is over; the next one begins after this time.
    EndCycle(Duration),
    /// As `EndCycle`: the watch has not failed, but a list must show that nothing was missed.
    Check(Duration),
}

pub struct ListWatch {
    streams_lists: bool,
    /// Streamed lists without an end, since the last one with an end.
    n_unended: usize,
    /// Uniform in `0.0..1.0`.
    random: Box<dyn FnMut() -> f64 + Send>,
    backoff: Backoff,
    outage_backoff: Backoff,
    expiry_backoff: Backoff,
    /// The version of the last message or list; empty before the first list.
    last_resource_version: ResourceVersion,
    /// The server cannot serve the last version, either no longer or not yet: request its newest.
    is_unavailable: bool,
    /// A list at version 0 was paginated, so the server reads its lists from etcd.
    is_paginated: bool,
    phase: Phase,
    /// Earliest time of the next request.
    not_before: Option<Instant>,
    /// Time of the last complete list or message of a watch.
    heard: Option<Instant>,
}

#[derive(Clone, Debug)]
enum Phase {
    CycleStart,
    /// A streamed list is due or open.
    StreamedList {
        stream: Stream,
        /// The last stream ended before its list was complete, without an error.
        is_repeated: bool,
        /// Time of the request, or of the last message that belongs to the list.
        progressed: Instant,
        /// A change has arrived, so the server has sent the whole list: only its end is missing.
        has_changes: bool,
    },
    /// A page is due or being read.
    PagedList(Paging),
    /// A watch is due or open.
    Watch(Stream),
}

/// An open watch.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Time of the request, not of the response: some proxies delay the response until the first
    /// message.
    requested: Instant,
    has_spoken: bool,
    /// False while a watch from an unset version sends the server's current objects. They come in
    /// no order, so their versions do not show how far the watch has come.
    is_ordered: bool,
}

#[derive(Clone, Debug)]
struct Paging {
    /// The version of the first request; later pages send only the token.
    resource_version: ResourceVersion,
    limit: Option<u32>,
    continue_token: String,
    /// The version of the first page.
    listed: Option<ResourceVersion>,
    /// The list had more than one page, even if its token expired since.
    is_paginated: bool,
    /// The server could not serve the first requested version.
    is_second_try: bool,
}

impl ListWatch {
    /// Creates a machine whose first step is a list. If it streams lists, it requests a list as the
    /// beginning of a watch, and in pages if that fails. `random` is uniform in `0.0..1.0`.
    pub fn new(streams_lists: bool, random: impl FnMut() -> f64 + Send + 'static) -> Self {
        Self {
            random: Box::new(random),
            backoff: Backoff::new(BACKOFF),
            outage_backoff: Backoff::new(OUTAGE_BACKOFF),
            expiry_backoff: Backoff::new(BACKOFF),
            last_resource_version: ResourceVersion::default(),
            is_unavailable: false,
            is_paginated: false,
            phase: Phase::CycleStart,
            not_before: None,
            heard: None,
            streams_lists,
            n_unended: 0,
        }
    }

    /// The version of the last message or list; empty before the first list.
    pub fn last_resource_version(&self) -> &ResourceVersion {
        &self.last_resource_version
    }

    /// Returns the next step. After [`Step::Wait`], call it again. After a request, report the
    /// result by [`on_event`](Self::on_event), [`on_page_end`](Self::on_page_end),
    /// [`on_closed`](Self::on_closed), [`on_silent`](Self::on_silent) or
    /// [`on_error`](Self::on_error) before the next call.
    pub fn next_step(&mut self, now: Instant) -> Step {
        if let Some(until) = self.not_before
            && until > now
        {
            return Step::Wait(until - now);
        }
        self.not_before = None;
        if matches!(self.phase, Phase::CycleStart) {
            self.phase = if self.streams_lists {
                Phase::StreamedList {
                    stream: Stream::requested(now, false),
                    is_repeated: false,
                    progressed: now,
                    has_changes: false,
                }
            } else {
                Phase::PagedList(self.first_page(false))
            };
        }
        let last = self.last_resource_version.clone();
        let timeout_seconds = match self.phase {
            Phase::StreamedList { .. } | Phase::Watch(_) => self.watch_timeout_seconds(),
            Phase::CycleStart | Phase::PagedList(_) => 0,
        };
        match &mut self.phase {
            Phase::StreamedList {
                stream,
                progressed,
                has_changes,
                ..
            } => {
                *stream = Stream::requested(now, false);
                (*progressed, *has_changes) = (now, false);
                let resource_version = if self.is_unavailable {
                    ResourceVersion::default()
                } else {
                    last
                };
                Step::Watch(WatchQuery {
                    resource_version,
                    send_initial_events: true,
                    timeout_seconds,
                })
            }
            Phase::Watch(stream) => {
                *stream = Stream::requested(now, !is_unset(&last));
                Step::Watch(WatchQuery {
                    resource_version: last,
                    send_initial_events: false,
                    timeout_seconds,
                })
            }
            Phase::PagedList(paging) => Step::List(paging.query()),
            Phase::CycleStart => unreachable!("a cycle that starts has a phase"),
        }
    }

    /// Reports a message from the open watch.
    pub fn on_event(
        &mut self,
        seen: Seen,
        resource_version: &ResourceVersion,
        now: Instant,
    ) -> Effect {
        let older = self.older(resource_version);
        match &mut self.phase {
            Phase::StreamedList {
                stream,
                progressed,
                has_changes,
                ..
            } => {
                stream.has_spoken = true;
                match seen {
                    Seen::Bookmark {
                        is_initial_events_end: true,
                    } => {
                        if let Some(older) = older {
                            return Effect::Older(older);
                        }
                        stream.is_ordered = true;
                        self.n_unended = 0;
                        // The same stream continues as the watch.
                        self.phase = Phase::Watch(*stream);
                        self.listed(resource_version.clone(), now);
                        return Effect::Replace;
                    }
                    // API servers send no bookmark before the one that ends the list, so this is
                    // that bookmark without its annotation (kubernetes
                    // `storage/cacher/cache_watcher.go:convertToWatchEvent`).
                    Seen::Bookmark { .. } => return Effect::GiveUp,
                    Seen::Added if !*has_changes => *progressed = now,
                    Seen::Added => {}
                    Seen::Changed => *has_changes = true,
                }
                // A list may take long, but each of its objects is progress. A change is not: in a
                // busy cluster there is always another one.
                if now.saturating_duration_since(*progressed) > UNENDED_MAX {
                    Effect::GiveUp
                } else {
                    Effect::Collect
                }
            }
            Phase::Watch(stream) => {
                stream.has_spoken = true;
                self.heard = Some(now);
                self.streams_lists |= self.n_unended == 1;
                // From an unset version the initial objects arrive as `Added`, so any other message
                // ends them.
                stream.is_ordered |= seen != Seen::Added;
                if stream.is_ordered && !resource_version.is_empty() {
                    self.last_resource_version = resource_version.clone();
                }
                Effect::Apply
            }
            Phase::CycleStart | Phase::PagedList(_) => Effect::Skip,
        }
    }

    /// Reports that a page of the list has been read completely.
    pub fn on_page_end(&mut self, metadata: &ListMetadata, now: Instant) -> PageEnd {
        let Phase::PagedList(paging) = &mut self.phase else {
            return PageEnd::Complete(self.last_resource_version.clone());
        };
        // All pages show the state at the first page's version.
        let listed = paging
            .listed
            .get_or_insert_with(|| metadata.resource_version.clone())
            .clone();
        if !metadata.continue_token.is_empty() {
            if metadata.continue_token == paging.continue_token {
                return PageEnd::SamePage;
            }
            paging.continue_token.clone_from(&metadata.continue_token);
            paging.is_paginated = true;
            return PageEnd::More;
        }
        // A server that serves version 0 from its watch cache ignores the limit, so pages mean
        // etcd.
        let is_from_cache = paging.resource_version == "0".into();
        self.is_paginated |= is_from_cache && paging.is_paginated;
        if let Some(older) = self.older(&listed) {
            return PageEnd::Older(older);
        }
        self.phase = Phase::Watch(Stream::requested(now, true));
        self.listed(listed.clone(), now);
        PageEnd::Complete(listed)
    }

    /// True if single events are expected: the list is complete.
    pub fn is_watch(&self) -> bool {
        matches!(self.phase, Phase::Watch(_))
    }

    /// Reports that the open watch has ended without an error, or that its connection broke.
    pub fn on_closed(&mut self, now: Instant) -> Reaction {
        match &mut self.phase {
            Phase::StreamedList { stream, .. } if stream.is_very_short(now) => self.fall_back(),
            Phase::StreamedList { is_repeated, .. } => {
                // DIFFERS: upstream retries at once each time. That would keep a server busy that
                // sends half of a large list over and over.
                if std::mem::replace(is_repeated, true) {
                    self.back_off(Failure::Other, now)
                } else {
                    Reaction::Retry
                }
            }
            Phase::Watch(stream) if !stream.is_very_short(now) => {
                if self.is_unchecked(now) {
                    Reaction::Check(self.end_cycle(Failure::Other, now))
                } else {
                    Reaction::Retry
                }
            }
            Phase::Watch(_) | Phase::CycleStart | Phase::PagedList(_) => {
                Reaction::EndCycle(self.end_cycle(Failure::Other, now))
            }
        }
    }

    /// Reports that the open watch timed out in silence.
    pub fn on_silent(&mut self, now: Instant) -> Reaction {
        match &self.phase {
            Phase::StreamedList { .. } => self.on_unended(),
            _ => self.on_closed(now),
        }
    }

    /// Reports that the open streamed list has no end. From here on lists are read in pages: after
    /// the first such list until a watch has worked, after the second in a row always, because each
    /// attempt leaves the store stale for up to `UNENDED_MAX`.
    pub fn on_unended(&mut self) -> Reaction {
        (self.streams_lists, self.n_unended) = (false, self.n_unended + 1);
        self.fall_back()
    }

    /// Reports that a request failed, that a list is incomplete, or that a watch sent an error.
    pub fn on_error(&mut self, failure: Failure, now: Instant) -> Reaction {
        match self.phase {
            Phase::CycleStart => Reaction::EndCycle(self.end_cycle(failure, now)),
            Phase::StreamedList { .. } => self.on_streamed_list_error(failure, now),
            Phase::PagedList(_) => self.on_paged_list_error(failure, now),
            Phase::Watch(_) => self.on_watch_error(failure, now),
        }
    }
}

impl fmt::Display for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry => f.write_str("retrying at once"),
            Self::BackOff(delay) => write!(f, "retrying in {:.1} s", delay.as_secs_f64()),
            Self::FallBack => f.write_str("listing in pages"),
            Self::EndCycle(delay) | Self::Check(delay) => {
                write!(f, "listing again in {:.1} s", delay.as_secs_f64())
            }
        }
    }
}

/// The parameters of one list request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    pub resource_version: ResourceVersion,
    /// `limit`, for a list in pages.
    pub limit: Option<u32>,
    /// `continue`; empty for the first page.
    pub continue_token: String,
}

/// The parameters of one watch request. It always requests bookmarks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchQuery {
    /// `resourceVersion`; omitted if empty.
    pub resource_version: ResourceVersion,
    /// True to request the complete list first (`sendInitialEvents`), at least as new as the
    /// version.
    pub send_initial_events: bool,
    pub timeout_seconds: u64,
}

impl ListQuery {
    /// The query's parameters by name, without empty ones.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut parameters = Vec::new();
        if !self.resource_version.is_empty() {
            parameters.push(("resourceVersion", self.resource_version.to_string()));
        }
        if let Some(limit) = self.limit {
            parameters.push(("limit", limit.to_string()));
        }
        if !self.continue_token.is_empty() {
            parameters.push(("continue", self.continue_token.clone()));
        }
        parameters
    }
}

impl WatchQuery {
    /// The query's parameters by name, without empty ones.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut parameters = vec![("watch", "true".to_owned())];
        if !self.resource_version.is_empty() {
            parameters.push(("resourceVersion", self.resource_version.to_string()));
        }
        if self.send_initial_events {
            parameters.push(("sendInitialEvents", "true".to_owned()));
            parameters.push(("resourceVersionMatch", "NotOlderThan".to_owned()));
        }
        parameters.push(("allowWatchBookmarks", "true".to_owned()));
        parameters.push(("timeoutSeconds", self.timeout_seconds.to_string()));
        parameters
    }
}

/// A failure, classified by the reaction to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No process listens at the server's address.
    ConnectionRefused,
    /// The connection broke, or a proxy found no server: 502, 503 or 504.
    Unreachable,
    /// The server requests a later retry.
    TooManyRequests,
    /// The requested version is no longer in the server's history.
    Expired,
    /// The server has not reached the requested version yet.
    TooLargeResourceVersion,
    Unauthorized,
    Forbidden,
    Other,
}

impl Failure {
    /// Classifies the status error of a response or in an open watch.
    pub fn of(status: &Status) -> Self {
        if status.is_too_large_resource_version() {
            Self::TooLargeResourceVersion
        } else if status.is_expired() {
            Self::Expired
        } else if status.is_too_many_requests() {
            Self::TooManyRequests
        } else if status.code() == 401 {
            Self::Unauthorized
        } else if status.is_forbidden() {
            Self::Forbidden
        } else if matches!(status.code(), 502..=504) {
            Self::Unreachable
        } else {
            Self::Other
        }
    }
}

/// Objects on one page of a list (client-go `tools/pager/pager.go:defaultPageSize`).
const PAGE_SIZE: u32 = 500;

impl ListWatch {
    /// The first request of a paged list.
    ///
    /// It requests a version other than 0 without a limit, because servers serve that from their
    /// cache, but a limited list from etcd. A server whose list at version 0 came in pages has no
    /// such cache (client-go `tools/cache/reflector.go:list`).
    fn first_page(&self, is_second_try: bool) -> Paging {
        let resource_version = if self.is_unavailable {
            ResourceVersion::default()
        } else if self.last_resource_version.is_empty() {
            "0".into()
        } else {
            self.last_resource_version.clone()
        };
        let limit = self.is_paginated || is_unset(&resource_version);
        Paging {
            resource_version,
            limit: limit.then_some(PAGE_SIZE),
            continue_token: String::new(),
            listed: None,
            is_paginated: false,
            is_second_try,
        }
    }

    fn watch_timeout_seconds(&mut self) -> u64 {
        watch_timeout_seconds((self.random)())
    }

    /// True if for [`UNCHECKED_MAX`] no list or message has shown that the watch misses nothing.
    ///
    /// DIFFERS: upstream reopens a silent watch forever. An API server whose etcd was restored from
    /// a backup accepts a watch from a version that it has not reached yet, and stays silent until
    /// then (kubernetes issue 107457). A list at that version fails, and so reveals it. A proxy
    /// that holds messages back until it closes the watch is silent, too.
    fn is_unchecked(&self, now: Instant) -> bool {
        let heard = self.heard;
        heard.is_none_or(|heard| now.saturating_duration_since(heard) > UNCHECKED_MAX)
    }

    /// Judges the version of a complete list; `None` unless it is older than the last version.
    ///
    /// Only a list that was requested without a version is consistent: the server reads it from
    /// etcd, or waits until its watch cache is as new as etcd. A list at a version may come from
    /// the watch cache of a server that lags and, against the API's rules, does not say so.
    fn older(&self, listed: &ResourceVersion) -> Option<Older> {
        let is_older = !listed.is_as_new_as(&self.last_resource_version);
        let why = [Older::Lags, Older::Restored][usize::from(self.is_unavailable)];
        is_older.then(|| why(listed.clone()))
    }

    /// Records the version of a complete list.
    fn listed(&mut self, resource_version: ResourceVersion, now: Instant) {
        self.heard = Some(now);
        self.last_resource_version = resource_version;
        self.is_unavailable = false;
    }

    fn on_streamed_list_error(&mut self, failure: Failure, now: Instant) -> Reaction {
        match failure {
            // DIFFERS: upstream lists in pages after a denial. Where only watches are denied, the
            // lists would end the outage in each cycle.
            Failure::ConnectionRefused
            | Failure::TooManyRequests
            | Failure::Unauthorized
            | Failure::Forbidden => self.back_off(failure, now),
            Failure::Expired | Failure::TooLargeResourceVersion => {
                // The server rejects even its newest version; a faster retry does not help.
                if std::mem::replace(&mut self.is_unavailable, true) {
                    self.back_off(failure, now)
                } else {
                    Reaction::Retry
                }
            }
            Failure::Unreachable | Failure::Other => self.fall_back(),
        }
    }

    fn on_paged_list_error(&mut self, failure: Failure, now: Instant) -> Reaction {
        let Phase::PagedList(paging) = &mut self.phase else {
            return Reaction::EndCycle(self.end_cycle(failure, now));
        };
        match failure {
            // Reading the pages took longer than the server's history lasts, so request all in one.
            Failure::Expired if !paging.continue_token.is_empty() => {
                paging.continue_token.clear();
                paging.limit = None;
                paging.listed = None;
                Reaction::Retry
            }
            // The server cannot serve the last known version, so request its newest, but only once.
            Failure::Expired | Failure::TooLargeResourceVersion if !paging.is_second_try => {
                self.is_unavailable = true;
                self.phase = Phase::PagedList(self.first_page(true));
                Reaction::Retry
            }
            _ => Reaction::EndCycle(self.end_cycle(failure, now)),
        }
    }

    fn on_watch_error(&mut self, failure: Failure, now: Instant) -> Reaction {
        match failure {
            // The version is probably still available, so the watch can continue from it. That
            // saves a server that is starting a list from each of its clients.
            Failure::ConnectionRefused | Failure::TooManyRequests => self.back_off(failure, now),
            Failure::Expired => self.end_expired_cycle(now),
            _ => Reaction::EndCycle(self.end_cycle(failure, now)),
        }
    }

    fn fall_back(&mut self) -> Reaction {
        self.phase = Phase::PagedList(self.first_page(false));
        Reaction::FallBack
    }

    fn back_off(&mut self, failure: Failure, now: Instant) -> Reaction {
        Reaction::BackOff(self.pause(failure, now))
    }

    /// Ends the cycle and returns the time until the next one.
    fn end_cycle(&mut self, failure: Failure, now: Instant) -> Duration {
        self.phase = Phase::CycleStart;
        self.pause(failure, now)
    }

    fn pause(&mut self, failure: Failure, now: Instant) -> Duration {
        let backoff = match failure {
            Failure::ConnectionRefused | Failure::Unreachable => &mut self.outage_backoff,
            _ => &mut self.backoff,
        };
        let delay = backoff.step(now, (self.random)());
        self.not_before = Some(now + delay);
        delay
    }

    /// Ends the cycle without marking the last version as unavailable: the server can still serve a
    /// list that is at least as new.
    ///
    /// DIFFERS: upstream takes this step from the one back-off of its reflector. A restarted API
    /// server no longer has any earlier version. With one back-off the wait after the outage would
    /// be longer than the outage was, while the server is up and the cache is stale.
    fn end_expired_cycle(&mut self, now: Instant) -> Reaction {
        self.phase = Phase::CycleStart;
        let delay = self.expiry_backoff.step(now, (self.random)());
        self.not_before = Some(now + delay);
        Reaction::EndCycle(delay)
    }
}

impl Stream {
    fn requested(now: Instant, is_ordered: bool) -> Self {
        Self {
            requested: now,
            has_spoken: false,
            is_ordered,
        }
    }

    fn is_very_short(&self, now: Instant) -> bool {
        !self.has_spoken && now.saturating_duration_since(self.requested) < VERY_SHORT_WATCH
    }
}

impl Paging {
    /// Returns the request for the next page. A continue token stands for the version of the first
    /// page, and servers reject a request with both.
    fn query(&self) -> ListQuery {
        let is_first = self.continue_token.is_empty();
        ListQuery {
            resource_version: if is_first {
                self.resource_version.clone()
            } else {
                ResourceVersion::default()
            },
            limit: self.limit,
            continue_token: self.continue_token.clone(),
        }
    }
}

fn is_unset(resource_version: &ResourceVersion) -> bool {
    resource_version.is_empty() || *resource_version == "0".into()
}

/// Minimum `timeoutSeconds` of a watch. Each watch draws a random timeout up to twice as long, so
/// that watches do not all reconnect at once (client-go
/// `tools/cache/reflector.go:defaultMinWatchTimeout`).
const MIN_WATCH_TIMEOUT: Duration = Duration::from_mins(5);

/// The back-off after failures (client-go `tools/cache/reflector.go:newReflectorWithOptions`).
const BACKOFF: BackoffParameters = BackoffParameters {
    initial: Duration::from_millis(800),
    cap: Duration::from_secs(30),
    jitter: 1.0,
    reset_after: Duration::from_mins(2),
};

/// The back-off while no process listens at the API server's address, or while a balancer in front
/// of it has no server. Such an attempt is cheap for everyone. With its jitter the longest pause is
/// 2 s, so all watches use an API server that is back within this time, however long the outage
/// lasted.
///
/// DIFFERS: upstream takes these steps from the one back-off of its reflector, up to a minute.
const OUTAGE_BACKOFF: BackoffParameters = BackoffParameters {
    cap: Duration::from_secs(1),
    ..BACKOFF
};

/// A watch that closes sooner than this without a message has failed (client-go
/// `tools/cache/reflector.go:handleAnyWatch`).
const VERY_SHORT_WATCH: Duration = Duration::from_secs(1);

/// Maximum time of a streamed list without a message of the list. An API server that streams a list
/// sends its messages as fast as the client reads, and the bookmark after them within seconds. The
/// client's `request_timeout` is the same limit for a stream without any message.
const UNENDED_MAX: Duration = Duration::from_mins(1);

/// A watch that ends is followed by a list if nothing was heard for longer than this. Some proxies
/// close every watch that is idle for 30 s, before its first bookmark. The next end comes after
/// five minutes at the latest (`client::ClientOptions::watch_silence_timeout`), so that a healthy
/// API server is heard within five minutes.
const UNCHECKED_MAX: Duration = Duration::from_mins(2);

/// Returns the timeout to request for a watch; `random` is uniform in `0.0..1.0`.
fn watch_timeout_seconds(random: f64) -> u64 {
    MIN_WATCH_TIMEOUT.mul_f64(1.0 + random).as_secs()
}

#[cfg(test)]
mod tests;
