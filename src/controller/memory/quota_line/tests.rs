//! The rhythm of one line, turn by turn.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::{PAUSE_MAX, PAUSE_MIN, Place, QuotaLine};
use crate::api::ObjectKey;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// The place of a ReplicaSet created in this second.
fn place(name: &str, second: i64) -> Place {
    let created = Timestamp::constant(second, 0).into();
    (Some(created), ObjectKey::new("default", name))
}

/// A line of ReplicaSets with these names, in order of age; all were refused at `now`.
fn line(names: &[&str], now: Instant) -> QuotaLine {
    let mut line = QuotaLine::new(now);
    let mut places: Vec<Place> = (1..)
        .zip(names)
        .map(|(second, name)| place(name, second))
        .collect();
    // Not in their order.
    places.reverse();
    for place in places {
        line.refused(place, false);
    }
    line
}

fn names(keys: &[ObjectKey]) -> Vec<&str> {
    keys.iter().map(|key| &*key.name).collect()
}

/// Every probe until `until` is refused. Returns when each was, and whose.
fn probes(line: &mut QuotaLine, start: Instant, until: Duration) -> Vec<(u128, String)> {
    let mut probes = Vec::new();
    while line.next_turn <= start + until {
        let now = line.next_turn;
        for key in line.turn(now) {
            probes.push(((now - start).as_millis(), key.name.to_string()));
        }
        line.refused(place("a", 1), true);
    }
    probes
}

#[test]
fn a_full_quota_costs_one_probe_in_30_s() {
    let start = Instant::now();
    let mut line = line(&["a", "b", "c"], start);
    let probes = probes(&mut line, start, Duration::from_mins(10));
    let times: Vec<u128> = probes.iter().map(|(at, _)| *at).collect();
    assert_eq!(
        times[..6],
        [50, 150, 350, 750, 1550, 3150],
        "as if woken at the start"
    );
    let pauses: Vec<u128> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses[9..], vec![30_000; pauses.len() - 9]);
    assert_eq!(times.len(), 10 + 18);
}

#[test]
fn each_replica_set_probes_once_before_any_probes_twice() {
    let start = Instant::now();
    let mut line = line(&["a", "b", "c"], start);
    let probes = probes(&mut line, start, Duration::from_mins(10));
    let order: Vec<&str> = probes.iter().map(|(_, name)| name.as_str()).collect();
    let by_age = ["a", "a", "a", "b", "c", "a", "b", "c", "a"];
    assert_eq!(order[..9], by_age, "after the tries of the oldest");
}

#[test]
fn a_sign_of_room_brings_the_oldest_at_once_and_short_pauses() {
    let start = Instant::now();
    let mut line = line(&["a", "b", "c"], start);
    probes(&mut line, start, Duration::from_secs(100));
    let woken = start + Duration::from_secs(101);
    line.wake(woken);
    let times = probes(&mut line, woken, 2 * SECOND);
    let times: Vec<(u128, &str)> = times.iter().map(|(at, name)| (*at, &**name)).collect();
    let expected = [
        (0, "a"),
        (50, "a"),
        (150, "a"),
        (350, "b"),
        (750, "c"),
        (1550, "a"),
    ];
    assert_eq!(times, expected);
}

