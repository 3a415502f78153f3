//! The recipes of install.md for credentials, run as they are written, and a first look at a
//! cluster, each on a control plane of its own. They run if `tests/control-plane` has built a
//! kube-controller-manager.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;
use replicaset_controller::client::Request;
use replicaset_controller::stdx::stop::{Cause, Stop};
use serde_json::{Value, json};

use crate::manual;
use crate::support::{
    Api, ControlPlane, DaemonProcess, Kind, KubeControllerManager, PlainPort, Waiting, name,
    new_replica_set, text_at,
};

/// kubeadm's list of controllers, with the change that install.md asks for.
const CONTROLLERS: &str = "--controllers=*,bootstrapsigner,tokencleaner,-replicaset-controller";

/// The namespace of config/shadow.
const SHADOW: &str = "replicaset-controller-shadow";

/// The commands of the section's code block with this number, from 0.
fn commands(heading: &str, number: usize) -> String {
    let page = manual::page("install.md");
    let mut sections = page.split("\n#").map(|it| it.trim_start_matches('#'));
    let section = sections.find(|it| it.lines().next() == Some(&*format!(" {heading}")));
    let section = section.unwrap_or_else(|| panic!("no section {heading}"));
    let mut blocks = section.split("```sh\n").skip(1);
    let block = blocks.nth(number).and_then(|rest| rest.split("```").next());
    let block = block.unwrap_or_else(|| panic!("no block {number} in {heading}"));
    block.to_owned()
}

/// A folder in which recipes run, as in a terminal of the cluster's administrator.
struct Terminal<'a> {
    plane: &'a ControlPlane,
    folder: &'a Path,
}

impl Terminal<'_> {
    /// Runs commands to their end, and returns their output.
    #[track_caller]
    fn run(&self, commands: &str) -> String {
        let binary = Path::new(env!("CARGO_BIN_EXE_replicaset-controller"));
        let folders = [
            binary.parent().expect("a folder").to_owned(),
            self.plane.variable("CONTROL_PLANE_BIN").into(),
            self.folder.to_owned(),
        ];
        let path = env::var_os("PATH").unwrap_or_default();
        let path = folders.into_iter().chain(env::split_paths(&path));
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", commands])
            .current_dir(self.folder)
            .env("PATH", env::join_paths(path).expect("no colons in paths"))
            .env(
                "KUBECONFIG",
                self.plane.variable("CONTROL_PLANE_ADMIN_KUBECONFIG"),
            )
            .env("KUBECACHEDIR", self.folder.join("cache"))
            .output()
            .expect("bash runs");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (out, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{commands}\n{out}{errors}");
        out
    }

    fn daemon(&self) -> DaemonProcess {
        let kubeconfig = self.folder.join("replicaset-controller.conf");
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        DaemonProcess::start(&["run", &kubeconfig, "--leader-elect", "-v=4"])
    }

    fn token(&self) -> String {
        fs::read_to_string(self.folder.join("token")).expect("the recipe writes the token")
    }
}

/// Waits until the ReplicaSet `web` has this many pods, and its status says so.
#[track_caller]
fn wait_for_pods(api: &Api, waiting: &Waiting, replicas: usize) {
    waiting.eventually_eq("pods and the status", &(replicas, json!(replicas)), || {
        let sets = api.list(Kind::ReplicaSets, "");
        let set = sets.iter().find(|set| name(set) == "web");
        let status = set.map_or(Value::Null, |set| set["status"]["replicas"].clone());
        (api.list(Kind::Pods, "").len(), status)
    });
}

#[track_caller]
fn check_has_its_rights(waiting: &Waiting, daemon: &DaemonProcess) {
    waiting.eventually("the daemon has its rights", || {
        daemon.log().contains("grants all required permissions")
    });
    let log = daemon.log();
    assert!(!log.to_lowercase().contains("forbidden"), "{log}");
}

#[test]
fn the_recipe_for_a_client_certificate_works() {
    if !ControlPlane::has_controller_manager() {
        return;
    }
    let plane = ControlPlane::start();
    let stop = Stop::new();
    let (api, waiting) = (plane.api(&stop), Waiting::new(&stop));
    let signing = [
        format!("--cluster-signing-cert-file={}", plane.file("ca.crt")),
        format!("--cluster-signing-key-file={}", plane.file("ca.key")),
    ];
    let flags = ["--leader-elect=false", CONTROLLERS].into_iter();
    let flags: Vec<&str> = flags.chain(signing.iter().map(String::as_str)).collect();
    let _theirs = KubeControllerManager::start(&plane, 1, &flags);
    waiting.eventually("kube-controller-manager does its other work", || {
        let accounts = api.list(Kind::ServiceAccounts, "");
        accounts.iter().any(|account| name(account) == "default")
    });
    api.create_replica_set(&new_replica_set("web", 2));
    let n_pods = || api.list(Kind::Pods, "").len();
    waiting.holds("kube-controller-manager creates no pods", || n_pods() == 0);

    let folder = tempfile::tempdir().expect("a folder");
    let terminal = Terminal {
        plane: &plane,
        folder: folder.path(),
    };
    let certificate = commands("A client certificate", 0);
    let out = terminal.run(&(commands("Kubeconfig", 0) + &certificate));
    assert!(out.contains("\nnotAfter="), "{out}");
    let daemon = terminal.daemon();
    wait_for_pods(&api, &waiting, 2);
    check_has_its_rights(&waiting, &daemon);
    // The recipe may be repeated before the certificate expires.
    terminal.run(&(commands("Kubeconfig", 0) + &certificate));
    stop.stop(Cause::Requested("the test has ended".to_owned()));
}

