//! What is asked of the API server past the caches: how something is now, not how it was when a watch
//! last spoke of it. Nothing here changes the cluster.
//!
//! The controller sees the trait [`LiveReader`], so that one thread with a stand-in can drive it; the
//! real one sends requests through [`crate::client`]. Reads fail as writes do
//! ([`WriteError`](crate::writes::WriteError)): most of them are asked to find out what became of a
//! write, and what fails them leaves that as open as it was.

pub mod field_managers;
pub mod live_reader;
pub mod real_live_reader;

pub use field_managers::Manager;
pub use live_reader::LiveReader;
pub use real_live_reader::RealLiveReader;
