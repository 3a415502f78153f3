//! Group L: one of several daemons writes, and never two. The processes are the shipped ones.

/// Two daemons and everything that befalls the one that leads.
mod fail_over;
/// Turns taken with a real kube-controller-manager, as the README says.
mod migration;
/// What the tests share: candidates, and who wrote when by the API server's own record.
mod rig;
/// One daemon and its lease.
mod single;
