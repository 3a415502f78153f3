//! A table of signals that arrive together. `command_line` has those that come later: a second one
//! that ends the daemon at once, and one during a start that hangs.

use nix::sys::signal::Signal;

use crate::support::{DaemonProcess, PlainPort, ScriptedServer, Waiting};

use Signal::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGPIPE, SIGSTOP, SIGTERM, SIGURG, SIGUSR1, SIGWINCH,
};

/// Signals without a pause between them, and what the log then has.
struct Together {
    signals: &'static [Signal],
    /// True if they end the daemon, in order and with code 0; else it continues until SIGTERM.
    ends: bool,
    logs: &'static str,
}

const fn ends(signals: &'static [Signal]) -> Together {
    Together {
        signals,
        ends: true,
        logs: "received SIGTERM or SIGINT, shutting down",
    }
}

const fn goes_on(signals: &'static [Signal], logs: &'static str) -> Together {
    Together {
        signals,
        ends: false,
        logs,
    }
}

const TOGETHER: &[Together] = &[
    ends(&[SIGTERM, SIGTERM]),
    ends(&[SIGINT, SIGTERM]),
    ends(&[SIGTERM, SIGINT, SIGTERM, SIGINT]),
    ends(&[SIGHUP, SIGTERM]),
    ends(&[SIGTERM, SIGHUP]),
    ends(&[SIGINT, SIGHUP]),
    ends(&[SIGUSR1, SIGTERM]),
    ends(&[SIGTERM, SIGUSR1]),
    ends(&[SIGPIPE, SIGTERM]),
    ends(&[SIGSTOP, SIGTERM, SIGCONT]),
    ends(&[SIGSTOP, SIGHUP, SIGUSR1, SIGTERM, SIGTERM, SIGCONT]),
    goes_on(&[SIGHUP, SIGHUP, SIGHUP], "SIGHUP: "),
    goes_on(&[SIGHUP, SIGUSR1], "SIGHUP: "),
    goes_on(&[SIGUSR1, SIGHUP], "thread ctrl-c "),
    goes_on(&[SIGSTOP, SIGCONT], ""),
    goes_on(&[SIGSTOP, SIGHUP, SIGCONT], "SIGHUP: "),
    goes_on(&[SIGPIPE, SIGPIPE], ""),
    goes_on(&[SIGCHLD, SIGWINCH, SIGURG, SIGCONT], ""),
];

fn check(together: &Together) {
    let Together {
        signals,
        ends,
        logs,
    } = together;
    let server = ScriptedServer::start(|_| None);
    let port = PlainPort::free();
    let flags = ["run", "--master", &server.url(), &port.argument()];
    let mut process = DaemonProcess::start(&flags);
    let waiting = Waiting::new(server.stop());
    // The start ends with this page. A signal before that ends the process at once.
    waiting.eventually("the daemon runs", || {
        port.get("/debug/replicasets").0 == 200
    });
    for signal in *signals {
        process.signal(*signal);
    }
    let is_logged = || process.log().contains(logs);
    let is_told = waiting.within(is_logged);
    assert!(is_told, "{signals:?}: {}", process.log());
    if !ends {
        let is_running = process.try_wait().is_none();
        assert!(is_running, "{signals:?}: {}", process.log());
        process.signal(SIGTERM);
    }
    let status = process.exit();
    let log = process.log();
    assert_eq!(status.code(), Some(0), "{signals:?}: {log}");
    assert!(
        !log.contains("panick") && log.lines().count() < 80,
        "{signals:?}: {log}"
    );
}

#[test]
fn signals_that_come_together_are_all_obeyed() {
    std::thread::scope(|scope| {
        for together in TOGETHER {
            scope.spawn(|| check(together));
        }
    });
}
