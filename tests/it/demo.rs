//! The command `demo --fast` as a process.

use std::process::{Command, Stdio};

const N_CHAPTERS: usize = 7;

fn demo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"));
    command
        .args(["demo", "--fast"])
        .env_remove("RUST_LOG")
        .env_remove("NO_COLOR")
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm")
        .stdin(Stdio::null());
    command
}

#[test]
fn all_chapters_pass() {
    let output = demo().output().expect("the binary runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(!stdout.contains('\x1b'), "{stdout}");
    for number in 1..=N_CHAPTERS {
        let headline = format!(" s  {number}/{N_CHAPTERS} ");
        assert!(stdout.contains(&headline), "{number} is missing:\n{stdout}");
    }
    assert_eq!(stdout.matches(" s    ok: ").count(), N_CHAPTERS, "{stdout}");
    for figure in ["pods created", "pods deleted", "seconds", "API requests"] {
        assert!(stdout.contains(figure), "{figure} is missing:\n{stdout}");
    }
    assert_eq!(stderr, "");
    assert!(
        stdout.starts_with("This process runs an API server"),
        "{stdout}"
    );
    let way_on = format!("  {} dev ", env!("CARGO_BIN_EXE_replicaset-controller"));
    assert!(stdout.contains(&way_on), "{stdout}");
}
