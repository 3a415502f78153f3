//! Fault rules, and that other requests are unaffected.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rig::{LONG, PODS, REPLICA_SETS, Rig, check_error, names, pod, version};
use crate::api::Status;
use crate::{Action, Ending, Matcher, Response, Rule};

fn creates() -> Matcher {
    Matcher::verb("create", "pods")
}

fn watches() -> Matcher {
    Matcher::verb("watch", "pods")
}

#[test]
fn requests_are_recorded() {
    let rig = Rig::new();
    rig.create_pod("p");
    rig.get(&format!("{PODS}?labelSelector=app%3Dweb"));
    rig.get(&format!("{PODS}/nope"));
    let recorder = rig.server.faults().recorder();
    let requests = recorder.requests();
    let brief: Vec<_> = requests.iter().map(|r| (r.action(), r.code())).collect();
    let expected = [
        ("create pods".to_owned(), Some(201)),
        ("list pods".to_owned(), Some(200)),
        ("get pods".to_owned(), Some(404)),
    ];
    assert_eq!(brief, expected);
    let create = &recorder.find("create", "pods")[0];
    assert_eq!(create.request.content_type(), "application/json");
    assert_eq!(create.body(), pod("p").to_string());
    assert!(create.request.header("user-agent").starts_with("ureq/"));
    assert_eq!(requests[1].request.query_value("labelSelector"), "app=web");
    assert!(requests[0].started <= requests[1].started);
    recorder.clear();
    assert!(recorder.requests().is_empty());
}

#[test]
fn a_rule_skips_and_counts_requests() {
    let rig = Rig::new();
    let status = Status::new(403, "Forbidden", "no more");
    let rule = Rule::new(creates(), Action::reject(status));
    let rule = rig.server.faults().add(rule.after(1).times(2));
    let codes: Vec<u16> = ["a", "b", "c", "d"]
        .iter()
        .map(|name| rig.send("POST", PODS, &pod(name)).0)
        .collect();
    assert_eq!(codes, [201, 403, 403, 201]);
    assert_eq!(rule.hits(), 2);
    let action = Action::answer(|_| {
        let status = Status::new(429, "TooManyRequests", "later");
        Response::status(&status).with_header("retry-after", "1")
    });
    let lists = rig
        .server
        .faults()
        .add(Rule::new(Matcher::path("GET", "/pods"), action));
    check_error(&rig.get(PODS), 429, "TooManyRequests", "later");
    lists.remove();
    assert_eq!(names(&rig.get(PODS).1), ["a", "d"]);
}

#[test]
fn connections_are_cut_before_and_after_a_write() {
    let rig = Rig::new();
    let agent = ureq::agent();
    let post = |name: &str| {
        let url = rig.server.url() + PODS;
        agent.post(url).send(pod(name).to_string())
    };
    let faults = rig.server.faults();
    faults.add(Rule::new(creates(), Action::CutBefore).times(1));
    assert!(post("a").is_err());
    assert_eq!(rig.get(&format!("{PODS}/a")).0, 404);
    faults.add(Rule::new(creates(), Action::CutAfter).times(1));
    assert!(post("a").is_err());
    assert_eq!(rig.get(&format!("{PODS}/a")).0, 200);
    let status = Status::new(504, "Timeout", "took too long");
    faults.add(Rule::new(creates(), Action::reject_after(status)).times(1));
    assert_eq!(rig.send("POST", PODS, &pod("b")).0, 504);
    assert_eq!(rig.get(&format!("{PODS}/b")).0, 200);
    let codes: Vec<_> = faults.recorder().find("create", "pods");
    let codes: Vec<_> = codes.iter().map(|recorded| recorded.code()).collect();
    assert_eq!(codes, [Some(0), Some(0), Some(504)]);
}

#[test]
fn a_held_request_continues_when_released() {
    let rig = Rig::new();
    let rule = rig.server.faults().add(Rule::new(creates(), Action::Hold));
    std::thread::scope(|scope| {
        let held = scope.spawn(|| rig.create_pod("p"));
        assert!(rule.wait_for_hits(1, LONG));
        assert_eq!(rig.get(&format!("{PODS}/p")).0, 404);
        rule.remove();
        held.join().expect("a pod");
    });
    assert_eq!(rig.get(&format!("{PODS}/p")).0, 200);
    let delay = Duration::from_millis(200);
    rig.server
        .faults()
        .add(Rule::new(creates(), Action::Delay(delay)));
    let start = Instant::now();
    rig.create_pod("q");
    assert!(start.elapsed() >= delay);
}

#[test]
fn stop_ends_held_requests() {
    let mut rig = Rig::new();
    let rule = rig.server.faults().add(Rule::new(creates(), Action::Hold));
    let url = rig.server.url() + PODS;
    let held = std::thread::scope(|scope| {
        let held = scope.spawn(|| ureq::post(url).send(pod("p").to_string()).is_err());
        assert!(rule.wait_for_hits(1, LONG));
        rig.server.stop();
        held.join().expect("no panic")
    });
    assert!(held);
}

