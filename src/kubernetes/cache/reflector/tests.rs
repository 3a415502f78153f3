//! The reflector against a scripted server: its requests, the store's contents, and the events.

mod loopback;
mod script;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::script::{
    Reply, Run, added, bookmark, closing_bookmark, deleted, error, modified, paged, pods, rejected,
    streaming,
};
use crate::api::{ObjectKey, Pod, Status};
use crate::cache::CacheEvent;
use crate::cache::reflector::ReflectorOptions;
use crate::client::{ClientError, TransportError, TransportErrorKind};

fn expired() -> Status {
    Status::new(410, "Expired", "too old resource version: 5 (229)")
}

fn too_large() -> Status {
    Status::new(
        504,
        "Timeout",
        "Timeout: Too large resource version: 9, current: 1",
    )
}

fn transport(kind: TransportErrorKind) -> Reply {
    Reply::Fail(ClientError::Transport(TransportError {
        kind,
        sent: false,
        message: format!("{kind:?}"),
    }))
}

#[test]
fn j_01_a_paged_start_delivers_the_list_and_then_events() {
    let run = Run::new(paged()).play([
        Reply::list("10", "", &["p1@3"]),
        Reply::watch(&[
            added("p2@11"),
            modified("p1@12"),
            added("p3@13"),
            deleted("p2@14"),
            modified("p3@15"),
        ]),
    ]);
    run.requested(&[
        "list resourceVersion=0&limit=500",
        "watch resourceVersion=10&allowWatchBookmarks=true&timeoutSeconds=300",
        "close",
        "watch resourceVersion=15&allowWatchBookmarks=true&timeoutSeconds=300",
    ]);
    run.delivered(&[
        "add p1@3",
        "position 10",
        "add p2@11",
        "position 11",
        "update p1@3 p1@12",
        "position 12",
        "add p3@13",
        "position 13",
        "delete p2@14",
        "position 14",
        "update p3@13 p3@15",
        "position 15",
    ]);
    assert_eq!(run.cached(), ["p1@12", "p3@15"]);
    assert!(run.store.has_synced());
}

#[test]
fn j_02_a_streaming_start_needs_one_request() {
    let run = Run::new(streaming()).play([Reply::watch(&[
        added("p2@2"),
        added("p1@1"),
        closing_bookmark("7"),
        modified("p1@8"),
    ])]);
    run.requested(&[
        "watch sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
         allowWatchBookmarks=true&timeoutSeconds=300",
        "close",
        "watch resourceVersion=8&allowWatchBookmarks=true&timeoutSeconds=300",
    ]);
    run.delivered(&[
        "add p2@2",
        "add p1@1",
        "position 7",
        "update p1@1 p1@8",
        "position 8",
    ]);
    assert_eq!(run.stats.watches.load(Ordering::Relaxed), 1);
    assert_eq!(run.stats.relists.load(Ordering::Relaxed), 0);
    assert_eq!(run.stats.events.load(Ordering::Relaxed), 3);
}

#[test]
fn reads_may_wait_once_the_list_is_complete_if_enabled() {
    let list_and_events = || {
        [
            Reply::watch(&[added("p1@1"), closing_bookmark("7"), modified("p1@8")]),
            Reply::watch(&[modified("p1@9")]),
        ]
    };
    let options = ReflectorOptions {
        coalesces_reads: true,
        ..streaming()
    };
    let run = Run::new(options).play(list_and_events());
    assert_eq!(run.waits_allowed_at_reads(), [false, false, true, true]);
    let run = Run::new(streaming()).play(list_and_events());
    assert_eq!(run.waits_allowed_at_reads(), [false; 4]);
}

#[test]
fn j_04_other_kinds_are_skipped_and_the_last_version_counts() {
    let table = r#"{"type":"ADDED","object":{"kind":"Table","metadata":{"name":"t"}}}"#;
    let run = Run::new(paged()).play([
        Reply::list("1", "", &["foo@1", "bar@1"]),
        Reply::watch(&[
            table.to_owned(),
            deleted("foo@20"),
            modified("bar@55"),
            added("baz@32"),
        ]),
    ]);
    assert_eq!(run.cached(), ["bar@55", "baz@32"]);
    assert_eq!(run.store.resource_version(), "32".into());
}

