//! The options of each client. Like upstream, each client has its own token bucket: one client for
//! all lists and watches (upstream's `shared-informers`), and per controller one for writes and one
//! for events. So a busy controller never delays another one.

use std::time::Duration;

use super::ManagerOptions;
use crate::client::ClientOptions;
use crate::leader_election::LeaderElectionOptions;

/// Each watch opens its own connection ([`stream_client`](crate::client::Client::stream_client)),
/// so this client keeps no idle connections.
pub(super) fn watch_client_options(options: &ManagerOptions) -> ClientOptions {
    ClientOptions {
        connections: 0,
        ..throttled(options)
    }
}

/// One connection per thread that sends requests, so that no request pays for a new handshake.
pub(super) fn client_options(options: &ManagerOptions, n_workers: u16) -> ClientOptions {
    let senders = n_workers + options.batch_parallelism;
    ClientOptions {
        connections: senders.into(),
        ..throttled(options)
    }
}

/// Events have their own bucket and connection, so that they never delay pod writes. The request
/// timeout is short because a single thread sends all events.
pub(super) fn event_client_options(options: &ManagerOptions) -> ClientOptions {
    ClientOptions {
        connections: 1,
        request_timeout: Duration::from_secs(10),
        ..throttled(options)
    }
}

/// The Lease client: one connection, no throttle (the elector paces itself) and no fence.
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
