//! The manifests and kustomizations of `config/`: what they grant, what a kustomization changes,
//! and (on the real control plane) that the API server accepts them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::kubectl::kubectls;
use crate::rights::kubectl;
use crate::support::TestCluster;
use crate::tidy::root;

/// The folders with a kustomization, from `config/`.
const KUSTOMIZATIONS: [&str; 5] = ["", "static-pod", "sidecar", "monitoring", "shadow"];

/// Checks a manifest on the API server, and changes nothing.
const DRY_RUN: [&str; 4] = [
    "apply",
    "--server-side",
    "--dry-run=server",
    "--validate=strict",
];

/// The objects in a text of one or more YAML documents.
fn objects(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).expect("the manifest is YAML")
}

/// The objects in a file of `config/`.
pub(crate) fn manifests(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(root().join("config").join(file));
    objects(&text.expect("a manifest"))
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let first = found.next();
    first.unwrap_or_else(|| panic!("no {kind} in {objects:?}"))
}

/// The images of all containers of a pod's spec.
fn images(pod: &Value) -> Vec<&str> {
    let lists = [&pod["initContainers"], &pod["containers"]].into_iter();
    let containers = lists.filter_map(Value::as_array).flatten();
    let images = containers.filter_map(|container| container["image"].as_str());
    images.collect()
}

/// Renders the kustomization in `folder`.
fn render(kubectl: &Path, folder: &Path) -> Vec<Value> {
    let output = Command::new(kubectl).arg("kustomize").arg(folder).output();
    let output = output.expect("kubectl runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {errors}", folder.display());
    // Such as a field that kustomize will drop.
    assert_eq!(errors, "", "{}", folder.display());
    objects(&String::from_utf8(output.stdout).expect("YAML is UTF-8"))
}

/// Copies `config/` into `to`, as a folder of someone who installs it.
fn copy_config(to: &Path) {
    for folder in KUSTOMIZATIONS {
        let from = root().join("config").join(folder);
        fs::create_dir_all(to.join(folder)).expect("a writable folder");
        for entry in fs::read_dir(from).expect("a readable folder") {
            let path = entry.expect("an entry").path();
            if let (true, Some(name)) = (path.is_file(), path.file_name()) {
                fs::copy(&path, to.join(folder).join(name)).expect("a copy");
            }
        }
    }
}

