//! The daemon's rights: the self-check at start, the manifests, and (on the real control plane)
//! that the rights that `rbac` prints suffice.

use std::env;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use replicaset_controller::api::Status;
use replicaset_controller::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use replicaset_controller::client::Request;
use replicaset_controller::devserver::{Action, Response, Rule};
use replicaset_controller::rights::{RightsOptions, Role, grants};
use serde_json::{Value, json};

use crate::support::{
    DaemonProcess, Kind, PATIENCE, Setup, TestCluster, new_replica_set, reads_of,
};

const BINARY: &str = env!("CARGO_BIN_EXE_replicaset-controller");

/// The output of the command `rbac`.
#[track_caller]
fn rbac(flags: &[&str]) -> String {
    let output = Command::new(BINARY).arg("rbac").args(flags).output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.expect("the binary runs");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("YAML is UTF-8")
}

/// Runs kubectl as the real control plane's administrator, with `input` on standard input.
pub(crate) fn kubectl(arguments: &[&str], input: &str) -> Result<String, String> {
    let bin = env::var("CONTROL_PLANE_BIN").expect("run.sh sets CONTROL_PLANE_BIN");
    let admin = env::var("CONTROL_PLANE_ADMIN_KUBECONFIG").expect("run.sh sets it");
    let mut child = Command::new(Path::new(&bin).join("kubectl"))
        .args(["--kubeconfig", &admin, "--request-timeout=30s"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kubectl runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("kubectl reads");
    drop(stdin);
    let output = child.wait_with_output().expect("kubectl exits");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

#[track_caller]
fn apply(manifests: &str) {
    let applied = kubectl(&["apply", "--server-side", "-f", "-"], manifests);
    applied.unwrap_or_else(|error| panic!("{error}\n{manifests}"));
}

/// Starts a daemon against the real control plane with the token of a ServiceAccount.
fn start_as(
    cluster: &TestCluster,
    account: &str,
    flags: &[&str],
) -> (DaemonProcess, tempfile::TempDir) {
    let token = kubectl(&["create", "token", account, "-n", cluster.namespace()], "");
    let token = token.expect("the service account exists");
    let variable = |name| env::var(name).expect("run.sh sets it");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {
            "server": variable("CONTROL_PLANE_URL"),
            "certificate-authority": variable("CONTROL_PLANE_CA"),
        }}],
        "users": [{"name": "it", "user": {"token": token.trim()}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("kubeconfig");
    fs::write(&file, kubeconfig.to_string()).expect("a kubeconfig");
    let file = format!("--kubeconfig={}", file.display());
    let mut arguments = vec!["run", "--kube-api-qps=0", &file, "-v=4"];
    arguments.extend(flags);
    (DaemonProcess::start(&arguments), folder)
}

/// Checks that the log reports no missing right and no forbidden request.
#[track_caller]
fn check_nothing_forbidden(process: &DaemonProcess) {
    let log = process.log();
    assert!(!log.contains("permissions are missing"), "{log}");
    assert!(!log.to_lowercase().contains("forbidden"), "{log}");
}

#[test]
fn missing_rights_are_named_in_one_message() {
    if TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    let review = "selfsubjectaccessreviews";
    let _rule = cluster.fault(
        "create",
        review,
        Action::answer(|request| {
            let review: Value = serde_json::from_slice(&request.body).expect("a review");
            let right = &review["spec"]["resourceAttributes"];
            let allowed = right["resource"] != json!("pods") || right["verb"] == json!("list");
            Response::object(201, &json!({"status": {"allowed": allowed}}))
        }),
    );
    let process = cluster.start_process(&["--leader-elect=false", "--secure-port=0"]);
    cluster.eventually("the log names the missing rights", || {
        process.log().contains("permissions are missing")
    });
    let log = process.log();
    let namespace = cluster.namespace();
    for words in [
        "ERROR [self-check]".to_owned(),
        format!("without: watch, create, delete, patch pods in namespace {namespace}. To grant"),
        format!(
            "replicaset-controller rbac --namespace={namespace} --leader-elect=false \
             --secure-port=0 --user=system:anonymous | kubectl apply -f -"
        ),
    ] {
        assert!(log.contains(&words), "no {words:?} in\n{log}");
    }
    assert_eq!(log.matches("permissions are missing").count(), 1, "{log}");
}

#[test]
fn a_forbidden_self_check_logs_no_error() {
    let cluster = TestCluster::start();
    let forbidden = Status::new(403, "Forbidden", "no reviews");
    let _rule = cluster.fault(
        "create",
        "selfsubjectaccessreviews",
        Action::reject(forbidden),
    );
    let mut process = cluster.start_process(&["--leader-elect=false", "--secure-port=0", "-v=4"]);
    cluster.eventually("the self-check gives up", || {
        process
            .log()
            .contains("does not report the permissions of this account")
    });
    process.signal(Signal::SIGTERM);
    let status = process.exit();
    assert!(
        status.success() && !process.log().contains("ERROR"),
        "{}",
        process.log()
    );
}

#[test]
fn a_19_no_review_precedes_the_first_lists() {
    let cluster = TestCluster::start();
    let rule = cluster
        .faults()
        .add(Rule::new(reads_of("pods"), Action::Hold));
    let process = cluster.start_process(&["--leader-elect=false", "--secure-port=0", "-v=4"]);
    assert!(rule.wait_for_hits(1, PATIENCE), "pods are requested");
    let review = "selfsubjectaccessreviews";
    cluster.holds("no review", || {
        cluster.recorded("create", review).is_empty()
    });
    rule.remove();
    cluster.eventually("the check has passed", || {
        process.log().contains("grants all required permissions")
    });
}

#[test]
fn the_self_check_waits_for_the_api_server() {
    let cluster = TestCluster::start();
    let rule = cluster.fault("create", "selfsubjectaccessreviews", Action::CutBefore);
    let process = cluster.start_process(&["--leader-elect=false", "--secure-port=0", "-v=4"]);
    cluster.eventually("the first attempt has failed", || {
        process.log().contains("retrying the check of permissions")
    });
    rule.remove();
    cluster.eventually("the check has passed", || {
        process.log().contains("grants all required permissions")
    });
}

#[test]
fn the_stock_roles_contain_the_rights_that_the_daemon_needs() {
    if !TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    let options = RightsOptions {
        namespace: None,
        workloads: vec![&REPLICA_SET, &REPLICATION_CONTROLLER],
        deployments: false,
        lease: None,
        delegated_auth: true,
        dry_run: false,
    };
    for grant in grants(&options) {
        let Role::Stock(role) = grant.role else {
            panic!("{:?} is no stock role", grant.role);
        };
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}");
        let role = cluster.send(&Request::get(path)).expect("a stock role");
        let rules = role["rules"].as_array().expect("rules");
        for right in &grant.rights {
            for verb in right.verbs {
                let holds = |rule: &&Value| {
                    [
                        ("apiGroups", right.group),
                        ("resources", &*right.resource),
                        ("verbs", *verb),
                    ]
                    .into_iter()
                    .all(|(list, word)| {
                        rule[list]
                            .as_array()
                            .is_some_and(|l| l.contains(&json!(word)))
                    })
                };
                assert!(
                    rules.iter().any(|rule| holds(&rule)),
                    "{verb} {right:?} in {role}"
                );
            }
        }
    }
}

#[test]
fn the_printed_rights_are_enough_for_one_namespace() {
    if !TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    let namespace = format!("--namespace={}", cluster.namespace());
    let flags = [&*namespace, "--controllers=*", "--secure-port=0"];
    apply(&rbac(&flags));
    let (process, _folder) = start_as(&cluster, "replicaset-controller", &flags);
    check_works(&cluster, &process);
}

#[test]
fn the_printed_rights_are_enough_for_all_namespaces() {
    if !TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::with(Setup {
        all_namespaces: true,
        ..Setup::default()
    });
    let account = format!("--service-account={}/daemon", cluster.namespace());
    let flags = ["--controllers=*", "--secure-port=0"];
    apply(&rbac(&[&flags[..], &[&*account]].concat()));
    let (process, _folder) = start_as(&cluster, "daemon", &flags);
    check_works(&cluster, &process);
}

/// The stock role holds no right to read quotas.
#[test]
fn the_optional_rights_are_enough_to_watch_quotas() {
    if !TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    cluster.create(Kind::Quotas, &quota);
    cluster.update_status(Kind::Quotas, "none", |quota| {
        quota["status"] = json!({"hard": {"pods": "0"}, "used": {"pods": "0"}});
    });
    let namespace = format!("--namespace={}", cluster.namespace());
    let flags = [&*namespace, "--secure-port=0"];
    let manifests = rbac(&flags);
    apply(&manifests);
    let rejected = |flags: &[&str], words: &str| {
        let (process, folder) = start_as(&cluster, "replicaset-controller", flags);
        cluster.eventually(words, || process.log().contains(words));
        assert_eq!(process.log().matches(words).count(), 1, "{}", process.log());
        assert!(
            !process.log().contains("permissions are missing"),
            "{}",
            process.log()
        );
        drop((process, folder));
    };
    cluster.create_replica_set(&new_replica_set("web", 1));
    rejected(&flags, "quotas are not watched");
    apply(&rbac(&["--watch-quotas", &namespace, "--secure-port=0"]));
    rejected(&flags, "quotas are watched");
}

/// Checks that a ReplicaSet and a ReplicationController get their pods, status and events.
fn check_works(cluster: &TestCluster, process: &DaemonProcess) {
    cluster.eventually("the daemon has its rights", || {
        process.log().contains("grants all required permissions")
    });
    cluster.create_replica_set(&new_replica_set("web", 2));
    cluster.eventually("pods, and the status", || {
        cluster.status("web")["replicas"] == json!(2)
    });
    cluster.eventually("events", || !cluster.events_of("web").is_empty());
    let path = format!(
        "/api/v1/namespaces/{}/replicationcontrollers",
        cluster.namespace()
    );
    let mut rc = new_replica_set("old", 1);
    rc["apiVersion"] = json!("v1");
    rc["kind"] = json!("ReplicationController");
    rc["spec"]["selector"] = rc["spec"]["selector"]["matchLabels"].take();
    let created = cluster.send(&Request::post(&path).body("application/json", rc.to_string()));
    created.expect("a ReplicationController");
    let old = format!("{path}/old");
    cluster.eventually("a pod of the ReplicationController, and its status", || {
        let rc = cluster
            .send(&Request::get(&old))
            .expect("the controller exists");
        rc["status"]["replicas"] == json!(1)
    });
    assert_eq!(cluster.list(Kind::Pods, "").len(), 3);
    check_nothing_forbidden(process);
}