/// The first token is bound to a Secret, so that the test can revoke it. An API server issues no
/// token for less than ten minutes.
#[test]
fn the_recipe_for_a_renewed_token_works() {
    if !ControlPlane::has_controller_manager() {
        return;
    }
    let plane = ControlPlane::start();
    let stop = Stop::new();
    let (api, waiting) = (plane.api(&stop), Waiting::new(&stop));
    let account = json!({"metadata": {"name": "default"}});
    api.create(Kind::ServiceAccounts, &account);
    let folder = tempfile::tempdir().expect("a folder");
    let terminal = Terminal {
        plane: &plane,
        folder: folder.path(),
    };
    terminal.run(
        "replicaset-controller rbac | kubectl apply -f -
         kubectl -n kube-system create secret generic first",
    );
    let first = commands("A token that renews itself", 0);
    let lifetime = "--duration=24h";
    assert_eq!(first.matches(lifetime).count(), 1, "{first}");
    let bound = format!("{lifetime} --bound-object-kind=Secret --bound-object-name=first");
    terminal.run(&(commands("Kubeconfig", 0) + &first.replace(lifetime, &bound)));
    let first = terminal.token();
    let daemon = terminal.daemon();
    api.create_replica_set(&new_replica_set("web", 2));
    wait_for_pods(&api, &waiting, 2);
    check_has_its_rights(&waiting, &daemon);

    let renewal = format!(
        "unset KUBECONFIG\n{}",
        commands("A token that renews itself", 1)
    );
    let mut seen = vec![first.clone()];
    for _ in 0..2 {
        terminal.run(&renewal);
        assert!(!seen.contains(&terminal.token()), "the token is a new one");
        seen.push(terminal.token());
    }
    terminal.run("kubectl -n kube-system delete secret first");
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": first.trim()},
    });
    let review = Request::post("/apis/authentication.k8s.io/v1/tokenreviews")
        .body("application/json", review.to_string());
    waiting.eventually("the first token is dead", || {
        let answer = api.send(&review).expect("a review");
        answer["status"]["authenticated"] != json!(true)
    });
    api.scale("web", 3);
    wait_for_pods(&api, &waiting, 3);
    stop.stop(Cause::Requested("the test has ended".to_owned()));
}

/// An administrator's first look: the shadow and the plugin of kubectl beside the stock
/// kube-controller-manager, with the account of config/shadow.
#[test]
fn a_look_at_a_cluster_writes_nothing() {
    if !ControlPlane::has_controller_manager() {
        return;
    }
    let plane = ControlPlane::start();
    let stop = Stop::new();
    let (api, waiting) = (plane.api(&stop), Waiting::new(&stop));
    let flags = ["--leader-elect=false", "--controllers=*"];
    let _theirs = KubeControllerManager::start(&plane, 1, &flags);
    waiting.eventually("kube-controller-manager works", || {
        let accounts = api.list(Kind::ServiceAccounts, "");
        accounts.iter().any(|account| name(account) == "default")
    });
    let folder = tempfile::tempdir().expect("a folder");
    let terminal = Terminal {
        plane: &plane,
        folder: folder.path(),
    };
    let binary = env!("CARGO_BIN_EXE_replicaset-controller");
    let config = crate::tidy::root().join("config/shadow");
    terminal.run(&format!(
        "kubectl apply -k {}
         kubectl create quota two --hard=pods=2
         kubectl create deployment web --image=example.invalid/web:1 --replicas=3
         kubectl config view --minify --flatten --raw > shadow.conf
         token=$(kubectl -n {SHADOW} create token replicaset-controller)
         export KUBECONFIG=shadow.conf
         kubectl config set-credentials shadow --token=\"$token\"
         kubectl config set-context --current --user=shadow
         ln -s {binary} kubectl-rs_explain",
        config.display(),
    ));
    let port = PlainPort::free();
    let kubeconfig = format!(
        "--kubeconfig={}",
        folder.path().join("shadow.conf").display()
    );
    let mut shadow = DaemonProcess::start(&[
        "run",
        &kubeconfig,
        "--dry-run",
        "--controllers=*",
        "--secure-port=0",
        &port.argument(),
    ]);
    waiting.eventually("the page names the quota", || {
        let (_, page) = port.get_as("/", "text/html");
        page.contains("/debug/replicasets/default/web-") && page.contains("exceeded quota: two")
    });
    let list = "export KUBECONFIG=shadow.conf; kubectl rs-explain";
    let table = terminal.run(&format!("{list} -A -o json"));
    let table: Value = serde_json::from_str(&table).expect("JSON");
    let rows = table["notConverged"].as_array().expect("a list");
    let row = rows.iter().find(|row| row["owner"] == "Deployment/web");
    let row = row.unwrap_or_else(|| panic!("no row of the Deployment in {table}"));
    assert!(
        row["since"].is_string() && row["next"] == "create 1 pod",
        "{row}"
    );
    let report = terminal.run(&format!(
        "{list} -n default deploy/web --context=control-plane"
    ));
    assert!(report.contains("exceeded quota: two"), "{report}");
    shadow.signal(Signal::SIGTERM);
    assert_eq!(shadow.exit().code(), Some(0), "{}", shadow.log());

    let log = fs::read_to_string(plane.audit_log()).expect("the audit log");
    let events = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("an event"));
    let user = format!("system:serviceaccount:{SHADOW}:replicaset-controller");
    let of_shadow = events.filter(|event: &Value| event["user"]["username"] == *user);
    let verbs: BTreeSet<_> = of_shadow.map(|event| text_at(&event, "/verb")).collect();
    assert_eq!(verbs, ["get", "list", "watch"].map(str::to_owned).into());
    stop.stop(Cause::Requested("the test has ended".to_owned()));
}
