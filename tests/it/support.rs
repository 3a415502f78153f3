//! What the integration tests stand on: a cluster with a namespace of its own per test, the daemon
//! under test, and the waiting. See [`TestCluster`].

mod api;
mod census;
mod cluster;
mod daemon;
mod forward;
mod objects;
mod plain_port;
mod relay;
mod requests;
mod waiting;

pub(crate) use api::{Api, Kind};
pub(crate) use census::Census;
pub(crate) use cluster::{Access, Setup, TestCluster, admin_config};
pub(crate) use daemon::{Daemon, DaemonProcess};
pub(crate) use objects::*;
pub(crate) use plain_port::PlainPort;
pub(crate) use relay::Relay;
pub(crate) use requests::*;
pub(crate) use waiting::{PATIENCE, Waiting};
