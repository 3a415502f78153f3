//! The state machine's reactions to failures.

use std::time::{Duration, Instant};

use super::timing::{UNCHECKED_MAX, VERY_SHORT_WATCH, watch_timeout_seconds};
use super::{Failure, ListQuery, ListWatch, Older, Paging, Phase, Reaction, Stream};
use crate::api::ResourceVersion;

/// Objects on one page of a list (client-go `tools/pager/pager.go:defaultPageSize`).
const PAGE_SIZE: u32 = 500;

impl ListWatch {
    /// The first request of a paged list.
    ///
    /// It requests a version other than 0 without a limit, because servers serve that from their
    /// cache, but a limited list from etcd. A server whose list at version 0 came in pages has no
    /// such cache (client-go `tools/cache/reflector.go:list`).
    pub(super) fn first_page(&self, is_second_try: bool) -> Paging {
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

    pub(super) fn watch_timeout_seconds(&mut self) -> u64 {
        watch_timeout_seconds((self.random)())
    }

    /// True if neither a list nor a message has shown for long that the watch misses nothing.
    ///
    /// DIFFERS: upstream reopens a silent watch forever. An API server whose etcd was restored from
    /// a backup accepts a watch from a version that it has not reached yet, and stays silent until
    /// then (kubernetes issue 107457). A list at that version fails, and so reveals it. A proxy
    /// that holds messages back until it closes the watch is silent, too.
    pub(super) fn is_unchecked(&self, now: Instant) -> bool {
        let heard = self.heard;
        heard.is_none_or(|heard| now.saturating_duration_since(heard) > UNCHECKED_MAX)
    }

    /// Judges the version of a complete list; `None` unless it is older than the last version.
    ///
    /// Only a list that was requested without a version is consistent: the server reads it from
    /// etcd, or waits until its watch cache is as new as etcd. A list at a version may come from
    /// the watch cache of a server that lags and, against the API's rules, does not say so.
    pub(super) fn older(&self, listed: &ResourceVersion) -> Option<Older> {
        let is_older = !listed.is_as_new_as(&self.last_resource_version);
        let why = [Older::Lags, Older::Restored][usize::from(self.is_unavailable)];
        is_older.then(|| why(listed.clone()))
    }

    /// Records the version of a complete list.
    pub(super) fn listed(&mut self, resource_version: ResourceVersion, now: Instant) {
        self.heard = Some(now);
        self.last_resource_version = resource_version;
        self.is_unavailable = false;
    }

    pub(super) fn on_streamed_list_error(&mut self, failure: Failure, now: Instant) -> Reaction {
        match failure {
            // DIFFERS: upstream lists in pages after a denial, which is denied as well.
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
            Failure::Other => self.fall_back(),
        }
    }

    pub(super) fn on_paged_list_error(&mut self, failure: Failure, now: Instant) -> Reaction {
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

    pub(super) fn on_watch_error(&mut self, failure: Failure, now: Instant) -> Reaction {
        match failure {
            // The version is probably still available, so the watch can continue from it. That
            // saves a server that is starting a list from each of its clients.
            Failure::ConnectionRefused | Failure::TooManyRequests => self.back_off(failure, now),
            Failure::Expired => self.end_expired_cycle(now),
            _ => Reaction::EndCycle(self.end_cycle(failure, now)),
        }
    }

    pub(super) fn fall_back(&mut self) -> Reaction {
        self.phase = Phase::PagedList(self.first_page(false));
        Reaction::FallBack
    }

    pub(super) fn back_off(&mut self, failure: Failure, now: Instant) -> Reaction {
        Reaction::BackOff(self.pause(failure, now))
    }

    /// Ends the cycle and returns the time until the next one.
    pub(super) fn end_cycle(&mut self, failure: Failure, now: Instant) -> Duration {
        self.phase = Phase::CycleStart;
        self.pause(failure, now)
    }

    fn pause(&mut self, failure: Failure, now: Instant) -> Duration {
        let backoff = match failure {
            Failure::ConnectionRefused => &mut self.refused_backoff,
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
    pub(super) fn requested(now: Instant, is_ordered: bool) -> Self {
        Self {
            requested: now,
            has_spoken: false,
            is_ordered,
        }
    }

    pub(super) fn is_very_short(&self, now: Instant) -> bool {
        !self.has_spoken && now.saturating_duration_since(self.requested) < VERY_SHORT_WATCH
    }
}

impl Paging {
    /// Returns the request for the next page. A continue token stands for the version of the first
    /// page, and servers reject a request with both.
    pub(super) fn query(&self) -> ListQuery {
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

/// True for a version that means "any" or "the newest".
pub(super) fn is_unset(resource_version: &ResourceVersion) -> bool {
    resource_version.is_empty() || *resource_version == "0".into()
}
