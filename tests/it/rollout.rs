//! A Deployment on the dev server: a real kube-controller-manager makes its ReplicaSets, and this
//! controller their pods. A real kube-scheduler assigns them to nodes, if there is one. Without a
//! kube-controller-manager, the test prints a line and passes.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use replicaset_controller::client::{ClientConfig, Request};
use replicaset_controller::devserver::behaviour::FATE;
use replicaset_controller::devserver::{DevServer, DevServerOptions, KubeletOptions};
use replicaset_controller::manager::ManagerOptions;
use replicaset_controller::stdx::stop::Stop;
use serde_json::{Value, json};
use tempfile::TempDir;

use replicaset_controller::api::policy;

use crate::support::{Api, Daemon, Kind, Waiting, name, new_replica_set, number_at, text_at};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const IMAGE: &str = "/spec/template/spec/containers/0/image";
/// The image of [`new_replica_set`].
const OLD: &str = "example.invalid/none:0";
const NEW: &str = "example.invalid/new:1";
const CORRECTED: &str = "example.invalid/new:2";

/// The program of the control plane that is built or linked; `None` without one.
fn program(name: &str) -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/control-plane");
    let built = env::var_os("CONTROL_PLANE_BIN").map_or(built, PathBuf::from);
    Some(built.join(name)).filter(|file| file.is_file())
}

/// A component of a control plane that runs until drop.
struct Component {
    child: Child,
    log: PathBuf,
}

impl Component {
    fn start(program: &Path, folder: &TempDir, url: &str, flags: &[&str]) -> Self {
        let name = program.file_name().unwrap_or_default();
        let folder = folder.path().join(name);
        fs::create_dir(&folder).expect("a writable folder");
        let kubeconfig = folder.join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "dev",
            "clusters": [{"name": "dev", "cluster": {"server": url}}],
            "contexts": [{"name": "dev", "context": {"cluster": "dev", "user": ""}}],
        });
        fs::write(&kubeconfig, config.to_string()).expect("a writable folder");
        let log = folder.join("log");
        let stderr = fs::File::create(&log).expect("a writable folder");
        let child = Command::new(program)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(["--leader-elect=false", "--secure-port=0"])
            .args(flags)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn();
        Self {
            child: child.expect("the component runs"),
            log,
        }
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        // The process may have exited already.
        self.child.kill().unwrap_or_default();
        self.child.wait().expect("the process can be reaped");
        if std::thread::panicking() {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            log::error!("{} logged:\n{text}", self.log.display());
        }
    }
}

/// The dev server with simulated nodes, the daemon, and the controller of Deployments.
struct Stage {
    // ORDER: the components end before their server.
    _components: Vec<Component>,
    _daemon: Daemon,
    _folder: TempDir,
    server: DevServer,
    api: Api,
    waiting: Waiting,
}

impl Stage {
    /// `None` without a kube-controller-manager.
    fn set() -> Option<Self> {
        let Some(program) = program("kube-controller-manager") else {
            let line = "no kube-controller-manager: no Deployment is rolled out\n";
            // Not through the log, which the harness captures while the test passes.
            std::io::stderr()
                .write_all(line.as_bytes())
                .unwrap_or_default();
            return None;
        };
        let scheduler = self::program("kube-scheduler");
        let stop = Stop::new();
        let options = DevServerOptions {
            garbage_collection: true,
            kubelet: Some(KubeletOptions {
                ready_after: Duration::from_millis(20),
                schedules: scheduler.is_none(),
                ..KubeletOptions::default()
            }),
            ..DevServerOptions::default()
        };
        let server = DevServer::start(&options, &stop).expect("a free port");
        let config = ClientConfig::plain(&server.url());
        let options = ManagerOptions {
            kube_api_qps: 0.0,
            ..ManagerOptions::default()
        };
        let daemon = Daemon::start(&config, &options);
        let folder = TempDir::new().expect("a temporary folder");
        let controllers = "--controllers=deployment-controller,garbage-collector-controller";
        let flags = [controllers, "--use-service-account-credentials=false"];
        let manager = Component::start(&program, &folder, &server.url(), &flags);
        let scheduler =
            scheduler.map(|program| Component::start(&program, &folder, &server.url(), &[]));
        Some(Self {
            _components: [manager].into_iter().chain(scheduler).collect(),
            _daemon: daemon,
            _folder: folder,
            api: Api::new(&config, "default", Kind::ReplicaSets, &stop),
            waiting: Waiting::new(&stop),
            server,
        })
    }

