//! The one integration binary: the daemon as a whole, seen from outside, on the dev server and (with
//! `make test-control-plane`) on a real API server.

mod tidy;