#[test]
fn the_images_have_the_version_of_the_program() {
    let version = env!("CARGO_PKG_VERSION");
    let own = format!("replicaset-controller:{version}");
    let deployment = manifests("deployment.yaml");
    let pod = &of_kind(&deployment, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(images(pod), [&own]);
    assert_eq!(images(&manifests("static-pod/pod.yaml")[0]["spec"]), [&own]);
    let with_dev = format!("replicaset-controller-dev:{version}");
    let pod = &manifests("sidecar/pod.yaml")[0]["spec"];
    assert_eq!(images(pod), [&own, &with_dev]);
    let deployment = manifests("shadow/deployment.yaml");
    let pod = &of_kind(&deployment, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(images(pod), [&own]);
    for folder in KUSTOMIZATIONS {
        let file = Path::new(folder).join("kustomization.yaml");
        let kustomization = &manifests(&file.display().to_string())[0];
        for image in kustomization["images"].as_array().into_iter().flatten() {
            assert_eq!(image["newTag"], version, "{folder}: {image}");
        }
    }
}

#[test]
fn the_manifests_grant_no_unneeded_network_or_token_access() {
    let deployment = manifests("deployment.yaml");
    let pod = &of_kind(&deployment, "Deployment")["spec"]["template"];
    assert_eq!(pod["spec"]["enableServiceLinks"], false);
    let spec = &of_kind(&deployment, "NetworkPolicy")["spec"];
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

    for file in ["static-pod/pod.yaml", "sidecar/pod.yaml"] {
        let pod = &manifests(file)[0]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false, "{file}");
        assert_eq!(pod["enableServiceLinks"], false, "{file}");
    }
}

#[test]
fn the_service_leads_monitors_to_each_daemon() {
    let deployment = manifests("deployment.yaml");
    let pod = &of_kind(&deployment, "Deployment")["spec"]["template"];
    let service = &of_kind(&deployment, "Service")["spec"];
    assert_eq!(service["clusterIP"], "None");
    assert_eq!(service["publishNotReadyAddresses"], true);
    assert_eq!(service["selector"], pod["metadata"]["labels"]);
    let port = &service["ports"][0];
    assert_eq!(port["port"], 10257);
    let served = &pod["spec"]["containers"][0]["ports"][0];
    assert_eq!(port["targetPort"], served["name"]);
}

/// Whatever the image does, the account can change nothing.
#[test]
fn the_shadow_may_only_read() {
    let rights = manifests("shadow/rbac.yaml");
    let roles = rights
        .iter()
        .filter(|object| object["kind"] == "ClusterRole");
    let rules = roles.flat_map(|role| role["rules"].as_array().expect("rules"));
    let mut verbs = rules.flat_map(|rule| rule["verbs"].as_array().expect("verbs"));
    assert!(verbs.all(|verb| *verb == "get" || *verb == "list" || *verb == "watch"));
    let bindings = rights.iter().filter(|object| !object["roleRef"].is_null());
    for binding in bindings {
        let role = &binding["roleRef"]["name"];
        let is_own = rights.iter().any(|it| it["metadata"]["name"] == *role);
        assert!(is_own, "{role} grants something else");
    }
    let deployment = manifests("shadow/deployment.yaml");
    let spec = &of_kind(&deployment, "Deployment")["spec"]["template"]["spec"];
    let arguments = spec["containers"][0]["args"].as_array().expect("a list");
    assert!(arguments.contains(&json!("--dry-run")), "{arguments:?}");
}

/// What krew asks of a manifest (`docs/developer-guide/plugin-manifest.md` of krew).
#[test]
fn the_manifest_for_krew_has_what_krew_needs() {
    let text = fs::read_to_string(root().join("config/packages/krew.yaml")).expect("a manifest");
    let sum = "0a".repeat(32);
    let filled = text
        .replace("@HOMEPAGE@", "https://example.invalid")
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@SHA256-x86_64@", &sum)
        .replace("@SHA256-aarch64@", &sum);
    assert!(!filled.contains('@'), "{filled}");
    let plugin = &objects(&filled)[0];
    assert_eq!(
        plugin["apiVersion"],
        "krew.googlecontainertools.github.com/v1alpha2"
    );
    assert_eq!(
        (&plugin["kind"], &plugin["metadata"]["name"]),
        (&json!("Plugin"), &json!("rs-explain"))
    );
    let spec = &plugin["spec"];
    assert_eq!(spec["version"], format!("v{}", env!("CARGO_PKG_VERSION")));
    let summary = spec["shortDescription"].as_str().expect("a text");
    assert!(summary.len() <= 50 && !summary.ends_with('.'), "{summary}");
    assert!(spec["homepage"].is_string() && spec["description"].is_string());
    let platforms = spec["platforms"].as_array().expect("a list");
    let of = |platform: &Value| platform["selector"]["matchLabels"].clone();
    let both = ["amd64", "arm64"].map(|arch| json!({"os": "linux", "arch": arch}));
    assert_eq!(platforms.iter().map(of).collect::<Vec<_>>(), both);
    for platform in platforms {
        assert_eq!(platform["sha256"], sum);
        assert!(
            platform["uri"]
                .as_str()
                .is_some_and(|uri| uri.ends_with("-musl.tar.gz"))
        );
        let files = platform["files"].as_array().expect("a list");
        let is_installed = |file: &Value| file["to"] == platform["bin"];
        assert!(files.iter().any(is_installed), "{platform}");
    }
}

/// With these flags both processes listen on loopback only: `src/devserver/tests/clients.rs` tests
/// the default of `dev`, and `--insecure-port` has no other address.
#[test]
fn the_sidecar_is_unreachable_from_outside_its_pod() {
    let pod = &manifests("sidecar/pod.yaml")[0]["spec"];
    let arguments = |list: &str, name: &str| -> Vec<String> {
        let all = pod[list].as_array().expect("containers").iter();
        let mut named = all.filter(|container| container["name"] == name);
        let container = named.next().expect("a container of this name");
        serde_json::from_value(container["args"].clone()).expect("a list of strings")
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

/// A kustomization of one's own on top of `config/` changes image, namespace and number of daemons
/// everywhere, also where a role's subject or the Lease depends on the namespace.
#[test]
fn a_kustomization_changes_image_namespace_and_replicas() {
    for kubectl in kubectls() {
        let folder = tempfile::tempdir().expect("a folder");
        copy_config(&folder.path().join("base"));
        let own = "\
namespace: shop
images: [{name: replicaset-controller, newName: images.example/rsc, newTag: v9}]
replicas: [{name: replicaset-controller, count: 3}]
resources: [base]
";
        fs::write(folder.path().join("kustomization.yaml"), own).expect("a writable folder");
        let rendered = render(&kubectl, folder.path());
        assert!(rendered.len() >= 9, "{rendered:?}");
        for object in &rendered {
            let is_of_cluster = object["kind"] == "ClusterRoleBinding";
            assert!(
                is_of_cluster || object["metadata"]["namespace"] == "shop",
                "{object}"
            );
            for subject in object["subjects"].as_array().into_iter().flatten() {
                assert_eq!(subject["namespace"], "shop", "{object}");
            }
        }
        let spec = &of_kind(&rendered, "Deployment")["spec"];
        assert_eq!(spec["replicas"], 3);
        let pod = &spec["template"]["spec"];
        assert_eq!(images(pod), ["images.example/rsc:v9"]);
        let lease = json!({
            "name": "REPLICASET_CONTROLLER_LEADER_ELECT_RESOURCE_NAMESPACE",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        });
        assert_eq!(pod["containers"][0]["env"], json!([lease]));
    }
}

/// What a kustomization renders is what its manifests say, so both ways install the same.
#[test]
fn a_kustomization_alone_changes_nothing() {
    for kubectl in kubectls() {
        for (folder, file, kind) in [
            ("", "deployment.yaml", "Deployment"),
            ("static-pod", "static-pod/pod.yaml", "Pod"),
            ("sidecar", "sidecar/pod.yaml", "Pod"),
            ("shadow", "shadow/deployment.yaml", "Deployment"),
        ] {
            let rendered = render(&kubectl, &root().join("config").join(folder));
            let (rendered, written) = (of_kind(&rendered, kind), manifests(file));
            let written = of_kind(&written, kind);
            assert_eq!(rendered["spec"], written["spec"], "{file}");
        }
    }
}

#[test]
fn every_manifest_is_accepted() {
    if !TestCluster::is_real() {
        return;
    }
    let cluster = TestCluster::start();
    for namespace in [
        "shop",
        "default",
        "kube-system",
        "replicaset-controller-shadow",
    ] {
        // Some exist already.
        kubectl(&["create", "namespace", namespace], "").unwrap_or_default();
    }
    for account in ["default", "replicaset-controller"] {
        for namespace in ["default", "kube-system"] {
            kubectl(&["create", "serviceaccount", account, "-n", namespace], "")
                .unwrap_or_default();
        }
    }
    let config = root().join("config");
    let folders = KUSTOMIZATIONS.map(|folder| ("-k", config.join(folder)));
    let entries = fs::read_dir(&config).expect("a folder");
    let files = entries.map(|entry| entry.expect("an entry").path());
    let is_manifest = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let is_of_a_tool = ["Kustomization", "KubeControllerManagerConfiguration"]
            .iter()
            .any(|kind| text.contains(&format!("\nkind: {kind}\n")));
        path.extension().is_some_and(|it| it == "yaml")
            && text.contains("\nkind: ")
            && !is_of_a_tool
    };
    let files = files.filter(is_manifest).map(|path| ("-f", path));
    for (flag, path) in folders.into_iter().chain(files) {
        let path = path.display().to_string();
        let arguments = [&DRY_RUN[..], &[flag, &path]].concat();
        // Admission reads service accounts from its own cache, which may lag behind.
        cluster.eventually(&format!("{path} is accepted"), || {
            let Err(error) = kubectl(&arguments, "") else {
                return true;
            };
            assert!(error.contains("serviceaccount"), "{path}: {error}");
            false
        });
    }
}
