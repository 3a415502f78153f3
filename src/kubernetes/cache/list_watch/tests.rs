//! The state machine by script: its steps and their times after each reported result.

use std::time::{Duration, Instant};

use super::{Effect, Failure, ListMetadata, ListWatch, Older, PageEnd, Seen, Step};
use crate::api::Status;

/// A state machine and a clock that only the script advances.
struct Script {
    machine: ListWatch,
    start: Instant,
    now: Instant,
}

const CLOSE: Seen = Seen::Bookmark {
    is_initial_events_end: true,
};
const BOOKMARK: Seen = Seen::Bookmark {
    is_initial_events_end: false,
};

impl Script {
    fn with_random(streams_lists: bool, random: f64) -> Self {
        let now = Instant::now();
        Self {
            machine: ListWatch::new(streams_lists, move || random),
            start: now,
            now,
        }
    }

    fn paged() -> Self {
        Self::with_random(false, 0.0)
    }

    fn streaming() -> Self {
        Self::with_random(true, 0.0)
    }

    fn next_step(&mut self) -> Step {
        self.machine.next_step(self.now)
    }

    /// Returns the next step as text; a wait advances the clock.
    fn step(&mut self) -> String {
        let value = |name: &str, value: &str| match value {
            "" => String::new(),
            value => format!(" {name}={value}"),
        };
        match self.next_step() {
            Step::Wait(delay) => {
                self.now += delay;
                format!("wait {}ms", delay.as_millis())
            }
            Step::List(query) => {
                let version = value("rv", &query.resource_version.to_string());
                let limit = value(
                    "limit",
                    &query.limit.map_or(String::new(), |n| n.to_string()),
                );
                let token = value("continue", &query.continue_token);
                format!("list{version}{limit}{token}")
            }
            Step::Watch(query) => {
                let version = value("rv", &query.resource_version.to_string());
                let verb = ["watch", "stream"][usize::from(query.send_initial_events)];
                format!("{verb}{version}")
            }
        }
    }

    #[track_caller]
    fn expect(&mut self, expected: &[&str]) -> &mut Self {
        for expected in expected {
            assert_eq!(self.step(), *expected);
        }
        self
    }

    fn page(&mut self, version: &str, token: &str) -> &mut Self {
        let metadata = ListMetadata {
            resource_version: version.into(),
            continue_token: token.to_owned(),
        };
        let end = self.machine.on_page_end(&metadata, self.now);
        assert_eq!(end == PageEnd::More, !token.is_empty());
        self
    }

    /// The last page of a list that is older than the store.
    fn older_page(&mut self, version: &str, expected: &Older) {
        let metadata = ListMetadata {
            resource_version: version.into(),
            continue_token: String::new(),
        };
        let end = self.machine.on_page_end(&metadata, self.now);
        assert_eq!(end, PageEnd::Older(expected.clone()));
    }

    #[expect(clippy::needless_pass_by_value, reason = "the scripts are shorter")]
    fn see(&mut self, seen: Seen, version: &str, expected: Effect) -> &mut Self {
        let effect = self.machine.on_event(seen, &version.into(), self.now);
        assert_eq!(effect, expected);
        self
    }

    fn event(&mut self, version: &str) -> &mut Self {
        self.see(Seen::Changed, version, Effect::Apply)
    }

