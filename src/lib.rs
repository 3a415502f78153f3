//! The Kubernetes ReplicaSet controller as a synchronous, multi-threaded daemon of its own.
//!
//! This page is the architecture document. The README is for those who run the daemon.
//!
//! # The way of the data
//!
//! ```text
//! API server ──list+watch──▶ cache ──event──▶ controller::handlers ──key──▶ workqueue ──key──▶ controller::sync
//!     ▲                        │                    │ observe                                      │ decide
//!     │                        └──── read-only view ┼────────────────────────────────────────────▶ │
//!     │                                             ▼                                              ▼
//!     └───────────── writes (pods, status, events) ◀──────── expectations ◀──────────────────── plan
//! ```
//!
//! One direction, no shortcuts: nobody but [`writes`] changes the cluster, nobody but [`cache`]
//! remembers it, handlers never call the API server, a sync never touches a socket by itself: what it
//! must know past the caches it asks through [`live`].
//!
//! # Code map
//!
//! | room | what lives there | may use |
//! |---|---|---|
//! | [`api`] | the Kubernetes vocabulary, pure: keys, selectors, the slim [`api::Pod`], the [`api::ReplicaSet`], the `Status` error | – |
//! | [`stdx`] | named threads and what they work on, the stop signal, clocks, back-off, escapes, what was built | – |
//! | [`telemetry`] | the log; metrics; health by progress; what the threads do; what systemd is told | stdx |
//! | [`client`] | bytes to and from an API server: kubeconfig, credentials, TLS, throttle, streams | api, stdx, telemetry |
//! | [`cache`] | server state → local read-only view: list/watch machine (pure), its loop, indexed stores | api, client, stdx |
//! | [`workqueue`] | keys, deduplicated, delayed, rate limited; nothing of Kubernetes | stdx, telemetry |
//! | [`leader_election`] | which of several daemons writes: the Lease, the election (pure), the fence | api, client, stdx, telemetry |
//! | [`writes`] | the only code that changes the cluster: pods, status, events | api, client, stdx |
//! | [`live`] | what a sync asks the API server past the caches: a ReplicaSet, pods, how far it has come, who wrote what | api, client, stdx, writes |
//! | [`batches`] | creates and deletes of many pods: slow start, and the threads that send them | stdx |
//! | [`controller`] | handlers, priority, worker, sync, freshness, decide (claim, counts, plan, deletion order, status), memory | api, batches, cache, live, stdx, telemetry, workqueue, writes |
//! | [`explain`] | why a ReplicaSet is as it is: facts (a daemon's, or the API's) → report → text and JSON; decides by the controller's own code | api, client, controller, stdx |
//! | [`http_server`] | connections, requests, answers: HTTP/1.1 and TLS on the server's side | api, stdx |
//! | [`serving`] | the daemon's own pages: health, metrics, configuration; who may see them | api, client, http_server, stdx, telemetry |
//! | [`rights`] | what the daemon must be allowed to do: one table, its manifests, the check at start, which also asks for the API server's version | api, client, stdx, telemetry |
//! | [`manager`] | owns every thread: start order, stop order, deadlines | all above |
//! | [`devserver`] | in-memory API server with a simulated kubelet; a stand-in, never a cluster; only with the feature of its name | api, http_server, stdx |
//! | [`cli`] | flags, environment and configuration file → options, no effects | – |
//! | [`mod@run`] | the commands `run`, `explain`, `rbac`, `dev` (a cluster in one process) and `demo` (chapters that are checked) | all above |
//!
//! `tests/it/tidy.rs` holds the third column.
//!
//! # Threads
//!
//! Every thread has a name of at most 15 bytes, is started by [`stdx::thread`] (`ctrl-c` alone by the
//! crate `ctrlc`), and blocks on nothing that its stack does not show. One that panics stops the
//! daemon with exit code 1; a panic inside one sync is caught and the key repeated. Whoever sends a
//! request may, if a credential plugin is configured, run it or wait for another thread that does: at
//! most a minute, 5 s once the daemon stops.
//!
//! | thread | does | waits for | what ends the wait |
//! |---|---|---|---|
//! | `main` | [`manager::Manager::wait`] | the stop signal, then the others in stop order | signal; 30 s |
//! | `ctrl-c` | gives the stop signal | SIGTERM, SIGINT | one that comes a second later ends the process; before the daemon runs, the first one does |
//! | `signal` | runs what [`run::signals::on_reload`] and [`run::signals::on_dump`] were given | SIGHUP, SIGUSR1; a credential plugin | the stop signal sends one; 60 s |
//! | `watch-rs`, `watch-rc`, `watch-pods` | list and watch, store, handlers | a read from the API server; of pods, 10 ms for several events at once; a pause after failures | data, 5 min of silence, stop shuts the socket; time |
//! | `sync-0…n`, `rc-sync-0…n` | [`controller::ReplicaSetController::sync_replica_set`] | the queue; a request; a batch | key, shutdown; answer, 60 s |
//! | `batch-0…m` | helps the workers with their batches ([`batches`]) | rayon's queue; the next batch of a slow start; a request; the token bucket | job, pool dropped; the last answer of the batch before; answer, 60 s; stop |
//! | `delay`, `rc-delay` | puts delayed keys into the queue when due | the next due time, at most 10 s | time, an earlier key, shutdown |
//! | `self-check` | asks whether each right is there that is needed, then for the API server's version | a second at first; an answer; a pause after failures; 5 min | time, stop; answer, 5 s; time, stop |
//! | `lease` | acquires, renews and releases the lease ([`leader_election::Elector`]) | a request; pauses between tries | answer, half the renew deadline; stop, and the end of the last write |
//! | `events`, `rc-events` | sends events | recorded events; a request; pauses between tries, and of 50 ms after a burst | event; answer, 10 s; its stop |
//! | `http`, `plain` | accept connections to the pages of [`serving`] | a connection; 100 ms without descriptors | the end of the daemon connects; time |
//! | `http-N`, `plain-N` | read requests, answer pages | the client; a review of the API server | its limits: 10 s for a request, 90 s between two, 30 s for an answer; 5 s for a review; the end shuts the socket |
//! | `systemd` | tells systemd how the daemon is, feeds the watchdog | a second, or a third of the watchdog's time | time, stop |
//! | `dev-*` | the dev server's: see [`devserver`] | a request; a change; time | data, time, stop |
//!
//! Stop order: signal → queue shut down, watches' sockets shut → join `sync-*` → events drained →
//! lease released → join `watch-*`, `delay`, `batch-*`. 30 s in all, then the stuck threads are named and
//! the exit code is 1. `systemd` says that it stops and ends at the signal; `http` goes last, so that a
//! daemon that hangs while it stops can be looked at.
//!
//! # How many, and why
//!
//! Threads: with the defaults 47 that last (5 `sync`, 32 `batch`, 2 watches, `main`, `ctrl-c`,
//! `signal`, `delay`, `events`, `lease`, `http`, `self-check`), `systemd` under systemd, and one
//! for each connection of a client to the daemon's pages, 100 at most for each port.
//! ReplicationControllers bring 8 more (5 `rc-sync`, `watch-rc`, `rc-delay`, `rc-events`). A thread
//! costs some 20 KiB, most of it the allocator's. A quarter of the `batch` threads serves large
//! syncs ([`batches::LARGE`]), the rest small ones ([`batches::pool`]).
//!
//! Sockets to the API server, each in HTTP/1.1 with one request at a time, opened when first needed and
//! not used again when it has been idle for 15 s (`client::http`); none is opened for a single request,
//! and no name is looked up but for a new one:
//!
//! | for | at most | why so many |
//! |---|---|---|
//! | each watch | 1 | a watch keeps its connection busy, and is cut without harm to others |
//! | the requests of a controller | its `sync` and `batch` threads: 5 + 32 | a thread sends one request at a time; with fewer some would shake hands anew. An idle one keeps some 50 KiB of buffers |
//! | the events of a controller | 1 | one thread sends them, and they must not hold back pods |
//! | the lease | 1 | nothing may delay a renewal |
//! | the check of the daemon's rights, and the API server's version | 1 | closed between two looks at the version |
//! | token reviews, access reviews | one for each of the daemon's own pages that is asked for at once; 4 each are kept | an answer serves for 10 s |
//!
//! The requests that large syncs send at once keep a kube-apiserver on two processors busy; with more,
//! everybody else waits behind them (tests/bench/README.md).
//! Most of these numbers stand in `manager::clients`; `serving` and [`rights::self_check`] have their own.
//!
//! # Locks
//!
//! Std locks, each round one private `State`, held for map operations only: never across I/O, a
//! channel, a log line or a second lock, nor across a callback but that of `Store::visit`, which counts.
//! One exception: `client::live_tls` reads files with certificates under its lock, which who opens a
//! connection would have to wait for anyway.
//!
//! | lock | guards | taken by |
//! |---|---|---|
//! | `cache::Store` (one `RwLock` each) | objects, indexes, tallies | its watch thread writes, workers read |
//! | `cache::latch` | who waits for the first lists | watch threads |
//! | `controller::memory` | what is remembered of each ReplicaSet, who waits for which version, what a new leader has still to prove | workers, watch threads, `lease` |
//! | `batches::fair_pool` | nothing: threads meet at it between two batches | workers, `batch-*` |
//! | `workqueue::queue`, `workqueue::delaying`, rate limiters | dirty and processing; due times; failures | everyone who adds or gets |
//! | `client` throttle | tokens, who waits for them | everyone who sends |
//! | `controller::observe::other_writers`, `controller::observe::shadow` | when the API server was asked last; what is told of a dry run | workers |
//! | `stdx::activity` (one per thread, and one for their list) | what the thread works on | the thread itself, whoever looks |
//! | `client::warnings` | which have been logged | everyone who sends |
//! | `client::live_tls` | what was read of certificates last; which watches to cut | everyone who sends, `signal` |
//! | `client::credentials`, `client::exec_plugin` | the token, who runs the plugin | everyone who sends, `signal` |
//! | `manager::watch_source` | when the API server was heard last | `http-N`, `systemd` |
//! | `leader_election` health, `manager` herald | who leads; the Lease while we do | `lease`, `http`, `main` |
//! | `stdx::stop` | the cause and the wakers | everyone |
//! | `http_server` connections | which are open | `http`, `http-N` |
//! | `serving` pages, certificates, answers of reviews, gate | who answers what; files as read; answers for 10 s; the last warning | `http-N` |
//! | `telemetry::health` | the list of checks | who adds one, `http-N`, `systemd` |
//! | `telemetry::logging` limit | how much each place in the code has logged | everyone who logs |
//! | `telemetry::metrics` | which numbers are asked for when somebody looks; asked without it | `main` at the start, `http` |
//! | `telemetry::metrics` credentials | until when those of the plugin last | who runs the plugin, `http-N` |
//! | `run::signals` | what SIGHUP and SIGUSR1 run | `main`, `signal` |
//!
//! # Invariants
//!
//! - The two kinds share pods, their watch and the batch pool, and nothing else: no queue, no
//!   expectation, no token bucket. What belongs to one kind is never taken by the other.
//! - No ReplicaSet is synced on two threads at once (the queue's dirty and processing sets).
//! - Expectations are written down before the request that fulfils them is sent, and asked before the
//!   pods are listed.
//! - A pod that may have been created is never created under another name before its fate is known; a
//!   pod that may have been deleted is chosen again before another one.
//! - A ReplicaSet for which few pods are due is never made to wait: not by the pace of its status,
//!   not by another one's batch, not by what only waits for a status, and (with more than one
//!   worker) not by all the workers having many pods to create or delete; but up to 25 ms for the
//!   ReplicaSets' watch, after pods went (`controller::memory::positions`). One with many waits for
//!   other large ones only. Large syncs send few requests at once, so that they do not stand before
//!   small ones in the API server either.
//! - The cache's tallies count what its buckets of orphans and of pods that somebody here may own hold,
//!   at every moment that a reader can see.
//! - Nothing is created or deleted before both first lists are complete.
//! - With an election, no byte of a request that writes leaves this process but while the lease is ours
//!   by our own clock ([`leader_election`] says what window is left), and the lease is released only
//!   after the last write has ended.
//! - What is not understood is carried, not dropped: the template and the metadata are bytes.
//! - No list is ever held as it comes: what fills a cache is made slim object by object as it arrives,
//!   what is asked for past the caches page by page, and no pod is kept as JSON.
//! - Every wait has a bound and an end; every channel says its bound; events may be dropped (and are
//!   counted), keys never.
//!
//! # Differences from upstream
//!
//! Marked `DIFFERS:` where they stand in the code. The ones that can be noticed:
//!
//! - **Expectations by identity** ([`controller::memory::own_writes`]): names of pods to come, UIDs of
//!   pods to go; a stranger's pod satisfies nothing. A pod that came and went unseen is not waited
//!   for once the cache has passed the version under which it was stored.
//! - **The controller names its pods** ([`controller::memory::pod_names`]), as the API server would, from a
//!   sequence that a restarted daemon repeats as long as the ReplicaSet is at the same version: a
//!   lost answer or a `kill -9` makes no second pod, and no name returns but those of pods that
//!   came and went after the last write.
//! - **Deletes carry the pod's UID**, so that a pod recreated under the name is never hit.
//! - **Reading one's own writes wakes instead of polling** ([`controller::memory::positions`]).
//! - **An expectation that expires leads to a live LIST**, never to a guess (`controller::act::verify`).
//! - **The rank of a pod counts what siblings own** (and orphans that match), not every pod of the
//!   namespace that a selector happens to match.
//! - **ReplicationControllers read their own writes** as ReplicaSets do; upstream's have no such store.
//!   As upstream, their pods are not ranked by what siblings own.
//! - **ReplicationControllers are controlled on request only** (`--controllers`), so that who takes only
//!   the ReplicaSet controller out of kube-controller-manager does not get two writers.
//! - **A status update that is repeated** keeps what others have written meanwhile, and is never made
//!   to another object of the same name.
//! - **A refused create is repeated under its name**, so that its event is counted up.
//! - **A pod that a delete finds gone is waited for** as long as the cache shows it, so that no other one
//!   is taken in its place.
//! - **A scale-down waits until the pods are as new as the spec that asks for it** (`controller`,
//!   `memory::positions`), 25 ms at most, so that a deletion cost that was written before decides.
//! - **Pods that go are replaced when the ReplicaSets are as new as their going**, or 25 ms after
//!   it: their owner may go too, and its watch be behind. Statuses do not wait for that.
//! - **Every wait of a ReplicaSet for an event ends by itself** after five minutes, since an event can get
//!   lost in a relist.
//! - **A new client certificate ends no request**: connections that show the old one carry their request
//!   to its end and are then closed; watches are cut. A server whose certificate is not accepted leads to
//!   an early look at the CA file.
//! - **A credential plugin is bounded**: a minute per run, pauses of 1 to 30 s after one that failed, and
//!   an expired credential serves until the plugin gives another or the API server refuses it.
//! - **A watch that brings nothing, not even a bookmark, until it is given up ends in a list**
//!   ([`cache::list_watch`]): its version may lie in the future of an etcd restored from a backup.
//! - **A server that goes back**, as after such a restore, is believed at once: whatever differs is
//!   taken from its list though it may have the version of before, own writes from before are not
//!   waited for, and each ReplicaSet is compared with the API server before it is acted on
//!   ([`controller::take_over`]).
//! - **An API server whose port nobody listens at is tried every 1.6 to 3.2 s** by each watch, so
//!   that all use it soon after it is back ([`cache::list_watch`]); upstream waits up to a minute.
//! - **A list after an expired watch has a back-off of its own**, so that the one after an outage does not
//!   wait as long as the outage did.
//! - **A status waits that only gets better** ([`controller::memory::status_throttle`]): more pods, labelled, Ready or
//!   available ones, or fewer terminating ones, and no count yet as wanted; up to a millisecond for
//!   each pod. A loss (also in a scale-down), a count that reaches what is wanted and a condition
//!   never do; a generation waits for pods that were created for it, 25 ms at most.
//! - **While many pods change, their watch rests** up to 10 ms between two reads ([`client::ReadCoalescing`]), so
//!   that one wake-up serves several events.
//! - **A pod in which nothing has changed that a sync reads** enqueues nobody, unless its owner's last
//!   sync has failed.
//! - **The queue has priorities**, as controller-runtime's: few missing pods go before many, and
//!   those before statuses and resyncs. At most half of the workers do large syncs
//!   ([`batches::LARGE`]), so that the others never wait for those.
//! - **ReplicaSets take turns** at the batch threads ([`batches::fair_pool`]) and at the rate limit.
//! - **Health looks at progress** (`manager::health_checks`), and `/livez` and `/readyz` exist.
//! - **Paths that everybody may see are answered before anybody is asked who it is**, so that a probe
//!   with a token works while the API server is away; no front proxy, no HTTP/2 ([`serving`]).
//! - **Another writer is noticed** ([`controller::observe::other_writers`]): a warning, an event and a metric.
//! - **A dry run** ([`controller::observe::dry_run`]) decides by the same code, on clients that refuse to write.
//! - **`--controllers` is `replicaset-controller` and the lease has a name of its own** unless said
//!   otherwise ([`cli::flags`]), so that nothing is taken from a kube-controller-manager that was not given.
//! - **The log is bounded at its default level** ([`telemetry::logging`]): a place in the code may log a
//!   line a second after a burst of 100, and tells how many it left out.
//! - **What others have said moves no cursor** ([`stdx::escape`]): control characters and the like
//!   are escaped in the log, in `explain` and in the messages of events.
//! - **A leader stops writing a renew deadline after its last renewal**, by a clock that counts suspended
//!   time, asked right before each write to the socket ([`leader_election`]); upstream's may write on for
//!   as long as it takes to notice.
//! - **A renewal never acquires**: a leader whom the Lease does not name ends, also where the Lease
//!   names nobody; and a standby gives the holder of a Lease that is deleted or emptied by hand its
//!   time.
//! - **A new leader acts on nothing that it has not proven to be as new as its take-over**
//!   ([`controller::take_over`]).
//! - **The lease is released on a clean stop**, and its unknown fields are kept.
//! - **A pod that is younger than a millisecond** divides no ages; upstream panics on it
//!   ([`controller`], `age_ratio`).
//! - **The queue's remainder is left at stop**, and events are drained for a bounded time.

pub mod api;
pub mod batches;
pub mod cache;
pub mod cli;
pub mod client;
pub mod controller;
#[cfg(feature = "devserver")]
pub mod devserver;
pub mod explain;
pub mod http_server;
pub mod leader_election;
pub mod live;
pub mod manager;
pub mod rights;
pub mod run;
pub mod serving;
pub mod stdx;
pub mod telemetry;
pub mod workqueue;
pub mod writes;
