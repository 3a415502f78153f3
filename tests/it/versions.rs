//! The versions of Kubernetes that `tests/control-plane` pins, against the manual, the daemon and
//! the dev server.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use replicaset_controller::client::Request;

use crate::documents::read;
use crate::manual;
use crate::support::{PlainPort, TestCluster, text_at};
use crate::tidy::{assert_none, root};

const FOLDER: &str = "tests/control-plane";

/// Every flag of kube-controller-manager that `--kcm-compat` accepts, as unit tests check.
const FLAGS: &str = include_str!("../../src/cli/kcm/flags.txt");

/// Versions of Kubernetes and of etcd, such as `1.37.2` and `3.7.0`.
struct Pinned {
    kubernetes: String,
    etcd: String,
}

/// What is pinned, by the names of the folders.
fn pinned() -> BTreeMap<String, Pinned> {
    let entries = fs::read_dir(root().join(FOLDER)).expect("a readable folder");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let pinned = paths.filter(|path| path.is_dir()).map(|path| {
        let module = read(&path.join("go.mod"));
        let version_of = |name: &str| {
            let mut lines = module.lines().map(str::trim);
            let version = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" v"));
            let version = version.unwrap_or_else(|| panic!("{}: {name}", path.display()));
            version.split(' ').next().unwrap_or_default().to_owned()
        };
        let pinned = Pinned {
            kubernetes: version_of("k8s.io/kubernetes"),
            etcd: version_of("go.etcd.io/etcd/server/v3"),
        };
        let name = path.file_name().expect("the name of a folder");
        (name.to_string_lossy().into_owned(), pinned)
    });
    pinned.collect()
}

/// The version that the daemon follows, such as `1.37`: the default of `build.sh`.
pub(crate) fn followed() -> String {
    let script = read(&root().join(FOLDER).join("build.sh"));
    let rest = script.split_once("${K8S:-").expect("the default of K8S").1;
    rest.split('}').next().unwrap_or_default().to_owned()
}

#[test]
fn the_manual_lists_every_pinned_version() {
    let page = manual::page("differences.md");
    let missing: Vec<String> = pinned()
        .into_iter()
        .filter(|(name, version)| {
            let Pinned { kubernetes, etcd } = version;
            let belongs = kubernetes.rsplit_once('.').is_some_and(|it| it.0 == name);
            let is_row = |line: &str| {
                line.starts_with(&format!("| {kubernetes} |"))
                    && line.contains(&format!("| {etcd} |"))
            };
            !belongs || !page.lines().any(is_row)
        })
        .map(|(name, _)| name)
        .collect();
    assert_none("versions without a row in differences.md", &missing);
}

#[test]
fn daemon_and_dev_server_name_the_followed_version() {
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let _process = cluster.start_process(&[&port.argument()]);
    let expected = format!("\nEmulation version: {}\n", followed());
    cluster.eventually("the followed version", || {
        port.get("/statusz").1.contains(&expected)
    });
    if TestCluster::is_real() {
        return;
    }
    let version = cluster.api().send(&Request::get("/version"));
    let version = version.expect("the version of the API server");
    let expected = format!("v{}", pinned()[&followed()].kubernetes);
    assert_eq!(text_at(&version, "/gitVersion"), expected);
}

/// The flags of a real kube-controller-manager of any pinned version, as its `--help` lists them.
#[test]
fn kcm_compat_accepts_every_flag_of_a_real_manager() {
    let Some(bin) = env::var_os("CONTROL_PLANE_BIN").map(PathBuf::from) else {
        return;
    };
    let program = bin.join("kube-controller-manager");
    if !program.exists() {
        return;
    }
    let output = Command::new(program).arg("--help").output();
    let help = String::from_utf8(output.expect("it runs").stdout).expect("text");
    let mut flags: BTreeSet<&str> = help.lines().filter_map(flag).collect();
    assert!(flags.len() > 100, "{help}");
    // A bool that also takes a word: `--version=raw`.
    flags.remove("version version[=true]");
    let known: BTreeSet<&str> = FLAGS.lines().collect();
    let unknown: Vec<String> = flags
        .difference(&known)
        .map(|&flag| flag.to_owned())
        .collect();
    assert_none("flags that src/cli/kcm/flags.txt lacks", &unknown);
}

/// `name type`, or `name` for a bool, if a line of the help begins with a flag.
fn flag(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = line.split_once("--").filter(|(short, _)| {
        short.is_empty() || (short.starts_with('-') && short.ends_with(", "))
    })?;
    // The description follows after several blanks.
    Some(rest.1.split("  ").next().unwrap_or_default().trim_end())
}
