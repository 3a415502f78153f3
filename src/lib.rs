//! Kubernetes' ReplicaSet controller as a standalone, synchronous, multi-threaded daemon.
//!
//! This page is the architecture document. The README and the manual are for operators.
//!
//! # Data flow
//!
//! ```text
//! API server ──list+watch──▶ cache ──event──▶ handlers ──key──▶ workqueue ──key──▶ sync
//!     ▲                        │                 │ observe                           │ decide
//!     │                        └─ read-only view ┼─────────────────────────────────▶ │
//!     │                                          ▼                                   ▼
//!     └──────── writes (pods, status, events) ◀──────── expectations ◀───────────── plan
//! ```
//!
//! Data moves in one direction. Only [`writes`] changes the cluster. Only [`cache`] stores cluster
//! state. Handlers never call the API server. A sync has no client of its own: it reads past the
//! caches through [`live`].
//!
//! # Code map
//!
//! Four packages: `kubernetes` is what any controller needs, [`deployment`] a controller of
//! Deployments, [`devserver`] the API server of demos and tests, and this one the daemon. The
//! modules of the first are re-exported here.
//!
//! ```text
//! src/kubernetes/  api stdx telemetry client cache workqueue event_recorder leader_election
//!                  http_server
//!    ▲     ▲              ▲
//!    │  src/deployment/   │
//!    │     ▲        src/devserver/
//!    │     │              ▲  only the commands `dev` and `demo`: the feature `devserver`
//! src/  writes live batches controller explain serving rights manager cli run
//! ```
//!
//! A module here is one of the first two packages, or of this one. `tests/it/tidy.rs` enforces the
//! third column.
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
//! | [`writes`] | the changes to the cluster: pods, status | api, client, event_recorder, stdx |
//! | [`live`] | reads of the API server past the caches | api, client, stdx, writes |
//! | [`batches`] | slow start, and the threads that send creates and deletes | stdx |
//! | [`controller`] | handlers, sync, decide, act, memory | above, not client, leader_election |
//! | [`deployment`] | the Deployment controller | kubernetes |
//! | [`explain`] | reports | above, rights; not leader_election, writes, batches |
//! | [`http_server`] | HTTP/1.1 and TLS on the server's side | api, stdx |
//! | [`serving`] | the HTTP endpoints; access control | api, client, http_server, stdx, telemetry |
//! | [`rights`] | RBAC permissions: manifests, self-check | api, client, live, stdx, telemetry |
//! | [`manager`] | every thread: start order, stop order, deadlines | all above |
//! | [`devserver`] | in-memory API server, simulated nodes | api, http_server, stdx |
//! | [`cli`] | flags, environment and configuration file → options, without effects | api, stdx |
//! | [`mod@run`] | the commands `run`, `explain`, `rbac`, `dev`, `demo` | all above |
//!
//! To follow one decision, read `controller/sync.rs`, then `controller/decide.rs`. The function
//! `pods_to_delete` in `controller/decide/deletion_order.rs` chooses the pods of a scale-down, with
//! the preferences in `optional/order.rs`.
//!
//! # Threads
//!
//! [`stdx::thread`] starts every thread and gives it a name of at most 15 bytes (the crate `ctrlc`
//! starts `ctrl-c`). A thread that panics stops the daemon with exit code 1, and so does a watch
//! whose API server was restored from a backup. A panic inside a sync is caught, and the key is
//! requeued. [`manager`] states how many threads and sockets there are.
//!
//! | thread | does | waits for |
//! |---|---|---|
//! | `main` | starts and joins the others | the stop signal; 30 s for the joins |
//! | `ctrl-c` | trips the stop signal | SIGTERM, SIGINT |
//! | `signal` | reloads, logs threads: [`run::signals`] | SIGHUP, SIGUSR1; a credential plugin |
//! | `watch-rs`, `watch-rc`, `watch-pods` | list, watch, store, handlers | a read, 5 min; a pause |
//! | `watch-quotas` | watch quotas, once one has rejected a pod | that; the right, 10 min; a read |
//! | `sync-N`, `rc-sync-N` | run syncs | the queue; a response, 60 s; a batch |
//! | `batch-N` | send creates and deletes for the workers | a job; a response, 60 s |
//! | `delay`, `rc-delay` | queue delayed keys when due | the next due time, 10 s at most |
//! | `self-check` | check rights; read the API server's version | a response, 5 s; 5 min |
//! | `lease` | acquire, renew and release the Lease | a response, half the renew deadline |
//! | `deploy-*`, `watch-deploy`, `watch-deploy-rs` | the same for Deployments | as above |
//! | `events`, `rc-events` | send events | an event; a response, 10 s |
//! | `http`, `plain` | accept connections | a connection; 100 ms without descriptors |
//! | `http-N`, `plain-N` | serve one connection | a request, 10 s; 90 s idle; a review, 5 s |
//! | `systemd` | notify systemd, feed the watchdog | 1 s, or a third of the watchdog's time |
//! | `dev-*` | the dev server: see [`devserver`] | a request; a change; time |
//!
//! A thread that sends a request may also wait for the token bucket, and for a credential plugin:
//! a minute at most, 5 s after the stop signal.
//!
//! Stop order: the signal shuts the queues and the sockets of the watches and ends every pause;
//! then join `sync-*`, drain events, release the Lease, join `watch-*`, `delay`, `batch-*`. After
//! 30 s in all, the daemon names the stuck threads and exits with code 1. `http` ends last, so that
//! a daemon that hangs while it stops can still be inspected.
//!
//! # Locks
//!
//! Each lock is parking_lot's, around one private `State`, held for map operations only: never
//! across I/O, a channel, a log line, a callback or a second lock. [`cache`] and [`client`] state
//! one exception each. The page of each module lists its locks and the threads that take them.
//!
//! # Invariants
//!
//! - The two kinds share the pods, their watch and the batch threads, and nothing else: no queue,
//!   no expectation, no token bucket. Neither kind ever takes an object of the other.
//! - No two threads sync one ReplicaSet at once (the queue's dirty and processing sets).
//! - A sync records an expectation before it sends the request. It reads the record first, then
//!   the ReplicaSet, then the pods, and decides once.
//! - A create of unknown outcome is not retried under another name. A delete of unknown
//!   outcome is retried before another pod is chosen.
//! - A small sync never waits for its own status throttle, for another ReplicaSet's batch, for keys
//!   that only need a status update, or (with two workers or more) for a worker that runs a large
//!   sync. After pods were deleted it waits for the ReplicaSet watch, 25 ms at most. A large sync
//!   waits for a permit, and its status does not.
//! - One namespace never delays another: namespaces take turns in the queue and at the token
//!   bucket, the syncs of one namespace leave workers to the others (with two workers or
//!   more, and for as many namespaces as [`workqueue::dedup`] states), and no sync waits for a
//!   `Retry-After` of more than a second.
//! - Large syncs send few requests at once, so they do not delay small ones in the API server.
//! - The cache's tallies equal the contents of its buckets whenever a reader can see them.
//! - Nothing is created or deleted before both first lists are complete.
//! - With leader election, write requests are sent only while this process holds the Lease, by its
//!   own clock ([`leader_election`] states the window that remains). The Lease is released
//!   only after the last write has ended.
//! - Templates and metadata are kept as bytes, so unknown fields survive. A ReplicaSet that is
//!   settled at zero is cached without them, and read again before its status is written.
//! - No list is ever held whole: the cache slims object by object, live reads go page by page.
//! - Every wait for another program has a bound, and every channel states its own. Events may be
//!   dropped, and are counted; keys never are.
//!
//! # Glossary
//!
//! Everything else is called as Kubernetes calls it. Expectations are Kubernetes' own, but name the
//! pods (creates) and UIDs (deletes) that the watch has not shown yet.
//!
//! | word | meaning |
//! |---|---|
//! | large sync | a sync with 32 pods or more to create or delete ([`batches::LARGE`]) |
//! | tally | pod counts that the cache keeps up to date for each bucket, such as one owner's pods |
//! | own write | a write by this process; the caches must show it before the next sync acts |
//! | quota queue | the ReplicaSets of a namespace that one quota rejects |
//! | permit | what a large sync needs to act, so that small ones find a free worker |
//! | position | the resource versions that the caches have reached, or must reach |
//! | plan, step | what a sync will create or delete; the plan with its reasons and its status |
//! | mark | a pod's annotation `scale-down`: `never` or `first` |
//! | record | everything that [`controller::memory`] keeps about one ReplicaSet |
//! | fence | the check before each write to a socket that this process holds the Lease |

pub mod batches;
pub mod cli;
pub mod controller;
pub mod explain;
#[cfg(test)]
mod fuzzing;
pub mod live;
pub mod manager;
pub mod manual;
pub mod rights;
pub mod run;
pub mod serving;
pub mod writes;

pub use deployment;
#[cfg(feature = "devserver")]
pub use devserver;
pub use kubernetes::{
    api, cache, client, event_recorder, http_server, leader_election, stdx, telemetry, workqueue,
};