    fn pass(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    fn close(&mut self) -> &mut Self {
        self.machine.on_closed(self.now);
        self
    }

    /// The watch stays silent until it times out.
    fn fall_silent(&mut self) -> &mut Self {
        self.now += Duration::from_mins(5);
        self.machine.on_silent(self.now);
        self
    }

    fn fail(&mut self, failure: Failure) -> &mut Self {
        self.machine.on_error(failure, self.now);
        self
    }

    fn version(&self) -> String {
        self.machine.last_resource_version().to_string()
    }

    fn passed(&self) -> Duration {
        self.now - self.start
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn j_01_a_paged_start_lists_at_0_and_watches_from_there() {
    let mut script = Script::paged();
    let Step::List(list) = script.next_step() else {
        panic!("no list");
    };
    let expected = [("resourceVersion", "0"), ("limit", "500")];
    assert_eq!(list.parameters(), expected.map(|(k, v)| (k, v.to_owned())));
    script.page("10", "");
    let Step::Watch(watch) = script.next_step() else {
        panic!("no watch");
    };
    let expected = [
        ("watch", "true"),
        ("resourceVersion", "10"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", "300"),
    ];
    assert_eq!(watch.parameters(), expected.map(|(k, v)| (k, v.to_owned())));
}

#[test]
fn j_02_a_streaming_start_is_one_watch_with_the_list_first() {
    let mut script = Script::streaming();
    let Step::Watch(watch) = script.next_step() else {
        panic!("no watch");
    };
    let expected = [
        ("watch", "true"),
        ("sendInitialEvents", "true"),
        ("resourceVersionMatch", "NotOlderThan"),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", "300"),
    ];
    assert_eq!(watch.parameters(), expected.map(|(k, v)| (k, v.to_owned())));
    script.see(Seen::Added, "3", Effect::Collect);
    script.see(CLOSE, "7", Effect::Replace);
    script
        .event("8")
        .pass(SECOND)
        .close()
        .expect(&["watch rv=8"]);
}

#[track_caller]
fn check_timeout(random: f64, expected_seconds: u64) {
    let Step::Watch(watch) = Script::with_random(true, random).next_step() else {
        panic!("no watch");
    };
    assert_eq!(watch.timeout_seconds, expected_seconds);
}

#[test]
fn j_03_watches_last_five_to_ten_minutes() {
    check_timeout(0.0, 300);
    check_timeout(0.5, 450);
    check_timeout(0.999_999, 599);
}

#[test]
fn j_04_the_version_of_the_last_message_counts() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("1", "");
    script.expect(&["watch rv=1"]);
    script.event("55").see(Seen::Added, "32", Effect::Apply);
    assert_eq!(script.version(), "32");
    script.close().expect(&["watch rv=32"]);
}

#[test]
fn j_05_the_version_follows_every_message() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    script.expect(&["watch rv=10"]);
    let mut versions = vec![script.version()];
    for (seen, version) in [
        (Seen::Added, "10"),
        (Seen::Changed, "20"),
        (BOOKMARK, "30"),
        (Seen::Changed, "40"),
    ] {
        script.see(seen, version, Effect::Apply);
        versions.push(script.version());
    }
    assert_eq!(versions, ["10", "10", "20", "30", "40"]);
    script.see(Seen::Changed, "", Effect::Apply);
    assert_eq!(script.version(), "40");
}

#[test]
fn a_watch_from_no_version_counts_after_its_initial_objects() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("0", "");
    script.expect(&["watch rv=0"]);
    script.see(Seen::Added, "9", Effect::Apply);
    assert_eq!(script.version(), "0");
    script.see(BOOKMARK, "12", Effect::Apply);
    assert_eq!(script.version(), "12");
}

#[test]
fn j_09_a_very_short_watch_ends_the_cycle_with_a_back_off() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    script.expect(&["watch rv=10"]).pass(SECOND / 2).close();
    script.expect(&["wait 800ms", "list rv=10"]).page("10", "");
    script.expect(&["watch rv=10"]).close();
    script.expect(&["wait 1600ms", "list rv=10"]);

    let mut script = Script::streaming();
    script.expect(&["stream"]).close();
    script.expect(&["list rv=0 limit=500"]);
}

#[test]
fn j_10_a_refused_watch_is_retried_from_the_same_version() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    for wait in ["wait 800ms", "wait 1000ms", "wait 1000ms"] {
        script.expect(&["watch rv=10"]);
        script.fail(Failure::ConnectionRefused).expect(&[wait]);
    }
    script.expect(&["watch rv=10"]);
    assert_eq!(script.passed(), Duration::from_millis(2_800));
}

#[test]
fn j_10_only_a_refused_connection_avoids_the_list() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    script.expect(&["watch rv=10"]).fail(Failure::Other);
    script.expect(&["wait 800ms", "list rv=10"]);
}

#[test]
fn j_10_the_back_off_doubles_up_to_its_cap_with_jitter() {
    for (random, expected_ms) in [(0.0, 80_400), (1.0, 160_800)] {
        let mut script = Script::with_random(true, random);
        for _ in 0..7 {
            script.expect(&["stream"]).fail(Failure::TooManyRequests);
            script.step();
        }
        assert_eq!(script.passed(), Duration::from_millis(expected_ms));
    }
}

#[test]
fn j_12_too_many_requests_back_off_without_a_list() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    script.expect(&["watch rv=10"]);
    script.fail(Failure::TooManyRequests);
    script.expect(&["wait 800ms", "watch rv=10"]);
    script.event("11").fail(Failure::TooManyRequests);
    script.expect(&["wait 1600ms", "watch rv=11"]);
}

