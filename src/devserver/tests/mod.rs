//! The server as a plain client sees it.

mod deletes;
mod faults;
mod kubelet;
mod lists;
mod objects;
mod patches;
mod rig;
mod snapshot;
mod watches;
mod writes;
