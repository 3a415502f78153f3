//! Why a ReplicaSet does not converge: the daemon's page, the command `explain`, and dry runs.

use std::fs;
use std::process::Command;

use replicaset_controller::client::Request;
use replicaset_controller::devserver::{Action, ApiCall};
use replicaset_controller::manager::ManagerOptions;
use serde_json::json;

use crate::support::{
    Kind, PlainPort, Setup, TestCluster, controller_reference, forbidden, internal_error,
    is_terminating, name, new_pod, new_replica_set, number_at, status_error, text_at,
};

/// The daemon's page about the ReplicaSet.
fn page(cluster: &TestCluster, replica_set: &str) -> String {
    let path = format!("/debug/replicasets/{}/{replica_set}", cluster.namespace());
    cluster.daemon().page(&path)
}

/// Waits until the daemon's page about `a` contains all of these.
#[track_caller]
fn check_page(cluster: &TestCluster, words: &[&str]) {
    cluster.eventually(&format!("the page contains {words:?}"), || {
        let page = page(cluster, "a");
        words.iter().all(|word| page.contains(word))
    });
}

/// Checks that `explain`, from the API alone, prints all of these about `a`.
#[track_caller]
fn check_command(cluster: &TestCluster, words: &[&str]) {
    let object = format!("{}/a", cluster.namespace());
    let output = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
        .args(["explain", &object])
        .args(cluster.admin_arguments())
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in\n{text}{errors}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_a_failure() {
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let _process = cluster.start_process(&[&port.argument()]);
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    let object = format!("{}/a", cluster.namespace());
    let daemon = vec![format!("--server={}", port.url())];
    for source in [cluster.admin_arguments(), daemon] {
        for output in ["--output=text", "--output=json"] {
            let full = fs::OpenOptions::new().write(true).open("/dev/full");
            let ended = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
                .args(["explain", &object, output])
                .args(&source)
                .stdout(full.expect("/dev/full exists on Linux"))
                .output()
                .expect("the binary runs");
            let stderr = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(1), "{source:?} {stderr}");
            let why = "cannot write to standard output";
            assert!(stderr.contains(why), "{source:?} {stderr}");
        }
    }
}

/// An API server without SubjectAccessReviews leaves a daemon unable to authorize its own pages.
#[test]
fn a_daemon_that_explain_cannot_read_is_named_with_a_remedy() {
    if TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    let missing = status_error(404, "", "404 page not found");
    cluster.fault("create", "subjectaccessreviews", missing);
    let port = PlainPort::free();
    let secure_port = port.argument().replace("insecure", "secure");
    let _process = cluster.start_process(&["--bind-address=127.0.0.1", &secure_port]);
    let server = format!("--server={}", port.url().replace("http:", "https:"));
    let errors = |arguments: &[&str]| {
        let ended = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
            .args(["explain", "shop/web", &server])
            .args(arguments)
            .output()
            .expect("the binary runs");
        assert_eq!(ended.status.code(), Some(1));
        String::from_utf8_lossy(&ended.stderr).into_owned()
    };
    cluster.eventually("the certificate is not trusted", || {
        let errors = errors(&[]);
        errors.contains("no response from the daemon: ")
            && errors.contains("--insecure-skip-tls-verify accepts any")
    });
    cluster.eventually("the reviews are missing", || {
        let errors = errors(&["--insecure-skip-tls-verify"]);
        errors.contains("this API server has no SubjectAccessReview")
            && errors.contains("--insecure-port")
    });
}