#[test]
fn j_13_an_internal_error_ends_the_cycle() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    script.expect(&["watch rv=10"]);
    script.event("11").fail(Failure::Other);
    script.expect(&["wait 800ms", "list rv=11"]);
}

#[test]
fn j_14_a_relist_requests_at_least_the_last_version() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    script.expect(&["watch rv=10"]).fail(Failure::Other);
    script.expect(&["wait 800ms", "list rv=10"]);
}

#[test]
fn j_15_an_expired_relist_requests_the_newest_at_once() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    script.expect(&["watch rv=10"]).fail(Failure::Other);
    script
        .expect(&["wait 800ms", "list rv=10"])
        .fail(Failure::Expired);
    script.expect(&["list limit=500"]).page("20", "");
    script.expect(&["watch rv=20"]).fail(Failure::Other);
    script.expect(&["wait 1600ms", "list rv=20"]);
}

#[test]
fn the_second_attempt_of_a_list_is_the_last_of_its_cycle() {
    let mut script = Script::paged();
    script
        .expect(&["list rv=0 limit=500"])
        .fail(Failure::Expired);
    script.expect(&["list limit=500"]).fail(Failure::Expired);
    script
        .expect(&["wait 800ms", "list limit=500"])
        .page("5", "");
    script.expect(&["watch rv=5"]);
}

#[test]
fn j_17_a_future_version_is_replaced_by_the_newest() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("20", "");
    script.expect(&["watch rv=20"]).fail(Failure::Other);
    script.step();
    script
        .expect(&["list rv=20"])
        .fail(Failure::TooLargeResourceVersion);
    script.expect(&["list limit=500"]).page("30", "");
    script.expect(&["watch rv=30"]).fail(Failure::Other);
    script.step();
    script
        .expect(&["list rv=30"])
        .fail(Failure::TooLargeResourceVersion);
    script.expect(&["list limit=500"]).page("40", "");
    script.expect(&["watch rv=40"]).fail(Failure::Other);
    script.step();
    script
        .expect(&["list rv=40"])
        .fail(Failure::TooLargeResourceVersion);
    script.expect(&["list limit=500"]);
}

#[test]
fn j_17_a_silent_watch_from_a_future_version_is_relisted() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("90", "");
    script.expect(&["watch rv=90"]).fall_silent();
    script.expect(&["wait 800ms", "list rv=90"]);
    script.fail(Failure::TooLargeResourceVersion);
    script.expect(&["list limit=500"]).page("21", "next");
    // A page of a later version does not hide the first one's.
    let restored = Older::Restored("21".into());
    script.older_page("95", &restored);

    let mut script = Script::streaming();
    script.expect(&["stream"]);
    script.see(CLOSE, "90", Effect::Replace).close();
    script.expect(&["watch rv=90"]).fall_silent();
    script.expect(&["wait 800ms", "stream rv=90"]);
    script.fail(Failure::TooLargeResourceVersion);
    script
        .expect(&["stream"])
        .see(CLOSE, "21", Effect::Older(restored));
}

/// The list at a version need not be the newest, so the newest is requested before it is judged.
#[test]
fn a_list_older_than_requested_is_repeated_with_no_version() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("90", "");
    script.expect(&["watch rv=90"]).fail(Failure::Expired);
    script.expect(&["wait 800ms", "list rv=90"]);
    script.older_page("20", &Older::Lags("20".into()));
    script.fail(Failure::TooLargeResourceVersion);
    script.expect(&["list limit=500"]).page("91", "");
    script.expect(&["watch rv=91"]);

    let mut script = Script::streaming();
    script.expect(&["stream"]);
    script.see(CLOSE, "90", Effect::Replace).close();
    script.expect(&["watch rv=90"]).fail(Failure::Expired);
    script.expect(&["wait 800ms", "stream rv=90"]);
    script.see(CLOSE, "20", Effect::Older(Older::Lags("20".into())));
    script.fail(Failure::TooLargeResourceVersion);
    script.expect(&["stream"]).see(CLOSE, "91", Effect::Replace);
}

