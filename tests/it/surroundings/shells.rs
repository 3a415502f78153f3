//! A table of what a shell does before it becomes the daemon, and whether the daemon then runs.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::credentials::Home;
use crate::support::{
    DaemonProcess, PlainPort, ScriptedServer, TestCluster, UNVERIFIED, Waiting, over_tls,
};

/// How long a daemon continues to run after its start.
const OBSERVED: Duration = Duration::from_millis(500);

/// Lines of the log at most. Each place in the code may log 100 warnings at once.
const LINES_MAX: usize = 150;

/// How the daemon does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It serves its pages and lists both resources; SIGTERM ends it with code 0.
    Runs,
    /// It continues, though not all of it may work; SIGTERM ends it with code 0.
    Stays,
    /// It ends by itself with this code.
    Ends(i32),
    /// It ends by itself, perhaps by a signal of its own: where memory ends is not predictable.
    Fails,
}

use Outcome::{Ends, Fails, Runs, Stays};

struct Shell {
    name: &'static str,
    /// The script, in a folder of its own. `"$@"` is the daemon with its arguments.
    script: &'static str,
    outcome: Outcome,
    /// A part of the log; empty if there is nothing to log, or no reader.
    logs: &'static str,
}

const fn shell(
    name: &'static str,
    script: &'static str,
    outcome: Outcome,
    logs: &'static str,
) -> Shell {
    Shell {
        name,
        script,
        outcome,
        logs,
    }
}

