//! Conformance group K, from K-05 on.

mod correlating;
mod requests;
mod sending;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::{
    Counters, Event, EventOptions, EventRecorder, EventSink, EventType, EventWorker,
    ObjectReference, Recorded, event_recorder, generate_event_name, is_subdomain,
};
use crate::api::{ObjectKey, ResourceVersion, Uid};
use crate::client::ClientError;
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::testing::FakeClock;

/// The method of a sink call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Create,
    Patch,
}

type SinkResult = Result<Recorded, ClientError>;

#[derive(Debug, Default, PartialEq, Eq)]
struct EventStats {
    written: u64,
    filtered: u64,
    failed: u64,
    dropped: u64,
}

impl EventStats {
    fn of(counters: &Counters) -> Self {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Self {
            written: of(&counters.written),
            filtered: of(&counters.filtered),
            failed: of(&counters.failed),
            dropped: of(&counters.dropped),
        }
    }
}

/// A fake API server that records calls and returns scripted responses.
struct ScriptedSink<F> {
    calls: Arc<Mutex<Vec<(Verb, Event)>>>,
    respond: F,
}

impl<F> fmt::Debug for ScriptedSink<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptedSink")
    }
}

impl<F: Fn(Verb, &Event) -> SinkResult + Send> ScriptedSink<F> {
    fn call(&self, verb: Verb, event: &Event) -> SinkResult {
        let mut calls = self.calls.lock();
        calls.push((verb, event.clone()));
        drop(calls);
        (self.respond)(verb, event)
    }
}

impl<F: Fn(Verb, &Event) -> SinkResult + Send> EventSink for ScriptedSink<F> {
    fn create(&self, event: &Event) -> SinkResult {
        self.call(Verb::Create, event)
    }

    fn patch(&self, event: &Event) -> SinkResult {
        self.call(Verb::Patch, event)
    }
}

/// A recorder whose thread body the test runs itself.
struct Fixture {
    clock: Arc<FakeClock>,
    stop: Stop,
    recorder: Arc<EventRecorder>,
    worker: EventWorker,
    calls: Arc<Mutex<Vec<(Verb, Event)>>>,
}

impl Fixture {
    fn new(respond: impl Fn(Verb, &Event) -> SinkResult + Send + 'static) -> Self {
        Self::with(options(), |_| respond)
    }

    fn with<F>(options: EventOptions, respond: impl FnOnce(Arc<FakeClock>) -> F) -> Self
    where
        F: Fn(Verb, &Event) -> SinkResult + Send + 'static,
    {
        let clock = Arc::new(FakeClock::default());
        let stop = Stop::new();
        let calls = Arc::default();
        let sink = ScriptedSink {
            calls: Arc::clone(&calls),
            respond: respond(Arc::clone(&clock)),
        };
        let (recorder, worker) =
            event_recorder(options, Box::new(sink), Arc::clone(&clock) as _, &stop);
        Self {
            clock,
            stop,
            recorder,
            worker,
            calls,
        }
    }

    fn record(&self, object: &ObjectReference, message: &str) {
        self.recorder
            .event(object, EventType::Normal, "Tested", message);
    }

    fn stop(&self) {
        self.stop.stop(Cause::Requested("test".to_owned()));
    }

    /// Runs the thread's body until all events are sent or dropped; returns the sink's calls.
    fn run(self) -> (Vec<(Verb, Event)>, EventStats) {
        let Self {
            recorder, worker, ..
        } = self;
        let counters = Arc::clone(&recorder.counters);
        drop(recorder);
        worker.run();
        let calls = std::mem::take(&mut *self.calls.lock());
        (calls, EventStats::of(&counters))
    }
}

/// Does not pause between attempts.
fn options() -> EventOptions {
    EventOptions {
        retry_delay: Duration::ZERO,
        ..EventOptions::new("tester")
    }
}

fn object(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: "apps/v1",
        kind: "ReplicaSet",
        key: ObjectKey::new("ns", name),
        uid: Uid::new("uid-1"),
        resource_version: ResourceVersion::new("7"),
        field_path: "",
    }
}

/// The response of a server that stores the event unchanged.
#[expect(
    clippy::unnecessary_wraps,
    reason = "its signature is that of a scripted response"
)]
fn stored(_: Verb, event: &Event) -> SinkResult {
    Ok(Recorded {
        name: event.name.clone(),
        first_timestamp: event.first_timestamp,
        count: event.count,
    })
}

#[test]
fn k_14_the_name_is_object_and_time_or_a_uuid() {
    let name = |involved: &str| generate_event_name(involved, 105_999_103_295_324_396);
    assert_eq!(name("test-pod"), "test-pod.178959f726d80ec");
    let long = "a".repeat(300);
    for involved in [
        &long,
        "Test-Pod",
        "test_pod",
        "-test-pod",
        "pod-",
        "a..b",
        "",
        "ü",
    ] {
        let name = name(involved);
        assert!(is_subdomain(&name), "{involved} became {name}");
        assert_eq!(name.len(), 36);
    }
}
