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
use replicaset_controller::devserver::{DevServer, DevServerOptions, KubeletOptions};
use replicaset_controller::manager::ManagerOptions;
use replicaset_controller::stdx::stop::Stop;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Api, Daemon, Kind, Waiting, new_replica_set, number_at, text_at};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const IMAGE: &str = "/spec/template/spec/containers/0/image";
const NAME: &str = "/spec/template/spec/containers/0/name";

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
            // The dev server reads few kinds as protobuf.
            .arg("--kube-api-content-type=application/json")
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

#[test]
fn a_deployment_rolls_out_beside_the_deployment_controller() {
    let Some(program) = program("kube-controller-manager") else {
        let line = "no kube-controller-manager: no Deployment is rolled out\n";
        // Not through the log, which the harness captures while the test passes.
        std::io::stderr()
            .write_all(line.as_bytes())
            .unwrap_or_default();
        return;
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
    let _daemon = Daemon::start(&config, &options);
    let folder = TempDir::new().expect("a temporary folder");
    let controllers = "--controllers=deployment-controller,garbage-collector-controller";
    let flags = [controllers, "--use-service-account-credentials=false"];
    let _manager = Component::start(&program, &folder, &server.url(), &flags);
    let _scheduler =
        scheduler.map(|program| Component::start(&program, &folder, &server.url(), &[]));
    let api = Api::new(&config, "default", Kind::ReplicaSets, &stop);
    let waiting = Waiting::new(&stop);

    let mut deployment = new_replica_set("web", 3);
    deployment["kind"] = json!("Deployment");
    let old = text_at(&deployment, IMAGE);
    let created = Request::post(DEPLOYMENTS).body("application/json", deployment.to_string());
    api.send(&created).expect("the Deployment is stored");
    let first = vec![(old.clone(), 3)];
    waiting.eventually_eq("the first roll-out", &first, || sets(&server));

    let change = json!({"spec": {"template": {"spec": {"containers": [
        {"name": text_at(&deployment, NAME), "image": "example.invalid/new:1"}]}}}});
    let path = format!("{DEPLOYMENTS}/web");
    let patch = Request::patch(path.clone());
    let patch = patch.body("application/strategic-merge-patch+json", change.to_string());
    api.send(&patch).expect("the image changes");
    let mut second = vec![("example.invalid/new:1".to_owned(), 3), (old, 0)];
    second.sort();
    waiting.eventually_eq("the second roll-out", &second, || sets(&server));
    let is_complete = || {
        let deployment = server.object("deployments", "default", "web");
        deployment.is_some_and(|deployment| {
            number_at(&deployment, "/status/updatedReplicas") == 3
                && number_at(&deployment, "/status/availableReplicas") == 3
        })
    };
    waiting.eventually("the status is complete", is_complete);

    api.send(&Request::delete(path))
        .expect("the Deployment goes");
    waiting.eventually("its ReplicaSets and pods go", || {
        sets(&server).is_empty() && server.objects("pods", "default").is_empty()
    });
}
