//! A real kubectl against the dev server with simulated kubelets, a garbage collector and the
//! controller. Its commands must work as they do on a cluster.
//!
//! Each test runs with the kubectl of the control plane and with the one in `PATH`. Without any,
//! the tests print a line and pass, but they fail if `CONTROL_PLANE_URL` is set.

mod rollouts;
mod stored;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use replicaset_controller::client::ClientConfig;
use replicaset_controller::deployment::CONTROLLER;
use replicaset_controller::devserver::{
    ApiRequest, DevServer, DevServerOptions, KubeletOptions, Matcher,
};
use replicaset_controller::manager::ManagerOptions;
use replicaset_controller::stdx::stop::{Cause, Stop};
use replicaset_controller::stdx::thread;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    Daemon, PATIENCE, TestCluster, Waiting, controller_uid, name, new_replica_set, number_at,
    text_at, uid,
};

/// A dev server with a controller, and the kubectl under test.
struct Rig {
    kubectl: PathBuf,
    /// kubectl's home directory, for its caches and for manifests.
    home: TempDir,
    waiting: Waiting,
    // ORDER: drops the controller before the server.
    _daemon: Daemon,
    server: DevServer,
}

/// Runs `test` with each kubectl.
fn with_each_kubectl(test: impl Fn(&Rig)) {
    let all = kubectls();
    if all.is_empty() {
        assert!(!TestCluster::is_real(), "there is no kubectl to test with");
        let line = "no kubectl in CONTROL_PLANE_BIN or PATH: nothing is tested with it\n";
        // Not through the log, which the harness captures while the test passes.
        std::io::stderr()
            .write_all(line.as_bytes())
            .unwrap_or_default();
        return;
    }
    for kubectl in all {
        log::info!("with {}", kubectl.display());
        test(&Rig::start(kubectl, false));
    }
}

/// The kubectl of the control plane, in `CONTROL_PLANE_BIN` or in `target/control-plane`, and the
/// one in `PATH`.
pub(crate) fn kubectls() -> BTreeSet<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/control-plane");
    let built = env::var_os("CONTROL_PLANE_BIN").map_or(built, PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    // `run.sh` prepends its own directory to `PATH`.
    let mut folders = env::split_paths(&path).filter(|folder| *folder != built);
    let own = [built.join("kubectl")].into_iter();
    let installed = folders.find_map(|folder| {
        let file = folder.join("kubectl");
        file.is_file().then_some(file)
    });
    let all = own.chain(installed).filter(|file| file.is_file());
    all.filter_map(|file| fs::canonicalize(file).ok()).collect()
}