#[test]
fn an_exceeded_quota_is_explained_with_a_remedy() {
    let cluster = TestCluster::running();
    let why = "pods \"a-x\" is forbidden: exceeded quota: two, requested: pods=1, used: pods=2, \
               limited: pods=2";
    cluster.fault("create", "pods", forbidden(why));
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.eventually("the condition", || {
        !text_at(&cluster.status("a"), "/conditions/0/message").is_empty()
    });
    let words = [
        "exceeded quota: two",
        "fix: raise the quota",
        "create 3 pods",
    ];
    check_page(&cluster, &words);
    check_page(
        &cluster,
        &[
            "pod creation is backed off",
            "blocked by quota \"two\" (1 of 1 waiting for it)",
            "Next sync: create 3 pods, but not yet: next attempt in",
        ],
    );
    check_command(&cluster, &words);
    check_command(&cluster, &["FailedCreate", "source: the API server"]);
}

#[test]
fn an_open_expectation_is_listed() {
    let cluster = TestCluster::running();
    cluster.synced();
    let held = cluster.hold_watch("pods");
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.eventually_eq("the pod", &1, || cluster.live().len());
    let pod = name(&cluster.live()[0]);
    check_page(
        &cluster,
        &[&format!("1 creates ({pod})"), "to be created:", "sent"],
    );
    held.remove();
    check_page(&cluster, &["pod count matches", "expectations: none open"]);
}

#[test]
fn a_back_off_is_reported_with_its_remaining_time() {
    let cluster = TestCluster::running();
    cluster.fault("create", "pods", internal_error("a hiccup"));
    cluster.create_replica_set(&new_replica_set("a", 1));
    check_page(
        &cluster,
        &[
            "in back-off after",
            "next attempt in",
            "last error:",
            "a hiccup",
        ],
    );
}

/// `explain --server` for both kinds, as text and as JSON.
#[test]
fn explain_reads_from_a_running_daemon() {
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let _process = cluster.start_process(&["--controllers=*", &port.argument()]);
    let why = "exceeded quota: two";
    cluster.fault("create", "pods", forbidden(why));
    cluster.create_replica_set(&new_replica_set("a", 3));
    let mut controller =
        json!({"metadata": {"name": "b"}, "spec": new_replica_set("b", 0)["spec"]});
    controller["spec"]["selector"] = controller["spec"]["selector"]["matchLabels"].clone();
    cluster.create(Kind::ReplicationControllers, &controller);
    let server = format!("--server={}", port.url());
    let explain = |object: &str, output: &str| {
        let name = if object == "rc" { "b" } else { "a" };
        let object = format!("{object}/{}/{name}", cluster.namespace());
        let output = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
            .args(["explain", &object, &server, "-o", output])
            .output()
            .expect("the binary runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    // Only the daemon knows the queue of the quota.
    cluster.eventually("the ReplicaSet is explained", || {
        let (code, text, _) = explain("rs", "text");
        let words = [why, "blocked by quota \"two\"", "its own turn in"];
        code == Some(0) && words.iter().all(|word| text.contains(word))
    });
    cluster.eventually("the ReplicationController is explained", || {
        let (code, text, _) = explain("rc", "text");
        code == Some(0) && text.contains("Converged: ")
    });
    for (object, kind) in [("rs", "ReplicaSet"), ("rc", "ReplicationController")] {
        let (code, json, errors) = explain(object, "json");
        assert_eq!(code, Some(0), "{errors}");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert!(json.to_string().contains(kind), "{json}");
    }
    let missing = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
        .args(["explain", "none/such", &server])
        .output()
        .expect("the binary runs");
    let errors = String::from_utf8_lossy(&missing.stderr);
    assert!(!missing.status.success(), "{errors}");
    assert!(errors.contains("none/such is not in the cache"), "{errors}");
}

/// Runs `explain` with these words. Returns standard output and standard error.
#[track_caller]
fn explain(words: &[&str], source: &[String]) -> (String, String) {
    let ended = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
        .arg("explain")
        .args(words)
        .args(source)
        .output()
        .expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let (output, errors) = (text(ended.stdout), text(ended.stderr));
    assert_eq!(ended.status.code(), Some(0), "{words:?} {output}{errors}");
    (output, errors)
}

/// A ReplicaSet and a ReplicationController that desire no pods, and so have converged.
fn with_two_converged() -> TestCluster {
    let cluster = TestCluster::start();
    cluster.create_replica_set(&new_replica_set("fine", 0));
    let mut controller =
        json!({"metadata": {"name": "old"}, "spec": new_replica_set("old", 0)["spec"]});
    controller["spec"]["selector"] = controller["spec"]["selector"]["matchLabels"].clone();
    cluster.create(Kind::ReplicationControllers, &controller);
    cluster
}

/// The table's line about this object. A real API server has other tests' namespaces too.
fn line_of<'a>(table: &'a str, namespace: &str, object: &str) -> Option<&'a str> {
    table
        .lines()
        .find(|line| line.split_whitespace().take(2).eq([namespace, object]))
}