/// A hazard: a storm of signs must not become a storm of requests, and one ReplicaSet that never
/// fits must not be the only one to probe.
#[test]
fn a_storm_of_signs_costs_20_probes_a_second_and_blocks_nobody() {
    let start = Instant::now();
    let all: Vec<String> = (0..30).map(|i| format!("rs-{i:02}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut line = line(&all, start);
    let mut probed = Vec::new();
    for ms in 0..2_000 {
        let now = start + ms * MS;
        line.wake(now);
        probed.extend(line.turn(now));
    }
    assert!(probed.len() <= 40, "{} probes", probed.len());
    let probed: std::collections::BTreeSet<_> = probed.iter().collect();
    assert_eq!(probed.len(), all.len());
}

/// Another hazard: pods of Jobs that end now and then, in a namespace where the oldest ReplicaSets
/// never fit.
#[test]
fn signs_now_and_then_let_each_replica_set_probe() {
    let start = Instant::now();
    let all: Vec<String> = (0..12).map(|i| format!("rs-{i:02}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for period in [350, 1000, 2001, 2500, 10_000, 60_000] {
        let mut line = line(&all, start);
        let mut probed = std::collections::BTreeSet::new();
        for ms in 0..12 * period {
            let now = start + ms * MS;
            if ms % period == 0 {
                line.wake(now);
            }
            for key in line.turn(now) {
                line.refused(place(&key.name, 0), true);
                probed.insert(key);
            }
        }
        assert_eq!(probed.len(), all.len(), "a sign every {period} ms");
    }
}

#[test]
fn accepted_probes_double_until_one_is_refused() {
    let start = Instant::now();
    let all: Vec<String> = (0..30).map(|i| format!("rs-{i:02}")).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut line = line(&all, start);
    let place_of = |key: &ObjectKey| {
        let index = all.iter().position(|name| **name == *key.name);
        place(
            &key.name,
            1 + i64::try_from(index.expect("one of them")).expect("few"),
        )
    };
    let now = start + PAUSE_MIN;
    let (mut sizes, mut permitted) = (Vec::new(), line.turn(now));
    let mut gone = 0;
    while gone + permitted.len() <= 15 {
        sizes.push(permitted.len());
        gone += permitted.len();
        let accepted = std::mem::take(&mut permitted);
        for key in &accepted {
            line.leave(&place_of(key), true, true, now);
            permitted.extend(line.turn(now));
        }
    }
    assert_eq!(sizes, [1, 2, 4, 8]);
    assert_eq!(names(&permitted[..1]), ["rs-15"], "in order of age");
    // The quota is full: whatever was permitted tries, and nobody else does.
    for key in &permitted {
        line.refused(place_of(key), true);
    }
    assert!(line.turn(now).is_empty());
    assert_eq!(line.turn(now + PAUSE_MIN).len(), 1);
}

#[test]
fn a_success_after_a_refusal_of_its_turn_permits_nobody() {
    let start = Instant::now();
    let mut line = line(&["a", "b", "c", "d", "e"], start);
    let now = start + PAUSE_MIN;
    assert_eq!(names(&line.turn(now)), ["a"]);
    line.leave(&place("a", 1), true, true, now);
    assert_eq!(names(&line.turn(now)), ["b", "c"]);
    line.refused(place("b", 2), true);
    line.leave(&place("c", 3), true, true, now);
    assert!(line.turn(now).is_empty());
    assert_eq!(names(&line.turn(now + PAUSE_MIN)), ["d"], "soon");
}

#[test]
fn the_next_goes_at_once_if_a_probe_is_not_needed_any_more() {
    let start = Instant::now();
    let mut line = line(&["a", "b"], start);
    let now = start + PAUSE_MIN;
    assert_eq!(names(&line.turn(now)), ["a"]);
    line.leave(&place("a", 1), true, false, now);
    assert_eq!(names(&line.turn(now)), ["b"]);
}

/// The API server counts the room some milliseconds after the sign, and a ReplicaSet that shrinks
/// is a sign before its pods end. The place is the oldest one's all the same.
#[test]
fn the_oldest_tries_again_before_a_younger_one_goes() {
    let start = Instant::now();
    let mut line = line(&["old", "young"], start);
    let now = start + Duration::from_secs(10);
    line.wake(now);
    assert_eq!(names(&line.turn(now)), ["old"]);
    line.refused(place("old", 1), true);
    line.wake(now + 30 * MS);
    assert_eq!(names(&line.turn(now + PAUSE_MIN)), ["old"]);
    line.leave(&place("old", 1), true, true, now + PAUSE_MIN);
    assert_eq!(names(&line.turn(now + PAUSE_MIN)), ["young"]);
}

#[test]
fn a_refusal_of_another_than_the_probe_changes_no_rhythm() {
    let start = Instant::now();
    let mut line = line(&["a"], start);
    let before = line.next_turn;
    line.refused(place("new", 9), false);
    assert_eq!((line.next_turn, line.len()), (before, 2));
}

#[test]
fn the_timer_is_armed_once_and_again_when_it_may_be_used_up() {
    let start = Instant::now();
    let mut line = line(&["a", "b"], start);
    let (a, b) = (
        ObjectKey::new("default", "a"),
        ObjectKey::new("default", "b"),
    );
    assert_eq!(line.arm(None, start), Some(a.clone()));
    assert_eq!(line.arm(None, start), None);
    assert_eq!(line.arm(Some(&b), start), None);
    assert_eq!(
        line.arm(Some(&a), start),
        Some(a.clone()),
        "the queue may have brought it back earlier"
    );
    let late = start + PAUSE_MIN;
    assert_eq!(line.turn(late).len(), 1);
    assert_eq!(line.arm(None, late), Some(a), "for the turn after that");
}

#[test]
fn the_place_counts_those_that_probe_earlier() {
    let start = Instant::now();
    let mut line = line(&["a", "b", "c"], start);
    assert_eq!(line.n_before(&place("c", 3)), 2);
    for _ in 0..3 {
        line.turn(line.next_turn);
    }
    assert_eq!(line.n_before(&place("c", 3)), 1);
    assert_eq!(line.n_before(&place("a", 1)), 2);
    assert!(PAUSE_MAX > PAUSE_MIN && !line.is_empty());
}
