//! Integration tests: the whole daemon, seen from outside, against the dev server or (with
//! `make test-control-plane`) against a real API server behind the dev server's faults. Both need
//! the feature `devserver`; tests that do not need it are in `tests/binary`.

/// Test clusters, the daemon under test, and waiting.
mod support;

/// Group C: adopting and releasing pods.
mod adoption;
/// Real faults on a real control plane.
mod chaos;
/// The garbage collector beside the controller.
mod collection;
/// Signals, log and threads of the binary.
mod command_line;
/// Flags of kube-controller-manager, and log formats.
mod configuration;
/// The coverage table: conformance cases and the tests that cover them.
mod coverage;
/// Killing the binary at any moment, and stopping it while requests hang.
mod crash;
/// Rotated credentials, and SIGHUP.
mod credentials;
/// Group E: the order in which a scale-down deletes pods.
mod deletion_order;
/// The command `demo`, on a terminal and into a pipe.
mod demo;
/// The command `dev`: loading and saving data, and rejected objects.
mod dev;
/// Compares the dev server with a real API server, request by request.
mod differential;
/// README and manual: sizes, and links that resolve.
mod documents;
/// Group K: the event recorder.
mod events;
/// Groups A and B: expectations, and writes whose outcome is unknown.
mod expectations;
/// The command `explain`, and dry runs.
mod explain;
/// Opt-ins for Failed pods: back-off, and deletion of old ones.
mod failed_pods;
/// Fair shares of the batch threads and of the rate limit.
mod fairness;
/// The manual's page of flags, generated from the command line's definition.
mod flags;
/// A hostile API server: a table of broken answers, and bounds on what the daemon uses.
mod hostile_server;
/// Group M: the cases of upstream's integration tests.
mod integration;
/// The dev server behind a real kubectl.
mod kubectl;
/// Group L: leader election among several daemons.
mod leader_election;
/// Group J: lists and watches on the wire.
mod list_watch;
/// Live lists, which bypass the caches.
mod live_lists;
/// The manifests and kustomizations of `config/`.
mod manifests;
/// The manual against the program: pages, annotations, runbooks.
mod manual;
/// The metrics that dashboards and alerts use.
mod metrics;
/// A second controller beside the daemon.
mod other_writer;
/// Pods that a scale-down must not choose.
mod protection;
/// The recipes of install.md, run as they are written.
mod recipes;
/// Regressions against a real control plane.
mod regressions;
/// Rejected creates, and what ends their back-off.
mod rejections;
/// Group A: the number of pods, and pods made from the template.
mod replicas;
/// Group O: ReplicationControllers, alone and beside ReplicaSets.
mod replication;
/// The manual's figures of reliability, made of the records of long runs.
mod report;
/// RBAC: the self-check at start, and the rights that the daemon needs.
mod rights;
/// A Deployment on the dev server, beside a real controller of Deployments.
mod rollout;
/// `scale-down-order`: spread and consolidate.
mod scale_down_order;
/// Secrets of every kind: no log, page or error shows one.
mod secrets;
/// The daemon's HTTP pages, and its notifications to systemd.
mod serving;
/// Group G: failing creates and deletes.
mod slow_start;
/// Groups F and H, in part: status updates from a stale cache.
mod staleness;
/// Group F: the contents of the status, and when the daemon writes it.
mod status;
/// The binary in bad surroundings: limits, closed streams, odd environments, signals in pairs.
mod surroundings;
/// Rules of this repository that the compiler does not check.
mod tidy;
/// The pinned versions of Kubernetes, against the manual, the daemon and the dev server.
mod versions;
