//! Watches: where they start, what they send, how they end.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::json;

use super::rig::{PODS, Rig, pod, version};
use crate::DevServerOptions;

#[test]
fn changes_are_in_order_and_a_bookmark_precedes_the_end() {
    let rig = Rig::new();
    let from = rig.server.version();
    let query = format!("allowWatchBookmarks=true&resourceVersion={from}");
    let mut watch = rig.watch(PODS, &query);
    let p = version(&rig.create_pod("p"));
    assert_eq!(watch.brief(), format!("ADDED p {p}"));
    rig.patch(
        &format!("{PODS}/p"),
        &json!({"metadata": {"labels": {"a": "b"}}}),
    );
    assert_eq!(watch.brief(), format!("MODIFIED p {}", p + 1));
    rig.delete(&format!("{PODS}/p"), &json!({}));
    // The server first marks an unscheduled pod, then removes it, each with its own version.
    assert_eq!(watch.brief(), format!("MODIFIED p {}", p + 2));
    assert_eq!(watch.brief(), format!("DELETED p {}", p + 3));
    let mut watch = rig.watch(PODS, &format!("{query}&timeoutSeconds=3"));
    for change in ["ADDED", "MODIFIED", "MODIFIED", "DELETED"] {
        assert!(watch.brief().starts_with(change));
    }
    let bookmark = watch.next().expect("a bookmark");
    let expected = json!({
        "type": "BOOKMARK",
        "object": {
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"resourceVersion": (p + 3).to_string()},
            "spec": {"containers": null}, "status": {},
        },
    });
    assert_eq!(bookmark, expected);
    assert_eq!(watch.brief(), "end");
}

#[test]
fn j_26_a_streaming_list_ends_with_its_bookmark() {
    let rig = Rig::new();
    let b = version(&rig.create_pod("b"));
    let a = version(&rig.create_pod("a"));
    let mut watch = rig.watch(
        "/api/v1/pods",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    );
    assert_eq!(watch.brief(), format!("ADDED a {a}"));
    assert_eq!(watch.brief(), format!("ADDED b {b}"));
    let bookmark = watch.next().expect("a bookmark");
    assert_eq!(bookmark["type"], json!("BOOKMARK"));
    let metadata = json!({
        "resourceVersion": a.to_string(),
        "annotations": {"k8s.io/initial-events-end": "true"},
    });
    assert_eq!(bookmark["object"]["metadata"], metadata);
    let c = version(&rig.create_pod("c"));
    assert_eq!(watch.brief(), format!("ADDED c {c}"));
}

#[test]
fn a_watch_without_version_starts_with_current_objects() {
    let rig = Rig::new();
    let a = version(&rig.create_pod("a"));
    for query in [
        "resourceVersion=",
        "resourceVersion=0",
        "timeoutSeconds=300",
    ] {
        let mut watch = rig.watch(PODS, query);
        assert_eq!(watch.brief(), format!("ADDED a {a}"), "{query}");
    }
}

#[test]
fn j_22_an_old_version_is_expired_inside_the_stream() {
    let rig = Rig::new();
    rig.create_pod("a");
    rig.server.forget_history();
    let version = rig.server.version();
    let mut watch = rig.watch(PODS, "resourceVersion=201");
    let expected = json!({"type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("too old resource version: 201 ({version})"),
        "reason": "Expired", "code": 410,
    }});
    assert_eq!(watch.next(), Some(expected));
    assert_eq!(watch.brief(), "end");
}

#[test]
fn a_current_watch_survives_dropped_history() {
    let rig = Rig::new();
    let from = rig.server.version();
    let mut watch = rig.watch(PODS, &format!("resourceVersion={from}"));
    let a = version(&rig.create_pod("a"));
    assert_eq!(watch.brief(), format!("ADDED a {a}"));
    rig.server.forget_history();
    let b = version(&rig.create_pod("b"));
    assert_eq!(watch.brief(), format!("ADDED b {b}"));
}

#[test]
fn the_history_is_bounded() {
    let rig = Rig::with(&DevServerOptions {
        history_length: 3,
        ..DevServerOptions::default()
    });
    let from = rig.server.version();
    for name in ["a", "b", "c", "d"] {
        rig.create_pod(name);
    }
    let first = rig.watch(PODS, &format!("resourceVersion={from}")).next();
    assert_eq!(first.expect("a frame")["object"]["code"], json!(410));
    let mut watch = rig.watch(PODS, &format!("resourceVersion={}", from + 1));
    assert_eq!(watch.brief(), format!("ADDED b {}", from + 2));
}

