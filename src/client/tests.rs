//! The client against a small server on loopback.

mod executable;
mod plain;
mod proxied;
mod rotating;
mod secure;
mod server;
mod streams;

use std::time::{Duration, Instant};

use super::{Client, ClientConfig, ClientOptions};
use crate::stdx::stop::{Cause, Stop};
pub(super) use executable::write_executable;
pub(super) use secure::Authority;
use server::Server;

/// Nothing that these tests wait for takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(5);

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