/// A proxy that closes idle watches early must not keep a healthy API server unheard, nor may one
/// that holds all messages back.
#[test]
fn watches_that_end_without_a_message_are_checked_by_a_list() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    for _ in 0..4 {
        script.expect(&["watch rv=10"]).pass(30 * SECOND).close();
    }
    script.expect(&["watch rv=10"]).pass(SECOND).close();
    script.expect(&["wait 800ms", "list rv=10"]).page("10", "");
    script.expect(&["watch rv=10"]).pass(110 * SECOND);
    script.see(BOOKMARK, "15", Effect::Apply).fall_silent();
    script.expect(&["wait 800ms", "list rv=15"]);
}

#[test]
fn a_streamed_list_without_an_end_is_read_in_pages() {
    let mut script = Script::streaming();
    script.expect(&["stream"]);
    script.see(Seen::Added, "3", Effect::Collect).pass(SECOND);
    script.see(Seen::Changed, "9", Effect::Collect);
    // A busy cluster: its changes are not part of the list.
    for _ in 0..5 {
        script.pass(11 * SECOND);
        script.see(Seen::Added, "10", Effect::Collect);
    }
    script
        .pass(5 * SECOND)
        .see(Seen::Added, "11", Effect::GiveUp);
    script.machine.on_unended();
    script.expect(&["list rv=0 limit=500"]).page("12", "");
    script.expect(&["watch rv=12"]).fail(Failure::Other);
    script.expect(&["wait 800ms", "list rv=12"]);

    let mut script = Script::streaming();
    script.expect(&["stream"]).fall_silent();
    script.expect(&["list rv=0 limit=500"]);

    let mut script = Script::streaming();
    script.expect(&["stream"]);
    script.see(Seen::Added, "3", Effect::Collect);
    script.see(BOOKMARK, "3", Effect::GiveUp);
}

/// An etcd that stalls once must not end streamed lists for good, and a proxy that drops the end
/// must not leave the store stale at each list.
#[test]
fn lists_are_streamed_again_after_a_watch_that_worked() {
    let mut script = Script::streaming();
    script.expect(&["stream"]).fall_silent();
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    script.expect(&["watch rv=10"]).event("11");
    script
        .fail(Failure::Expired)
        .expect(&["wait 800ms", "stream rv=11"]);
    script
        .see(CLOSE, "12", Effect::Replace)
        .fail(Failure::Expired);
    // The one that ended forgives the one before.
    script
        .expect(&["wait 1600ms", "stream rv=12"])
        .fall_silent();
    script.expect(&["list rv=12"]).page("13", "");
    script
        .expect(&["watch rv=13"])
        .event("14")
        .fail(Failure::Expired);
    script.expect(&["wait 800ms", "stream rv=14"]).fall_silent();
    script.expect(&["list rv=14"]).page("15", "");
    script
        .expect(&["watch rv=15"])
        .event("16")
        .fail(Failure::Expired);
    script.expect(&["wait 800ms", "list rv=16"]);

    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    script
        .expect(&["watch rv=10"])
        .event("11")
        .fail(Failure::Expired);
    script.expect(&["wait 800ms", "list rv=11"]);
}

#[test]
fn a_streamed_list_may_take_as_long_as_it_progresses() {
    let mut script = Script::streaming();
    script.expect(&["stream"]);
    for _ in 0..100 {
        script.pass(59 * SECOND);
        script.see(Seen::Added, "3", Effect::Collect);
    }
    // The first stream's time does not count for the second one.
    script.pass(59 * SECOND).close().expect(&["stream"]);
    script.pass(59 * SECOND);
    script.see(Seen::Changed, "9", Effect::Collect);
    script.see(CLOSE, "10", Effect::Replace);
}

#[test]
fn what_is_denied_is_denied_in_pages_too() {
    for failure in [Failure::Unauthorized, Failure::Forbidden] {
        let mut script = Script::streaming();
        script.expect(&["stream"]).fail(failure);
        script.expect(&["wait 800ms", "stream"]).fail(failure);
        script.expect(&["wait 1600ms", "stream"]);
    }
}

#[test]
fn j_18_later_pages_send_only_their_token() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "a");
    script
        .expect(&["list limit=500 continue=a"])
        .page("10", "b");
    script.expect(&["list limit=500 continue=b"]).page("10", "");
    script.expect(&["watch rv=10"]);
}

#[test]
fn j_19_other_versions_have_no_limit_without_pages_at_0() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "a");
    script.expect(&["list limit=500 continue=a"]).page("10", "");
    script.expect(&["watch rv=10"]).fail(Failure::Other);
    script
        .expect(&["wait 800ms", "list rv=10 limit=500"])
        .page("11", "");
    script.expect(&["watch rv=11"]).fail(Failure::Other);
    script.expect(&["wait 1600ms", "list rv=11 limit=500"]);
}

