//! The configuration file and the environment beside the flags, and the log's first lines.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use crate::root;

/// Exit code, standard output and standard error of the binary.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env_remove("RUST_LOG")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("what it prints is text");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("room for it");
    file
}

const HEAD: &str = "apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\n\
                    kind: KubeControllerManagerConfiguration\n";

#[test]
fn config_prints_what_three_sources_come_to() {
    let text = format!("{HEAD}generic: {{clientConnection: {{qps: 1, burst: 2}}}}\n");
    let file = file(&text);
    let path = file.path().display().to_string();
    let config = format!("--config={path}");
    let environment = [
        ("REPLICASET_CONTROLLER_KUBE_API_QPS", "3"),
        ("REPLICASET_CONTROLLER_SECURE_PORT", "4"),
    ];
    let (code, stdout, stderr) = run(&["config", &config, "--secure-port=5"], &environment);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    for line in [
        "    qps: 3  # $REPLICASET_CONTROLLER_KUBE_API_QPS".to_owned(),
        format!("    burst: 2  # {path}:3"),
        "  securePort: 5  # flag".to_owned(),
        "  minResyncPeriod: 12h  # default".to_owned(),
    ] {
        assert!(
            stdout.lines().any(|of| of == line),
            "no {line:?} in\n{stdout}"
        );
    }
}

#[test]
fn the_sample_has_every_field_at_its_default() {
    let path = root().join("config/config.yaml");
    let sample = fs::read_to_string(&path).expect("the sample");
    let config = format!("--config={}", path.display());
    let values = |arguments: &[&str]| {
        let (code, stdout, stderr) = run(arguments, &[]);
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        let lines = stdout.lines();
        let lines = lines.map(|line| line.split_once("  # ").map_or(line, |(value, _)| value));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let defaults = values(&["config"]);
    assert_eq!(values(&["config", &config]), defaults);
    for line in &defaults {
        let (key, _) = line.split_once(':').expect("a line is a field");
        let shows = |of: &str| {
            of.trim_start_matches([' ', '#'])
                .starts_with(&format!("{}:", key.trim()))
        };
        assert!(sample.lines().any(shows), "the sample has no {key}");
    }
}

#[test]
fn errors_of_all_sources_are_reported_before_the_start() {
    let file = file(&format!(
        "{HEAD}generic:\n  minResyncPeriod: soon\n  qps: 1\n"
    ));
    let path = file.path().display().to_string();
    let config = format!("--config={path}");
    let environment = [("REPLICASET_CONTROLLER_LEADER_ELECT", "maybe")];
    let (code, stdout, stderr) = run(&["run", &config, "--kube-api-burts=1"], &environment);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
    for words in [
        "--kube-api-burst",
        "$REPLICASET_CONTROLLER_LEADER_ELECT: ",
        &format!("{path}:4: "),
        &format!("{path}:5: generic.qps is not a known field"),
    ] {
        assert!(stderr.contains(words), "no {words:?} in\n{stderr}");
    }
    assert_eq!(stderr.lines().count(), 5, "{stderr}");
}

#[test]
fn the_journal_gets_levels_and_others_do_not() {
    let log = |is_named: bool| {
        let stderr = tempfile::NamedTempFile::new().expect("a file");
        let metadata = stderr.as_file().metadata().expect("the file is there");
        let inode = metadata.ino() + u64::from(!is_named);
        let status = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
            .args([
                "--kcm-compat",
                "--cluster-cidr=a",
                "--kubeconfig=/nonexistent",
            ])
            .env_remove("RUST_LOG")
            .env("JOURNAL_STREAM", format!("{}:{inode}", metadata.dev()))
            .stdin(Stdio::null())
            .stderr(File::create(stderr.path()).expect("the file is there"))
            .status()
            .expect("the binary runs");
        assert_eq!(status.code(), Some(2));
        fs::read_to_string(stderr.path()).expect("the file is there")
    };
    let (named, other) = (log(true), log(false));
    assert!(
        named.starts_with("<6>") && named.contains("--cluster-cidr"),
        "{named}"
    );
    assert!(
        !other.contains("<6>") && other.contains("--cluster-cidr"),
        "{other}"
    );
}