impl Rig {
    /// Starts all parts; `deployments`: with the Deployment controller, too.
    fn start(kubectl: PathBuf, deployments: bool) -> Self {
        let stop = Stop::new();
        let options = DevServerOptions {
            garbage_collection: true,
            kubelet: Some(KubeletOptions {
                ready_after: Duration::from_millis(50),
                terminate_after: Duration::from_millis(50),
                ..KubeletOptions::default()
            }),
            controllers: deployments
                .then(|| CONTROLLER.to_owned())
                .into_iter()
                .collect(),
            ..DevServerOptions::default()
        };
        let server = DevServer::start(&options, &stop).expect("a free port");
        let options = ManagerOptions {
            kube_api_qps: 0.0,
            deployments,
            ..ManagerOptions::default()
        };
        Self {
            kubectl,
            home: TempDir::new().expect("a temporary folder"),
            waiting: Waiting::new(&stop),
            _daemon: Daemon::start(&ClientConfig::plain(&server.url()), &options),
            server,
        }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.kubectl);
        command
            .arg(format!("--server={}", self.server.url()))
            .args(line.split_whitespace())
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env("KUBECACHEDIR", self.home.path().join("cache"))
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null());
        command
    }

    /// Runs a command line whose words contain no blanks. Returns kubectl's output, and fails the
    /// test on an error or a warning.
    #[track_caller]
    fn run(&self, line: &str) -> String {
        let output = self.output(line);
        let (out, err) = texts(&output);
        assert!(output.status.success(), "kubectl {line}\n{out}{err}");
        // klog prints warnings and errors with these letters.
        let complaint = err.lines().find(|line| line.starts_with(['W', 'E']));
        assert_eq!(complaint, None, "kubectl {line}\n{out}");
        out
    }

    /// Runs a command line that must fail. Returns kubectl's standard error.
    #[track_caller]
    fn fail(&self, line: &str) -> String {
        let output = self.output(line);
        let (out, err) = texts(&output);
        assert!(!output.status.success(), "kubectl {line}\n{out}");
        err
    }

    fn output(&self, line: &str) -> Output {
        let mut command = self.command(line);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("kubectl runs");
        let _deadline = Deadline::of(&child);
        child.wait_with_output().expect("kubectl exits")
    }

    /// Waits until a kubectl watches `resource`, so that it misses no later event.
    #[track_caller]
    fn wait_for_watch(&self, resource: &str) {
        let watches = Matcher::verb("watch", resource);
        let by_kubectl = |request: &ApiRequest| request.header("user-agent").contains("kubectl");
        let matcher = watches.and(by_kubectl);
        self.waiting.eventually("kubectl watches", || {
            self.server.faults().n_watches(&matcher) > 0
        });
    }

    #[track_caller]
    fn json(&self, line: &str) -> Value {
        let out = self.run(&format!("{line} -o json"));
        serde_json::from_str(&out).expect("kubectl prints JSON")
    }

    /// Writes a manifest for `-f`.
    fn manifest(&self, file: &str, object: &Value) {
        let path = self.home.path().join(file);
        fs::write(path, object.to_string()).expect("a writable folder");
    }

    /// Creates a ReplicaSet, and waits until its pods are ready.
    #[track_caller]
    fn create_set(&self, name: &str, replicas: i64) {
        let mut set = new_replica_set(name, replicas);
        set["metadata"]["labels"] = json!({"app": "conf"});
        self.manifest("set.json", &set);
        let out = self.run("create -f set.json");
        assert_eq!(out, format!("replicaset.apps/{name} created\n"));
        self.wait_ready(name, replicas);
    }

    #[track_caller]
    fn wait_ready(&self, name: &str, replicas: i64) {
        let condition = format!("--for=jsonpath={{.status.readyReplicas}}={replicas}");
        let out = self.run(&format!("wait {condition} --timeout=5m rs/{name}"));
        assert_eq!(out, format!("replicaset.apps/{name} condition met\n"));
    }

    fn pods(&self) -> Vec<Value> {
        self.server.objects("pods", "default")
    }

    #[track_caller]
    fn eventually_n_pods(&self, expected: usize) {
        let n_pods = || self.pods().len();
        self.waiting
            .eventually_eq("the number of pods", &expected, n_pods);
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The cells of a printed table, row by row. Two blanks separate cells.
fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(cells).collect()
}

fn cells(line: &str) -> Vec<&str> {
    let cells = line.split("  ").map(str::trim);
    cells.filter(|cell| !cell.is_empty()).collect()
}

/// Kills a process after [`PATIENCE`], so that no test hangs.
struct Deadline {
    is_over: Stop,
}

impl Deadline {
    fn of(child: &Child) -> Self {
        let is_over = Stop::new();
        let over = is_over.clone();
        let id = i32::try_from(child.id()).expect("process ids are small");
        let kill = move || {
            if !over.wait_timeout(PATIENCE) {
                // The process may have exited already.
                nix::sys::signal::kill(Pid::from_raw(id), Signal::SIGKILL).unwrap_or_default();
            }
        };
        thread::try_spawn("kubectl-limit", &is_over, kill).expect("a thread");
        Self { is_over }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.is_over
            .stop(Cause::Requested("the process has ended".to_owned()));
    }
}

/// A kubectl that runs until drop.
struct Running {
    // Dropped along with the process, so that it cannot signal a reused process id later.
    _deadline: Deadline,
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(rig: &Rig, line: &str) -> Self {
        let child = rig.command(line).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("kubectl runs");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        let deadline = Deadline::of(&child);
        Self {
            _deadline: deadline,
            child,
            out,
        }
    }

