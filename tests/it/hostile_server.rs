//! The binary beside a hostile API server: it neither panics nor hangs, and what it uses, asks for
//! and logs is bounded.

/// What hostile answers consist of.
mod bodies;
/// The table of scenarios.
mod scenarios;

use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;

use self::bodies::{event, replica_set};
use self::scenarios::{Breaks, Scenario, scenarios};
use crate::support::{
    Asked, DaemonProcess, LIST_END, PlainPort, Reply, ScriptedServer, Then, Waiting,
};

/// How many daemons run at a time.
const AT_A_TIME: usize = 16;

/// How long the daemon continues after it has logged the error.
const OBSERVED: Duration = Duration::from_secs(1);

/// Bytes of the log at most.
const LOG_BYTES_MAX: usize = 128 << 10;

/// Beginnings of the paths that the daemon may ask for.
const PATHS: &[&str] = &[
    "/version",
    "/api/v1/pods?",
    "/api/v1/namespaces/default/",
    "/api/v1/replicationcontrollers?",
    "/apis/apps/v1/replicasets?",
    "/apis/apps/v1/namespaces/",
    "/apis/scheduling.k8s.io",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
];

/// The answer of the scenario's server, if it is one that is broken.
fn answer(scenario: &Scenario, elsewhere: &str, asked: &Asked) -> Option<Reply> {
    let is_replica_sets = asked.is_about("replicasets");
    let broken = || Some((scenario.reply)(elsewhere));
    match scenario.breaks {
        Breaks::Everything => broken(),
        Breaks::Pages if is_replica_sets && asked.is_watch() => {
            let body = r#"{"kind":"Status","code":400,"reason":"BadRequest"}"#;
            Some(Reply::whole("400 Bad Request", "", body))
        }
        Breaks::ReplicaSets | Breaks::Pages if is_replica_sets => broken(),
        Breaks::Creates if is_replica_sets && asked.is_streamed_list() => {
            let added = event("ADDED", replica_set("web", 1).to_string());
            Some(Reply::chunked(
                "application/json",
                &[&added, LIST_END],
                Then::Hold,
            ))
        }
        Breaks::Creates if asked.method == "POST" && asked.path.contains("/pods") => broken(),
        _ => None,
    }
}

/// What is wrong with the log of a daemon.
fn faults_of_log(log: &str, scenario: &Scenario) -> Vec<String> {
    let mut faults = Vec::new();
    if log.contains("panick") {
        faults.push("a panic".to_owned());
    }
    let is_raw = |c: char| (c.is_control() && c != '\n') || "\u{2028}\u{202e}".contains(c);
    if log.contains(is_raw) {
        faults.push("control characters".to_owned());
    }
    let (bytes, lines) = (log.len(), log.lines().count());
    if bytes > LOG_BYTES_MAX || lines > scenario.bounds.lines {
        faults.push(format!("{bytes} bytes in {lines} lines of the log"));
    }
    faults
}

/// What is wrong with the requests of a daemon.
fn faults_of_requests(asked: &[Asked]) -> Vec<String> {
    let is_allowed =
        |path: &str| PATHS.iter().any(|allowed| path.starts_with(allowed)) && !path.contains("..");
    let odd = asked.iter().filter(|asked| !is_allowed(&asked.path));
    odd.map(|asked| format!("{} {:.200}", asked.method, asked.path))
        .collect()
}

/// Runs a daemon against the scenario's server, and returns what is wrong, with the log.
fn run(scenario: &'static Scenario) -> Vec<String> {
    let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a free port");
    elsewhere.set_nonblocking(true).expect("a socket");
    let place = elsewhere.local_addr().expect("it listens").to_string();
    let server = ScriptedServer::start(move |asked| answer(scenario, &place, asked));
    let port = PlainPort::free();
    let mut process = DaemonProcess::start(&["run", "--master", &server.url(), &port.argument()]);
    let waiting = Waiting::new(server.stop());
    let mut faults = Vec::new();
    let is_met = || server.n_scripted() > 0 && process.log().contains(scenario.logs);
    if !waiting.within(is_met) {
        faults.push(format!("does not log {:?}", scenario.logs));
    }
    waiting.pause(OBSERVED);
    if !waiting.within(|| port.get("/livez").0 == 200) {
        faults.push("/livez does not respond".to_owned());
    }
    let (peak, requests) = (process.peak() / 1024, server.n_scripted());
    if peak > scenario.bounds.peak_mib || requests > scenario.bounds.requests {
        faults.push(format!("{peak} MiB of memory, {requests} requests"));
    }
    process.signal(Signal::SIGTERM);
    let status = process.ended();
    if status.is_none_or(|status| status.code() != Some(0)) {
        faults.push(format!("{status:?} after SIGTERM"));
    }
    if elsewhere.accept().err().map(|error| error.kind()) != Some(ErrorKind::WouldBlock) {
        faults.push("a request reached another server".to_owned());
    }
    let log = process.log();
    faults.extend(faults_of_log(&log, scenario));
    faults.extend(faults_of_requests(&server.asked()));
    if !faults.is_empty() {
        faults.push(log);
    }
    faults
}

#[test]
fn a_hostile_api_server_is_survived_within_bounds() {
    let (all, next) = (scenarios(), AtomicUsize::new(0));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(scenario) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let faults = run(scenario);
                    if !faults.is_empty() {
                        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        failed.push(format!("{}: {}", scenario.name, faults.join("\n")));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no run panicked");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
