//! The client against a small server on loopback.

mod executable;
mod plain;
mod proxied;
mod rotating;
mod secure;
mod server;
mod streams;

use std::time::{Duration, Instant};

use server::Server;

use super::{Client, ClientConfig, ClientError, ClientOptions, user_agent};
use crate::stdx::build;
use crate::stdx::stop::{Cause, Stop};

pub(super) use executable::write_executable;
pub(super) use secure::Authority;

/// Timeout of every wait in these tests, which only a hang meets.
const PATIENCE: Duration = Duration::from_mins(2);

/// A client of `server` without a rate limit, and its stop signal.
fn client_of(server: &Server) -> (Client, Stop) {
    client(&ClientConfig::plain(&server.url()), &unlimited())
}

fn client(config: &ClientConfig, options: &ClientOptions) -> (Client, Stop) {
    let stop = Stop::new();
    let client = Client::new(config, options, &stop);
    (client, stop)
}

fn unlimited() -> ClientOptions {
    ClientOptions {
        qps: 0.0,
        ..ClientOptions::default()
    }
}

/// The client's error that an error of a stream carries.
fn carried_by(error: std::io::Error) -> ClientError {
    error.downcast().expect("a client's error")
}

fn requested() -> Cause {
    Cause::Requested("test".to_owned())
}

/// Repeats `attempt` until one takes less than `limit`, since a slow machine may delay any of them.
#[track_caller]
fn check_within(limit: Duration, attempt: impl Fn()) {
    let took = |_| {
        let began = Instant::now();
        attempt();
        began.elapsed()
    };
    assert!((0..10).map(took).any(|took| took < limit), "{limit:?}");
}

/// Runs the blocking `body` on its own thread, triggers the stop once `blocked` returns, and
/// returns the result of `body`. Panics if the stop does not end `body`.
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
    stop.stop(requested());
    let result = receiver.recv_timeout(PATIENCE);
    let result = result.expect("the stop signal ends the wait");
    thread.join().expect("the thread does not panic");
    result
}

#[test]
fn the_user_agent_has_the_form_of_client_go() {
    let (version, platform) = (env!("CARGO_PKG_VERSION"), build::platform());
    let expected = format!("replicaset-controller/{version} ({platform}) kubernetes/");
    let agent = user_agent();
    assert!(agent.starts_with(&expected), "{agent}");
    assert!(agent.ends_with("/replicaset-controller"), "{agent}");
}
