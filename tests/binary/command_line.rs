//! Arguments, exit codes and the verbs of the Makefile.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::json;

use crate::root;

/// What the binary prints and ends with, in an environment that names no cluster.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs the binary to its end.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove("RUST_LOG")
        .env("HOME", "/nonexistent")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("what it prints is text");
    Ended {
        code: status.code(),
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

impl Ended {
    /// It ended with this code, and standard error says all of this.
    #[track_caller]
    fn check(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        for word in words {
            assert!(
                self.stderr.contains(word),
                "no {word:?} in\n{}",
                self.stderr
            );
        }
    }
}

/// A kubeconfig whose current context does not exist.
fn kubeconfig() -> tempfile::NamedTempFile {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "other",
        "clusters": [{"name": "test", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "test", "user": "me"}}],
    });
    let mut file = tempfile::NamedTempFile::new().expect("a file for the kubeconfig");
    let text = config.to_string();
    file.write_all(text.as_bytes())
        .expect("room for a kubeconfig");
    file
}

#[test]
fn sample_prints_the_sample_replicasets() {
    let ended = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
        .arg("sample")
        .output()
        .expect("the binary runs");
    let sample = fs::read(root().join("config/replicasets.yaml")).expect("the sample");
    assert!(ended.status.success());
    assert_eq!(ended.stdout, sample);
}

#[test]
fn a_text_that_cannot_be_written_is_a_failure() {
    let all: &[&[&str]] = &[
        &["--version"],
        &["--help"],
        &["config"],
        &["man"],
        &["completions", "bash"],
        &["rbac", "--user=a"],
        &["sample"],
        #[cfg(feature = "devserver")]
        &["demo", "--fast"],
    ];
    for arguments in all.iter().copied() {
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        let ended = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(full.expect("Linux has it"))
            .stderr(Stdio::piped())
            .output()
            .expect("the binary runs");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{arguments:?} {stderr}");
        assert!(
            stderr.contains("cannot write to standard output"),
            "{stderr}"
        );
    }
}

#[test]
fn help_and_version_are_shown() {
    for arguments in [vec!["--help"], vec!["run", "--help"]] {
        let ended = run(&arguments, &[]);
        assert_eq!(ended.code, Some(0));
        for flag in ["--kubeconfig", "--kube-api-qps", "--namespace", "-v"] {
            assert!(ended.stdout.contains(flag), "{}", ended.stdout);
        }
        assert_eq!(ended.stderr, "");
    }
    let version = run(&["--version"], &[]);
    let begin = format!("replicaset-controller {} (", env!("CARGO_PKG_VERSION"));
    let is_version = |text: &str| text.starts_with(&begin) && text.ends_with("Kubernetes 1.37)\n");
    assert_eq!(version.code, Some(0));
    assert!(is_version(&version.stdout), "{}", version.stdout);
}

#[test]
fn all_mistakes_are_reported_together() {
    let mistakes = [
        "--kube-api-qps=fast",
        "--no-such-flag",
        "--namespace=UPPER",
        "--concurrent-replicaset-syncs=0",
    ];
    let ended = run(&mistakes, &[]);
    let words = mistakes.map(|mistake| mistake.split('=').next().unwrap_or_default());
    ended.check(2, &words);
    assert_eq!(ended.stdout, "");
    run(&["no-such-command"], &[]).check(2, &["no-such-command"]);
}

#[test]
fn without_a_kubeconfig_the_error_names_all_sources_and_demo() {
    let home = tempfile::tempdir().expect("a home");
    let home = home.path().display().to_string();
    let ended = run(&[], &[("HOME", &home)]);
    let file = format!("{home}/.kube/config");
    let places = [
        "--kubeconfig",
        "$KUBECONFIG",
        &file,
        "$KUBERNETES_SERVICE_HOST",
    ];
    ended.check(2, &places);
    // If it is there.
    let is_offered = ended.stderr.contains("replicaset-controller demo");
    assert_eq!(is_offered, cfg!(feature = "devserver"), "{}", ended.stderr);
}

