//! What `rbac` prints, and the manifests under `config/` that are printed by it.

use std::env;
use std::fs;
use std::process::{Command, Output};

use crate::root;

/// Manifests under `config/` and the flags of the `rbac` that prints them.
const PRINTED: &[(&str, &[&str])] = &[
    ("rbac.yaml", &[]),
    (
        "rbac-namespace.yaml",
        &["--namespace=shop", "--secure-port=0"],
    ),
    (
        "shadow/rbac.yaml",
        &[
            "--controllers=*",
            "--secure-port=0",
            "--dry-run",
            "--service-account=replicaset-controller-shadow/replicaset-controller",
        ],
    ),
];

/// What `rbac` prints.
#[track_caller]
fn rbac(flags: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
        .arg("rbac")
        .args(flags)
        .output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.expect("the binary runs");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("YAML is text")
}

#[test]
fn the_manifests_are_what_rbac_prints() {
    for (file, flags) in PRINTED {
        let path = root().join("config").join(file);
        let printed = rbac(flags);
        if env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&path, &printed).expect("a writable file");
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            found, printed,
            "config/{file} is not what rbac prints; UPDATE_EXPECT=1 writes it"
        );
    }
}

#[test]
fn the_lease_of_a_migration_is_the_one_that_may_be_renewed() {
    let printed = rbac(&["--leader-elect-resource-name=shared"]);
    let only = "  resourceNames:\n  - shared\n";
    assert!(printed.contains(only), "{printed}");
    assert!(
        printed.contains("--leader-elect-resource-name=shared"),
        "{printed}"
    );
}

#[test]
fn an_account_with_cluster_wide_rights_is_in_kube_system() {
    let account = "kind: ServiceAccount\nmetadata:\n  name: replicaset-controller\n  namespace: ";
    let reviews = rbac(&["--namespace=shop"]);
    assert!(
        reviews.contains(&format!("{account}kube-system\n")),
        "{reviews}"
    );
    let inside = rbac(&["--namespace=shop", "--secure-port=0"]);
    assert!(inside.contains(&format!("{account}shop\n")), "{inside}");
    let chosen = rbac(&["--namespace=shop", "--service-account=shop/daemon"]);
    assert!(
        chosen.contains("# WARNING: anyone who can create pods in shop"),
        "{chosen}"
    );
}

#[test]
fn the_right_to_watch_quotas_is_granted_on_demand() {
    let usual = rbac(&[]);
    assert!(!usual.contains("resourcequotas"), "{usual}");
    let with_quotas = rbac(&["--watch-quotas"]);
    assert!(with_quotas.contains("#   replicaset-controller rbac --watch-quotas\n"));
    assert!(
        with_quotas.contains("  resources:\n  - resourcequotas\n"),
        "{with_quotas}"
    );
}
