//! The Kubernetes ReplicaSet controller as a synchronous, multi-threaded daemon of its own.

pub mod api;
pub mod cache;
pub mod cli;
pub mod client;
pub mod controller;
pub mod devserver;
pub mod stdx;
pub mod telemetry;
pub mod workqueue;
pub mod writes;