    /// Waits for the next line of output. The test fails when kubectl exits.
    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        let n_read = self.out.read_line(&mut line).expect("text");
        assert!(n_read > 0, "kubectl has exited");
        line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have exited already.
        self.child.kill().unwrap_or_default();
        self.child.wait().expect("the process can be reaped");
    }
}

#[test]
fn get_describe_and_events_show_the_objects() {
    with_each_kubectl(|rig| {
        rig.create_set("web", 2);
        let table = rig.run("get rs");
        let table = rows(&table);
        assert_eq!(table[0], ["NAME", "DESIRED", "CURRENT", "READY", "AGE"]);
        assert_eq!(table[1][..4], ["web", "2", "2", "2"]);
        let table = rig.run("get rs -o wide");
        let expected = [
            "NAME",
            "DESIRED",
            "CURRENT",
            "READY",
            "AGE",
            "CONTAINERS",
            "IMAGES",
            "SELECTOR",
        ];
        assert_eq!(rows(&table)[0], expected);
        assert_eq!(
            rows(&table)[1][5..],
            ["c", "example.invalid/none:0", "app=conf"]
        );
        let table = rig.run("get pods");
        assert_eq!(
            rows(&table)[0],
            ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        );
        assert_eq!(rows(&table)[1][1..4], ["1/1", "Running", "0"]);
        assert_eq!(rows(&table).len(), 3);
        let table = rig.run("get pods -A -o wide -l app=conf");
        let expected = [
            "NAMESPACE",
            "NAME",
            "READY",
            "STATUS",
            "RESTARTS",
            "AGE",
            "IP",
            "NODE",
            "NOMINATED NODE",
            "READINESS GATES",
        ];
        assert_eq!(rows(&table)[0], expected);
        assert_eq!(rows(&table)[1][0], "default");
        assert!(rig.run("get pods -l app=other").is_empty());
        let yaml = rig.run("get rs web -o yaml");
        assert!(
            yaml.starts_with("apiVersion: apps/v1\nkind: ReplicaSet\n"),
            "{yaml}"
        );
        let names = rig.run("get pods -o name --field-selector=status.phase=Running");
        assert_eq!(names.lines().count(), 2);
        assert!(names.starts_with("pod/web-"), "{names}");
        let missing = rig.fail("get rs nobody");
        assert_eq!(
            missing,
            "Error from server (NotFound): replicasets.apps \"nobody\" not found\n"
        );
        check_describe(rig, names.lines().next().unwrap_or_default());
    });
}

fn check_describe(rig: &Rig, pod: &str) {
    let set = rig.run("describe rs web");
    let has = |text: &str, name: &str, value: &str| {
        let found = text.lines().any(|line| {
            let line = line.split_once(':');
            line.is_some_and(|(a, b)| a.trim() == name && b.trim().starts_with(value))
        });
        assert!(found, "{name}: {value} is not in\n{text}");
    };
    has(&set, "Name", "web");
    has(&set, "Selector", "app=conf");
    has(&set, "Replicas", "2 current / 2 desired");
    has(
        &set,
        "Pods Status",
        "2 Running / 0 Waiting / 0 Succeeded / 0 Failed",
    );
    assert!(set.contains("SuccessfulCreate"), "{set}");
    let pod = rig.run(&format!("describe {pod}"));
    has(&pod, "Controlled By", "ReplicaSet/web");
    has(&pod, "Status", "Running");
    has(&pod, "Ready", "True");
    has(&rig.run("describe namespace default"), "Status", "Active");
    let events = rig.run("get events");
    let header = ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"];
    assert_eq!(rows(&events)[0], header);
    let created = rows(&events).into_iter().filter(|row| {
        row.get(2..4) == Some(&["SuccessfulCreate", "replicaset/web"])
            && row[4].starts_with("Created pod: web-")
    });
    assert_eq!(created.count(), 2, "{events}");
    let about = rig.run("get events --field-selector=involvedObject.name=web -o name");
    assert_eq!(about.lines().count(), 2);
}

