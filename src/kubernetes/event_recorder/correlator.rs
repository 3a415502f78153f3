//! Correlates events: aggregates similar ones, counts repeats, and filters spam (client-go
//! `tools/record/events_cache.go:EventCorrelator`). Pure: the clock is an argument.
//!
//! Owned by the thread `events`.

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use lru::LruCache;

use super::{Event, EventType, ObjectReference, Recorded, generate_event_name};
use crate::api::ResourceVersion;
use crate::stdx::clock::Clock;

/// Entries of each of the three caches (client-go `events_cache.go:maxLruCacheEntries`).
const CACHE_ENTRIES_MAX: NonZeroUsize = NonZeroUsize::new(4096).expect("above zero");

/// Number of distinct messages at which a group becomes one aggregate event (client-go
/// `events_cache.go:defaultAggregateMaxEvents`).
const AGGREGATE_MESSAGES: usize = 10;

/// A group that is quiet for longer starts over (client-go
/// `events_cache.go:defaultAggregateIntervalInSeconds`).
const AGGREGATE_INTERVAL: Duration = Duration::from_mins(10);

/// Prefix of an aggregate's message (client-go
/// `events_cache.go:EventAggregatorByReasonMessageFunc`).
const AGGREGATE_PREFIX: &str = "(combined from similar events): ";

/// Token bucket size per object (client-go `events_cache.go:defaultSpamBurst`).
const SPAM_BURST: u32 = 25;

/// Time after which the bucket of an object regains one token (client-go
/// `events_cache.go:defaultSpamQPS`, 1/300 a second).
const SPAM_INTERVAL: Duration = Duration::from_mins(5);

/// The key of a spam filter bucket (client-go `events_cache.go:getSpamKey`).
type SpamKey = (ObjectReference, EventType);

/// Groups events that differ only in their message (client-go
/// `events_cache.go:EventAggregatorByReasonFunc`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupKey {
    /// Without the fields that change between events.
    involved: ObjectReference,
    type_: EventType,
    reason: &'static str,
}

/// The key of a repeat counter: for equal events (client-go `events_cache.go:getEventKey`), or for
/// the events behind one aggregate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CountKey {
    group: GroupKey,
    /// `None` for the aggregate of the group.
    single: Option<(&'static str, Arc<str>)>,
}

/// The distinct messages of one group, oldest first; fewer than [`AGGREGATE_MESSAGES`].
#[derive(Clone, Debug)]
struct Group {
    messages: Vec<Arc<str>>,
    last_seen: Instant,
}

/// An event to send. With a count above 1 it repeats an event that the recorder has sent before.
#[derive(Clone, Debug)]
pub struct Correlated {
    pub event: Event,
    /// The key for [`Correlator::update_state`], which records the server's response.
    pub key: CountKey,
}

#[derive(Clone, Debug)]
pub struct Occurrence {
    pub object: ObjectReference,
    pub type_: EventType,
    pub reason: &'static str,
    pub message: Arc<str>,
    pub at: Timestamp,
}

/// Creates a cache that allocates as it fills, not in advance.
fn growing<K: Eq + Hash, V>() -> LruCache<K, V> {
    let mut cache = LruCache::unbounded();
    cache.resize(CACHE_ENTRIES_MAX);
    cache
}

/// The state of sent events, to aggregate, count and filter new ones.
#[derive(Debug)]
pub struct Correlator {
    component: &'static str,
    groups: LruCache<GroupKey, Group>,
    counts: LruCache<CountKey, Recorded>,
    /// Per key, when its token bucket is full again.
    buckets: LruCache<SpamKey, Instant>,
    /// The timestamp in the last generated name, in nanoseconds.
    last_nanos: i128,
}

impl Correlator {
    pub fn new(component: &'static str) -> Self {
        Self {
            component,
            groups: growing(),
            counts: growing(),
            buckets: growing(),
            last_nanos: i128::MIN,
        }
    }

    /// The event to send for `occurrence`; `None` if the spam filter drops it.
    pub fn correlate(&mut self, occurrence: Occurrence, clock: &dyn Clock) -> Option<Correlated> {
        let involved = ObjectReference {
            resource_version: ResourceVersion::default(),
            field_path: "",
            ..occurrence.object.clone()
        };
        let spam_key = (involved.clone(), occurrence.type_);
        let (event, key) = self.aggregate(occurrence, involved, clock);
        let event = self.count(event, &key);
        // As upstream, the counter includes filtered events.
        let passes = self.passes(&spam_key, clock.now());
        passes.then_some(Correlated { event, key })
    }

    /// Records the server's version of an event that was sent.
    pub fn update_state(&mut self, key: CountKey, recorded: Recorded) {
        self.counts.put(key, recorded);
    }

    /// Returns the event itself, or the aggregate of its group once the group has too many
    /// messages.
    fn aggregate(
        &mut self,
        occurrence: Occurrence,
        involved: ObjectReference,
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
        let is_aggregate = self.reaches_aggregate_limit(&group, &message, clock.now());
        let (message, single, at, reporting_component) = if is_aggregate {
            let message = format!("{AGGREGATE_PREFIX}{message}").into();
            // Upstream builds the aggregate from scratch and does not set its reporting component.
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

    fn reaches_aggregate_limit(
        &mut self,
        key: &GroupKey,
        message: &Arc<str>,
        now: Instant,
    ) -> bool {
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
        let is_at_limit = group.messages.len() >= AGGREGATE_MESSAGES;
        if is_at_limit {
            // Upstream removes an arbitrary message to bound the set.
            group.messages.remove(0);
        }
        is_at_limit
    }

    /// Turns a repeat into an update of the earlier event with an incremented count.
    fn count(&mut self, mut event: Event, key: &CountKey) -> Event {
        if let Some(counted) = self.counts.get_mut(key) {
            counted.count = counted.count.saturating_add(1);
            event.name.clone_from(&counted.name);
            event.first_timestamp = counted.first_timestamp;
            event.count = counted.count;
            return event;
        }
        let counted = Recorded {
            name: event.name.clone(),
            first_timestamp: event.first_timestamp,
            count: event.count,
        };
        self.counts.put(key.clone(), counted);
        event
    }

    /// Takes a token from the bucket of `key`, if one is left.
    fn passes(&mut self, key: &SpamKey, now: Instant) -> bool {
        // A bucket is stored as the time at which it is full again; each token moves that time by
        // one interval.
        let full_at = self.buckets.get_or_insert_mut_ref(key, || now);
        let full_then = now.max(*full_at) + SPAM_INTERVAL;
        let passes = full_then.saturating_duration_since(now) <= SPAM_INTERVAL * SPAM_BURST;
        if passes {
            *full_at = full_then;
        }
        passes
    }

    /// Ensures unique names: two events of the same nanosecond would collide, and the API server
    /// would reject the second.
    fn new_name(&mut self, involved: &str, at: Timestamp) -> String {
        self.last_nanos = at.as_nanosecond().max(self.last_nanos.saturating_add(1));
        generate_event_name(involved, self.last_nanos)
    }
}
