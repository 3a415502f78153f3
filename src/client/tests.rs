//! The client against a small server on loopback.

mod plain;
mod proxied;
mod rotating;
mod secure;
mod server;
mod streams;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Client, ClientConfig, ClientOptions};
use crate::stdx::stop::{Cause, Stop};
pub(super) use secure::Authority;
use server::Server;

/// Nothing that these tests wait for takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes a file that can be run, by another process: a file that this one has open for writing cannot
/// be run, and each process that another test starts meanwhile keeps it open for a moment.
pub(super) fn write_executable(path: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 700 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let mut input = writer.stdin.take().expect("it is piped");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    assert!(
        writer.wait().expect("it ends").success(),
        "{}",
        path.display()
    );
}

/// A client of `server` without a limit, and its stop signal.
fn client_of(server: &Server) -> (Client, Stop) {
    client(&ClientConfig::plain(&server.url()), &unlimited())
}

fn client(config: &ClientConfig, options: &ClientOptions) -> (Client, Stop) {
    let stop = Stop::new();
    let client = Client::new(config, options, &stop).expect("the options are good");
    (client, stop)
}

fn unlimited() -> ClientOptions {
    ClientOptions {
        qps: 0.0,
        ..ClientOptions::default()
    }
}

fn requested() -> Cause {
    Cause::Requested("test".to_owned())
}

/// Runs `body`, which blocks, on a thread of its own; gives the stop signal once `blocked` says that
/// it does; and returns what `body` did, if it did that soon after.
#[track_caller]
fn stopped_while<T: Send + 'static>(
    stop: &Stop,
    blocked: impl FnOnce(),
    body: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = crossbeam_channel::bounded(1);
    let send = move || sender.send(body()).expect("the test waits for it");
    let thread = crate::stdx::thread::spawn("t-blocked", &Stop::new(), send);
    blocked();
    let signalled = Instant::now();
    stop.stop(requested());
    let result = receiver.recv_timeout(PATIENCE);
    let result = result.expect("the stop signal ends the wait");
    assert!(signalled.elapsed() < Duration::from_secs(1));
    thread.join().expect("the thread does not panic");
    result
}
