//! The ReplicaSet controller itself.