#[test]
fn without_a_name_explain_lists_what_has_not_converged() {
    let cluster = with_two_converged();
    let port = PlainPort::free();
    let _process = cluster.start_process(&["--controllers=*", &port.argument()]);
    cluster.stable("fine");
    cluster.fault("create", "pods", forbidden("exceeded quota: two"));
    cluster.create_replica_set(&new_replica_set("a", 3));
    let api = cluster.admin_arguments();
    let daemon = vec![format!("--server={}", port.url())];
    let namespace = cluster.namespace();
    for source in [&api, &daemon] {
        for scope in [&["-n", namespace][..], &["-A"]] {
            cluster.eventually("the quota is the reason", || {
                let (table, _) = explain(scope, source);
                line_of(&table, namespace, "rs/a")
                    .is_some_and(|line| line.contains("exceeded quota: two"))
            });
            let (table, errors) = explain(scope, source);
            assert_eq!(line_of(&table, namespace, "rs/fine"), None, "{table}");
            assert_eq!(line_of(&table, namespace, "rc/old"), None, "{table}");
            assert!(table.contains("ReplicationController"), "{table}{errors}");
        }
        let (json, _) = explain(&["rs", "-n", namespace, "-o", "json"], source);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["lookedAt"], json!({"ReplicaSet": 2}));
        let row = &json["notConverged"][0];
        assert_eq!(
            (&row["name"], &row["desired"], &row["active"]),
            (&json!("a"), &json!(3), &json!(0))
        );
        assert!(text_at(row, "/fix").contains("quota"), "{row}");

        let (table, _) = explain(&["rc", "-n", namespace], source);
        assert_eq!(table, "1 of 1 ReplicationControllers has converged\n");
    }
    // Only the daemon knows the queue.
    cluster.eventually("the queue is known", || {
        let (report, _) = explain(&["rs", "a", "-n", namespace], &daemon);
        report.contains("blocked by quota \"two\"")
    });

    let (code, index) = port.get("/");
    assert_eq!(code, 200, "{index}");
    let kinds = ["replicasets", "replicationcontrollers"];
    let tables = kinds.map(|kind| format!("/debug/{kind}"));
    let objects = kinds.map(|kind| format!("/debug/{kind}/NAMESPACE/NAME"));
    for path in ["/", "/metrics", "/configz", "/debug/threads"]
        .map(str::to_owned)
        .into_iter()
        .chain(tables)
        .chain(objects)
    {
        let listed = |line: &str| line.split_whitespace().next() == Some(&*path);
        assert!(index.lines().any(listed), "no {path} in\n{index}");
        if !path.ends_with("NAME") {
            assert_eq!(port.get(&path).0, 200, "{path}");
        }
    }
}

