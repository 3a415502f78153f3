//! Lists: pages, versions, selectors.

use serde_json::json;

use super::rig::{PODS, Rig, check_error, names, pod, version};

#[test]
fn j_18_pages_show_one_consistent_state() {
    let rig = Rig::new();
    for name in ["a", "b", "c", "d", "e"] {
        rig.create_pod(name);
    }
    let first = rig.get("/api/v1/pods?limit=2").1;
    assert_eq!(
        (&first["kind"], names(&first)),
        (&json!("PodList"), vec!["a", "b"])
    );
    assert_eq!(first["metadata"]["remainingItemCount"], json!(3));
    assert_eq!(first["items"][0].get("kind"), None);
    // Changes between two pages are not in the list.
    rig.create_pod("aa");
    rig.delete(&format!("{PODS}/c"), &json!({}));
    rig.create_pod("bb");
    let token = first["metadata"]["continue"].as_str().expect("a token");
    let second = rig.get(&format!("/api/v1/pods?limit=2&continue={token}")).1;
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(version(&second), version(&first));
    let token = second["metadata"]["continue"].as_str().expect("a token");
    let third = rig.get(&format!("{PODS}?limit=2&continue={token}")).1;
    assert_eq!(names(&third), ["e"]);
    assert_eq!(third["metadata"].get("continue"), None);
    assert_eq!(names(&rig.get(PODS).1), ["a", "aa", "b", "bb", "d", "e"]);
}

#[test]
fn an_expired_token_comes_with_a_new_one() {
    let rig = Rig::new();
    for name in ["a", "b", "c"] {
        rig.create_pod(name);
    }
    let first = rig.get("/api/v1/pods?limit=1").1;
    rig.create_pod("bb");
    rig.server.forget_history();
    let token = first["metadata"]["continue"].as_str().expect("a token");
    let (code, status) = rig.get(&format!("/api/v1/pods?limit=1&continue={token}"));
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let token = status["metadata"]["continue"]
        .as_str()
        .expect("another token");
    let rest = rig.get(&format!("/api/v1/pods?continue={token}")).1;
    assert_eq!(names(&rest), ["b", "bb", "c"]);
}

#[test]
fn lists_honour_resource_version_match() {
    let rig = Rig::new();
    let a = version(&rig.create_pod("a"));
    let b = version(&rig.create_pod("b"));
    let list = |query: String| rig.get(&format!("/api/v1/pods?{query}"));
    assert_eq!(
        names(&list("resourceVersion=0&limit=1".to_owned()).1),
        ["a", "b"]
    );
    let exact = list(format!("resourceVersion={a}&resourceVersionMatch=Exact")).1;
    assert_eq!((names(&exact), version(&exact)), (vec!["a"], a));
    let at_least = list(format!(
        "resourceVersion={a}&resourceVersionMatch=NotOlderThan"
    ))
    .1;
    assert_eq!((names(&at_least), version(&at_least)), (vec!["a", "b"], b));
    rig.server.forget_history();
    let response = list("resourceVersion=5&resourceVersionMatch=Exact".to_owned());
    let message = "The resourceVersion for the provided list is too old.";
    check_error(&response, 410, "Expired", message);
    assert_eq!(list("resourceVersionMatch=Exact".to_owned()).0, 422);
    assert_eq!(list("sendInitialEvents=true".to_owned()).0, 422);
    assert_eq!(list("continue=nonsense".to_owned()).0, 400);
}

#[test]
fn j_17_a_version_from_the_future_is_too_large() {
    let rig = Rig::new();
    let response = rig.get("/api/v1/pods?resourceVersion=9000000000");
    let message = format!(
        "Timeout: Too large resource version: 9000000000, current: {}",
        rig.server.version()
    );
    check_error(&response, 504, "Timeout", &message);
    let details = json!({
        "causes": [{
            "reason": "ResourceVersionTooLarge", "message": "Too large resource version",
        }],
        "retryAfterSeconds": 1,
    });
    assert_eq!(response.1["details"], details);
}

#[test]
fn selectors_and_namespaces_filter_lists() {
    let rig = Rig::new();
    rig.ok(
        "POST",
        "/api/v1/namespaces",
        &json!({"metadata": {"name": "n"}}),
    );
    rig.ok("POST", "/api/v1/namespaces/n/pods", &pod("other"));
    rig.create_pod("a");
    rig.create_scheduled_pod("b");
    let all = |query: &str| rig.get(&format!("/api/v1/pods?{query}")).1;
    assert_eq!(names(&all("")), ["a", "b", "other"]);
    assert_eq!(names(&rig.get(PODS).1), ["a", "b"]);
    assert_eq!(names(&all("labelSelector=app%20in%20(web,x)")).len(), 3);
    assert_eq!(names(&all("labelSelector=app!%3Dweb")), Vec::<&str>::new());
    assert_eq!(names(&all("fieldSelector=spec.nodeName%3Dnode-a")), ["b"]);
    assert_eq!(
        names(&all("fieldSelector=metadata.namespace%3Dn")),
        ["other"]
    );
    assert_eq!(rig.get("/api/v1/pods?fieldSelector=foo=bar").0, 400);
    let limited = all("labelSelector=app&limit=1");
    assert_eq!(limited["metadata"].get("remainingItemCount"), None);
}

#[test]
fn four_clients_create_ten_thousand_pods() {
    let rig = Rig::new();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let rig = &rig;
            scope.spawn(move || {
                for number in 0..2500 {
                    rig.create_pod(&format!("w{worker}-{number}"));
                }
            });
        }
    });
    let list = rig.get("/api/v1/pods").1;
    assert_eq!(names(&list).len(), 10_000);
}