#[test]
fn c_18_a_response_is_rewritten() {
    let rig = Rig::new();
    rig.create_replica_set("web", 1);
    let rewrite = Action::rewrite_json(|value| {
        value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    rig.server
        .faults()
        .add(Rule::new(Matcher::verb("get", "replicasets"), rewrite));
    let web = rig.get(&format!("{REPLICA_SETS}/web")).1;
    assert_eq!(
        web["metadata"]["deletionTimestamp"],
        json!("2026-01-01T00:00:00Z")
    );
    let renumber = Action::rewrite_json(|value| value["metadata"]["resourceVersion"] = json!("1"));
    rig.server
        .faults()
        .add(Rule::new(Matcher::verb("list", "replicasets"), renumber));
    assert_eq!(version(&rig.get(REPLICA_SETS).1), 1);
    rig.server.faults().clear();
    let web = rig.get(&format!("{REPLICA_SETS}/web")).1;
    assert_eq!(web["metadata"].get("deletionTimestamp"), None);
}

#[test]
fn a_body_breaks_off() {
    let rig = Rig::new();
    rig.create_pod("a");
    rig.create_pod("b");
    let rule = Rule::new(Matcher::verb("list", "pods"), Action::CutInside(1000));
    rig.server.faults().add(rule.times(1));
    let response = ureq::get(rig.server.url() + PODS)
        .call()
        .expect("a response's head");
    let mut body = Vec::new();
    let mut reader = response.into_body().into_reader();
    assert!(std::io::Read::read_to_end(&mut reader, &mut body).is_err());
    assert_eq!(body.len(), 1000);
    assert_eq!(names(&rig.get(PODS).1), ["a", "b"]);
}

#[test]
fn h_21_frames_are_late_and_in_order() {
    let rig = Rig::new();
    let from = rig.server.version();
    let mut watch = rig.watch(PODS, &format!("resourceVersion={from}"));
    let lag = Duration::from_millis(300);
    let rule = rig
        .server
        .faults()
        .add(Rule::new(watches(), Action::LagWatch(lag)));
    let n_frames = 300;
    let start = Instant::now();
    for n in 1..=n_frames {
        rig.create_pod(&format!("p{n}"));
    }
    let created = Instant::now();
    for n in 1..=n_frames {
        assert_eq!(watch.brief(), format!("ADDED p{n} {}", from + n));
        assert!(start.elapsed() >= lag);
    }
    // Each frame has its own delay. If the delays added up, the last would come after 90 s.
    assert!(created.elapsed() < Duration::from_mins(1));
    rule.remove();
    rig.create_pod("q");
    assert_eq!(watch.brief(), format!("ADDED q {}", from + n_frames + 1));
}

#[test]
fn frames_are_held_until_they_are_released() {
    let rig = Rig::new();
    let from = rig.server.version();
    let mut watch = rig.watch(PODS, &format!("resourceVersion={from}"));
    let rule = rig
        .server
        .faults()
        .add(Rule::new(watches(), Action::HoldWatch));
    rig.create_pod("a");
    rig.create_pod("b");
    // Injected frames overtake held frames.
    let frame = b"{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}\n";
    assert_eq!(rig.server.faults().send_to_watches(&watches(), frame), 1);
    assert_eq!(watch.brief(), "BOOKMARK - 7");
    rule.remove();
    assert_eq!(watch.brief(), format!("ADDED a {}", from + 1));
    assert_eq!(watch.brief(), format!("ADDED b {}", from + 2));
}

#[test]
fn watches_are_severed() {
    let rig = Rig::new();
    let faults = rig.server.faults();
    let mut closed = rig.watch(PODS, "");
    let mut other = rig.watch(REPLICA_SETS, "");
    assert_eq!(faults.n_watches(&Matcher::any()), 2);
    assert_eq!(faults.sever_watches(&watches(), Ending::Close), 1);
    assert_eq!(closed.brief(), "end");
    let mut cut = rig.watch(PODS, "");
    assert_eq!(faults.sever_watches(&watches(), Ending::Cut), 1);
    assert!(cut.try_next().is_err());
    let from = rig.server.version();
    rig.create_replica_set("web", 1);
    assert_eq!(other.brief(), format!("ADDED web {}", from + 1));
}

#[test]
fn a_client_disconnect_ends_its_watch() {
    let rig = Rig::new();
    drop(rig.watch(PODS, ""));
    let start = Instant::now();
    while rig.server.faults().n_watches(&Matcher::any()) > 0 {
        assert!(start.elapsed() < LONG, "the watch still runs");
        std::thread::yield_now();
    }
}

#[test]
fn matchers_combine() {
    let rig = Rig::new();
    let named = |name: &'static str| {
        creates().and(move |request| {
            let object: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            object["metadata"]["name"] == json!(name)
        })
    };
    let status = || Action::reject(Status::new(500, "InternalError", "no"));
    rig.server
        .faults()
        .add(Rule::new(named("a").or(named("b")), status()));
    let codes = ["a", "b", "c"].map(|name| rig.send("POST", PODS, &pod(name)).0);
    assert_eq!(codes, [500, 500, 201]);
}