#[test]
fn api_resources_and_version_list_what_is_served() {
    with_each_kubectl(|rig| {
        let table = rig.run("api-resources");
        for expected in [
            vec!["pods", "po", "v1", "true", "Pod"],
            vec!["replicasets", "rs", "apps/v1", "true", "ReplicaSet"],
            vec![
                "replicationcontrollers",
                "rc",
                "v1",
                "true",
                "ReplicationController",
            ],
            vec!["namespaces", "ns", "v1", "false", "Namespace"],
            vec!["leases", "coordination.k8s.io/v1", "true", "Lease"],
        ] {
            assert!(
                rows(&table).contains(&expected),
                "{expected:?} is not in\n{table}"
            );
        }
        assert!(rig.run("api-versions").contains("apps/v1\n"));
        // An older kubectl warns about the version skew.
        let (version, _) = texts(&rig.output("version"));
        assert!(version.contains("Server Version: v1.37"), "{version}");
        for (fields, type_of) in [
            ("rs", "ReplicaSet"),
            ("pod.spec.containers.image", "<string>"),
            ("deploy.spec.strategy", "<DeploymentStrategy>"),
        ] {
            let explained = rig.run(&format!("explain {fields} --recursive=false"));
            assert!(explained.contains(type_of), "{explained}");
        }
    });
}

#[test]
fn get_w_follows_scaling() {
    with_each_kubectl(|rig| {
        rig.create_set("web", 1);
        let mut watch = Running::start(rig, "get rs web -w");
        assert!(watch.line().starts_with("NAME"));
        assert_eq!(cells(&watch.line())[..4], ["web", "1", "1", "1"]);
        let out = rig.run("scale rs web --replicas=3");
        assert_eq!(out, "replicaset.apps/web scaled\n");
        loop {
            let line = watch.line();
            let cells = cells(&line);
            assert_eq!(cells[..2], ["web", "3"], "{line}");
            if cells[3] == "3" {
                break;
            }
        }
        // kubectl prints a name per event while the pods are deleted.
        let mut watch = Running::start(rig, "get pods --watch-only -o name");
        rig.wait_for_watch("pods");
        rig.run("scale rs web --replicas=0 --current-replicas=3");
        assert!(watch.line().starts_with("pod/web-"));
        rig.run("wait --for=delete pods -l app=conf --timeout=5m");
        assert!(rig.pods().is_empty());
        let error = rig.fail("scale rs web --replicas=1 --current-replicas=3");
        assert!(
            error.contains("Expected replicas to be 3, was 0"),
            "{error}"
        );
    });
}

#[test]
fn apply_creates_updates_and_skips_unchanged_objects() {
    with_each_kubectl(|rig| {
        for (file, how) in [("client.json", ""), ("server.json", "--server-side")] {
            let set = file.trim_end_matches(".json");
            let mut manifest = crate::support::new_replica_set_labelled(set, 1, set);
            manifest["metadata"]["annotations"] = json!({"note": "first", "other": "x"});
            rig.manifest(file, &manifest);
            let diff = rig.output(&format!("diff {how} -f {file}"));
            assert_eq!(diff.status.code(), Some(1), "{:?}", texts(&diff));
            let apply = format!("apply {how} -f {file}");
            let dry = rig.run(&format!("{apply} --dry-run=server"));
            assert!(dry.contains("(server dry run)"), "{dry}");
            rig.fail(&format!("get rs {set}"));
            let done = if how.is_empty() {
                "created"
            } else {
                "serverside-applied"
            };
            assert_eq!(rig.run(&apply), format!("replicaset.apps/{set} {done}\n"));
            rig.wait_ready(set, 1);
            let before = rig.json(&format!("get rs {set}"));
            rig.run(&apply);
            let after = rig.json(&format!("get rs {set}"));
            let version = |object| text_at(object, "/metadata/resourceVersion");
            assert_eq!(version(&before), version(&after), "nothing changes");
            manifest["metadata"]["annotations"] = json!({"note": "second"});
            manifest["spec"]["replicas"] = json!(2);
            rig.manifest(file, &manifest);
            let out = rig.run(&apply);
            let done = if how.is_empty() {
                "configured"
            } else {
                "serverside-applied"
            };
            assert_eq!(out, format!("replicaset.apps/{set} {done}\n"));
            rig.wait_ready(set, 2);
            let annotations = rig.json(&format!("get rs {set}"))["metadata"]["annotations"].take();
            assert_eq!(annotations["note"], "second");
            assert_eq!(
                annotations.get("other"),
                None,
                "apply removes a dropped annotation"
            );
            assert_eq!(
                rig.output(&format!("diff {how} -f {file}")).status.code(),
                Some(0)
            );
        }
        check_conflicts(rig);
    });
}

