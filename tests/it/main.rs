//! The one integration binary: the daemon as a whole, seen from outside, on the dev server and (with
//! `make test-control-plane`) on a real API server.

/// Clusters, the daemon under test, and the waiting.
mod support;

/// Adoption and release as requests: group C.
mod claiming;
/// The event recorder: group K.
mod events;
/// Expectations: groups A and B, and writes whose outcome is unknown.
mod expectations;
/// Group M: what upstream's integration tests show on a real API server.
mod integration;
/// Lists and watches on the wire: group J.
mod list_watch;
/// Creates and deletes that fail: group G.
mod slow_start;
/// Status updates: parts of groups F and H.
mod staleness;
/// Rules of the house that a compiler does not check.
mod tidy;
