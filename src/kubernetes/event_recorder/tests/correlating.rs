//! Correlation of an event with earlier ones, under a fake clock.

use std::time::Duration;

use super::{EventType, object};
use crate::api::{ObjectKey, Uid};
use crate::event_recorder::ObjectReference;
use crate::event_recorder::correlator::{Correlator, Occurrence};
use crate::event_recorder::{Event, Recorded};
use crate::stdx::clock::Clock;
use crate::stdx::testing::FakeClock;

const SECOND: Duration = Duration::from_secs(1);

struct Fixture {
    clock: FakeClock,
    correlator: Correlator,
}

/// An input event; unspecified fields are equal in all cases.
#[derive(Clone)]
struct Input {
    object: ObjectReference,
    type_: EventType,
    reason: &'static str,
    message: String,
}

fn input(message: impl Into<String>) -> Input {
    Input {
        object: object("web"),
        type_: EventType::Normal,
        reason: "Tested",
        message: message.into(),
    }
}

fn similar(n: usize) -> Vec<Input> {
    (0..n).map(|i| input(format!("message {i}"))).collect()
}

impl Fixture {
    fn new() -> Self {
        Self {
            clock: FakeClock::default(),
            correlator: Correlator::new("tester"),
        }
    }

    fn record(&mut self, input: Input) -> Option<Event> {
        let occurrence = Occurrence {
            object: input.object,
            type_: input.type_,
            reason: input.reason,
            message: input.message.into(),
            at: self.clock.wall(),
        };
        let correlated = self.correlator.correlate(occurrence, &self.clock)?;
        let event = correlated.event.clone();
        let recorded = Recorded {
            name: event.name.clone(),
            first_timestamp: event.first_timestamp,
            count: event.count,
        };
        self.correlator.update_state(correlated.key, recorded);
        Some(event)
    }
}

/// Records `before`, then after `interval` records `last`; checks the resulting event.
#[track_caller]
fn check(
    before: Vec<Input>,
    interval: Duration,
    last: Input,
    expected: Option<(&str, u32)>,
) -> Option<Event> {
    let mut fixture = Fixture::new();
    for input in before {
        fixture.record(input);
    }
    fixture.clock.advance(interval);
    let event = fixture.record(last);
    let actual = event.as_ref().map(|event| (&*event.message, event.count));
    assert_eq!(actual, expected);
    event
}

#[test]
fn k_17_a_single_event_counts_one() {
    check(vec![], SECOND, input("a"), Some(("a", 1)));
}

#[test]
fn k_18_a_repeat_counts_two_under_the_first_name() {
    let mut fixture = Fixture::new();
    let first = fixture.record(input("a")).expect("it passes");
    fixture.clock.advance(5 * SECOND);
    let second = fixture.record(input("a")).expect("it passes");
    let expected = Event {
        count: 2,
        last_timestamp: first.last_timestamp + 5 * SECOND,
        ..first
    };
    assert_eq!(second, expected);
}

#[test]
fn k_19_equal_events_are_never_aggregated() {
    check(
        vec![input("a"); 10],
        30 * SECOND,
        input("a"),
        Some(("a", 11)),
    );
}

#[test]
fn k_20_too_many_events_about_one_object_are_dropped() {
    check(vec![input("a"); 26], SECOND, input("a"), None);
    check(vec![input("a"); 24], SECOND, input("a"), Some(("a", 25)));
    let refilled = 300 * SECOND;
    check(vec![input("a"); 26], refilled, input("a"), Some(("a", 27)));
}

#[test]
fn k_21_events_about_other_objects_do_not_count() {
    let about = |i: usize| Input {
        object: object(&format!("web-{i}")),
        ..input("a")
    };
    let before = (0..30).map(about).collect();
    check(before, 5 * SECOND, input("a"), Some(("a", 1)));
}

#[test]
fn k_22_the_tenth_similar_event_becomes_an_aggregate() {
    let expected = Some(("(combined from similar events): last", 1));
    check(similar(9), 5 * SECOND, input("last"), expected);
    check(similar(8), 5 * SECOND, input("last"), Some(("last", 1)));
}

#[test]
fn k_16_k_23_the_aggregate_counts_and_shows_the_latest_message() {
    let expected = Some(("(combined from similar events): last", 2));
    let event = check(similar(10), 5 * SECOND, input("last"), expected);
    let event = event.expect("it passes");
    assert_eq!(event.last_timestamp, event.first_timestamp + 5 * SECOND);
}

#[test]
fn k_24_each_container_has_its_own_count() {
    let of_container = |field_path| Input {
        object: ObjectReference {
            field_path,
            ..object("web")
        },
        ..input("a")
    };
    let before = vec![of_container("spec.containers{one}"); 9];
    let last = of_container("spec.containers{two}");
    check(before, 5 * SECOND, last, Some(("a", 1)));
}

