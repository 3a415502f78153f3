//! The client against a small server on loopback.
