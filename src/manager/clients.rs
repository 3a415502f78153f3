//! Which clients there are. Each has a token bucket of its own, as upstream's have: one for all lists
//! (upstream's `shared-informers`), and for each controller one for its writes and one for its events.
//! So no controller waits because the other one is busy.

use std::time::Duration;

use super::ManagerOptions;
use crate::client::ClientOptions;
use crate::leader_election::LeaderElectionOptions;

/// Watches have connections of their own ([`Client::stream_client`](crate::client::Client::stream_client)),
/// so none is kept for anything else.
pub(super) fn watch_client_options(options: &ManagerOptions) -> ClientOptions {
    ClientOptions {
        connections: 0,
        ..throttled(options)
    }
}

/// As many connections as threads send requests at once, so that none pays for a new handshake.
pub(super) fn client_options(options: &ManagerOptions, n_workers: u16) -> ClientOptions {
    let senders = n_workers + options.batch_parallelism;
    ClientOptions {
        connections: senders.into(),
        ..throttled(options)
    }
}

/// Events have a bucket and a connection of their own, so that they never hold back pods; and a short
/// patience, because the one thread that sends them must not wait long for any.
pub(super) fn event_client_options(options: &ManagerOptions) -> ClientOptions {
    ClientOptions {
        connections: 1,
        request_timeout: Duration::from_secs(10),
        ..throttled(options)
    }
}

/// The Lease's: one connection, no throttle but the election's own pace, and no fence.
pub(super) fn lease_client_options(options: &LeaderElectionOptions) -> ClientOptions {
    ClientOptions {
        qps: 0.0,
        connections: 1,
        request_timeout: options.request_timeout(),
        ..ClientOptions::default()
    }
}

fn throttled(options: &ManagerOptions) -> ClientOptions {
    ClientOptions {
        qps: options.kube_api_qps,
        burst: options.kube_api_burst,
        read_only: options.dry_run,
        ..ClientOptions::default()
    }
}
