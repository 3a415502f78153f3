//! Names of the figures that others are derived from.

/// Of a load generator, as a controller does it that is watched by the benchmark.
pub(crate) const RAW_RATE: &str = "raw creates a second, protobuf, two watching";
/// Of a controller that has just started.
pub(crate) const MEMORY_EMPTY: &str = "memory without pods, MiB";
/// Of a controller that has created all pods.
pub(crate) const MEMORY_FULL: &str = "memory with all pods, MiB";
/// Of a controller that starts with all pods.
pub(crate) const RESTART_SECONDS: &str = "restart, seconds to the first pod";
/// Of one that has started with all pods and has rested since.
pub(crate) const RESTART_MEMORY: &str = "restart, memory after it, MiB";
/// The most of it until then.
pub(crate) const RESTART_PEAK: &str = "restart, peak memory, MiB";
/// What any controller has to wait for that reads a plain list.
pub(crate) const BARE_LIST: &str = "bare protobuf list of all pods, s";
/// What any controller has to wait for that reads a streamed list.
pub(crate) const BARE_STREAMED_LIST: &str = "bare protobuf streamed list of all pods, s";
/// Of one ReplicaSet with all pods.
pub(crate) const UP_ONE_RATE: &str = "scale-up of one, pods a second";
