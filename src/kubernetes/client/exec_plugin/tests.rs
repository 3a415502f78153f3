//! Shell scripts as plugins, on a fake clock.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::child::{self, ChildError, Program};
use super::{ExecPlugin, ExecSettings, Interactive, Issued, VERSIONS};
use crate::client::tests::{Authority, write_executable};
use crate::stdx::clock::Clock;
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::testing::FakeClock;
use crate::stdx::thread::spawn;
use crate::telemetry::metrics;
use crate::telemetry::metrics::credentials::ExecPluginCall;

/// A limit that only a hang meets.
const LONG: Duration = Duration::from_mins(10);

/// A script in its own folder; `$0.runs` counts its runs.
struct Script {
    folder: tempfile::TempDir,
    clock: Arc<FakeClock>,
}

impl Script {
    /// A plugin that prints this status, in which `$n` is the number of the run.
    fn printing(status: &str) -> Self {
        let version = VERSIONS[0];
        let status = status.replace('"', "\\\"");
        Self::running(&format!(
            "echo \"{{\\\"kind\\\": \\\"ExecCredential\\\", \\\"apiVersion\\\": \\\"{version}\\\", \
             \\\"status\\\": {status}}}\""
        ))
    }

    fn running(body: &str) -> Self {
        let script = Self {
            folder: tempfile::tempdir().expect("there is room"),
            clock: Arc::default(),
        };
        script.rewrite(body);
        script
    }

    fn rewrite(&self, body: &str) {
        let text = format!("#!/bin/sh\necho x >> $0.runs\nn=$(grep -c x $0.runs)\n{body}\n");
        // ORDER: rename the complete file into place, since a run may be reading the old one.
        let new = self.folder.path().join("new");
        write_executable(&new, &text);
        fs::rename(&new, self.path()).expect("there is room");
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("plugin")
    }

    fn n_runs(&self) -> usize {
        let runs = fs::read_to_string(self.folder.path().join("plugin.runs"));
        runs.map_or(0, |runs| runs.lines().count())
    }

    fn settings(&self) -> ExecSettings {
        let command = self.path().to_str().expect("it is text").to_owned();
        ExecSettings {
            version: VERSIONS[0],
            program: command.clone(),
            command,
            arguments: Vec::new(),
            environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
            install_hint: None,
            interactive: Interactive::Never,
            cluster: None,
        }
    }

    fn plugin(&self) -> ExecPlugin {
        ExecPlugin::new(self.settings(), Arc::clone(&self.clock) as _)
    }

    fn in_seconds(&self, seconds: i64) -> String {
        let end = self.clock.wall() + jiff::SignedDuration::from_secs(seconds);
        end.to_string()
    }
}

fn token(issued: Result<Arc<Issued>, String>) -> String {
    let issued = issued.unwrap_or_else(|problem| panic!("{problem}"));
    let token = issued.token.as_ref().expect("it gave a token");
    assert!(token.is_sensitive());
    token.to_str().expect("it is text").to_owned()
}

#[test]
fn only_absolute_folders_are_searched_for_a_plugin() {
    let find = |path: &str| super::find_command("lib.rs", path, None);
    let folder = env!("CARGO_MANIFEST_DIR");
    let found = find(&format!(".:{folder}"));
    assert_eq!(found, Ok(format!("{folder}/lib.rs")));
    assert!(find(".").is_err(), "though it is in the current folder");
}

