//! What `make install` installs and `make uninstall` leaves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::root;

const NAME: &str = "replicaset-controller";

/// Runs a verb of the Makefile with `stage` as the root of the file system.
#[track_caller]
fn make(verb: &str, stage: &Path) {
    let output = Command::new("make")
        .args(["-s", verb, "PREFIX=/opt/rsc", "SYSCONFDIR=/opt/etc"])
        .arg(format!(
            "BINARY={}",
            env!("CARGO_BIN_EXE_replicaset-controller")
        ))
        .arg(format!("DESTDIR={}", stage.display()))
        .current_dir(root())
        .env_remove("MAKEFLAGS")
        .output();
    let output = output.expect("make runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

/// All files below `folder`, from `top`.
fn files(folder: &Path, top: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a readable folder");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let below = |path: PathBuf| {
        if path.is_dir() {
            return files(&path, top);
        }
        let path = path.strip_prefix(top).expect("below the top");
        vec![path.display().to_string()]
    };
    let mut files: Vec<String> = paths.flat_map(below).collect();
    files.sort();
    files
}

fn has_section(file: &Path, section: &str) -> bool {
    let output = Command::new("readelf").arg("-SW").arg(file).output();
    let output = output.expect("readelf, which comes with objcopy");
    String::from_utf8_lossy(&output.stdout).contains(section)
}

#[test]
fn make_install_strips_the_program_and_uninstall_removes_it() {
    let stage = tempfile::tempdir().expect("a folder");
    let stage = stage.path();
    make("install", stage);
    let program = stage.join("opt/rsc/bin").join(NAME);
    let version = Command::new(&program).arg("--version").output();
    assert!(version.expect("the program runs").status.success());
    let plugin = Command::new(stage.join("opt/rsc/bin/kubectl-rs_explain"));
    let help = { plugin }.arg("--help").output().expect("the plugin runs");
    let help = String::from_utf8_lossy(&help.stdout);
    assert!(help.contains("Usage: kubectl rs-explain"), "{help}");
    let debug = stage.join(format!("usr/lib/debug/opt/rsc/bin/{NAME}.debug"));
    for section in [".debug_line", ".symtab"] {
        assert!(!has_section(&program, section), "{section}");
    }
    assert!(has_section(&program, ".gnu_debuglink"));
    assert!(has_section(&debug, ".debug_line"));

    let unit = stage.join(format!("opt/rsc/lib/systemd/system/{NAME}.service"));
    let unit = fs::read_to_string(unit).expect("the unit");
    assert!(unit.contains("\nExecStart=/opt/rsc/bin/replicaset-controller "));
    assert!(unit.contains("=kubeconfig:/opt/etc/replicaset-controller/kubeconfig\n"));
    let documents = stage.join("opt/rsc/share/doc").join(NAME);
    let installed = files(&documents, &documents);
    for file in [
        "kustomization.yaml",
        "rbac.yaml",
        "static-pod/kustomization.yaml",
        "sidecar/pod.yaml",
        "shadow/kustomization.yaml",
        "manual/install.md",
        "Containerfile",
    ] {
        assert!(
            installed.iter().any(|it| it == file),
            "no {file} in {installed:?}"
        );
    }

    let read = |file: &str| fs::read_to_string(documents.join(file)).expect("a page");
    assert!(read("README.md").contains("\nreplicaset-controller dev\n"));
    for file in installed.iter().filter(|file| file.contains(".md")) {
        let absent = ["\nmake demo", "\nmake dev", "BUGS.md", "REPORT.md"];
        let named: Vec<_> = absent
            .iter()
            .filter(|it| read(file).contains(**it))
            .collect();
        assert!(
            named.is_empty(),
            "{file} names {named:?}, which is not installed"
        );
    }

    // As for an upgrade, while the old program runs and the configuration has been changed.
    let config = stage.join("opt/etc/replicaset-controller/config.yaml");
    fs::write(&config, "changed\n").expect("a writable file");
    make("install", stage);
    assert_eq!(fs::read_to_string(&config).expect("kept"), "changed\n");
    make("uninstall", stage);
    let left = ["opt/etc/replicaset-controller/config.yaml"];
    assert_eq!(files(stage, stage), left);
}