#[test]
fn an_expired_page_token_restarts_the_list_without_limit() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "a");
    script
        .expect(&["list limit=500 continue=a"])
        .fail(Failure::Expired);
    script.expect(&["list rv=0"]).page("12", "");
    script.expect(&["watch rv=12"]).fail(Failure::Other);
    // The list came in pages at first, so the server has no cache to serve it from.
    script.expect(&["wait 800ms", "list rv=12 limit=500"]);
}

#[test]
fn j_22_an_expired_watch_lists_from_the_last_version() {
    for streams_lists in [true, false] {
        let mut script = Script::with_random(streams_lists, 0.0);
        let (first, again, newest) = if streams_lists {
            ("stream", "stream rv=11", "stream")
        } else {
            ("list rv=0 limit=500", "list rv=11", "list limit=500")
        };
        script.expect(&[first]);
        if streams_lists {
            script.see(CLOSE, "10", Effect::Replace);
        } else {
            script.page("10", "").expect(&["watch rv=10"]);
        }
        script.event("11").fail(Failure::Expired);
        script.expect(&["wait 800ms", again]).fail(Failure::Expired);
        script.expect(&[newest]);
    }
}

#[test]
fn the_list_after_an_outage_waits_less_than_the_outage() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    for wait in ["wait 800ms", "wait 1600ms", "wait 3200ms", "wait 6400ms"] {
        script.expect(&["watch rv=10"]);
        script.fail(Failure::TooManyRequests).expect(&[wait]);
    }
    script.expect(&["watch rv=10"]).fail(Failure::Expired);
    script.expect(&["wait 800ms", "list rv=10"]).page("20", "");
    // Repeated expiry makes the lists less frequent.
    script.expect(&["watch rv=20"]).fail(Failure::Expired);
    script.expect(&["wait 1600ms", "list rv=20"]);
}

#[test]
fn j_25_without_its_end_a_streamed_list_is_not_complete() {
    let mut script = Script::streaming();
    script.expect(&["stream"]);
    script.see(Seen::Added, "1", Effect::Collect);
    script.see(Seen::Changed, "3", Effect::Collect);
    assert_eq!(script.version(), "");
}

#[test]
fn j_29_a_streamed_list_backs_off_and_stays_streamed() {
    let mut script = Script::streaming();
    script.expect(&["stream"]).fail(Failure::TooManyRequests);
    script
        .expect(&["wait 800ms", "stream"])
        .fail(Failure::TooManyRequests);
    script.expect(&["wait 1600ms", "stream"]);
}

#[test]
fn j_29_a_streamed_list_outlasts_a_refused_connection() {
    let mut script = Script::streaming();
    script.expect(&["stream"]).fail(Failure::ConnectionRefused);
    script.expect(&["wait 800ms", "stream"]);
}

/// Repeats this failure, and checks each pause and the request after it.
#[track_caller]
fn retried_within_two_seconds(streams_lists: bool, failure: Failure) -> Script {
    let mut script = Script::with_random(streams_lists, 1.0);
    let first = script.step();
    for n_failed in 0..20 {
        let before = script.passed();
        script.fail(failure).step();
        let waited = script.passed().saturating_sub(before);
        assert!(waited <= 2 * SECOND, "{n_failed}: {waited:?}");
        assert_eq!(script.step(), first);
    }
    script
}

/// An API server that restarts behind a balancer is used as soon as one without.
#[test]
fn unreachable_servers_are_retried_within_two_seconds() {
    for code in [502, 503, 504] {
        assert_eq!(
            Failure::of(&Status::new(code, "", "")),
            Failure::Unreachable
        );
    }
    retried_within_two_seconds(false, Failure::Unreachable);
}

#[test]
fn refused_connections_are_retried_within_two_seconds() {
    for streams_lists in [true, false] {
        let mut script = retried_within_two_seconds(streams_lists, Failure::ConnectionRefused);
        // Status errors of the running API server have their own back-off.
        script
            .fail(Failure::TooManyRequests)
            .expect(&["wait 1600ms"]);
    }
}

#[test]
fn j_30_an_incomplete_streamed_list_is_requested_again() {
    let mut script = Script::streaming();
    script.expect(&["stream"]);
    script.see(Seen::Added, "1", Effect::Collect).close();
    script.expect(&["stream"]);
    script.see(Seen::Added, "1", Effect::Collect).close();
    script
        .expect(&["wait 800ms", "stream"])
        .pass(2 * SECOND)
        .close();
    script.expect(&["wait 1600ms", "stream"]);
}

