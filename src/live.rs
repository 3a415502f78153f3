//! Live reads: requests to the API server that bypass the caches, for questions about the current
//! state. Nothing here changes the cluster.
//!
//! The controller uses the trait [`LiveReader`], so that a test can drive it on one thread with a
//! fake. The real implementation sends requests through [`crate::client`]. Reads return the error
//! type of writes ([`WriteError`](crate::writes::WriteError)): most reads verify the outcome of a
//! write, and a failed read leaves that outcome unknown.

pub mod field_managers;
pub mod live_reader;
pub mod real_live_reader;

pub use field_managers::Manager;
pub use live_reader::LiveReader;
pub use real_live_reader::RealLiveReader;