#[test]
fn an_object_is_named_as_with_kubectl() {
    let cluster = with_two_converged();
    let namespace = cluster.namespace();
    let both = |name: &str| format!("{name}/{namespace}/fine");
    let in_namespace = ["-n", namespace];
    for (words, kind) in [
        (&["fine"][..], "ReplicaSet"),
        (&["rs/fine"], "ReplicaSet"),
        (&["rs", "fine"], "ReplicaSet"),
        (&["replicaset/fine"], "ReplicaSet"),
        (&["replicasets.apps/fine"], "ReplicaSet"),
        (&["rc/old"], "ReplicationController"),
        (&["rc", "old"], "ReplicationController"),
    ] {
        let words = [words, &in_namespace].concat();
        let (report, _) = explain(&words, &cluster.admin_arguments());
        let expected = format!("{kind} {namespace}/");
        assert!(report.starts_with(&expected), "{words:?} {report}");
    }
    for word in [format!("{namespace}/fine"), both("rs"), both("replicaset")] {
        let (report, _) = explain(&[&word], &cluster.admin_arguments());
        let expected = format!("ReplicaSet {namespace}/fine\n");
        assert!(report.starts_with(&expected), "{word} {report}");
    }
}

#[test]
fn the_daemon_serves_the_table_from_its_caches() {
    let cluster = TestCluster::running();
    cluster.fault("create", "pods", forbidden("exceeded quota: two"));
    cluster.create_replica_set(&new_replica_set("a", 3));
    let daemon = cluster.daemon();
    let path = format!("/debug/replicasets?namespace={}", cluster.namespace());
    cluster.eventually("the table has the reason", || {
        let table = daemon.page(&path);
        line_of(&table, cluster.namespace(), "rs/a")
            .is_some_and(|line| line.contains("exceeded quota"))
    });
    let n_lists = || ["pods", "replicasets"].map(|of| cluster.recorded("list", of).len());
    let n_before = n_lists();
    for _ in 0..3 {
        let table = daemon.page("/debug/replicasets");
        assert!(line_of(&table, cluster.namespace(), "rs/a").is_some());
    }
    assert_eq!(n_lists(), n_before, "the page lists nothing");
    let elsewhere = daemon.page("/debug/replicasets?namespace=elsewhere");
    assert_eq!(elsewhere, "no ReplicaSets found\n");
    let json = daemon.page("/debug/replicasets?format=json");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["notConverged"][0]["reason"].is_string(), "{json}");
}

#[test]
fn a_terminating_namespace_is_reported() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    cluster.terminate_namespace();
    cluster.scale("a", 4);
    check_page(&cluster, &["is being terminated", "use another namespace"]);
    check_command(&cluster, &["is being terminated"]);
}

#[test]
fn a_pod_with_a_finalizer_is_listed() {
    let cluster = TestCluster::running();
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    let pod = name(&cluster.live()[0]);
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    cluster.merge_patch(Kind::Pods, &pod, &hold);
    cluster.delete(Kind::Pods, &pod);
    cluster.eventually("a replacement is created", || {
        let pods = cluster.list(Kind::Pods, "");
        pods.iter().any(is_terminating) && pods.iter().any(|pod| !is_terminating(pod))
    });
    check_page(&cluster, &["Pods that do not count", &pod, "terminating"]);
    check_command(&cluster, &[&pod, "finalizer example.com/hold is present"]);
    let release = json!({"metadata": {"finalizers": null}});
    cluster.merge_patch(Kind::Pods, &pod, &release);
}

#[test]
fn a_dry_run_reports_its_decision_and_writes_nothing() {
    let cluster = TestCluster::running_with(Setup {
        options: ManagerOptions {
            dry_run: true,
            ..Setup::default().options
        },
        ..Setup::default()
    });
    cluster.synced();
    // Cuts every write, as a dry run must not even attempt one.
    for verb in ["create", "update", "patch", "delete"] {
        for resource in ["pods", "replicasets/status", "events", "leases"] {
            cluster.fault(verb, resource, Action::CutBefore);
        }
    }
    cluster.create_replica_set(&new_replica_set("a", 3));
    check_page(&cluster, &["Next sync: create 3 pods"]);
    cluster.holds("nothing is written", || {
        cluster.n_writes() == 0
            && cluster.recorded("create", "events").is_empty()
            && cluster.live().is_empty()
            && number_at(&cluster.status("a"), "/replicas") == 0
    });
}