#[test]
fn a_failed_thread_start_is_reported_without_a_backtrace() {
    // No system gives a thread as large a stack as this.
    let refused = ("RUST_MIN_STACK", "1152921504606846976");
    let file = kubeconfig();
    let path = file.path().display().to_string();
    let arguments = ["--kubeconfig", &path, "--context=here", "--secure-port=0"];
    let ended = run(&arguments, &[refused]);
    ended.check(1, &["replicaset-controller: "]);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

#[test]
fn a_configuration_that_cannot_be_used_is_named() {
    run(&["--kubeconfig=/nonexistent/file"], &[]).check(2, &["/nonexistent/file"]);
    let file = kubeconfig();
    let path = file.path().display().to_string();
    run(&["--kubeconfig", &path], &[]).check(2, &[&path, "other"]);
    run(&[], &[("KUBECONFIG", &path)]).check(2, &[&path, "other"]);
    let arguments = ["--kubeconfig", &path, "--context", "elsewhere"];
    run(&arguments, &[]).check(2, &[&path, "elsewhere"]);
    run(&["--master", "nowhere at all"], &[]).check(2, &["--master", "nowhere at all"]);
}

#[cfg(feature = "devserver")]
#[test]
fn a_port_of_dev_that_is_in_use_is_named_with_the_remedy() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let ended = run(&["dev", &format!("--port={}", address.port())], &[]);
    ended.check(1, &[&format!("{address} is in use"), "--port=0"]);
}

#[test]
fn the_hint_names_the_command_whose_help_lists_the_flag() {
    run(&["explain", "web", "--severr=a"], &[]).check(
        2,
        &[
            "--severr: unknown flag; did you mean --server?\n",
            "see replicaset-controller explain --help\n",
        ],
    );
    run(&["--leader-elect", "false"], &[]).check(2, &["write --leader-elect=false\n"]);
}

#[test]
fn make_passes_arguments_on_to_the_program() {
    for (arguments, run) in [
        (&["demo", "ARGS=--fast"][..], " demo --fast\n"),
        (&["dev", "ARGS=--port 9000"], " dev --port 9000\n"),
    ] {
        // Below `make test` a second make would name the directories that it enters.
        let output = Command::new("make")
            .args(["--dry-run", "--no-print-directory"])
            .args(arguments)
            .env_remove("MAKEFLAGS")
            .current_dir(root())
            .output()
            .expect("make runs");
        let recipe = String::from_utf8_lossy(&output.stdout);
        assert!(recipe.ends_with(run), "{arguments:?}: {recipe}");
    }
}

#[test]
fn make_installs_what_it_uninstalls() {
    let folder = tempfile::tempdir().expect("a folder");
    let destination = format!("DESTDIR={}", folder.path().display());
    let make = |verb: &str| {
        let output = Command::new("make")
            .args([verb, &destination, "PREFIX=/usr"])
            .arg(format!(
                "BINARY={}",
                env!("CARGO_BIN_EXE_replicaset-controller")
            ))
            .current_dir(root())
            .output()
            .expect("make runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "make {verb}: {stderr}");
    };
    let at = |path: &str| folder.path().join(path);
    let read = |path: &str| fs::read_to_string(at(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let installed = [
        (
            "usr/lib/systemd/system/replicaset-controller.service",
            "ExecStart=/usr/bin/replicaset-controller ",
        ),
        (
            "usr/share/man/man8/replicaset-controller.8",
            ".TH replicaset-controller 8",
        ),
        (
            "usr/share/bash-completion/completions/replicaset-controller",
            "--kube-api-qps",
        ),
        (
            "usr/share/zsh/site-functions/_replicaset-controller",
            "#compdef replicaset-controller",
        ),
        (
            "usr/share/fish/vendor_completions.d/replicaset-controller.fish",
            "complete -c replicaset-controller",
        ),
        (
            "usr/share/doc/replicaset-controller/README.md",
            "# replicaset-controller",
        ),
        (
            "usr/share/doc/replicaset-controller/manual/install.md",
            "# Install",
        ),
        // The annotations `runbook` name this path from the folder of the rules.
        (
            "usr/share/doc/replicaset-controller/manual/metrics.md",
            "### ReplicaSetControllerDown",
        ),
        (
            "usr/share/doc/replicaset-controller/prometheus-rules.yaml",
            "runbook: manual/metrics.md#replicasetcontrollerdown",
        ),
        (
            "usr/share/doc/replicaset-controller/monitoring/dashboard.json",
            "replicaset_controller_not_converged",
        ),
    ];
    let config = "etc/replicaset-controller/config.yaml";
    make("install");
    for (path, part) in installed {
        assert!(read(path).contains(part), "no {part:?} in {path}");
    }
    assert!(at("usr/bin/replicaset-controller").is_file());
    fs::write(at(config), "mine").expect("room for it");
    make("install");
    assert_eq!(read(config), "mine");
    make("uninstall");
    for (path, _) in installed {
        assert!(!at(path).exists(), "{path} is left");
    }
    assert!(!at("usr/bin/replicaset-controller").exists());
    assert_eq!(read(config), "mine");
}