    /// Creates the Deployment `web` with these annotations and this strategy.
    fn deploy(&self, annotations: &Value, strategy: &Value) {
        let mut deployment = new_replica_set("web", 3);
        deployment["kind"] = json!("Deployment");
        deployment["metadata"]["annotations"] = annotations.clone();
        deployment["spec"]["strategy"] = strategy.clone();
        deployment["spec"]["progressDeadlineSeconds"] = json!(3);
        let created = Request::post(DEPLOYMENTS).body("application/json", deployment.to_string());
        self.api.send(&created).expect("the Deployment is stored");
        self.eventually_sets("the first rollout", &[(OLD, 3)]);
    }

    /// Changes the Deployment by a merge patch.
    fn change(&self, patch: &Value) {
        self.api.merge_patch(Kind::Deployments, "web", patch);
    }

    /// Starts a rollout of another image.
    fn roll_out(&self) {
        let change = json!({"spec": {"template": {"spec": {"containers": [
            {"name": "c", "image": NEW}]}}}});
        self.change(&change);
    }

    /// The ReplicaSet of this image.
    fn set_of(&self, image: &str) -> Option<Value> {
        let sets = self.server.objects("replicasets", "default");
        sets.into_iter().find(|set| text_at(set, IMAGE) == image)
    }

    /// The opt-in annotations of the ReplicaSet of this image, without the prefix.
    fn opt_ins_of(&self, image: &str) -> Value {
        let set = self.set_of(image).unwrap_or_default();
        let annotations = set["metadata"]["annotations"].as_object().cloned();
        let opt_ins = annotations
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| {
                let name = name.strip_prefix("replicaset-controller/")?.to_owned();
                Some((name, value))
            });
        Value::Object(opt_ins.collect())
    }

    /// Marks one pod `never`, or removes its mark.
    fn mark(&self, pod: &str, mark: Option<&str>) {
        let patch = json!({"metadata": {"annotations": {
            "replicaset-controller/scale-down": mark}}});
        self.api.merge_patch(Kind::Pods, pod, &patch);
    }

    /// A member of the status of the Deployment.
    fn status(&self, pointer: &str) -> i64 {
        let deployment = self.server.object("deployments", "default", "web");
        deployment.map_or(-1, |it| number_at(&it, &format!("/status{pointer}")))
    }

    /// The status and reason of the Deployment's condition `Progressing`.
    fn progressing(&self) -> String {
        self.condition("Progressing")
    }

    /// The status and reason of a condition of the Deployment.
    fn condition(&self, type_: &str) -> String {
        let deployment = self.server.object("deployments", "default", "web");
        let deployment = deployment.unwrap_or_default();
        let conditions = deployment["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.into_iter().flatten();
        let condition = conditions.find(|it| it["type"] == type_);
        condition.map_or(String::new(), |it| {
            format!("{} {}", text_at(&it, "/status"), text_at(&it, "/reason"))
        })
    }

    #[track_caller]
    fn eventually_sets(&self, what: &str, expected: &[(&str, i64)]) {
        let expected = expected.iter();
        let expected = expected.map(|(image, ready)| ((*image).to_owned(), *ready));
        let mut expected: Vec<(String, i64)> = expected.collect();
        expected.sort();
        self.waiting
            .eventually_eq(what, &expected, || sets(&self.server));
    }
}

/// The ReplicaSets by image, with their ready pods.
fn sets(server: &DevServer) -> Vec<(String, i64)> {
    let sets = server.objects("replicasets", "default");
    let ready = |set: &Value| number_at(set, "/status/readyReplicas");
    let mut sets: Vec<(String, i64)> = sets
        .iter()
        .map(|set| (text_at(set, IMAGE), ready(set)))
        .collect();
    sets.sort();
    sets
}

