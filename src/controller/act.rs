//! The actions of a sync after its decision: it patches owner references ([`claim`]), creates and
//! deletes pods ([`manage`]), writes the status ([`status`]), deletes Failed pods ([`leftovers`]),

pub(super) mod claim;
mod create;
mod delete;
mod leftovers;
pub(super) mod manage;
pub(super) mod siblings;
pub(super) mod status;
pub(super) mod verify;
