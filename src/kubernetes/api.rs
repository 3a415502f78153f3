//! The Kubernetes vocabulary as pure values: no I/O, no clock, no lock.
//!
//! All other modules use these types. They decode only the fields that the controller reads. Parts
//! that the controller only passes on (a template, the metadata of a ReplicaSet) stay the API
//! server's bytes.

pub mod compact_timestamp;
pub mod conditions;
pub mod interner;
pub mod json;
pub mod label_selector;
pub mod object_key;
pub mod pod;
pub mod policy;
pub mod protobuf;
pub mod quantity;
pub mod replica_set;
pub mod status;
pub mod workload_kind;

pub use arcstr::ArcStr;
pub use compact_timestamp::CompactTimestamp;
pub use label_selector::{Labels, Selector};
pub use object_key::{
    ControllerRef, ObjectKey, OwnerKey, ResourceVersion, Uid, controlling_reference,
};
pub use pod::{Pod, PodFailure, PodPhase};
pub use policy::{OptIns, Policy, RetryBackoff, ScaleDownMark};
pub use quantity::Quantity;
pub use replica_set::{ReplicaSet, ReplicaSetStatus};
pub use status::Status;
pub use workload_kind::WorkloadKind;