/// All opt-in annotations, each with a value that is understood.
fn all_opt_ins() -> Value {
    let value = |name: &str| match name {
        "failed-pod-backoff" => "10s..5m",
        "failed-pods-kept" => "3",
        "scale-down-order" => "spread",
        "scale-down-protection" => "on",
        _ => "30m",
    };
    let pairs = policy::NAMES.iter();
    let pairs = pairs.map(|name| ((*name).to_owned(), json!(value(name))));
    Value::Object(pairs.collect())
}

fn prefixed(opt_ins: &Value) -> Value {
    let opt_ins = opt_ins.as_object().expect("an object").iter();
    let opt_ins = opt_ins.map(|(name, value)| {
        let name = format!("replicaset-controller/{name}");
        (name, value.clone())
    });
    Value::Object(opt_ins.collect())
}

fn annotate(opt_ins: &Value) -> Value {
    json!({"metadata": {"annotations": prefixed(opt_ins)}})
}

#[test]
fn a_deployment_rolls_out_beside_the_deployment_controller() {
    let Some(stage) = Stage::set() else { return };
    stage.deploy(&json!({}), &json!({}));
    stage.roll_out();
    stage.eventually_sets("the second rollout", &[(NEW, 3), (OLD, 0)]);
    stage.waiting.eventually("the status is complete", || {
        stage.status("/updatedReplicas") == 3 && stage.status("/availableReplicas") == 3
    });
    stage.api.delete(Kind::Deployments, "web");
    stage.waiting.eventually("its ReplicaSets and pods go", || {
        sets(&stage.server).is_empty() && stage.server.objects("pods", "default").is_empty()
    });
}

#[test]
fn annotations_reach_the_replica_set_without_a_roll_out() {
    let Some(stage) = Stage::set() else { return };
    let mut old = all_opt_ins();
    stage.deploy(&prefixed(&old), &json!({}));
    assert_eq!(stage.opt_ins_of(OLD), old);
    old["failed-pods-kept"] = json!("7");
    stage.change(&annotate(&json!({"failed-pods-kept": "7"})));
    stage
        .waiting
        .eventually_eq("a changed annotation", &old, || stage.opt_ins_of(OLD));
    assert_eq!(sets(&stage.server).len(), 1, "no rollout");

    stage.roll_out();
    stage.eventually_sets("the second rollout", &[(NEW, 3), (OLD, 0)]);
    assert_eq!(stage.opt_ins_of(NEW), old);
    let mut new = old.clone();
    new["scale-down-protection"] = json!("off");
    stage.change(&annotate(&json!({"scale-down-protection": "off"})));
    stage
        .waiting
        .eventually_eq("off", &new, || stage.opt_ins_of(NEW));
    // A removed annotation stays, so `off` is the only way to switch off.
    stage.change(&annotate(
        &json!({"failed-pods-kept": null, "protected-timeout": "1m"}),
    ));
    new["protected-timeout"] = json!("1m");
    stage
        .waiting
        .eventually_eq("the other change", &new, || stage.opt_ins_of(NEW));
    assert_eq!(
        stage.opt_ins_of(OLD),
        old,
        "an old ReplicaSet keeps what it had"
    );
}

