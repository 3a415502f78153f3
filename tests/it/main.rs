//! The integration binary: the daemon as a whole, seen from outside, on the dev server and (with
//! `make test-control-plane`) on a real API server, behind the dev server's faults. Both need the
//! feature `devserver`; what does not is in `tests/binary`.

/// Clusters, the daemon under test, and the waiting.
mod support;

/// Group C: whose pods are taken over and given back.
mod adoption;
/// What the garbage collector takes along, beside the controller.
mod collection;
/// Signals, log and threads of the binary.
mod command_line;
/// Flags of kube-controller-manager, and the forms of the log.
mod configuration;
/// Which test shows which case of the conformance checklist.
mod coverage;
/// The binary killed at any moment, and stopped while something hangs.
mod crash;
/// Credentials that change, and SIGHUP.
mod credentials;
/// Group E: which pods go first.
mod deletion_order;
/// `demo`, as people and as pipes see it.
mod demo;
/// `dev`: data that is loaded and kept, and what it refuses.
mod dev;
/// The dev server against the real one, request by request.
mod differential;
/// README and manual: sizes, and links that resolve.
mod documents;
/// The event recorder: group K.
mod events;
/// Expectations: groups A and B, and writes whose outcome is unknown.
mod expectations;
/// Why a ReplicaSet does not move, and what a dry run says.
mod explain;
/// What ReplicaSets share: batch threads and the rate limit.
mod fairness;
/// Group M: what upstream's integration tests show on a real API server.
mod integration;
/// The dev server as people use it, with a real kubectl.
mod kubectl;
/// Group L: who of several daemons writes.
mod leader_election;
/// Lists and watches on the wire: group J.
mod list_watch;
/// Lists past every cache.
mod live_lists;
/// What dashboards and alerts are built on.
mod metrics;
/// What once went wrong against a real control plane.
mod regressions;
/// Group A: as many pods as wanted, made from the template.
mod replicas;
/// Group O: ReplicationControllers, and both kinds side by side.
mod replication;
/// Rights: the check of them at start, and that they suffice.
mod rights;
/// The daemon's own pages, and what systemd is told.
mod serving;
/// Creates and deletes that fail: group G.
mod slow_start;
/// Status updates: parts of groups F and H.
mod staleness;
/// Group F: what the status says and when it is written.
mod status;
/// Rules of the house that a compiler does not check.
mod tidy;
