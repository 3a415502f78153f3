//! The sent requests, their retries, and that no caller blocks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    EventOptions, EventStats, Fixture, ObjectReference, Recorded, SinkResult, Verb, object,
    options, stored,
};
use crate::api::{ObjectKey, Status};
use crate::client::{ClientError, TransportError, TransportErrorKind};
use crate::event_recorder::{Event, EventType};

fn value(json: &[u8]) -> Value {
    serde_json::from_slice(json).expect("it is JSON")
}

fn rejected(code: u16, reason: &str) -> SinkResult {
    Err(ClientError::Status(Status::new(code, reason, "no")))
}

fn later() -> SinkResult {
    let status = Status::new(429, "TooManyRequests", "no").or_retry_after(Some(1));
    Err(ClientError::Status(status))
}

fn no_response() -> SinkResult {
    Err(ClientError::Transport(TransportError {
        kind: TransportErrorKind::Refused,
        sent: false,
        message: "connection refused".to_owned(),
    }))
}

fn verbs(calls: &[(Verb, Event)]) -> Vec<Verb> {
    calls.iter().map(|(verb, _)| *verb).collect()
}

#[test]
fn k_05_the_first_occurrence_creates_a_complete_event() {
    let fixture = Fixture::new(stored);
    let about = ObjectReference {
        field_path: "spec.containers[2]",
        ..object("web")
    };
    let message = "Created pod: web-abcde";
    fixture
        .recorder
        .event(&about, EventType::Warning, "SuccessfulCreate", message);
    let (calls, _) = fixture.run();
    let [(Verb::Create, event)] = &calls[..] else {
        panic!("{calls:?}");
    };
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "web.18867251edfa0000", "namespace": "ns"},
        "involvedObject": {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "namespace": "ns",
            "name": "web",
            "uid": "uid-1",
            "resourceVersion": "7",
            "fieldPath": "spec.containers[2]",
        },
        "type": "Warning",
        "reason": "SuccessfulCreate",
        "message": "Created pod: web-abcde",
        "source": {"component": "tester"},
        "reportingComponent": "tester",
        "reportingInstance": "",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    });
    assert_eq!(value(&event.to_json()), expected);
}

#[test]
fn k_08_events_of_cluster_scoped_objects_are_in_default() {
    let fixture = Fixture::new(stored);
    let about = ObjectReference {
        key: ObjectKey::new("", "node-1"),
        ..object("")
    };
    fixture.record(&about, "a");
    let (calls, _) = fixture.run();
    let json = value(&calls[0].1.to_json());
    assert_eq!(json["metadata"]["namespace"], "default");
    assert_eq!(json["involvedObject"]["namespace"], Value::Null);
}

#[test]
fn a_repeat_is_a_patch_of_count_time_and_message() {
    let fixture = Fixture::new(stored);
    fixture.record(&object("web"), "a");
    fixture.clock.advance(Duration::from_secs(5));
    fixture.record(&object("web"), "a");
    let (calls, _) = fixture.run();
    assert_eq!(verbs(&calls), [Verb::Create, Verb::Patch]);
    assert_eq!(calls[0].1.name, calls[1].1.name);
    let expected = json!({"count": 2, "lastTimestamp": "2026-01-01T00:00:05Z", "message": "a"});
    assert_eq!(value(&calls[1].1.to_patch()), expected);
}

#[test]
fn a_repeat_of_an_expired_event_becomes_a_new_one() {
    let fixture = Fixture::new(|verb, event| match verb {
        Verb::Create => stored(verb, event),
        Verb::Patch => rejected(404, "NotFound"),
    });
    fixture.record(&object("web"), "a");
    fixture.record(&object("web"), "a");
    let (calls, stats) = fixture.run();
    assert_eq!(verbs(&calls), [Verb::Create, Verb::Patch, Verb::Create]);
    assert_eq!((calls[2].1.count, stats.written), (2, 2));
}

#[test]
fn k_09_rejections_are_final_and_silence_is_retried() {
    type Script = fn() -> SinkResult;
    let cases: [(&str, Script, usize); 7] = [
        (
            "cannot be built",
            || Err(ClientError::Invalid("no".to_owned())),
            1,
        ),
        ("invalid", || rejected(422, "Invalid"), 1),
        ("already exists", || rejected(409, "AlreadyExists"), 1),
        ("server broke down", || rejected(500, "InternalError"), 1),
        ("no response", || no_response(), 12),
        ("overloaded", || later(), 12),
        ("stopping", || Err(ClientError::Stopped), 1),
    ];
    for (name, script, n_expected) in cases {
        let fixture = Fixture::new(move |_, _| script());
        fixture.record(&object("web"), "a");
        let (calls, stats) = fixture.run();
        assert_eq!(calls.len(), n_expected, "{name}");
        assert_eq!((stats.written, stats.failed), (0, 1), "{name}");
    }
}

#[test]
fn k_09_a_second_attempt_may_succeed() {
    let n_calls = AtomicUsize::new(0);
    let fixture = Fixture::new(move |verb, event| {
        if n_calls.fetch_add(1, Ordering::Relaxed) == 0 {
            no_response()
        } else {
            stored(verb, event)
        }
    });
    fixture.record(&object("web"), "a");
    let (calls, stats) = fixture.run();
    assert_eq!((calls.len(), stats.written), (2, 1));
}

