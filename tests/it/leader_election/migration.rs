//! A Lease shared with a real kube-controller-manager: hand-over, hand-back, and a kill of either
//! side. The test only scales up, so a pod that is created twice stays visible as a surplus.
//!
//! Runs if `tests/control-plane` has built a kube-controller-manager. That controls all namespaces,
//! so the test starts its own control plane. The flags are those of election.md.

use nix::sys::signal::Signal;
use replicaset_controller::client::Request;
use replicaset_controller::stdx::stop::{Cause, Stop};
use serde_json::{Value, json};

use super::rig::TIMES;
use crate::manual;
use crate::support::{
    Api, Census, ControlPlane, DaemonProcess, Kind, KubeControllerManager, Waiting, new_pod,
    new_replica_set, number_at, text_at, uid,
};

/// Pods that each scale-up adds. There are enough of them for a kill in the middle of the creates.
const STEP: i64 = 40;

/// The flags of both commands in the section of election.md.
fn recipe() -> [Vec<String>; 2] {
    let page = manual::page("election.md");
    let section = page
        .split("\n## ")
        .find(|it| it.starts_with("Sharing a Lease with"));
    let section = section.expect("a section on kube-controller-manager");
    let commands = section
        .split("```")
        .find(|block| block.contains("kube-controller-manager --"));
    let commands = commands
        .expect("both commands")
        .lines()
        .filter(|line| line.contains(" --"));
    let flags_of = |line: &str| {
        let flags = line.split(' ').filter(|word| word.starts_with("--"));
        flags.map(str::to_owned).collect::<Vec<String>>()
    };
    let all: Vec<Vec<String>> = commands.map(flags_of).collect();
    all.try_into().expect("one command for each program")
}

/// The user agents that created pods, in order, each with its number of consecutive creates, from
/// the API server's audit log.
fn turns(plane: &ControlPlane) -> Vec<(String, usize)> {
    let text = std::fs::read_to_string(plane.audit_log()).expect("a readable audit log");
    let events = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut creates: Vec<(String, String)> = events
        .filter(|event| {
            text_at(event, "/verb") == "create"
                && text_at(event, "/objectRef/resource") == "pods"
                && text_at(event, "/stage") == "ResponseComplete"
                && number_at(event, "/responseStatus/code") == 201
                && !text_at(event, "/requestURI").contains("dryRun")
        })
        .map(|event| {
            let agent = text_at(&event, "/userAgent");
            let agent = agent.split('/').next().unwrap_or_default().to_owned();
            (text_at(&event, "/requestReceivedTimestamp"), agent)
        })
        .filter(|(_, agent)| agent == "kube-controller-manager" || agent == "replicaset-controller")
        .collect();
    creates.sort();
    let mut turns: Vec<(String, usize)> = Vec::new();
    for (_, agent) in creates {
        match turns.last_mut() {
            Some((last, n_pods)) if *last == agent => *n_pods += 1,
            _ => turns.push((agent, 1)),
        }
    }
    turns
}

fn prepare(api: &Api, waiting: &Waiting) {
    let group = "rbac.authorization.k8s.io";
    let path = format!("/apis/{group}/v1/namespaces/kube-system");
    let role = json!({
        "metadata": {"name": "lease"},
        "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {
                "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                "resourceNames": ["replicaset-controller-shared"], "verbs": ["get", "update"],
            },
        ],
    });
    let binding = json!({
        "metadata": {"name": "lease"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "lease"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "replicaset-controller"}],
    });
    for (plural, object) in [("roles", role), ("rolebindings", binding)] {
        let request = Request::post(format!("{path}/{plural}"));
        let sent = api.send(&request.body("application/json", object.to_string()));
        sent.unwrap_or_else(|status| panic!("{plural}: {status}"));
    }
    api.create(
        Kind::ServiceAccounts,
        &json!({"metadata": {"name": "default"}}),
    );
    let probe = Request::post(api.collection(Kind::Pods))
        .query("dryRun", "All")
        .body("application/json", new_pod("probe").to_string());
    waiting.eventually("pods can be created", || api.send(&probe).is_ok());
}