#[test]
fn a_credential_is_kept_until_it_expires() {
    let script = Script::running("");
    let end = script.in_seconds(60);
    let status = format!(r#"{{"token": "t$n", "expirationTimestamp": "{end}"}}"#);
    script.rewrite(&Script::body_of(&status));
    let (plugin, stop) = (script.plugin(), Stop::new());
    for _ in 0..3 {
        assert_eq!(token(plugin.credential(&stop)), "Bearer t1");
    }
    script.clock.advance(Duration::from_mins(1));
    assert_eq!(token(plugin.credential(&stop)), "Bearer t1", "not yet");
    script.clock.advance(Duration::from_secs(1));
    assert_eq!(token(plugin.credential(&stop)), "Bearer t2");
    assert_eq!(token(plugin.credential(&stop)), "Bearer t2");
    assert_eq!(
        script.n_runs(),
        2,
        "an expired credential is kept for a second"
    );
    script.clock.advance(Duration::from_secs(1));
    assert_eq!(token(plugin.credential(&stop)), "Bearer t3");
}

impl Script {
    fn body_of(status: &str) -> String {
        let script = Self::printing(status);
        let text = fs::read_to_string(script.path()).expect("it is there");
        text.lines().last().expect("it has lines").to_owned()
    }
}

#[test]
fn a_credential_without_expiry_is_kept_until_rejected() {
    let script = Script::printing(r#"{"token": "t$n"}"#);
    let (plugin, stop) = (script.plugin(), Stop::new());
    assert_eq!(token(plugin.credential(&stop)), "Bearer t1");
    script.clock.advance(Duration::from_hours(10_000));
    assert_eq!(token(plugin.credential(&stop)), "Bearer t1");
    plugin.note_rejected(1);
    assert_eq!(token(plugin.credential(&stop)), "Bearer t2");
    // The rejection of an older credential does not affect this one.
    plugin.note_rejected(1);
    script.clock.advance(Duration::from_secs(2));
    assert_eq!(token(plugin.credential(&stop)), "Bearer t2");
}

#[test]
fn concurrent_threads_run_the_plugin_once() {
    let script = Script::printing(r#"{"token": "t$n"}"#);
    let slow = format!("sleep 0.3\n{}", Script::body_of(r#"{"token": "t$n"}"#));
    script.rewrite(&slow);
    let plugin = Arc::new(script.plugin());
    let n_good = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..8)
        .map(|n| {
            let (plugin, n_good) = (Arc::clone(&plugin), Arc::clone(&n_good));
            spawn(&format!("t-plugin-{n}"), &Stop::new(), move || {
                assert_eq!(token(plugin.credential(&Stop::new())), "Bearer t1");
                n_good.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("panics are caught");
    }
    assert_eq!((n_good.load(Ordering::Relaxed), script.n_runs()), (8, 1));
}

#[test]
fn a_failed_run_backs_off_and_the_last_credential_stays() {
    let script = Script::running("echo hunter2; exit 3");
    let (plugin, stop) = (script.plugin(), Stop::new());
    let problem = |plugin: &ExecPlugin| plugin.credential(&stop).err().expect("it fails");
    for _ in 0..3 {
        let text = problem(&plugin);
        assert!(
            text.contains("exit code 3") && !text.contains("hunter2"),
            "{text}"
        );
    }
    assert_eq!(script.n_runs(), 1);
    for pause in [1, 2, 4, 8, 16, 30, 30] {
        let n_runs = script.n_runs();
        script
            .clock
            .advance(Duration::from_millis(pause * 1000 - 1));
        drop(problem(&plugin));
        assert_eq!(script.n_runs(), n_runs);
        script.clock.advance(Duration::from_millis(1));
        drop(problem(&plugin));
        assert_eq!(script.n_runs(), n_runs + 1, "after {pause} s");
    }
    script.clock.advance(Duration::from_secs(30));
    let end = script.in_seconds(60);
    let status = format!(r#"{{"token": "t", "expirationTimestamp": "{end}"}}"#);
    script.rewrite(&Script::body_of(&status));
    assert_eq!(token(plugin.credential(&stop)), "Bearer t");
    script.rewrite("exit 3");
    script.clock.advance(Duration::from_mins(2));
    assert_eq!(
        token(plugin.credential(&stop)),
        "Bearer t",
        "the API server has not rejected it"
    );
    plugin.note_rejected(1);
    assert!(problem(&plugin).contains("exit code 3"));
}

/// A plugin that prints the content of `$0.out`.
fn printing_a_file() -> Script {
    Script::running("cat $0.out")
}

/// Lets the plugin print this identity, which expires in a minute.
fn print_identity(script: &Script, (certificate, key): &(String, String)) {
    let status = serde_json::json!({
        "clientCertificateData": certificate,
        "clientKeyData": key,
        "expirationTimestamp": script.in_seconds(60),
    });
    let credential = serde_json::json!({
        "kind": "ExecCredential",
        "apiVersion": VERSIONS[0],
        "status": status,
    });
    let output = script.folder.path().join("plugin.out");
    fs::write(output, credential.to_string()).expect("there is room");
}

#[test]
fn certificates_are_issued() {
    let script = printing_a_file();
    let (certificate, key) = Authority::new().issue(&["me"]);
    print_identity(&script, &(certificate.clone(), key.clone()));
    let plugin = script.plugin();
    let issued = plugin
        .credential(&Stop::new())
        .unwrap_or_else(|problem| panic!("{problem}"));
    assert!(issued.token.is_none());
    assert_eq!(
        issued.identity,
        Some((certificate.into_bytes(), key.into_bytes()))
    );
    // A later run of another plugin, which issues a token, must not hide when this one expires.
    let other = Script::printing(r#"{"token": "t"}"#);
    token(other.plugin().credential(&Stop::new()));
    let metrics = metrics::global().render();
    let shown = metrics
        .lines()
        .find(|it| it.starts_with("rest_client_exec_plugin_ttl_"));
    assert!(shown.is_some_and(|it| !it.ends_with("inf")), "{shown:?}");
}

/// A plugin may read two files while they are rotated.
#[test]
fn an_identity_that_cannot_be_presented_replaces_none() {
    let (script, authority) = (printing_a_file(), Authority::new());
    let (first, second) = (authority.issue(&["me"]), authority.issue(&["me"]));
    let (plugin, stop) = (script.plugin(), Stop::new());
    let key_in_use = || {
        let issued = plugin.credential(&stop);
        let issued = issued.unwrap_or_else(|problem| panic!("{problem}"));
        let (_, key) = issued.identity.clone().expect("it gave one");
        String::from_utf8(key).expect("it is PEM")
    };
    print_identity(&script, &first);
    assert_eq!(key_in_use(), first.1);
    script.clock.advance(Duration::from_secs(61));
    print_identity(&script, &(first.0.clone(), second.1.clone()));
    assert_eq!(key_in_use(), first.1, "the API server has not rejected it");
    print_identity(&script, &second);
    script.clock.advance(Duration::from_secs(1));
    assert_eq!(key_in_use(), second.1, "the next run follows in a second");
}

#[test]
fn a_run_has_its_arguments_and_variables_but_no_input() {
    let script = Script::running(
        "test \"$1\" = one && test \"$OWN\" = yes && test \"$HOME\" = here || exit 4\n\
         case $KUBERNETES_EXEC_INFO in *'\"interactive\":false'*) ;; *) exit 5;; esac\n\
         read line && exit 6\n\
         grep -q 'SigBlk:.*[1-9a-f]' /proc/self/status && exit 7",
    );
    let body = Script::body_of(r#"{"token": "t"}"#);
    let text = fs::read_to_string(script.path()).expect("it is there");
    let own = text.split_once(".runs)\n").expect("it has a head").1;
    script.rewrite(&format!("{own}\n{body}"));
    let mut settings = script.settings();
    settings.arguments = vec!["one".to_owned()];
    for (name, value) in [
        ("OWN", "yes"),
        ("HOME", "here"),
        ("KUBERNETES_EXEC_INFO", "old"),
    ] {
        settings
            .environment
            .push((name.to_owned(), value.to_owned()));
    }
    let mut blocked = nix::sys::signal::SigSet::empty();
    blocked.add(nix::sys::signal::Signal::SIGHUP);
    blocked.thread_block().expect("it can be blocked");
    let plugin = ExecPlugin::new(settings, Arc::clone(&script.clock) as _);
    let issued = plugin.credential(&Stop::new());
    blocked.thread_unblock().expect("it can be unblocked");
    assert_eq!(token(issued), "Bearer t");
}

#[test]
fn an_interactive_plugin_fails_without_a_terminal() {
    if child::has_terminal() {
        return;
    }
    let script = Script::printing(r#"{"token": "t"}"#);
    let mut settings = script.settings();
    settings.interactive = Interactive::Always;
    let plugin = ExecPlugin::new(settings.clone(), Arc::clone(&script.clock) as _);
    let problem = plugin
        .credential(&Stop::new())
        .err()
        .expect("there is no terminal");
    assert!(problem.contains("not a terminal"), "{problem}");
    settings.interactive = Interactive::IfAvailable;
    let plugin = ExecPlugin::new(settings, Arc::clone(&script.clock) as _);
    assert_eq!(token(plugin.credential(&Stop::new())), "Bearer t");
}

#[test]
fn a_missing_plugin_reports_its_install_hint() {
    let script = Script::running("");
    let mut settings = script.settings();
    settings.program.push_str("-gone");
    settings.install_hint = Some("get it from the shop\n".to_owned());
    let plugin = ExecPlugin::new(settings, Arc::clone(&script.clock) as _);
    let problem = plugin.credential(&Stop::new()).err().expect("it is gone");
    assert!(problem.ends_with("get it from the shop"), "{problem}");
}

fn run(command: &str, timeout: Duration, stop: &Stop) -> Result<Vec<u8>, ChildError> {
    let program = Program {
        command: "sh",
        arguments: &["-c".to_owned(), command.to_owned()],
        environment: vec![("PATH", "/usr/bin:/bin")],
        interactive: false,
        timeout,
    };
    child::run(&program, stop)
}

#[track_caller]
fn check_fails(result: &Result<Vec<u8>, ChildError>, part: &str) {
    let error = result.as_ref().expect_err("it fails");
    assert_ne!(error.call, ExecPluginCall::NotFound);
    assert!(error.problem.contains(part), "{error:?}");
}

#[test]
fn a_hanging_program_is_killed_with_its_children() {
    let file = tempfile::NamedTempFile::new().expect("there is room");
    let path = file.path().display();
    let hanging = format!("sleep 1000 & echo $! > {path}; sleep 1000");
    let mut timeout = Duration::from_millis(300);
    let pid = loop {
        let problem = format!("timed out after {timeout:?}");
        check_fails(&run(&hanging, timeout, &Stop::new()), &problem);
        let pid = fs::read_to_string(file.path()).expect("a file");
        if pid.ends_with('\n') {
            break pid;
        }
        // It was killed before it had written its process ID.
        timeout *= 2;
    };
    let stat = format!("/proc/{}/stat", pid.trim());
    let is_gone = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
    let deadline = Instant::now() + LONG;
    while !is_gone() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert!(is_gone());
}

#[test]
fn silent_programs_are_killed_and_endless_output_fails() {
    let stop = Stop::new();
    check_fails(
        &run("exec >&-; sleep 1000", Duration::from_millis(300), &stop),
        "timed out",
    );
    check_fails(&run("yes", LONG, &stop), "its output is too large");
    check_fails(&run("kill -9 $$", LONG, &stop), "SIGKILL");
    let long = run("head -c 300000 /dev/zero", LONG, &stop);
    assert_eq!(long.map(|output| output.len()), Ok(300_000));
}

#[test]
fn a_program_never_waits_for_who_reads_its_errors() {
    let stop = Stop::new();
    let chatty = "head -c 1000000 /dev/zero >&2; echo the end >&2; printf x";
    assert_eq!(run(chatty, LONG, &stop), Ok(b"x".to_vec()));
    let fails = run(&format!("{chatty}; exit 3"), LONG, &stop);
    let error = fails.expect_err("it fails");
    assert_eq!(error.problem, "it ended with exit code 3");
}

#[test]
fn a_program_gets_five_seconds_once_the_daemon_stops() {
    let stop = Stop::new();
    stop.stop(Cause::Requested("test".to_owned()));
    // Even five seconds may be too short for a slow machine.
    let mut printed = (0..20).map(|_| run("printf x", LONG, &stop));
    assert!(printed.any(|output| output == Ok(b"x".to_vec())));
    check_fails(&run("sleep 1000", LONG, &stop), "daemon stops");
}

#[test]
fn waiting_threads_get_five_seconds_once_the_daemon_stops() {
    let script = Script::running("sleep 1000");
    let plugin = Arc::new(script.plugin());
    let (running, stop) = (Stop::new(), Stop::new());
    let (other, its_stop) = (Arc::clone(&plugin), running.clone());
    let runs = spawn("t-runs", &Stop::new(), move || {
        other
            .credential(&its_stop)
            .map(|_| ())
            .expect_err("it hangs");
    });
    let deadline = Instant::now() + LONG;
    while script.n_runs() == 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    stop.stop(Cause::Requested("test".to_owned()));
    let problem = plugin.credential(&stop).err().expect("it hangs");
    assert!(problem.contains("did not finish in time"), "{problem}");
    assert_eq!(script.n_runs(), 1);
    running.stop(Cause::Requested("test".to_owned()));
    runs.join().expect("the other one ends as well");
}