#[test]
fn j_31_a_stream_that_ends_after_its_list_is_continued() {
    let mut script = Script::streaming();
    script.expect(&["stream"]);
    script.see(CLOSE, "2", Effect::Replace);
    script.event("3").close().expect(&["watch rv=3"]);
}

#[test]
fn j_32_a_stream_that_expires_later_ends_the_cycle() {
    let mut script = Script::streaming();
    script.expect(&["stream"]);
    script.see(CLOSE, "2", Effect::Replace);
    script.event("3").close().expect(&["watch rv=3"]);
    script
        .fail(Failure::Expired)
        .expect(&["wait 800ms", "stream rv=3"]);
}

#[test]
fn j_33_the_version_of_a_streamed_list_is_that_of_its_end() {
    let mut script = Script::streaming();
    script.expect(&["stream"]);
    assert_eq!(script.version(), "");
    script.see(Seen::Added, "5", Effect::Collect);
    script.see(Seen::Added, "1", Effect::Collect);
    assert_eq!(script.version(), "");
    script.see(CLOSE, "2", Effect::Replace);
    assert_eq!(script.version(), "2");
}

#[test]
fn j_34_a_server_that_cannot_stream_is_listed_in_pages() {
    Script::paged().expect(&["list rv=0 limit=500"]);
    let mut script = Script::streaming();
    script.expect(&["stream"]).fail(Failure::Other);
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    script.expect(&["watch rv=10"]).fail(Failure::Other);
    script.expect(&["wait 800ms", "stream rv=10"]);
}

#[test]
fn a_streamed_list_at_a_future_version_requests_the_newest() {
    let mut script = Script::streaming();
    script.expect(&["stream"]);
    script
        .see(CLOSE, "90", Effect::Replace)
        .fail(Failure::Other);
    script.expect(&["wait 800ms", "stream rv=90"]);
    script.fail(Failure::TooLargeResourceVersion);
    script
        .expect(&["stream"])
        .fail(Failure::TooLargeResourceVersion);
    script.expect(&["wait 1600ms", "stream"]);
}

#[test]
fn j_37_a_watch_that_closes_is_reopened_at_once() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "");
    script.expect(&["watch rv=10"]).pass(SECOND).close();
    script.expect(&["watch rv=10"]).event("11").close();
    script
        .expect(&["watch rv=11"])
        .see(BOOKMARK, "15", Effect::Apply)
        .close();
    script.expect(&["watch rv=15"]);
}

#[test]
fn the_back_off_restarts_two_minutes_after_it_began() {
    let mut script = Script::streaming();
    script.expect(&["stream"]).fail(Failure::TooManyRequests);
    script
        .expect(&["wait 800ms", "stream"])
        .fail(Failure::TooManyRequests);
    script
        .expect(&["wait 1600ms", "stream"])
        .pass(Duration::from_secs(121));
    script
        .fail(Failure::TooManyRequests)
        .expect(&["wait 800ms"]);
}

#[track_caller]
fn check_status(status: &Status, expected: Failure) {
    assert_eq!(Failure::of(status), expected, "{status:?}");
}

#[test]
fn status_errors_are_classified() {
    let status = |code, reason| Status::new(code, reason, "");
    check_status(&status(410, "Expired"), Failure::Expired);
    check_status(&status(410, "Gone"), Failure::Expired);
    check_status(&status(429, ""), Failure::TooManyRequests);
    check_status(&status(500, ""), Failure::Other);
    check_status(&status(422, "Invalid"), Failure::Other);
    let future = Status::new(504, "Timeout", "Too large resource version: 9, current: 1");
    check_status(&future, Failure::TooLargeResourceVersion);
}

#[test]
fn a_repeated_continue_token_ends_the_list() {
    let mut script = Script::paged();
    script.expect(&["list rv=0 limit=500"]).page("10", "a");
    script.expect(&["list limit=500 continue=a"]);
    let same = ListMetadata {
        resource_version: "10".into(),
        continue_token: "a".to_owned(),
    };
    let end = script.machine.on_page_end(&same, script.now);
    assert_eq!(end, PageEnd::SamePage);
    script.fail(Failure::Other);
    script.expect(&["wait 800ms", "list rv=0 limit=500"]);
}