#[test]
fn an_event_that_must_wait_does_not_delay_others() {
    let fixture = Fixture::new(|verb, event| match &*event.object.key.name {
        "web" => later(),
        _ => stored(verb, event),
    });
    fixture.record(&object("web"), "a");
    fixture.record(&object("db"), "a");
    let (calls, stats) = fixture.run();
    let is_other = |(_, event): &(Verb, Event)| &*event.object.key.name == "db";
    let before = calls.iter().take_while(|call| !is_other(call)).count();
    assert!(before < 3, "{before} attempts before it");
    assert_eq!((calls.len(), stats.written, stats.failed), (13, 1, 1));
}

#[test]
fn k_09_a_response_that_is_not_an_event_is_retried() {
    let fixture = Fixture::new(|_, event| Recorded::from_response(event, b"{\"kind\":\"Status\"}"));
    fixture.record(&object("web"), "a");
    let (calls, _) = fixture.run();
    assert_eq!(calls.len(), 12);
}

#[test]
fn a_repeat_uses_the_servers_name_and_count() {
    let response = json!({
        "kind": "Event",
        "metadata": {"name": "other", "namespace": "ns", "resourceVersion": "9"},
        "firstTimestamp": "2025-12-31T23:59:59Z",
        "lastTimestamp": null,
        "count": 3,
    });
    let body = response.to_string().into_bytes();
    let fixture = Fixture::new(move |_, event| Recorded::from_response(event, &body));
    fixture.record(&object("web"), "a");
    fixture.record(&object("web"), "a");
    let (calls, _) = fixture.run();
    let Event { name, count, .. } = &calls[1].1;
    assert_eq!(
        (calls[1].0, name.as_str(), *count),
        (Verb::Patch, "other", 4)
    );
}

#[test]
fn k_11_a_stopped_recorder_tries_each_event_once() {
    let retry_delay = Duration::from_hours(1);
    let options = EventOptions {
        retry_delay,
        ..options()
    };
    let fixture = Fixture::with(options, |_| |_, _: &Event| no_response());
    fixture.record(&object("a"), "a");
    fixture.record(&object("b"), "b");
    fixture.stop();
    let (calls, stats) = fixture.run();
    assert_eq!(verbs(&calls), [Verb::Create, Verb::Create]);
    assert_eq!(stats.failed, 2);
}

#[test]
fn queued_events_drain_for_a_bounded_time_at_the_stop() {
    let fixture = Fixture::with(options(), |clock| {
        move |verb: Verb, event: &Event| {
            clock.advance(Duration::from_secs(2));
            stored(verb, event)
        }
    });
    for name in ["a", "b", "c", "d"] {
        fixture.record(&object(name), "a");
    }
    fixture.stop();
    let (calls, _) = fixture.run();
    assert_eq!(calls.len(), 2, "at 0 s and at 2 s, but not at 4 s");
}

#[test]
fn k_12_many_events_that_fail_at_first_all_arrive() {
    let failed = Mutex::new(HashMap::<_, u32>::new());
    let fixture = Fixture::new(move |verb, event| {
        let mut failed = failed.lock();
        let n_failed = failed.entry(event.object.key.clone()).or_default();
        *n_failed += 1;
        if *n_failed <= 4 {
            no_response()
        } else {
            stored(verb, event)
        }
    });
    for i in 0..1000 {
        fixture.record(&object(&format!("web-{i}")), "a");
    }
    let (calls, stats) = fixture.run();
    assert_eq!(calls.len(), 5000);
    let expected = EventStats {
        written: 1000,
        ..EventStats::default()
    };
    assert_eq!(stats, expected);
}

#[test]
fn k_27_a_full_queue_drops_events_without_blocking() {
    let fixture = Fixture::new(stored);
    for i in 0..1003 {
        fixture.record(&object(&i.to_string()), "a");
    }
    assert_eq!(EventStats::of(&fixture.recorder.counters).dropped, 3);
    let (calls, _) = fixture.run();
    let (_, last) = calls.last().expect("events are sent");
    assert_eq!((calls.len(), &*last.object.key.name), (1000, "999"));
}

#[test]
fn k_28_the_thread_ends_while_a_hundred_threads_record() {
    let Fixture {
        recorder,
        worker,
        stop,
        ..
    } = Fixture::new(stored);
    let recorder = &recorder;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || worker.run());
        for i in 0..100 {
            scope.spawn(move || {
                let about = object(&format!("web-{i}"));
                let record = || recorder.event(&about, EventType::Normal, "Tested", "");
                (0..10).for_each(|_| record());
            });
        }
        stop.stop(crate::stdx::stop::Cause::Requested("test".to_owned()));
        thread.join().expect("the thread ends");
    });
    recorder.event(&object("web"), EventType::Normal, "Tested", "");
    assert!(
        EventStats::of(&recorder.counters).dropped > 0,
        "the thread has ended"
    );
}

#[test]
fn a_message_is_sent_as_it_came() {
    let fixture = Fixture::new(stored);
    let message = "refused:\u{1b}[2J\r\n\u{202e}no";
    fixture.record(&object("web"), message);
    let (calls, _) = fixture.run();
    let [(Verb::Create, event)] = &calls[..] else {
        panic!("{calls:?}");
    };
    assert_eq!(&*event.message, message);
}
