//! Helpers of the integration tests. A test starts with [`TestCluster`]: an API server, a namespace
//! that only this test uses, and the daemon under test.

/// The test's own requests to the API server, as its administrator: create, update, delete, list.
mod api;
/// Counts active pods through a watch that misses no state.
mod census;
/// [`TestCluster`]: an API server, a namespace, the daemon, and the faults between them.
mod cluster;
/// A real control plane that belongs to one test, and its kube-controller-manager.
mod control_plane;
/// The daemon under test, as threads of this process or as a process of its own.
mod daemon;
/// A proxy handler that forwards requests to a real API server.
mod forward;
/// Builds manifests and reads fields of objects.
mod objects;
/// The API server behind TLS.
mod over_tls;
/// A port for the daemon's pages over plain HTTP, and a client that reads them.
mod plain_port;
/// A TCP proxy between the daemon and the API server that can drop or hold bytes.
mod relay;
/// Matchers for recorded requests, error responses for faults, and bodies as JSON.
mod requests;
/// An API server that follows a script instead of HTTP's rules.
mod scripted;
/// What a process of the daemon uses.
mod usage;
/// Polls until a condition holds, or checks that it keeps holding.
mod waiting;

pub(crate) use api::{Api, Kind};
pub(crate) use census::Census;
pub(crate) use cluster::{Access, Setup, TestCluster, admin_config, keep_from_other_daemons};
pub(crate) use control_plane::{ControlPlane, KubeControllerManager};
pub(crate) use daemon::{Daemon, DaemonProcess};
pub(crate) use objects::*;
pub(crate) use over_tls::{UNVERIFIED, over_tls};
pub(crate) use plain_port::PlainPort;
pub(crate) use relay::Relay;
pub(crate) use requests::*;
pub(crate) use scripted::{Asked, LIST_END, Reply, ScriptedServer, Then, chunk};
pub(crate) use waiting::{PATIENCE, Waiting};