#[test]
fn a_dry_run_prints_each_decision_once() {
    let cluster = TestCluster::start();
    let mut process = cluster.start_process(&["--dry-run"]);
    cluster.create_replica_set(&new_replica_set("a", 3));
    let n_logged = || process.log().matches("would create 3 pods: 0 of 3").count();
    cluster.eventually_eq("the decision is logged", &1, n_logged);
    cluster.holds("it is logged once", || n_logged() == 1);
    assert!(cluster.live().is_empty());
    process.signal(nix::sys::signal::Signal::SIGTERM);
    let status = process.exit();
    assert_eq!(status.code(), Some(0), "{}", process.log());
    assert!(
        process
            .log()
            .contains("no controller has carried out 1 decision"),
        "{}",
        process.log()
    );
    for recorded in cluster.faults().recorder().requests() {
        let verb = recorded.request.verb();
        assert!(["get", "list", "watch"].contains(&verb), "{recorded:?}");
    }
}

#[test]
fn a_dry_run_prints_growing_decisions_but_no_shrinking_ones() {
    let cluster = TestCluster::start();
    let rs = cluster.create_replica_set(&new_replica_set("a", 4));
    let owned = |name: &str| {
        let mut pod = new_pod(name);
        pod["metadata"]["ownerReferences"] = json!([controller_reference(&rs)]);
        cluster.create_pod(&pod);
    };
    let names = ["p", "q", "r", "s"];
    names.into_iter().for_each(owned);
    let process = cluster.start_process(&["--dry-run"]);
    cluster.eventually("the ReplicaSets are listed", || {
        process.log().contains("1 replicasets listed in ")
    });
    let n_logged = |text: &str| process.log().matches(text).count();
    cluster.kill_pod("p");
    cluster.eventually_eq("a decision for one pod", &1, || {
        n_logged("would create 1 pod: 3 of 4")
    });
    for name in &names[1..] {
        cluster.kill_pod(name);
    }
    cluster.eventually_eq("a decision for all pods", &1, || {
        n_logged("would create 4 pods: 0 of 4")
    });
    let n_before = n_logged("would create");
    owned("t");
    owned("u");
    cluster.holds("foreign creates cause no decision", || {
        n_logged("would create") == n_before
    });
}

#[test]
fn sigusr1_writes_every_thread_to_the_log() {
    let cluster = TestCluster::start();
    let process = cluster.start_process(&[]);
    cluster.eventually("both resources are listed", || {
        let log = process.log();
        log.contains(" pods listed in ") && log.contains(" replicasets listed in ")
    });
    cluster.eventually("the log lists every thread", || {
        // Signals repeatedly, since a thread may not have reached its wait yet.
        process.signal(nix::sys::signal::Signal::SIGUSR1);
        cluster.waiting().pause(std::time::Duration::from_secs(1));
        let log = process.log();
        [
            "thread watch-pods",
            ": watch pods for ",
            "thread sync-0",
            ": waits for work for ",
            "thread events",
            ": waits for events for ",
            "thread delay",
            "waits for the stop signal for ",
        ]
        .iter()
        .all(|word| log.contains(word))
    });
}

/// A user knows the Deployment, not its ReplicaSets.
#[test]
fn a_deployment_is_explained_by_its_current_replica_set() {
    let cluster = TestCluster::start();
    let namespace = cluster.namespace();
    let port = PlainPort::free();
    let _process = cluster.start_process(&[&port.argument()]);
    let deployment =
        json!({"metadata": {"name": "both"}, "spec": new_replica_set("both", 0)["spec"]});
    let deployment = cluster.create(Kind::Deployments, &deployment);
    for (name, replicas) in [("both-old", 0), ("both-new", 2), ("both-a", 0)] {
        let mut set = new_replica_set(name, replicas);
        let mut owner = controller_reference(&deployment);
        owner["kind"] = json!("Deployment");
        set["metadata"]["ownerReferences"] = json!([owner]);
        cluster.create_replica_set(&set);
    }
    cluster.stable("both-new");
    let daemon = vec![format!("--server={}", port.url())];
    for source in [&cluster.admin_arguments(), &daemon] {
        for words in [&["both"][..], &["deploy/both"], &["deployment", "both"]] {
            let words = [words, &["-n", namespace]].concat();
            let (text, _) = explain(&words, source);
            let head = format!("ReplicaSet {namespace}/both-new of Deployment both");
            assert!(text.contains(&head), "{words:?}\n{text}");
            assert!(text.contains("same owner: 2 more, scaled to 0"), "{text}");
        }
        let (json, _) = explain(&["both", "-n", namespace, "-o", "json"], source);
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["owner"], "Deployment/both");
    }
}

