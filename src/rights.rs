//! What the daemon must be allowed to do: one table, which `rbac` prints as [`manifests`], about
//! each line of which the [`self_check`] asks the API server at start, and the sentences on what is
//! missing. All but the self-check is pure.

mod flags;
pub mod manifests;
mod missing;
pub mod self_check;
mod table;

pub use flags::rbac_command;
pub use missing::{PODS_FORBIDDEN, forbidden_workload, missing_rights};
pub use table::{Grant, LeaseName, Right, RightsOptions, Role, grants};
