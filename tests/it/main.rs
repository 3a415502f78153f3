//! The one integration binary: the daemon as a whole, seen from outside, on the dev server and (with
//! `make test-control-plane`) on a real API server.

/// Clusters, the daemon under test, and the waiting.
mod support;

/// Group C: taking pods over and giving them back.
mod adoption;
/// Group E: which pods go first.
mod deletion_order;
/// `demo`, as people and as pipes see it.
mod demo;
/// Group M: what upstream's integration tests show on a real API server.
mod integration;
/// Group A: as many pods as wanted, made from the template.
mod replicas;
/// Group F: what the status says and when it is written.
mod status;
/// Rules of the house that a compiler does not check.
mod tidy;
