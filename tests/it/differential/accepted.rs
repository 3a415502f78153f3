//! The differences between the two servers that are meant to be, each with its reason. Pure.

use super::compare::Rule;

/// All of them. With the usual seed each has to be met, so that none outlives its reason.
pub(super) const ACCEPTED: &[Rule] = &[];