#[test]
fn j_05_h_20_bookmarks_move_the_position_without_an_event() {
    let run = Run::new(paged()).play([
        Reply::list("10", "", &[]),
        Reply::watch(&[
            added("p@10"),
            modified("p@20"),
            bookmark("30"),
            deleted("p@40"),
        ]),
    ]);
    run.delivered(&[
        "position 10",
        "add p@10",
        "position 10",
        "update p@10 p@20",
        "position 20",
        "position 30",
        "delete p@40",
        "position 40",
    ]);
}

#[test]
fn j_06_every_cycle_begins_with_the_contents_of_its_list() {
    let gone = || error(&expired());
    let run = Run::new(paged()).play([
        Reply::list("1", "", &[]),
        Reply::watch(&[added("foo@2"), added("bar@3"), gone()]),
        Reply::list("3", "", &["foo@2", "bar@3"]),
        Reply::watch(&[deleted("foo@4"), added("qux@5"), gone()]),
        transport(TransportErrorKind::Other),
        Reply::list("5", "", &["bar@3", "qux@5"]),
        transport(TransportErrorKind::Other),
        Reply::list("5", "", &["bar@3", "qux@5"]),
        Reply::watch(&[added("baz@6"), gone()]),
        Reply::list("6", "", &["bar@3", "qux@5", "baz@6"]),
    ]);
    assert_eq!(
        run.cached_at_requests(),
        [
            "",
            "",
            "bar@3 foo@2",
            "bar@3 foo@2",
            "bar@3 qux@5",
            "bar@3 qux@5",
            "bar@3 qux@5",
            "bar@3 qux@5",
            "bar@3 qux@5",
            "bar@3 baz@6 qux@5",
            "bar@3 baz@6 qux@5",
        ]
    );
    let changes = run.delivered_changes();
    let expected = [
        "add foo@2",
        "add bar@3",
        "delete foo@4",
        "add qux@5",
        "add baz@6",
    ];
    assert_eq!(
        changes, expected,
        "a relist without a difference delivers no event"
    );
}

#[test]
fn j_07_a_stop_before_the_start_requests_nothing() {
    let run = Run::new(paged());
    run.stop();
    run.play([Reply::list("1", "", &[])]).requested(&[]);
}

#[test]
fn j_07_a_stop_during_a_watch_closes_it_once() {
    let run = Run::new(streaming()).play([Reply::watch(&[
        added("p1@1"),
        closing_bookmark("2"),
        "stop".to_owned(),
    ])]);
    run.requested(&[
        "watch sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
         allowWatchBookmarks=true&timeoutSeconds=300",
        "close",
    ]);
    assert_eq!(run.waits(), [] as [u128; 0]);
}

#[test]
fn j_07_a_stop_in_a_handler_closes_the_watch_once() {
    let run = Run::new(paged()).stop_at_event("add p2@11").play([
        Reply::list("10", "", &[]),
        Reply::watch(&[added("p1@10"), added("p2@11"), added("p3@12")]),
    ]);
    run.requested(&[
        "list resourceVersion=0&limit=500",
        "watch resourceVersion=10&allowWatchBookmarks=true&timeoutSeconds=300",
        "close",
    ]);
    assert_eq!(run.cached(), ["p1@10", "p2@11"]);
}

#[test]
fn j_08_an_error_in_a_watch_closes_it() {
    let run = Run::new(paged()).play([
        Reply::list("10", "", &[]),
        Reply::watch(&[added("p1@11"), error(&expired()), added("p2@12")]),
    ]);
    run.requested(&[
        "list resourceVersion=0&limit=500",
        "watch resourceVersion=10&allowWatchBookmarks=true&timeoutSeconds=300",
        "close",
        "list resourceVersion=11",
    ]);
    assert_eq!(run.cached(), ["p1@11"]);
}

#[test]
fn j_09_watches_that_close_at_once_do_not_spin() {
    let run = Run::new(paged()).play([
        Reply::list("10", "", &[]),
        Reply::watch(&[]).lasting(Duration::from_millis(10)),
        Reply::list("10", "", &[]),
        Reply::watch(&[]).lasting(Duration::from_millis(999)),
        Reply::list("10", "", &[]),
        Reply::watch(&[]).lasting(Duration::from_secs(1)),
    ]);
    assert_eq!(run.waits(), [800, 1600]);
    assert_eq!(
        run.short_requests(),
        [
            "list 0", "watch 10", "list 10", "watch 10", "list 10", "watch 10", "watch 10"
        ]
    );
}

