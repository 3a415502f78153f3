//! The one integration binary: the daemon as a whole, seen from outside, on the dev server and (with
//! `make test-control-plane`) on a real API server.

/// Clusters, the daemon under test, and the waiting.
mod support;

/// Group M: what upstream's integration tests show on a real API server.
mod integration;
/// Rules of the house that a compiler does not check.
mod tidy;
