//! Group L: leader election. At any time at most one of several daemon processes writes.

/// Two daemons: the leader is killed, paused, cut off or stopped.
mod failover;
/// Taking turns with a real kube-controller-manager, as election.md describes it.
mod migration;
/// The pages, metrics and systemd notifications of a leader and a standby.
mod pages;
/// Shared by the tests: candidates, and the writes from the API server's own record.
mod rig;
/// One daemon and its lease.
mod single;