#[test]
fn j_10_a_refused_connection_keeps_the_version() {
    let run = Run::new(paged()).play([
        Reply::list("10", "", &[]),
        transport(TransportErrorKind::Refused),
        transport(TransportErrorKind::Refused),
        Reply::watch(&[added("p@11")]),
        transport(TransportErrorKind::Closed),
    ]);
    assert_eq!(run.waits(), [800, 1000, 1000]);
    assert_eq!(
        run.short_requests(),
        [
            "list 0", "watch 10", "watch 10", "watch 10", "watch 11", "list 11"
        ]
    );
}

#[test]
fn j_12_too_many_requests_back_off_without_a_list() {
    let busy = Status::new(429, "TooManyRequests", "busy");
    let run = Run::new(paged()).play([
        Reply::list("10", "", &[]),
        rejected(&busy),
        Reply::watch(&[error(&busy)]),
        Reply::watch(&[added("p@11")]),
    ]);
    assert_eq!(run.waits(), [800, 1600]);
    assert_eq!(
        run.short_requests(),
        ["list 0", "watch 10", "watch 10", "watch 10", "watch 11"]
    );
}

#[test]
fn j_14_j_15_j_22_an_expired_watch_lists_last_then_newest() {
    let run = Run::new(paged()).play([
        Reply::list("10", "", &["p@3"]),
        Reply::watch(&[error(&expired())]),
        rejected(&expired()),
        Reply::list("20", "", &["p@3"]),
    ]);
    assert_eq!(
        run.short_requests(),
        ["list 0", "watch 10", "list 10", "list ", "watch 20"]
    );
    run.delivered(&["add p@3", "position 10", "position 20"]);
    assert_eq!(run.stats.relists.load(Ordering::Relaxed), 1);
}

#[test]
fn j_17_a_server_restored_from_a_backup_is_listed_again() {
    let gone = || error(&expired());
    let run = Run::new(paged()).play([
        Reply::list("20", "", &[]),
        Reply::watch(&[gone()]),
        rejected(&too_large()),
        Reply::list("30", "", &[]),
        Reply::watch(&[gone()]),
        rejected(&too_large()),
        Reply::list("40", "", &[]),
        Reply::watch(&[gone()]),
        rejected(&too_large()),
    ]);
    let lists: Vec<_> = run
        .short_requests()
        .into_iter()
        .filter(|r| r.starts_with("list"))
        .collect();
    let expected = [
        "list 0", "list 20", "list ", "list 30", "list ", "list 40", "list ",
    ];
    assert_eq!(lists, expected);
}

fn silent_watch() -> Reply {
    Reply::watch(&["silence".to_owned()]).lasting(Duration::from_mins(5))
}

/// The store keeps what it has: no sync mixes two histories.
#[track_caller]
fn ends_after_a_restore(run: &Run) {
    let why = "the resource version of pods went back from 90 to 20, as after an etcd restore; \
               exiting so that the supervisor restarts the daemon with empty caches";
    assert_eq!(run.failure(), why);
    assert_eq!(run.cached(), ["ghost@8", "p1@5"]);
    assert_eq!(run.store.resource_version(), "90".into());
    run.delivered(&["add p1@5", "add ghost@8", "position 90"]);
}

#[test]
fn j_17_a_silent_restored_server_ends_the_daemon() {
    let run = Run::new(paged()).play([
        Reply::list("90", "", &["p1@5", "ghost@8"]),
        silent_watch(),
        rejected(&too_large()),
        Reply::list("20", "next", &["p1@5"]),
        Reply::list("20", "", &["p2@6"]),
    ]);
    let expected = ["list 0", "watch 90", "list 90", "list ", "list "];
    assert_eq!(run.short_requests(), expected);
    assert_eq!(run.waits(), [800]);
    ends_after_a_restore(&run);

    let run = Run::new(streaming()).play([
        Reply::watch(&[added("p1@5"), added("ghost@8"), closing_bookmark("90")]),
        silent_watch(),
        Reply::watch(&[error(&too_large())]),
        Reply::watch(&[added("p1@5"), closing_bookmark("20")]),
    ]);
    let expected = ["stream ", "watch 90", "stream 90", "stream "];
    assert_eq!(run.short_requests(), expected);
    assert_eq!(run.waits(), [800]);
    ends_after_a_restore(&run);
}

