//! Which events become one, which count up another, and which are too many
//! (client-go `tools/record/events_cache.go:EventCorrelator`). Pure: the clock is an argument.
//!
//! Owned by the thread `events`.

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use lru::LruCache;

use super::event::{Event, generate_event_name};
use super::{EventType, ObjectReference, Recorded};
use crate::api::{ObjectKey, Uid};
use crate::stdx::clock::Clock;

/// Entries of each of the three caches (client-go `events_cache.go:maxLruCacheEntries`).
const CACHE_ENTRIES_MAX: NonZeroUsize = NonZeroUsize::new(4096).expect("above zero");

/// Distinct messages of one group from which on they become one event
/// (client-go `events_cache.go:defaultAggregateMaxEvents`).
const AGGREGATE_MESSAGES: usize = 10;

/// A group that was quiet for longer starts anew
/// (client-go `events_cache.go:defaultAggregateIntervalInSeconds`).
const AGGREGATE_INTERVAL: Duration = Duration::from_mins(10);

/// What the message of an aggregate begins with
/// (client-go `events_cache.go:EventAggregatorByReasonMessageFunc`).
const AGGREGATE_PREFIX: &str = "(combined from similar events): ";

/// Events about one object that pass after a quiet time (client-go `events_cache.go:defaultSpamBurst`).
const SPAM_BURST: u32 = 25;

/// One more event about an object passes after this long
/// (client-go `events_cache.go:defaultSpamQPS`, 1/300 a second).
const SPAM_INTERVAL: Duration = Duration::from_mins(5);

/// The object of an event without what changes between two events about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Involved {
    api_version: &'static str,
    kind: &'static str,
    key: ObjectKey,
    uid: Uid,
}

impl Involved {
    fn of(object: &ObjectReference) -> Self {
        Self {
            api_version: object.api_version,
            kind: object.kind,
            key: object.key.clone(),
            uid: object.uid.clone(),
        }
    }
}

/// What the spam filter counts together (client-go `events_cache.go:getSpamKey`).
type SpamKey = (Involved, EventType);

/// Events that differ in their message only (client-go `events_cache.go:EventAggregatorByReasonFunc`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupKey {
    involved: Involved,
    type_: EventType,
    reason: &'static str,
}

/// Where a repeat is counted: among equal events (client-go `events_cache.go:getEventKey`), or among
/// those that an aggregate stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CountKey {
    group: GroupKey,
    /// `None` for the aggregate of the group.
    single: Option<(&'static str, Arc<str>)>,
}

/// Messages of one group, oldest first and each once; fewer than [`AGGREGATE_MESSAGES`].
#[derive(Clone, Debug)]
struct Group {
    messages: Vec<Arc<str>>,
    last_seen: Instant,
}

/// What is known of an event that was sent before.
#[derive(Clone, Debug)]
struct Counted {
    name: String,
    first_timestamp: Timestamp,
    count: u32,
}

/// An event as it is to be sent. It repeats one that was sent before if its count is above 1.
#[derive(Clone, Debug)]
pub struct Correlated {
    /// The event, with the name and the first time of the one that it repeats.
    pub event: Event,
    /// Where to note what the server made of it: [`Correlator::update_state`].
    pub key: CountKey,
}

/// Something that happened, before it has a name.
#[derive(Clone, Debug)]
pub struct Occurrence {
    /// What it is about.
    pub object: ObjectReference,
    /// Whether it needs a look.
    pub type_: EventType,
    /// One word for machines.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: Arc<str>,
    /// When.
    pub at: Timestamp,
}

/// A cache that takes memory as it fills, not at once.
fn growing<K: Eq + Hash, V>() -> LruCache<K, V> {
    let mut cache = LruCache::unbounded();
    cache.resize(CACHE_ENTRIES_MAX);
    cache
}

/// Remembers what was sent, to merge, count and filter what comes.
#[derive(Debug)]
pub struct Correlator {
    component: &'static str,
    groups: LruCache<GroupKey, Group>,
    counts: LruCache<CountKey, Counted>,
    /// When the bucket of a key will be full again.
    buckets: LruCache<SpamKey, Instant>,
    /// The time in the last name given out.
    last_nanos: i128,
}

