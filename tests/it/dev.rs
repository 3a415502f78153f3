//! The command `dev` as a process: loading, reporting and saving its objects.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use replicaset_controller::stdx::stop::Stop;
use serde_json::{Value, json};

use crate::support::{DaemonProcess, Waiting, new_replica_set, text_at};

/// Runs `dev --save` on this file until it has printed `last`, then stops it. Returns its output.
#[track_caller]
fn run_until(data: &Path, kubeconfig: &Path, last: &str) -> String {
    let data = format!("--data={}", data.display());
    let kubeconfig = format!("--write-kubeconfig={}", kubeconfig.display());
    let flags = ["dev", "--port=0", "--save", "--pod-ready-after=0"];
    let flags: Vec<&str> = flags.into_iter().chain([&*data, &*kubeconfig]).collect();
    let mut process = DaemonProcess::start(&flags);
    let waiting = Waiting::new(&Stop::new());
    waiting.eventually(last, || process.output().contains(last));
    process.signal(Signal::SIGTERM);
    let status = process.exit();
    assert!(status.success(), "{status}: {}", process.log());
    process.output()
}

/// The UIDs of the pods in a saved file.
fn pod_uids(data: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(data).expect("the file was saved");
    let list: Value = serde_json::from_str(&text).expect("JSON");
    let items = list["items"].as_array().expect("a list").iter();
    let pods = items.filter(|item| item["kind"] == "Pod");
    pods.map(|pod| text_at(pod, "/metadata/uid")).collect()
}

#[test]
fn a_saved_state_is_loaded_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("state.json");
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&data, new_replica_set("web", 3).to_string()).expect("a manifest");
    let all = "replicaset default/web: all 3 pods are available";
    let output = run_until(&data, &kubeconfig, all);
    for line in [
        "API server    http://127.0.0.1:",
        "new, desired: 3 pods",
        "loaded        1 ",
    ] {
        assert!(output.contains(line), "no {line:?} in\n{output}");
    }
    let text = fs::read_to_string(&kubeconfig).expect("the kubeconfig was written");
    let server = text.lines().find(|line| line.contains("server: "));
    let server = server.expect("the line of the server").trim();
    assert!(server.starts_with("server: \"http://127.0.0.1:"), "{text}");
    assert!(
        server.ends_with('"'),
        "scripts read the address by its line: {text}"
    );
    assert!(text.contains("insecure-skip-tls-verify: true"), "{text}");
    let uids = pod_uids(&data);
    assert_eq!(uids.len(), 3);

    let output = run_until(&data, &kubeconfig, all);
    assert!(!output.contains("created"), "{output}");
    assert_eq!(pod_uids(&data), uids);
}

#[test]
fn unread_output_does_not_block() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("state.json");
    fs::write(&data, new_replica_set("web", 3).to_string()).expect("a manifest");
    let script = r#"cd "$1"; mkfifo out; exec 3<>out
        dd if=/dev/zero of=out bs=4096 oflag=nonblock 2>/dev/null
        exec "$0" dev --port=0 --save --data=state.json --write-kubeconfig=kubeconfig >&3"#;
    let process = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_replicaset-controller")])
        .arg(folder.path())
        .spawn()
        .expect("a shell");
    let process = RefCell::new(process);
    let waiting = Waiting::new(&Stop::new());
    let kubeconfig = folder.path().join("kubeconfig");
    waiting.eventually("the dev server runs", || kubeconfig.exists());
    let pid = Pid::from_raw(process.borrow().id().try_into().expect("a PID"));
    kill(pid, Signal::SIGTERM).expect("it runs");
    waiting.eventually("it ends", || {
        process.borrow_mut().try_wait().expect("a child").is_some()
    });
    assert!(process.borrow_mut().wait().expect("a child").success());
    let saved = fs::read_to_string(&data).expect("a file");
    assert!(saved.contains("\"List\""), "{saved}");
}

#[test]
fn control_characters_of_objects_are_escaped() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("state.json");
    let mut rs = new_replica_set("web", 3);
    let message = "quota\u{1b}[2K\r\n12:00:00  all is well\u{202e}";
    rs["status"] = json!({"replicas": 0, "conditions": [{
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message,
    }]});
    fs::write(&data, rs.to_string()).expect("a manifest");
    let data = format!("--data={}", data.display());
    let flags = ["dev", "--port=0", "--no-controller", &data];
    let process = DaemonProcess::start(&flags);
    let waiting = Waiting::new(&Stop::new());
    waiting.eventually("the condition is printed", || {
        process.output().contains("blocked: ")
    });
    let output = process.output();
    let escaped = r"blocked: quota\u{1b}[2K\r\n12:00:00  all is well\u{202e}";
    assert!(output.contains(escaped), "{output}");
    assert!(!output.contains(['\u{1b}', '\r', '\u{202e}']), "{output:?}");
}

#[test]
fn an_unwritable_state_exits_with_code_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("not-there/state.json");
    let data = format!("--data={}", data.display());
    let mut process = DaemonProcess::start(&["dev", "--port=0", "--save", &data]);
    let waiting = Waiting::new(&Stop::new());
    waiting.eventually("the dev server runs", || {
        process.output().contains("to stop")
    });
    process.signal(Signal::SIGTERM);
    let status = process.exit();
    assert_eq!(status.code(), Some(1), "{}", process.log());
    let log = process.log();
    assert!(
        log.contains("cannot write ") && log.contains("not-there"),
        "{log}"
    );
}

#[test]
fn it_stops_with_the_program_that_holds_its_input() {
    let binary = env!("CARGO_BIN_EXE_replicaset-controller");
    let mut command = Command::new(binary);
    command.args(["dev", "--port=0", "--until-stdin-closes"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut lines = output.lines().map(|line| line.expect("a text"));
    assert!(lines.any(|line| line.starts_with("to stop")));
    drop(child.stdin.take());
    assert_eq!(lines.count(), 0, "nothing is left to print");
    assert!(child.wait().expect("it is a child").success());
}

/// Checks that `dev` with these flags exits with this code, and that standard error contains
/// `words`.
#[track_caller]
fn check_exits(flags: &[&str], code: i32, words: &[&str]) {
    let mut process = DaemonProcess::start(&[&["dev"], flags].concat());
    let status = process.exit();
    let stderr = process.log();
    assert_eq!(status.code(), Some(code), "{}{stderr}", process.output());
    for word in words {
        assert!(stderr.contains(word), "no {word:?} in\n{stderr}");
    }
}

#[test]
fn a_port_in_use_exits_with_code_1() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    check_exits(&[&format!("--port={port}")], 1, &["dev server"]);
}

#[test]
fn invalid_data_exits_with_code_2() {
    let check = |paths: &[&str], words: &[&str]| {
        let flags = paths.iter().flat_map(|path| ["--data", path]);
        let flags: Vec<&str> = ["--port=0"].into_iter().chain(flags).collect();
        check_exits(&flags, 2, words);
    };
    check(&["/nonexistent/file"], &["/nonexistent/file"]);
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let rs = new_replica_set("NOT-A-NAME", 1);
    write!(file, "{rs}\n{{\"kind\": \"Car\", \"apiVersion\": \"v1\"}}")
        .expect("the file is writable");
    let path = file.path().display().to_string();
    let words = ["/nonexistent", "NOT-A-NAME", "document 2: Car of v1 is not"];
    check(&[&path, "/nonexistent/file"], &words);
    let saving = ["--port=0", "--save", "--data=a", "--data=b"];
    check_exits(&saving, 2, &["--save"]);
}