/// Two API servers on one etcd, of which the second lags. It rejects a version that its watch cache
/// has not reached, but some API servers return what they have. Its newest list waits for etcd.
#[test]
fn a_server_that_lags_is_not_taken_for_a_restored_one() {
    let ahead = || [added("p1@5"), added("p2@8"), closing_bookmark("90")];
    let after = || [added("p1@5"), closing_bookmark("91")];
    let behind = [added("p1@5"), closing_bookmark("20")];
    let expired = || Reply::watch(&[error(&expired())]);
    for rejects in [true, false] {
        let second = if rejects {
            rejected(&too_large())
        } else {
            Reply::watch(&behind)
        };
        let replies = [
            Reply::watch(&ahead()),
            expired(),
            second,
            Reply::watch(&after()),
        ];
        let run = Run::new(streaming()).play(replies);
        let expected = ["stream ", "watch 90", "stream 90", "stream ", "watch 91"];
        assert_eq!(run.short_requests(), expected);
        assert_eq!(
            (run.failure(), run.cached()),
            (String::new(), vec!["p1@5".to_owned()])
        );

        let second = if rejects {
            rejected(&too_large())
        } else {
            Reply::list("20", "", &["p1@5"])
        };
        let (ahead, after) = (["p1@5", "p2@8"], Reply::list("91", "", &["p1@5"]));
        let replies = [Reply::list("90", "", &ahead), expired(), second, after];
        let run = Run::new(paged()).play(replies);
        let expected = ["list 0", "watch 90", "list 90", "list ", "watch 91"];
        assert_eq!(run.short_requests(), expected);
        assert_eq!(
            (run.failure(), run.cached()),
            (String::new(), vec!["p1@5".to_owned()])
        );
        run.delivered(&[
            "add p1@5",
            "add p2@8",
            "position 90",
            "delete p2@8",
            "position 91",
        ]);
    }
}

#[test]
fn a_watch_that_falls_silent_is_checked_by_a_list() {
    let run = Run::new(paged()).play([
        Reply::list("10", "", &["p1@5"]),
        Reply::watch(&[bookmark("15"), "silence".to_owned()]).lasting(Duration::from_mins(5)),
    ]);
    assert_eq!(run.short_requests(), ["list 0", "watch 10", "list 15"]);
    assert_eq!(run.outages_at_requests(), [None; 3]);
}

#[test]
fn a_streamed_list_without_an_end_is_listed_in_pages() {
    for messages in [
        [added("p1@5"), bookmark("9")],
        [added("p1@5"), "silence".to_owned()],
    ] {
        let run = Run::new(streaming()).play([
            Reply::watch(&messages).lasting(Duration::from_mins(1)),
            Reply::list("10", "", &["p1@5"]),
            Reply::watch(&[error(&expired())]),
        ]);
        let expected = ["stream ", "list 0", "watch 10", "list 10"];
        assert_eq!(run.short_requests(), expected);
        run.delivered(&["add p1@5", "position 10"]);
    }
}

