//! What any controller of Kubernetes needs: the vocabulary of the API, a client, caches, a work
//! queue, leader election, serving HTTP, a log and metrics. It knows nothing of the daemon above.
//!
//! | module | owns | may use |
//! |---|---|---|
//! | [`api`] | the Kubernetes vocabulary: keys, selectors, slim pods, ReplicaSets | – |
//! | [`stdx`] | named threads and their activity, stop signal, clocks, back-off, escapes | – |
//! | [`telemetry`] | log, metrics, health checks, systemd notifications | stdx |
//! | [`client`] | requests to API servers: kubeconfig, TLS, throttle | api, stdx, telemetry |
//! | [`cache`] | list/watch state machine (pure), reflector, indexed stores | api, client, stdx |
//! | [`workqueue`] | keys, deduplicated, delayed, rate limited | stdx, telemetry |
//! | [`event_recorder`] | events: aggregated, counted, filtered, sent | api, client, stdx |
//! | [`leader_election`] | Lease, election (pure), fence | api, client, stdx, telemetry |
//! | [`http_server`] | HTTP/1.1 and TLS on the server's side | api, stdx |
//!
//! The feature `simulation` has the other half of [`stdx::turns`], a transport without sockets, and
//! what tests of other packages use. Tests enable it; no release build has it.

pub mod api;
pub mod cache;
pub mod client;
pub mod event_recorder;
pub mod http_server;
pub mod leader_election;
pub mod stdx;
pub mod telemetry;
pub mod workqueue;