#[test]
fn hand_over_hand_back_and_kills_create_no_pod_twice() {
    if !ControlPlane::has_controller_manager() {
        return;
    }
    let plane = ControlPlane::start();
    let [theirs, ours] = recipe();
    let stop = Stop::new();
    let (api, waiting) = (plane.api(&stop), Waiting::new(&stop));
    prepare(&api, &waiting);
    let census = Census::start(&api, &stop);
    let theirs: Vec<&str> = TIMES
        .into_iter()
        .chain(theirs.iter().map(String::as_str))
        .collect();
    let start_kcm = |number| KubeControllerManager::start(&plane, number, &theirs);
    let start_ours = || {
        let kubeconfig = plane.variable("CONTROL_PLANE_CONTROLLER_KUBECONFIG");
        let kubeconfig = format!("--kubeconfig={kubeconfig}");
        let mut arguments = vec!["run", &*kubeconfig, "--kube-api-qps=0"];
        arguments.extend(TIMES);
        arguments.extend(ours.iter().map(String::as_str));
        let process = DaemonProcess::start(&arguments);
        waiting.eventually("the pods are listed", || {
            process.log().contains(" pods listed in ")
        });
        process
    };
    let rs = api.create_replica_set(&new_replica_set("a", 0));
    let mut replicas = 0;
    // Scales up, and returns the new number of replicas.
    let mut add = || {
        replicas += STEP;
        api.scale("a", replicas);
        usize::try_from(replicas).expect("a few")
    };
    let leads = "Successfully acquired lease";

    // kube-controller-manager leads, and this daemon is the standby.
    let mut kcm = start_kcm(1);
    waiting.eventually("kube-controller-manager leads", || kcm.has_logged(leads));
    let mut ours = start_ours();
    census.wait_for_seen(add());

    // Hand-over: kube-controller-manager stops.
    kcm.signal(Signal::SIGTERM);
    census.wait_for_seen(add());
    assert!(ours.log().contains("successfully acquired lease"));
    let kcm = start_kcm(2);
    waiting.eventually("kube-controller-manager is the standby", || {
        kcm.has_logged("Attempting to acquire leader lease")
    });

    // Hand-back: this daemon stops.
    ours.signal(Signal::SIGTERM);
    let status = ours.exit();
    assert_eq!(status.code(), Some(0), "{}", ours.log());
    let n_wanted = add();
    waiting.eventually("kube-controller-manager leads", || kcm.has_logged(leads));
    census.wait_for_seen(n_wanted);

    // kube-controller-manager is killed in the middle of its creates.
    let mut ours = start_ours();
    let mut kcm = kcm;
    let n_wanted = add();
    census.wait_for_seen(n_wanted - usize::try_from(STEP).expect("a few") / 2);
    kcm.signal(Signal::SIGKILL);
    census.wait_for_seen(n_wanted);
    waiting.eventually("this daemon leads", || {
        ours.log().contains("successfully acquired lease")
    });
    let kcm = start_kcm(3);
    waiting.eventually("kube-controller-manager is the standby", || {
        kcm.has_logged("Attempting to acquire leader lease")
    });

    // This daemon is killed in the middle of its creates.
    let n_wanted = add();
    census.wait_for_seen(n_wanted - usize::try_from(STEP).expect("a few") / 2);
    ours.kill();
    let n_wanted = n_wanted.max(add());
    census.wait_for_seen(n_wanted);

    waiting.holds("pods as replicas", || census.n_seen() == n_wanted);
    assert_eq!(
        (census.n_active(), census.most(&uid(&rs))),
        (n_wanted, n_wanted)
    );
    let turns = turns(&plane);
    let names: Vec<&str> = turns.iter().map(|(name, _)| &**name).collect();
    let (theirs, us) = ("kube-controller-manager", "replicaset-controller");
    assert_eq!(names, [theirs, us, theirs, us, theirs], "{turns:?}");
    // The audit log may lack creates of a killed process whose responses could not be sent.
    let n_logged = turns.iter().map(|(_, n_pods)| n_pods).sum::<usize>();
    assert!(n_logged <= n_wanted, "{turns:?}");
    log::info!("creates by user agent: {turns:?}");
    drop(kcm);
    stop.stop(Cause::Requested("the test has ended".to_owned()));
}