#[test]
fn an_old_replica_set_keeps_its_protected_pods() {
    let Some(stage) = Stage::set() else { return };
    let on = annotate(&json!({"scale-down-protection": "on"}));
    stage.deploy(&on["metadata"]["annotations"], &json!({}));
    let protected = name(&stage.server.objects("pods", "default")[0]);
    stage.mark(&protected, Some("never"));
    stage.roll_out();
    stage.eventually_sets("all but the protected pod", &[(NEW, 3), (OLD, 1)]);
    stage
        .waiting
        .eventually_eq("the Deployment counts it", &(4, 3), || {
            (stage.status("/replicas"), stage.status("/updatedReplicas"))
        });
    let blocked = (0, "ScaleDownBlocked".to_owned());
    stage.waiting.eventually_eq("the block", &blocked, || {
        let old = stage.set_of(OLD).expect("the old ReplicaSet");
        let condition = text_at(&old, "/status/conditions/0/type");
        (number_at(&old, "/spec/replicas"), condition.clone())
    });
    let late = "False ProgressDeadlineExceeded".to_owned();
    stage
        .waiting
        .eventually_eq("the rollout is late", &late, || stage.progressing());
    let pods = stage.server.objects("pods", "default");
    assert!(pods.iter().any(|pod| name(pod) == protected));

    stage.mark(&protected, None);
    stage.eventually_sets("the last pod is deleted", &[(NEW, 3), (OLD, 0)]);
    let done = "True NewReplicaSetAvailable".to_owned();
    stage
        .waiting
        .eventually_eq("the rollout completes", &done, || stage.progressing());
}

#[test]
fn a_corrected_template_does_not_wait_for_one_whose_pods_fail() {
    let Some(stage) = Stage::set() else { return };
    let opt_in = annotate(&json!({"failed-pod-backoff": "1m..5m"}));
    stage.deploy(&opt_in["metadata"]["annotations"], &json!({}));
    let of = |image: &str, fate: &str| {
        json!({"spec": {"template": {
            "metadata": {"annotations": {FATE: fate}},
            "spec": {"containers": [{"name": "c", "image": image}]},
        }}})
    };
    stage.change(&of(NEW, "rejected"));
    let failure = "True FailedPodBackoff".to_owned();
    stage
        .waiting
        .eventually_eq("the Deployment shows why", &failure, || {
            stage.condition("ReplicaFailure")
        });
    let late = "False ProgressDeadlineExceeded".to_owned();
    stage
        .waiting
        .eventually_eq("the rollout is late", &late, || stage.progressing());
    stage.eventually_sets("the old pods run on", &[(NEW, 0), (OLD, 3)]);
    stage.change(&of(CORRECTED, ""));
    stage.eventually_sets("the rollout", &[(NEW, 0), (CORRECTED, 3), (OLD, 0)]);
    let done = "True NewReplicaSetAvailable".to_owned();
    stage
        .waiting
        .eventually_eq("the rollout completes", &done, || stage.progressing());
}

/// Each old pod that ends frees quota for a new one, and wakes the queue of the quota.
#[test]
fn a_rollout_continues_behind_a_full_quota() {
    let Some(stage) = Stage::set() else { return };
    let strategy = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}});
    stage.deploy(&json!({}), &strategy);
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "3"}}});
    stage.api.create(Kind::Quotas, &quota);
    stage.roll_out();
    stage.eventually_sets("the rollout", &[(NEW, 3), (OLD, 0)]);
    let done = "True NewReplicaSetAvailable".to_owned();
    stage
        .waiting
        .eventually_eq("the rollout completes", &done, || stage.progressing());
    let events = stage.server.objects("events", "default");
    let rejected = |event: &Value| text_at(event, "/reason") == "FailedCreate";
    assert!(events.iter().any(rejected), "the quota was full");
}

/// The strategy Recreate waits for the last pod of the old ReplicaSet.
#[test]
fn a_protected_pod_blocks_a_recreate_rollout() {
    let Some(stage) = Stage::set() else { return };
    let on = annotate(&json!({"scale-down-protection": "on"}));
    let recreate = json!({"type": "Recreate"});
    stage.deploy(&on["metadata"]["annotations"], &recreate);
    let protected = name(&stage.server.objects("pods", "default")[0]);
    stage.mark(&protected, Some("never"));
    stage.roll_out();
    stage.eventually_sets("only the protected pod is left", &[(OLD, 1)]);
    stage
        .waiting
        .holds("no new ReplicaSet", || stage.set_of(NEW).is_none());
    stage.mark(&protected, None);
    stage.eventually_sets("the new pods come", &[(NEW, 3), (OLD, 0)]);
}
