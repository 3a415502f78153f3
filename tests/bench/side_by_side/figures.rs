//! Names of the figures that others are derived from.

/// Creates per second of the load generator, in protobuf and with two observers.
pub(crate) const RAW_RATE: &str = "raw creates a second, protobuf, two watching";
/// Resident memory of a controller that has just started, without pods.
pub(crate) const MEMORY_EMPTY: &str = "memory without pods, MiB";
/// Resident memory of a controller that has created all pods.
pub(crate) const MEMORY_FULL: &str = "memory with all pods, MiB";
/// Time from the start of a controller with all pods to its first create.
pub(crate) const RESTART_SECONDS: &str = "restart, seconds to the first pod";
/// Resident memory after a start with all pods, once settled.
pub(crate) const RESTART_MEMORY: &str = "restart, memory after it, MiB";
/// Peak resident memory of that start.
pub(crate) const RESTART_PEAK: &str = "restart, peak memory, MiB";
/// Duration of a plain list of all pods, without decoding: a lower bound of a start with one.
pub(crate) const BARE_LIST: &str = "bare protobuf list of all pods, s";
/// Duration of a streaming list of all pods, without decoding: a lower bound of a start with one.
pub(crate) const BARE_STREAMED_LIST: &str = "bare protobuf streamed list of all pods, s";
/// Pods per second in the scale-up of one ReplicaSet to all pods.
pub(crate) const UP_ONE_RATE: &str = "scale-up of one, pods a second";
