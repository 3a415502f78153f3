//! What the daemon may do: the self-check at start, and on the real control plane that nothing more is
//! needed than what `rbac` prints.

use std::env;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::Signal;
use replicaset_controller::api::Status;
use replicaset_controller::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use replicaset_controller::client::Request;
use replicaset_controller::devserver::{Action, Response};
use replicaset_controller::rights::{RightsOptions, Role, grants};
use serde_json::{Value, json};

use crate::support::{DaemonProcess, Kind, Setup, TestCluster, new_replica_set};
use crate::tidy::root;

const BINARY: &str = env!("CARGO_BIN_EXE_replicaset-controller");

/// What `rbac` prints.
#[track_caller]
fn rbac(flags: &[&str]) -> String {
    let output = Command::new(BINARY).arg("rbac").args(flags).output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.expect("the binary runs");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("YAML is text")
}

/// Runs kubectl as the real control plane's administrator, with `input` to read.
fn kubectl(arguments: &[&str], input: &str) -> Result<String, String> {
    let bin = env::var("CONTROL_PLANE_BIN").expect("the control plane says where kubectl is");
    let admin = env::var("CONTROL_PLANE_ADMIN_KUBECONFIG").expect("an administrator");
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
    let output = child.wait_with_output().expect("kubectl ends");
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

/// A daemon on the real control plane with the token of a ServiceAccount.
fn start_as(
    cluster: &TestCluster,
    account: &str,
    flags: &[&str],
) -> (DaemonProcess, tempfile::TempDir) {
    let token = kubectl(&["create", "token", account, "-n", cluster.namespace()], "");
    let token = token.expect("the account is there");
    let variable = |name| env::var(name).expect("the control plane says where it is");
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

/// The daemon found no right missing, and was never refused.
#[track_caller]
fn check_unhindered(process: &DaemonProcess) {
    let log = process.log();
    assert!(!log.contains("rights are missing"), "{log}");
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
            let asked = &review["spec"]["resourceAttributes"];
            let allowed = asked["resource"] != json!("pods") || asked["verb"] == json!("list");
            Response::object(201, &json!({"status": {"allowed": allowed}}))
        }),
    );
    let process = cluster.start_process(&["--leader-elect=false", "--secure-port=0"]);
    cluster.eventually("the message", || {
        process.log().contains("rights are missing")
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
    assert_eq!(log.matches("rights are missing").count(), 1, "{log}");
}

#[test]
fn an_unauthorized_client_gets_no_report() {
    let cluster = TestCluster::start();
    let refusal = Status::new(403, "Forbidden", "nobody asks here");
    let _rule = cluster.fault(
        "create",
        "selfsubjectaccessreviews",
        Action::refuse(refusal),
    );
    let mut process = cluster.start_process(&["--leader-elect=false", "--secure-port=0", "-v=4"]);
    cluster.eventually("it gives up", || {
        process.log().contains("does not say what we may do")
    });
    process.signal(Signal::SIGTERM);
    let status = process.exit_within(std::time::Duration::from_secs(10));
    assert!(
        status.success() && !process.log().contains("ERROR"),
        "{}",
        process.log()
    );
}

#[test]
fn rights_are_asked_for_once_the_api_server_can_be_reached() {
    let cluster = TestCluster::start();
    let rule = cluster.fault("create", "selfsubjectaccessreviews", Action::CutBefore);
    let process = cluster.start_process(&["--leader-elect=false", "--secure-port=0", "-v=4"]);
    cluster.eventually("the first try", || {
        process.log().contains("rights are checked later")
    });
    rule.remove();
    cluster.eventually("an answer", || {
        process.log().contains("grants every right that is needed")
    });
}

#[test]
fn the_stock_roles_hold_what_is_used_of_them() {
    if !TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    let options = RightsOptions {
        namespace: None,
        workloads: vec![&REPLICA_SET, &REPLICATION_CONTROLLER],
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
fn every_manifest_is_accepted() {
    if !TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    for namespace in ["shop", "default", "kube-system"] {
        // Some are there already.
        kubectl(&["create", "namespace", namespace], "").unwrap_or_default();
    }
    for account in ["default", "replicaset-controller"] {
        for namespace in ["default", "kube-system"] {
            kubectl(&["create", "serviceaccount", account, "-n", namespace], "")
                .unwrap_or_default();
        }
    }
    for entry in fs::read_dir(root().join("config")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a file");
        let is_manifest =
            text.contains("\nkind: ") && !text.contains("KubeControllerManagerConfiguration");
        if path.extension().is_none_or(|extension| extension != "yaml") || !is_manifest {
            continue;
        }
        let rehearse = [
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            "-",
        ];
        // Admission looks accounts up in a cache of its own, which may not have them yet.
        cluster.eventually(
            &format!("{} is accepted", path.display()),
            || match kubectl(&rehearse, &text) {
                Ok(_) => true,
                Err(error) => {
                    assert!(
                        error.contains("serviceaccount"),
                        "{}: {error}",
                        path.display()
                    );
                    false
                }
            },
        );
    }
}

/// The objects of a file in `config`.
fn manifests(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(root().join("config").join(file));
    serde_saphyr::from_multiple(&text.expect("a manifest")).expect("the manifest is YAML")
}

#[test]
fn the_manifests_open_and_give_away_no_more_than_is_needed() {
    let deployment = manifests("deployment.yaml");
    let of_kind = |kind: &str| deployment.iter().find(|object| object["kind"] == kind);
    let pod = &of_kind("Deployment").expect("there is one")["spec"]["template"];
    assert_eq!(pod["spec"]["enableServiceLinks"], false);
    let policy = of_kind("NetworkPolicy").expect("there is one");
    let spec = &policy["spec"];
    assert_eq!(
        spec["podSelector"]["matchLabels"],
        pod["metadata"]["labels"]
    );
    assert_eq!(spec["policyTypes"], json!(["Ingress"]));
    let ports = json!([{"protocol": "TCP", "port": 10257}]);
    let ingress = spec["ingress"].as_array().expect("a list");
    assert!(!ingress.is_empty());
    for rule in ingress {
        assert_eq!(rule["ports"], ports, "{rule}");
        let from = rule["from"].as_array();
        assert!(from.is_some_and(|from| !from.is_empty()), "{rule}");
    }
    let served = &pod["spec"]["containers"][0]["ports"];
    assert_eq!(served[0]["containerPort"], 10257);

    for file in ["static-pod.yaml", "sidecar.yaml"] {
        let pod = &manifests(file)[0]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false, "{file}");
        assert_eq!(pod["enableServiceLinks"], false, "{file}");
    }
}

/// The flags are those with which both listen on loopback (`it_listens_on_loopback_unless_told_otherwise`,
/// and `--insecure-port` has no other address).
#[test]
fn the_sidecar_is_unreachable_from_outside_its_pod() {
    let pod = &manifests("sidecar.yaml")[0]["spec"];
    let arguments = |list: &str, name: &str| -> Vec<String> {
        let all = pod[list].as_array().expect("containers").iter();
        let mut named = all.filter(|container| container["name"] == name);
        let container = named.next().expect("it is there");
        serde_json::from_value(container["args"].clone()).expect("a list of words")
    };
    assert_ne!(pod["hostNetwork"], true);
    let server = arguments("containers", "apiserver");
    assert_eq!(server[0], "dev");
    let listens = |argument: &String| argument.contains("listen");
    assert!(!server.iter().any(listens), "{server:?}");
    let daemon = arguments("initContainers", "replicaset-controller");
    for argument in ["--secure-port=0", "--master=http://127.0.0.1:8001"] {
        assert!(daemon.iter().any(|it| it == argument), "{daemon:?}");
    }
}

#[test]
fn a_namespaced_daemon_needs_no_more_than_what_rbac_prints() {
    if !TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    let namespace = format!("--namespace={}", cluster.namespace());
    let flags = [&*namespace, "--controllers=*", "--secure-port=0"];
    apply(&rbac(&flags));
    let (process, _folder) = start_as(&cluster, "replicaset-controller", &flags);
    works_for(&cluster, &process);
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
    works_for(&cluster, &process);
}

/// A ReplicaSet and a ReplicationController get their pods, and what happened gets its events.
fn works_for(cluster: &TestCluster, process: &DaemonProcess) {
    cluster.eventually("the rights are there", || {
        process.log().contains("grants every right that is needed")
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
        let rc = cluster.send(&Request::get(&old)).expect("it is there");
        rc["status"]["replicas"] == json!(1)
    });
    assert_eq!(cluster.list(Kind::Pods, "").len(), 3);
    check_unhindered(process);
}
