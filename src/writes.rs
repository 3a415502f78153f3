//! All writes to the cluster: pods, the status of ReplicaSets, events.
//!
//! The controller uses the traits [`PodControl`] and [`ReplicaSetControl`], so that a test can
//! drive it on one thread with recording fakes. The real implementations send requests through
//! [`crate::client`].

pub mod error;
pub mod event_recorder;
pub mod pod_body;
pub mod pod_control;
pub mod real_pod_control;
pub mod replica_set_control;
mod written_pod;

pub use error::WriteError;
pub use event_recorder::{EventRecorder, EventType, ObjectReference};
pub use pod_control::{PodControl, Precondition};
pub use real_pod_control::RealPodControl;
pub use replica_set_control::{RealReplicaSetControl, ReplicaSetControl};
pub use written_pod::WrittenPod;
