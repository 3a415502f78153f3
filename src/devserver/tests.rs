//! Tests through a plain HTTP client.

mod apply;
mod clients;
mod custom;
mod deletes;
mod faults;
mod kinds;
mod kubelet;
mod lists;
mod objects;
mod patches;
mod plain;
mod rig;
mod simulated;
mod snapshot;
mod watches;
mod writes;