#[test]
fn k_25_a_group_that_was_quiet_starts_over() {
    let expected = Some(("(combined from similar events): last", 1));
    check(similar(9), 600 * SECOND, input("last"), expected);
    check(similar(9), 601 * SECOND, input("last"), Some(("last", 1)));
}

#[test]
fn k_07_another_object_or_reason_is_another_event() {
    let web = || object("web");
    let about = |object| Input {
        object,
        ..input("a")
    };
    let uid = Uid::new("uid-2");
    let key = ObjectKey::new("other", "web");
    let field_path = "spec.containers{a}";
    for last in [
        about(ObjectReference { uid, ..web() }),
        about(ObjectReference { key, ..web() }),
        about(ObjectReference {
            field_path,
            ..web()
        }),
        Input {
            reason: "Other",
            ..input("a")
        },
        Input {
            type_: EventType::Warning,
            ..input("a")
        },
    ] {
        check(vec![input("a"); 3], SECOND, last, Some(("a", 1)));
    }
    let resource_version = "8".into();
    let newer = about(ObjectReference {
        resource_version,
        ..web()
    });
    check(vec![input("a"); 3], SECOND, newer, Some(("a", 4)));
}

#[test]
fn k_15_groups_differ_by_reason_but_not_by_message() {
    let last = Input {
        reason: "Other",
        ..input("last")
    };
    check(similar(9), SECOND, last, Some(("last", 1)));
}

#[test]
fn k_26_the_filter_considers_object_and_type_only() {
    let other_reason = Input {
        reason: "Other",
        ..input("b")
    };
    check(vec![input("a"); 25], SECOND, other_reason, None);
    let other_type = Input {
        type_: EventType::Warning,
        ..input("b")
    };
    check(vec![input("a"); 25], SECOND, other_type, Some(("b", 1)));
}

#[test]
fn k_26_a_hundred_creations_become_ten_events() {
    let mut fixture = Fixture::new();
    let created = |i| Input {
        reason: "SuccessfulCreate",
        ..input(format!("Created pod: web-{i}"))
    };
    let sent: Vec<_> = (0..100)
        .filter_map(|i| fixture.record(created(i)))
        .collect();
    let n_new = sent.iter().filter(|event| event.count == 1).count();
    assert_eq!((sent.len(), n_new), (25, 10));
    let last = sent.last().expect("there are some");
    assert_eq!(last.count, 16);
    assert_eq!(
        &*last.message,
        "(combined from similar events): Created pod: web-24"
    );
}

#[test]
fn an_aggregate_has_a_source_but_no_reporting_component() {
    let mut fixture = Fixture::new();
    let sent: Vec<_> = similar(10)
        .into_iter()
        .filter_map(|input| fixture.record(input))
        .map(|event| (event.component, event.reporting_component))
        .collect();
    let (aggregate, singles) = sent.split_last().expect("ten");
    assert!(singles.iter().all(|names| *names == ("tester", "tester")));
    assert_eq!(*aggregate, ("tester", ""));
}

#[test]
fn k_13_a_new_correlator_counts_from_one() {
    let mut old = Fixture::new();
    let counts: Vec<_> = [input("a"), input("a")]
        .into_iter()
        .filter_map(|input| old.record(input))
        .map(|event| event.count)
        .collect();
    assert_eq!(counts, [1, 2]);
    let new = Fixture::new().record(input("a")).expect("it passes");
    assert_eq!(new.count, 1);
}

#[test]
fn a_repeat_continues_the_servers_count() {
    let mut fixture = Fixture::new();
    let occurrence = |clock: &FakeClock| Occurrence {
        object: object("web"),
        type_: EventType::Normal,
        reason: "Tested",
        message: "a".into(),
        at: clock.wall(),
    };
    let Fixture { clock, correlator } = &mut fixture;
    let sent = correlator
        .correlate(occurrence(clock), clock)
        .expect("it passes");
    let recorded = Recorded {
        name: "renamed".to_owned(),
        first_timestamp: sent.event.first_timestamp - SECOND,
        count: 7,
    };
    correlator.update_state(sent.key, recorded);
    let again = correlator
        .correlate(occurrence(clock), clock)
        .expect("it passes");
    assert_eq!(
        (again.event.name.as_str(), again.event.count),
        ("renamed", 8)
    );
    let earlier = sent.event.first_timestamp - SECOND;
    assert_eq!(again.event.first_timestamp, earlier);
}

#[test]
fn events_of_the_same_instant_have_distinct_names() {
    let mut fixture = Fixture::new();
    let names: Vec<_> = ["a", "b", "c"]
        .iter()
        .filter_map(|message| fixture.record(input(*message)))
        .map(|event| event.name)
        .collect();
    let expected = [
        "web.18867251edfa0000",
        "web.18867251edfa0001",
        "web.18867251edfa0002",
    ];
    assert_eq!(names, expected);
}