/// Grants the daemon the stock role of a Deployment controller, which its account in tests lacks.
fn grant_deployments(cluster: &TestCluster) {
    if !TestCluster::is_real() {
        return;
    }
    let rbac = "rbac.authorization.k8s.io";
    let role = "system:controller:deployment-controller";
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "deployments"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "replicaset-controller"}],
    });
    let namespace = cluster.namespace();
    let path = format!("/apis/{rbac}/v1/namespaces/{namespace}/rolebindings");
    let request = Request::post(path).body("application/json", binding.to_string());
    cluster
        .send(&request)
        .expect("an administrator may do this");
}

#[test]
fn explain_shows_what_a_deployment_waits_for() {
    let cluster = TestCluster::start();
    grant_deployments(&cluster);
    let deployment =
        json!({"metadata": {"name": "web"}, "spec": new_replica_set("web", 2)["spec"]});
    cluster.create(Kind::Deployments, &deployment);
    let explained = |output: &str| {
        let words = ["deploy/web", "-n", cluster.namespace(), "-o", output];
        explain(&words, &cluster.admin_arguments()).0
    };
    // Without a controller, there is no ReplicaSet.
    let wait = "its controller, which has observed generation 0 of 1";
    let next = "create a replicaset with 2 replicas";
    let text = explained("text");
    assert!(
        text.contains(&format!("waits for {wait}\n  next: {next}")),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&explained("json")).expect("JSON");
    assert_eq!(json["rollout"]["waitsFor"], json!([wait]));
    let [kind, name, finding] = ["/kind", "/name", "/findings/0/what"].map(|it| text_at(&json, it));
    assert_eq!((&*kind, &*name), ("Deployment", "web"));
    assert_eq!(finding, format!("the Deployment waits for {wait}"));
    let (table, _) = explain(&["-n", cluster.namespace()], &cluster.admin_arguments());
    let row = line_of(&table, cluster.namespace(), "deploy/web");
    assert!(row.is_some_and(|it| it.contains(wait)), "{table}");
    let controllers = "--controllers=replicaset-controller,deployment-controller";
    let _process = cluster.start_process(&[controllers]);
    let has_sets = || !cluster.list(Kind::ReplicaSets, "").is_empty();
    cluster.eventually("a ReplicaSet", has_sets);
    // A test's pods become Ready only if the test says so.
    let words = [
        "Deployment web: RollingUpdate, desired 2; at most 3 pods, so 1 more now",
        "  new: web-",
        ", revision 1, desired 2, available 0",
        "  waits for 2 pods of web-",
        "  next: no action",
    ];
    cluster.eventually("the rollout is explained", || {
        let text = explained("text");
        words.iter().all(|word| text.contains(word))
    });
    cluster.merge_patch(Kind::Deployments, "web", &json!({"spec": {"paused": true}}));
    cluster.eventually("the pause is explained", || {
        let namespace = cluster.namespace();
        explained("text").contains(&format!(
            "waits for `kubectl -n {namespace} rollout resume deployment web`"
        ))
    });
    // An administrator's requests pass the faults of the daemon's only on the dev server.
    if !TestCluster::is_real() {
        cluster.fault("get", "deployments", forbidden("not for you"));
        cluster.fault("list", "events", forbidden("not for you"));
        let text = explained("text");
        let unknown = "its Deployment is unknown, and so is the rollout: cannot read";
        assert!(text.contains(unknown), "{text}");
        assert!(!text.contains("No recent events"), "{text}");
    }
}

