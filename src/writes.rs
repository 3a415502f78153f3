//! The only code that changes the cluster: pods, the status of ReplicaSets, events.
//!
//! The controller sees the traits [`PodControl`] and [`ReplicaSetControl`], so that one thread with a
//! recording stand-in can drive it; the real ones send requests through [`crate::client`].

pub mod error;
pub mod event_recorder;
pub mod pod_body;
pub mod pod_control;
pub mod real_pod_control;
pub mod replica_set_control;
mod written_pod;

pub use error::WriteError;
pub use event_recorder::{EventRecorder, EventType, ObjectReference};
pub use pod_control::{CreatedPod, PatchedPod, PodControl};
pub use real_pod_control::RealPodControl;
pub use replica_set_control::{RealReplicaSetControl, ReplicaSetControl};