/// A proxy answers with a page of its own, or cuts each list.
#[test]
fn only_what_can_be_read_ends_an_outage() {
    let html = || Reply::Body("<html>sign in</html>".to_owned());
    let cut = || {
        Reply::Body(r#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":["#.to_owned())
    };
    for unreadable in [html, cut] {
        let run = Run::new(paged()).play([
            Reply::list("5", "", &["p1@5"]),
            Reply::watch(&[error(&expired())]),
            unreadable(),
            unreadable(),
            unreadable(),
            Reply::list("10", "", &["p1@5"]),
            Reply::watch(&[bookmark("12")]),
        ]);
        let outages = run.outages_at_requests();
        let expected = [None, None, None, Some(0), Some(2), Some(5), None, None];
        assert_eq!(outages, expected);
        run.delivered(&[
            "add p1@5",
            "position 5",
            "recovered",
            "position 10",
            "position 12",
        ]);
    }
}

#[test]
fn blanks_without_a_message_are_an_outage() {
    let blanks = |n| std::iter::repeat_n("blank".to_owned(), n);
    let endless = || Reply::watch(&blanks(12).collect::<Vec<_>>());
    let padded: Vec<String> = (11..15)
        .flat_map(|version| blanks(7).chain([bookmark(&version.to_string())]))
        .collect();
    let run = Run::new(paged()).play([
        Reply::list("10", "", &["p1@5"]),
        Reply::watch(&padded),
        endless(),
        endless(),
        Reply::list("15", "", &["p1@5"]),
        Reply::watch(&[bookmark("16")]).lasting(Duration::from_mins(1)),
    ]);
    let expected = [
        "list 0", "watch 10", "watch 14", "list 14", "list 14", "watch 15", "watch 16",
    ];
    assert_eq!(run.short_requests(), expected);
    let [.., first, second, after_list, after_message] = run.outages_at_requests()[..] else {
        panic!("too few requests");
    };
    assert_eq!([first, second], [Some(100), Some(212)]);
    assert_eq!(
        [after_list, after_message],
        [Some(212), None],
        "a list ends it not"
    );

    let run = Run::new(streaming()).play([endless(), Reply::list("10", "", &["p1@5"])]);
    assert_eq!(run.short_requests(), ["stream ", "list 0", "watch 10"]);
    assert_eq!(run.outages_at_requests(), [None, Some(100), None]);
}

#[test]
fn an_open_watch_without_a_message_ends_no_outage() {
    let refused = || transport(TransportErrorKind::Refused);
    let run = Run::new(paged()).play([
        Reply::list("5", "", &["p1@5"]),
        refused(),
        refused(),
        Reply::watch(&["break".to_owned()]).lasting(Duration::from_secs(2)),
        Reply::watch(&[bookmark("6")]).lasting(Duration::from_secs(2)),
    ]);
    let outages = run.outages_at_requests();
    assert_eq!(outages, [None, None, Some(0), Some(1), Some(3), None]);
    run.delivered(&["add p1@5", "position 5", "recovered", "position 6"]);
}

#[test]
fn j_18_all_pages_become_one_list() {
    let run = Run::new(paged()).play([
        Reply::list("10", "a", &["p1@1", "p2@2"]),
        Reply::list("10", "b", &["p3@3"]),
        Reply::list("10", "", &["p4@4"]),
    ]);
    run.delivered(&[
        "add p1@1",
        "add p2@2",
        "add p3@3",
        "add p4@4",
        "position 10",
    ]);
}

#[test]
fn a_repeated_continue_token_ends_the_list() {
    let run = Run::new(paged()).play([
        Reply::list("10", "a", &["p1@1"]),
        Reply::list("10", "a", &["p1@1"]),
        Reply::list("10", "", &["p1@1"]),
    ]);
    let expected = ["list 0", "list ", "list 0", "watch 10"];
    assert_eq!(run.short_requests(), expected);
    assert_eq!(run.waits(), [800]);
    run.delivered(&["recovered", "add p1@1", "position 10"]);
}

#[test]
fn pages_of_an_expired_list_are_dropped() {
    let run = Run::new(paged()).play([
        Reply::list("10", "a", &["p1@1", "p2@2"]),
        rejected(&expired()),
        Reply::list("12", "", &["p2@2"]),
    ]);
    run.delivered(&["add p2@2", "position 12"]);
}

#[test]
fn an_incomplete_list_changes_nothing() {
    let run = Run::new(paged()).play([
        Reply::list("10", "", &["p1@1"]),
        Reply::watch(&[error(&expired())]),
        Reply::Body(r#"{"metadata":{"resourceVersion":"12"},"items":[{"metadata":{"na"#.to_owned()),
    ]);
    assert_eq!(run.cached(), ["p1@1"]);
    assert_eq!(
        run.short_requests(),
        ["list 0", "watch 10", "list 10", "list 10"]
    );
}

#[test]
fn j_20_a_resync_delivers_every_object_unchanged() {
    let mut options = paged();
    options.min_resync_period = Duration::from_mins(1);
    let run = Run::new(options).play([
        Reply::list("10", "", &["p1@1", "p2@2"]),
        Reply::watch(&[]).lasting(Duration::from_secs(59)),
        Reply::watch(&[]).lasting(Duration::from_secs(1)),
        Reply::watch(&[bookmark("11")]).lasting(Duration::from_mins(1)),
    ]);
    run.delivered(&[
        "add p1@1",
        "add p2@2",
        "position 10",
        "update p1@1 p1@1",
        "update p2@2 p2@2",
        "position 11",
        "update p1@1 p1@1",
        "update p2@2 p2@2",
    ]);
    let is_same = |event: &CacheEvent<Pod>| match event {
        CacheEvent::Updated { old, new } => Arc::ptr_eq(old, new),
        CacheEvent::Added(_) | CacheEvent::Deleted(_) => true,
    };
    assert!(run.events().iter().all(is_same));
}

#[test]
fn j_24_missed_changes_are_delivered_after_the_first_sync() {
    let run = Run::new(paged()).play([
        Reply::list("10", "", &["p1@1", "p2@2"]),
        Reply::watch(&[error(&expired())]),
        Reply::list("20", "", &["p1@1", "p2@15", "p3@16"]),
    ]);
    run.delivered(&[
        "add p1@1",
        "add p2@2",
        "position 10",
        "update p2@2 p2@15",
        "add p3@16",
        "position 20",
    ]);
    assert_eq!(run.synced_at_events(), [false, false, true, true]);
}

#[test]
fn j_25_without_the_end_bookmark_the_store_stays_empty() {
    let run = Run::new(streaming()).play([Reply::watch(&[added("p1@1"), "stop".to_owned()])]);
    assert!(!run.store.has_synced());
    assert_eq!(run.cached(), [] as [&str; 0]);
    run.delivered(&[]);
}

#[test]
fn j_26_an_ordinary_bookmark_does_not_complete_the_list() {
    let run = Run::new(streaming()).play([Reply::watch(&[
        added("p1@1"),
        bookmark("2"),
        "stop".to_owned(),
    ])]);
    assert!(!run.store.has_synced());
}

#[test]
fn j_27_changes_before_the_end_bookmark_are_applied() {
    let run = Run::new(streaming()).play([Reply::watch(&[
        added("p1@1"),
        added("p2@2"),
        modified("p1@3"),
        added("p3@4"),
        deleted("p3@5"),
        closing_bookmark("5"),
    ])]);
    run.delivered(&["add p1@3", "add p2@2", "position 5"]);
}

#[test]
fn j_29_a_busy_server_gets_the_same_request_again() {
    let busy = Status::new(429, "TooManyRequests", "busy");
    let run = Run::new(streaming()).play([
        rejected(&busy),
        Reply::watch(&[error(&busy)]),
        Reply::watch(&[closing_bookmark("5")]),
    ]);
    assert_eq!(
        run.short_requests(),
        ["stream ", "stream ", "stream ", "watch 5"]
    );
}

#[test]
fn j_30_the_objects_of_a_broken_stream_are_dropped() {
    let run = Run::new(streaming()).play([
        Reply::watch(&[added("p1@1"), added("p2@2")]),
        Reply::watch(&[added("p2@2"), "break".to_owned()]),
        Reply::watch(&[added("p2@2"), closing_bookmark("5")]),
    ]);
    run.delivered(&["recovered", "add p2@2", "position 5"]);
    assert_eq!(
        run.short_requests(),
        ["stream ", "stream ", "stream ", "watch 5"]
    );
}

#[test]
fn j_31_j_32_after_the_list_the_stream_is_an_ordinary_watch() {
    let run = Run::new(streaming()).play([
        Reply::watch(&[added("p1@1"), closing_bookmark("2"), added("p3@3")]),
        rejected(&expired()),
    ]);
    assert_eq!(run.short_requests(), ["stream ", "watch 3", "stream 3"]);
    assert_eq!(run.cached(), ["p1@1", "p3@3"]);
}

#[test]
fn a_reconnect_without_changes_delivers_no_event() {
    let run = Run::new(streaming()).play([
        Reply::watch(&[
            added("p1@1"),
            added("p2@2"),
            closing_bookmark("2"),
            error(&expired()),
        ]),
        Reply::watch(&[added("p1@1"), added("p2@2"), closing_bookmark("9")]),
    ]);
    run.delivered(&["add p1@1", "add p2@2", "position 2", "position 9"]);
}

#[test]
fn j_34_a_server_that_cannot_stream_is_listed_in_pages() {
    let invalid = Status::new(422, "Invalid", "sendInitialEvents: Forbidden");
    let run = Run::new(streaming()).play([
        rejected(&invalid),
        Reply::list("10", "", &["p1@1"]),
        Reply::watch(&[added("p2@11")]),
    ]);
    assert_eq!(
        run.short_requests(),
        ["stream ", "list 0", "watch 10", "watch 11"]
    );
    assert_eq!(run.waits(), [] as [u128; 0]);
}

#[test]
fn j_36_a_table_is_an_error_and_not_an_empty_list() {
    let table = r#"{"kind":"Table","metadata":{"resourceVersion":"9"},"rows":[]}"#;
    let run = Run::new(paged()).play([
        Reply::list("8", "", &["p1@1"]),
        Reply::watch(&[error(&expired())]),
        Reply::Body(table.to_owned()),
    ]);
    assert_eq!(run.cached(), ["p1@1"]);
}

#[test]
fn a_list_without_a_version_is_an_error() {
    let empty = br#"{"kind":"PodList","items":[],"metadata":{}}"#;
    for body in [&b"{}"[..], br#"{"message":"maintenance"}"#, empty] {
        let body = String::from_utf8(body.to_vec()).expect("text");
        let run = Run::new(paged()).play([
            Reply::list("8", "", &["p1@1"]),
            Reply::watch(&[error(&expired())]),
            Reply::Body(body),
        ]);
        assert_eq!(run.cached(), ["p1@1"]);
        assert_eq!(
            run.short_requests(),
            ["list 0", "watch 8", "list 8", "list 8"]
        );
    }
}

#[test]
fn j_37_a_watch_that_ends_normally_is_reopened_at_once() {
    let run = Run::new(paged()).play([
        Reply::list("10", "", &[]),
        Reply::watch(&[]).lasting(Duration::from_secs(1)),
        Reply::watch(&[bookmark("15")]),
        Reply::watch(&["break".to_owned()]).lasting(Duration::from_mins(1)),
    ]);
    assert_eq!(
        run.short_requests(),
        ["list 0", "watch 10", "watch 10", "watch 15", "watch 15"]
    );
    assert_eq!(run.waits(), [] as [u128; 0]);
}

#[test]
fn an_unreadable_object_keeps_its_last_state() {
    let unreadable = |type_: &str, version: &str| {
        let metadata = format!(
            r#"{{"namespace":"n","name":"p1","uid":"p1","resourceVersion":"{version}","labels":7}}"#
        );
        format!(r#"{{"type":"{type_}","object":{{"kind":"Pod","metadata":{metadata}}}}}"#)
    };
    let run = Run::new(paged()).play([
        Reply::list("10", "", &["p1@1"]),
        Reply::watch(&[
            unreadable("MODIFIED", "11"),
            added("p2@12"),
            error(&expired()),
        ]),
        Reply::Body(
            r#"{"metadata":{"resourceVersion":"20"},"items":[
                {"metadata":{"namespace":"n","name":"p1","labels":7}},
                {"metadata":{"namespace":"n","name":"p2","uid":"p2","resourceVersion":"12"}}]}"#
                .to_owned(),
        ),
        Reply::watch(&[unreadable("DELETED", "21"), bookmark("22")]),
    ]);
    run.delivered(&[
        "add p1@1",
        "position 10",
        "position 11",
        "add p2@12",
        "position 12",
        "position 20",
        "delete p1@1",
        "position 21",
        "position 22",
    ]);
    assert_eq!(run.stats.unread_objects.load(Ordering::Relaxed), 3);
    assert_eq!(run.cached(), ["p2@12"]);
}

#[test]
fn the_store_changes_before_its_event_is_delivered() {
    let run = Run::new(paged()).play([
        Reply::list("10", "", &["p1@1"]),
        Reply::watch(&[modified("p1@11"), deleted("p1@12")]),
    ]);
    let cached = run.cached_at_events();
    assert_eq!(cached, ["p1@1", "p1@11", ""]);
}

#[test]
fn a_response_without_content_type_is_json() {
    let run = Run::new(paged()).with_content_type("").play([
        Reply::list("10", "", &["p1@1"]),
        Reply::watch(&[modified("p1@11")]),
    ]);
    assert_eq!(run.cached_at_events(), ["p1@1", "p1@11"]);
}

#[test]
fn an_unsupported_content_type_is_an_error() {
    let run = Run::new(paged())
        .with_content_type("text/html")
        .play([pods(&[])]);
    run.delivered(&[]);
    assert_eq!(run.waits(), [800]);
    assert!(run.store.get(&ObjectKey::new("n", "p1")).is_none());
}