#[test]
fn a_dry_run_of_deployments_writes_nothing() {
    let cluster = TestCluster::start();
    grant_deployments(&cluster);
    let controllers = "--controllers=replicaset-controller,deployment-controller";
    let mut process = cluster.start_process(&["--dry-run", controllers]);
    let deployment =
        json!({"metadata": {"name": "web"}, "spec": new_replica_set("web", 3)["spec"]});
    cluster.create(Kind::Deployments, &deployment);
    let logs = |text: &str| process.log().matches(text).count();
    cluster.eventually("the decision is logged", || {
        logs("would create a replicaset with 3") == 1
    });
    cluster.merge_patch(Kind::Deployments, "web", &json!({"spec": {"replicas": 4}}));
    cluster.eventually("so is the next one", || logs("with 4 replicas") == 1);
    cluster.holds("each is logged once", || logs("would ") == 2);
    process.signal(nix::sys::signal::Signal::SIGTERM);
    process.exit();
    let record = "dry run of deployments: no controller has carried out 1 decision";
    assert!(process.log().contains(record), "{}", process.log());
    for recorded in cluster.faults().recorder().requests() {
        let verb = recorded.request.verb();
        assert!(["get", "list", "watch"].contains(&verb), "{recorded:?}");
    }
}

/// As from Kubernetes 1.38 on. A real API server serves no definition of this group.
#[test]
fn gang_scheduling_is_reported_as_unsupported() {
    if TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    let group = "scheduling.k8s.io";
    let post = |path: &str, object: serde_json::Value| {
        let request = Request::post(path).body("application/json", object.to_string());
        cluster.api().send(&request).expect("it is created")
    };
    let version = json!({"name": "v1alpha3", "served": true, "storage": true, "schema": {
        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("workloads.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "versions": [version],
            "names": {"plural": "workloads", "kind": "Workload"},
        },
    });
    post(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        definition,
    );
    let deployment = cluster.create(
        Kind::Deployments,
        &json!({
            "metadata": {"name": "a"},
            "spec": new_replica_set("a", 0)["spec"],
        }),
    );
    let owners = json!([controller_reference(&deployment)]);
    let workloads = format!(
        "/apis/{group}/v1alpha3/namespaces/{}/workloads",
        cluster.namespace()
    );
    post(
        &workloads,
        json!({
            "apiVersion": format!("{group}/v1alpha3"), "kind": "Workload",
            "metadata": {"name": "whole", "ownerReferences": owners},
            "spec": {"podGroupTemplates": [{"name": "pods", "schedulingPolicy": {"gang": {}}}]},
        }),
    );
    let mut rs = new_replica_set("a", 1);
    rs["metadata"]["ownerReferences"] = owners;
    cluster.create_replica_set(&rs);
    let port = PlainPort::free();
    let _process = cluster.start_process(&[&port.argument()]);
    // The daemon discovers Workloads after its start.
    cluster.eventually("an event", || {
        for replicas in [0, 1] {
            cluster.scale("a", replicas);
            cluster.eventually_eq("the pods", &replicas, || {
                number_at(&cluster.replica_set("a"), "/status/replicas")
            });
        }
        let events = cluster.events_of("a");
        events
            .iter()
            .any(|event| event["reason"] == "GangSchedulingUnsupported")
    });
    let problem = "Workload whole asks for gang scheduling";
    check_command(
        &cluster,
        &[problem, "fix: remove gang scheduling from the Deployment"],
    );
    let path = format!("/debug/replicasets/{}/a", cluster.namespace());
    assert!(port.get(&path).1.contains(problem));
    let metrics = port.get("/metrics").1;
    assert!(
        !metrics.contains("gangs_ignored_total{name=\"replicaset\"} 0"),
        "{metrics}"
    );
}