#[test]
fn watch_queries_are_validated() {
    let rig = Rig::new();
    let (code, status) = rig.get("/api/v1/pods?watch=1&sendInitialEvents=true");
    let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!(
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: {why}"
        ),
        "reason": "Invalid",
        "details": {
            "group": "meta.k8s.io", "kind": "ListOptions",
            "causes": [{
                "reason": "FieldValueForbidden", "message": format!("Forbidden: {why}"),
                "field": "resourceVersionMatch",
            }],
        },
        "code": 422,
    });
    assert_eq!((code, status), (422, expected));
    assert_eq!(
        rig.get("/api/v1/pods?watch=1&resourceVersionMatch=NotOlderThan")
            .0,
        422
    );
    let (code, status) = rig.get("/api/v1/pods?watch=1&resourceVersion=abc");
    assert_eq!((code, &status["reason"]), (500, &json!(null)));
}

#[test]
fn a_streaming_list_from_the_future_gets_an_error_frame() {
    let rig = Rig::new();
    let mut watch = rig.watch(
        PODS,
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=9000000000",
    );
    let frame = watch.next().expect("a frame");
    assert_eq!(
        (&frame["type"], &frame["object"]["code"]),
        (&json!("ERROR"), &json!(504))
    );
    assert_eq!(watch.brief(), "end");
}

#[test]
fn a_watch_from_the_future_is_silent_until_its_version() {
    let rig = Rig::new();
    let from = rig.server.version() + 2;
    let query = |from| format!("allowWatchBookmarks=true&resourceVersion={from}");
    let mut far = rig.watch(PODS, &(query(9_000_000_000) + "&timeoutSeconds=3"));
    let mut near = rig.watch(PODS, &query(from));
    for name in ["a", "b", "c"] {
        rig.create_pod(name);
    }
    assert_eq!(near.brief(), format!("ADDED c {}", from + 1));
    assert_eq!(far.brief(), "end");
}

#[test]
fn an_object_enters_and_leaves_the_scope_of_a_selector() {
    let rig = Rig::new();
    let from = rig.server.version();
    let query = format!("labelSelector=app%3Dother&resourceVersion={from}");
    let mut watch = rig.watch(PODS, &query);
    rig.create_pod("p");
    let label = |value: &str| {
        let labels = json!({"metadata": {"labels": {"app": value}}});
        version(&rig.patch(&format!("{PODS}/p"), &labels).1)
    };
    let entered = label("other");
    assert_eq!(watch.brief(), format!("ADDED p {entered}"));
    let exited = label("web");
    let frame = watch.next().expect("a frame");
    assert_eq!(frame["type"], json!("DELETED"));
    let metadata = &frame["object"]["metadata"];
    assert_eq!(metadata["labels"], json!({"app": "other"}));
    assert_eq!(metadata["resourceVersion"], json!(exited.to_string()));
}

#[test]
fn stop_ends_watches() {
    let mut rig = Rig::new();
    let mut watch = rig.watch(PODS, "allowWatchBookmarks=true");
    rig.server.stop();
    assert!(watch.try_next().is_err() || watch.next().is_none());
}

#[test]
fn dozens_of_watches_see_all_changes() {
    let rig = Rig::new();
    let from = rig.server.version();
    let query = format!("resourceVersion={from}");
    let mut watches: Vec<_> = (0..48).map(|_| rig.watch("/api/v1/pods", &query)).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..200 {
                rig.ok("POST", PODS, &pod(&format!("p{number}")));
            }
        });
        for watch in &mut watches {
            scope.spawn(move || {
                for number in 0..200 {
                    let expected = format!("ADDED p{number} {}", from + 1 + number);
                    assert_eq!(watch.brief(), expected);
                }
            });
        }
    });
}

/// Java's client of fabric8 watches by plain HTTP after this response, and hangs without an end.
#[test]
fn a_watch_by_websocket_ends_at_once() {
    let rig = Rig::new();
    let url = rig.server.url();
    let address = url.trim_start_matches("http://");
    for protocol in ["websocket", "WebSocket"] {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        let request = format!(
            "GET /api/v1/pods?watch=true HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\n\
             upgrade: {protocol}\r\n\r\n"
        );
        stream
            .write_all(request.as_bytes())
            .expect("an open stream");
        let mut response = BufReader::new(stream).lines().map_while(Result::ok);
        let mut head = response.by_ref().take_while(|line| !line.is_empty());
        assert_eq!(head.next().as_deref(), Some("HTTP/1.1 200 OK"));
        assert!(head.any(|line| line.eq_ignore_ascii_case("content-length: 0")));
    }
}
