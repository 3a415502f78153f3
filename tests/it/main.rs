//! The one integration binary: the daemon as a whole, seen from outside, on the dev server and (with
//! `make test-control-plane`) on a real API server.

/// Clusters, the daemon under test, and the waiting.
mod support;

/// Adoption and release as requests: group C.
mod claiming;
/// Expectations: groups A and B, and writes whose outcome is unknown.
mod expectations;
/// Group M: what upstream's integration tests show on a real API server.
mod integration;
/// Creates and deletes that fail: group G.
mod slow_start;
/// Rules of the house that a compiler does not check.
mod tidy;