impl Correlator {
    /// One that knows nothing yet and speaks for `component`.
    pub fn new(component: &'static str) -> Self {
        Self {
            component,
            groups: growing(),
            counts: growing(),
            buckets: growing(),
            last_nanos: i128::MIN,
        }
    }

    /// What to send for `occurrence`; `None` if there were too many events about its object.
    pub fn correlate(&mut self, occurrence: Occurrence, clock: &dyn Clock) -> Option<Correlated> {
        let involved = Involved::of(&occurrence.object);
        let spam_key = (involved.clone(), occurrence.type_);
        let (event, key) = self.aggregate(occurrence, involved, clock);
        let event = self.count(event, &key);
        // As upstream has it, what is filtered has been counted all the same.
        let passes = self.passes(&spam_key, clock.now());
        passes.then_some(Correlated { event, key })
    }

    /// Notes what the server made of an event that was sent.
    pub fn update_state(&mut self, key: CountKey, recorded: Recorded) {
        let Recorded {
            name,
            first_timestamp,
            count,
        } = recorded;
        let counted = Counted {
            name,
            first_timestamp,
            count,
        };
        self.counts.put(key, counted);
    }

    /// The event itself, or the aggregate of its group if that has seen too many messages.
    fn aggregate(
        &mut self,
        occurrence: Occurrence,
        involved: Involved,
        clock: &dyn Clock,
    ) -> (Event, CountKey) {
        let Occurrence {
            object,
            type_,
            reason,
            message,
            at,
        } = occurrence;
        let group = GroupKey {
            involved,
            type_,
            reason,
        };
        let is_aggregate = self.is_one_too_many(&group, &message, clock.now());
        let (message, single, at, reporting_component) = if is_aggregate {
            let message = format!("{AGGREGATE_PREFIX}{message}").into();
            // Upstream builds the aggregate anew and leaves out who reports it.
            (message, None, clock.wall(), "")
        } else {
            let single = (object.field_path, Arc::clone(&message));
            (message, Some(single), at, self.component)
        };
        let event = Event {
            name: self.new_name(&object.key.name, at),
            object,
            type_,
            reason,
            message,
            component: self.component,
            reporting_component,
            first_timestamp: at,
            last_timestamp: at,
            count: 1,
        };
        (event, CountKey { group, single })
    }

    fn is_one_too_many(&mut self, key: &GroupKey, message: &Arc<str>, now: Instant) -> bool {
        let group = self.groups.get_or_insert_mut_ref(key, || Group {
            messages: Vec::new(),
            last_seen: now,
        });
        if now.saturating_duration_since(group.last_seen) > AGGREGATE_INTERVAL {
            group.messages.clear();
        }
        group.last_seen = now;
        if !group.messages.iter().any(|seen| seen == message) {
            group.messages.push(Arc::clone(message));
        }
        let is_one_too_many = group.messages.len() >= AGGREGATE_MESSAGES;
        if is_one_too_many {
            // Upstream drops any of them to keep the set small.
            group.messages.remove(0);
        }
        is_one_too_many
    }

    /// If `event` repeats another, makes it that one with one more in its count.
    fn count(&mut self, mut event: Event, key: &CountKey) -> Event {
        if let Some(counted) = self.counts.get_mut(key)
            && counted.count > 0
        {
            counted.count = counted.count.saturating_add(1);
            event.name.clone_from(&counted.name);
            event.first_timestamp = counted.first_timestamp;
            event.count = counted.count;
            return event;
        }
        let counted = Counted {
            name: event.name.clone(),
            first_timestamp: event.first_timestamp,
            count: event.count,
        };
        self.counts.put(key.clone(), counted);
        event
    }

    /// Takes a token from the bucket of `key` if there is one.
    fn passes(&mut self, key: &SpamKey, now: Instant) -> bool {
        let full_at = self.buckets.get_or_insert_mut_ref(key, || now);
        let full_then = now.max(*full_at) + SPAM_INTERVAL;
        let passes = full_then.saturating_duration_since(now) <= SPAM_INTERVAL * SPAM_BURST;
        if passes {
            *full_at = full_then;
        }
        passes
    }

    /// Two events in the same nanosecond would have the same name, and the second would be lost.
    fn new_name(&mut self, involved: &str, at: Timestamp) -> String {
        self.last_nanos = at.as_nanosecond().max(self.last_nanos.saturating_add(1));
        generate_event_name(involved, self.last_nanos)
    }
}
