//! The Kubernetes vocabulary as pure values: no I/O, no clock, no lock.
//!
//! All other modules use these types. They decode only the fields that the controller reads. Parts
//! that the controller only passes on (a template, the metadata of a ReplicaSet) stay the API
//! server's bytes.

pub mod compact_timestamp;
pub mod conditions;
pub mod duration;
pub mod encoded;
pub mod interner;
mod json;
pub mod label_selector;
pub mod labels;
pub mod object_key;
pub mod opt_ins;
pub mod owner_reference;
mod packed;
pub mod pod;
pub mod policy;
pub mod protobuf;
pub mod replica_set;
pub mod resource_version;
pub mod retry_backoff;
pub mod status;
pub mod uid;
pub mod workload_kind;

pub use compact_timestamp::CompactTimestamp;
pub use label_selector::Selector;
pub use labels::Labels;
pub use object_key::ObjectKey;
pub use opt_ins::{OptIns, ScaleDownMark};
pub use owner_reference::{ControllerRef, ControllingReference, OwnerKey};
pub use pod::{Pod, PodFailure, PodPhase};
pub use policy::Policy;
pub use replica_set::{ReplicaSet, ReplicaSetStatus};
pub use resource_version::ResourceVersion;
pub use retry_backoff::RetryBackoff;
pub use status::Status;
pub use uid::Uid;
pub use workload_kind::WorkloadKind;