/// Two field managers apply the same field.
fn check_conflicts(rig: &Rig) {
    let part = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "server"},
        "spec": {"replicas": 4},
    });
    rig.manifest("part.json", &part);
    let apply = "apply --server-side --field-manager=other -f part.json";
    let error = rig.fail(apply);
    assert!(error.contains(".spec.replicas"), "{error}");
    rig.run(&format!("{apply} --force-conflicts"));
    rig.wait_ready("server", 4);
}

#[test]
fn label_annotate_patch_and_edit_change_objects() {
    with_each_kubectl(|rig| {
        rig.create_set("web", 2);
        let pod = name(&rig.pods()[0]);
        assert_eq!(
            rig.run(&format!("label pod {pod} tier=x")),
            format!("pod/{pod} labeled\n")
        );
        assert!(
            rig.fail(&format!("label pod {pod} tier=y"))
                .contains("--overwrite is false")
        );
        rig.run(&format!("label pod {pod} tier=y --overwrite"));
        let table = rig.run("get pods -l tier=y -L tier");
        assert_eq!(rows(&table)[1].last(), Some(&"y"));
        rig.run(&format!("annotate pod {pod} example.com/a=b"));
        rig.run("annotate pods --all controller.kubernetes.io/pod-deletion-cost=5");
        let pods = rig.pods();
        let costs = pods.iter().map(|pod| &pod["metadata"]["annotations"]);
        assert!(costs.into_iter().all(|annotations| {
            annotations["controller.kubernetes.io/pod-deletion-cost"] == "5"
        }));
        rig.run(&format!("annotate pod {pod} example.com/a-"));
        for (kind, patch) in [
            ("strategic", r#"{"spec":{"minReadySeconds":1}}"#),
            ("merge", r#"{"metadata":{"annotations":{"by":"merge"}}}"#),
            (
                "json",
                r#"[{"op":"replace","path":"/spec/minReadySeconds","value":0}]"#,
            ),
        ] {
            rig.run(&format!("patch rs web --type={kind} -p {patch}"));
        }
        rig.run(r#"patch rs web --subresource=scale --type=merge -p {"spec":{"replicas":3}}"#);
        rig.wait_ready("web", 3);
        // The ReplicaSet replaces a pod that no longer matches, and keeps it.
        rig.run(&format!("label pod {pod} app=mine --overwrite"));
        rig.eventually_n_pods(4);
        let released = rig.json(&format!("get pod {pod}"));
        assert_eq!(controller_uid(&released), None);
        rig.run("set image rs/web c=example.invalid/none:1");
        let images =
            rig.run("get rs -o jsonpath={.items[*].spec.template.spec.containers[*].image}");
        assert_eq!(images, "example.invalid/none:1");
    });
}

#[test]
fn delete_honours_the_cascade_option() {
    with_each_kubectl(|rig| {
        rig.create_set("web", 2);
        let first = rig.pods();
        rig.run("delete rs web --cascade=orphan");
        rig.waiting.holds("the pods stay", || rig.pods().len() == 2);
        let orphans = rig.pods();
        assert!(orphans.iter().all(|pod| controller_uid(pod).is_none()));
        rig.create_set("heir", 2);
        let uids = |pods: &[Value]| pods.iter().map(uid).collect::<BTreeSet<_>>();
        assert_eq!(uids(&first), uids(&rig.pods()), "adopted, not replaced");
        rig.run("delete rs heir --cascade=foreground");
        // kubectl returns when the ReplicaSet is gone, which is after its pods.
        assert!(rig.pods().is_empty());
        rig.create_set("web", 2);
        let out = rig.run("delete -f set.json");
        assert!(out.starts_with("replicaset.apps \"web\" deleted"), "{out}");
        rig.eventually_n_pods(0);
        rig.create_set("web", 2);
        let pod = name(&rig.pods()[0]);
        let output = rig.output(&format!("delete pod {pod} --force --grace-period=0"));
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{out}{err}");
        assert!(out.contains("force deleted"), "{out}");
        rig.wait_ready("web", 2);
        rig.waiting.eventually("the pod is replaced", || {
            let pods = rig.pods();
            pods.len() == 2 && pods.iter().all(|other| name(other) != pod)
        });
        rig.run("delete rs --all --now");
        rig.eventually_n_pods(0);
        rig.fail("delete rs web");
        rig.run("delete rs web --ignore-not-found");
    });
}

#[test]
fn a_namespace_is_deleted_with_its_objects() {
    with_each_kubectl(|rig| {
        rig.run("create namespace place");
        assert!(
            rig.fail("create namespace place")
                .contains("(AlreadyExists)")
        );
        rig.manifest("set.json", &new_replica_set("web", 2));
        rig.run("create -n place -f set.json");
        rig.run("wait -n place --for=jsonpath={.status.readyReplicas}=2 rs/web");
        rig.run("run one --image=example.invalid/none:0 -n place");
        rig.run("wait -n place --for=condition=Ready pod/one");
        rig.run("create quota few --hard=pods=3 -n place");
        rig.run("scale rs web --replicas=5 -n place");
        rig.run("wait -n place --for=jsonpath={.status.conditions[0].reason}=FailedCreate rs/web");
        assert_eq!(
            rig.run("get quota few -n place -o jsonpath={.status.used.pods}"),
            "3"
        );
        let table = rig.run("get all -n place");
        assert!(
            table.contains("pod/one") && table.contains("replicaset.apps/web"),
            "{table}"
        );
        rig.run("delete namespace place");
        assert_eq!(rig.server.object("namespaces", "", "place"), None);
        assert!(rig.server.objects("pods", "place").is_empty());
        assert!(rig.run("get pods -n place").is_empty());
    });
}

#[test]
fn create_and_replace_validate_objects() {
    with_each_kubectl(|rig| {
        let dry = rig.run("run one --image=example.invalid/none:0 --dry-run=client -o json");
        let mut pod: Value = serde_json::from_str(&dry).expect("kubectl prints JSON");
        rig.manifest("pod.json", &pod);
        assert_eq!(rig.run("create -f pod.json"), "pod/one created\n");
        let error = rig.fail("create -f pod.json");
        assert!(error.contains("pods \"one\" already exists"), "{error}");
        rig.run("wait --for=condition=Ready pod/one --timeout=5m");
        pod["metadata"]["labels"] = json!({"replaced": "yes"});
        rig.manifest("pod.json", &pod);
        assert_eq!(rig.run("replace --force -f pod.json").lines().count(), 2);
        let found = rig.json("get pod one");
        assert_eq!(found["metadata"]["labels"]["replaced"], "yes");
        pod["metadata"]["name"] = json!("two");
        pod["spec"]["containers"][0]["image"] = json!("");
        rig.manifest("bad.json", &pod);
        let error = rig.fail("create -f bad.json");
        assert!(error.contains("spec.containers[0].image"), "{error}");
        let mut set = new_replica_set("web", 1);
        set["spec"]["selector"]["matchLabels"]["app"] = json!("other");
        rig.manifest("bad.json", &set);
        let error = rig.fail("create -f bad.json");
        assert!(
            error.contains("`selector` does not match template `labels`"),
            "{error}"
        );
        assert_eq!(number_at(&found, "/metadata/generation"), 1);
    });
}
