//! The permissions of the daemon: one table, its rendering as [`manifests`] for the command `rbac`,
//! the [`self_check`] of each permission at startup, and the messages about missing ones.
//! Everything except the self-check is pure.

mod flags;
pub mod manifests;
mod missing;
pub mod self_check;
mod table;

pub use flags::rbac_command;
pub use missing::{PODS_FORBIDDEN, QUOTAS_FORBIDDEN, forbidden_workload, missing_rights};
pub use table::{Grant, LeaseName, Right, RightsOptions, Role, grants, optional_grants};