const LIMITS: &[Shell] = &[
    shell(
        "64 descriptors",
        r#"ulimit -n 64; exec "$@""#,
        Runs,
        "the limit of file descriptors is 64",
    ),
    shell(
        "16 descriptors",
        r#"ulimit -n 16; exec "$@""#,
        Runs,
        "the limit of file descriptors is 16",
    ),
    shell(
        "8 descriptors",
        r#"ulimit -n 8; exec "$@""#,
        Stays,
        "the limit of file descriptors is 8",
    ),
    // Whether a thread is refused or an allocation depends on the size of the program.
    shell(
        "60 MB of addresses",
        r#"ulimit -v 60000; exec "$@""#,
        Fails,
        "",
    ),
    shell(
        "few threads",
        // The limit does not count for root. dash calls it -p.
        r#"[ "$(id -u)" != 0 ] || drop="setpriv --reuid=64321 --regid=64321 --clear-groups"
        (ulimit -u 8) 2>/dev/null && ulimit -u 8 || ulimit -p 8
        exec $drop "$@""#,
        Ends(1),
        "cannot start the threads batch-*",
    ),
    shell(
        "files of no bytes",
        r#"ulimit -f 0; exec "$@" 2>/dev/null"#,
        Runs,
        "",
    ),
    shell("a stack of 1 MiB", r#"ulimit -s 1024; exec "$@""#, Runs, ""),
    shell("no core", r#"ulimit -c 0; exec "$@""#, Runs, ""),
];

const STREAMS: &[Shell] = &[
    shell(
        "a full disk for the log",
        r#"exec "$@" 2>/dev/full"#,
        Runs,
        "",
    ),
    shell("no standard error", r#"exec "$@" 2>&-"#, Runs, ""),
    shell("no streams", r#"exec "$@" <&- >&- 2>&-"#, Runs, ""),
    shell(
        "standard error to be read only",
        r#"exec "$@" 2</dev/null"#,
        Runs,
        "",
    ),
    shell(
        "a reader of the log that ends",
        r#"mkfifo log; (: <log) & exec "$@" 2>log"#,
        Runs,
        "",
    ),
    shell(
        "a full log that nobody reads",
        r#"mkfifo log; exec 3<>log
        dd if=/dev/zero of=log bs=4096 oflag=nonblock 2>/dev/null; exec "$@" 2>&3"#,
        Runs,
        "",
    ),
];

const ENVIRONMENTS: &[Shell] = &[
    shell("an empty environment", r#"exec env -i "$@""#, Runs, ""),
    shell("no HOME", r#"unset HOME; exec "$@""#, Runs, ""),
    shell(
        "odd time zone and language",
        r#"export TZ=:../../../etc/passwd LANG=C LC_ALL=xx LANGUAGE=/; exec "$@""#,
        Runs,
        "",
    ),
    shell(
        "odd RUST_LOG",
        r#"export RUST_LOG='[[[=,,x=y'; exec "$@""#,
        Runs,
        "",
    ),
    shell(
        "a manager that is not there",
        r#"export NOTIFY_SOCKET=/nonexistent WATCHDOG_USEC=abc WATCHDOG_PID=1; exec "$@""#,
        Runs,
        "",
    ),
    shell(
        "a manager without an address",
        r#"export NOTIFY_SOCKET= WATCHDOG_USEC= WATCHDOG_PID=; exec "$@""#,
        Runs,
        "",
    ),
    shell(
        "an abstract manager, and a hasty watchdog",
        r#"export NOTIFY_SOCKET=@nobody WATCHDOG_USEC=1000; exec "$@""#,
        Runs,
        "",
    ),
    shell(
        "an odd journal",
        r#"export JOURNAL_STREAM=99999999999999999999:1; exec "$@""#,
        Runs,
        "",
    ),
    shell(
        "a variable of no UTF-8 for somebody else",
        r#"export OTHER="$(printf '\377')"; exec "$@""#,
        Runs,
        "",
    ),
    shell(
        "a variable of no UTF-8",
        r#"export REPLICASET_CONTROLLER_NAMESPACE="$(printf '\377')"; exec "$@""#,
        Ends(2),
        "$REPLICASET_CONTROLLER_NAMESPACE: --namespace: the value is not UTF-8",
    ),
    shell(
        "an argument of no UTF-8",
        r#"exec "$@" "--namespace=$(printf '\377')""#,
        Ends(2),
        "--namespace: the value is not UTF-8",
    ),
    shell(
        "a variable of 100 KB",
        r#"export OTHER="$(head -c 100000 /dev/zero | tr '\0' x)"; exec "$@""#,
        Runs,
        "",
    ),
];

const PLACES: &[Shell] = &[
    shell(
        "a folder that is gone",
        r#"mkdir gone; cd gone; rmdir ../gone; exec "$@""#,
        Runs,
        "",
    ),
    shell("a folder of /proc", r#"cd /proc/self; exec "$@""#, Runs, ""),
    shell(
        "no rights on new files",
        r#"umask 777; exec "$@""#,
        Runs,
        "",
    ),
    shell(
        "a parent that ignores signals",
        r#"trap '' TERM INT HUP PIPE USR1 CHLD; exec "$@""#,
        Runs,
        "",
    ),
    shell(
        "a parent that blocks signals",
        r#"exec env --block-signal=TERM,INT,HUP,PIPE,USR1 "$@""#,
        Runs,
        "",
    ),
    shell(
        "children of another process",
        r#"sleep 0.1 & exec "$@""#,
        Runs,
        "",
    ),
];

/// Starts a daemon by the shell, and returns what is wrong.
fn run(shell: &Shell) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let server = ScriptedServer::start(|_| None);
    let port = PlainPort::free();
    let url = server.url();
    let arguments = ["run", "--master", &url, &port.argument()];
    let mut process = DaemonProcess::start_by(shell.script, folder.path(), &arguments);
    let waiting = Waiting::new(server.stop());
    let is_well = || match shell.outcome {
        Runs => port.get("/readyz").0 == 200,
        Stays => process.log().contains(shell.logs),
        Ends(_) | Fails => true,
    };
    let mut wrong = Vec::new();
    if !waiting.within(is_well) {
        wrong.push("it does not run".to_owned());
    }
    if matches!(shell.outcome, Runs | Stays) {
        waiting.pause(OBSERVED);
        if process.try_wait().is_none() {
            process.signal(Signal::SIGTERM);
        }
    }
    let ended = process.ended();
    if ended.is_none() {
        wrong.push("it does not end".to_owned());
    }
    let code = ended.map(|status| status.code());
    let is_expected = match shell.outcome {
        Runs | Stays => code == Some(Some(0)),
        Ends(expected) => code == Some(Some(expected)),
        Fails => code != Some(Some(0)),
    };
    let log = process.log();
    if !is_expected || !log.contains(shell.logs) {
        wrong.push(format!("code {code:?}, and a log without {:?}", shell.logs));
    }
    let is_panic = log.contains("stack backtrace") && shell.outcome != Fails;
    if is_panic || log.lines().count() > LINES_MAX {
        wrong.push("too much is logged".to_owned());
    }
    if !wrong.is_empty() {
        wrong.push(log);
    }
    wrong
}

#[track_caller]
fn check(shells: &[Shell]) {
    let wrong = std::thread::scope(|scope| {
        let runs = shells
            .iter()
            .map(|shell| (shell.name, scope.spawn(|| run(shell))));
        let runs: Vec<_> = runs.collect();
        let wrong = runs.into_iter().flat_map(|(name, run)| {
            let wrong = run.join().expect("no run panics");
            wrong.into_iter().map(move |it| format!("{name}: {it}"))
        });
        wrong.collect::<Vec<_>>()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn limits_are_obeyed_or_named() {
    check(LIMITS);
}

#[test]
fn streams_that_cannot_be_written_change_nothing() {
    check(STREAMS);
}

#[test]
fn unusual_environments_are_harmless_or_reported() {
    check(ENVIRONMENTS);
}

/// The system then keeps no exit status of the plugin.
#[test]
fn a_plugin_works_where_the_parent_ignores_its_children() {
    let cluster = TestCluster::start();
    let (home, server) = (Home::new(), over_tls(&cluster));
    home.write("token", "issued");
    home.kubeconfig(&server.url(), UNVERIFIED, home.plugin(3600));
    let config = home.path("config").display().to_string();
    let script = r#"exec env --ignore-signal=CHLD "$@""#;
    let arguments = ["run", "--kubeconfig", &config];
    let mut process = DaemonProcess::start_by(script, &home.path(""), &arguments);
    let waiting = Waiting::new(cluster.stop());
    let is_authorized = || {
        let asked = cluster.faults().recorder().requests();
        let tokens = asked.iter().map(|it| it.request.header("authorization"));
        tokens.into_iter().any(|token| token == "Bearer issued")
    };
    let is_sent = waiting.within(is_authorized);
    process.signal(Signal::SIGTERM);
    let status = process.exit();
    assert!(is_sent, "{}", process.log());
    assert_eq!(status.code(), Some(0), "{}", process.log());
}

#[test]
fn unusual_folders_and_parents_are_harmless() {
    check(PLACES);
}
