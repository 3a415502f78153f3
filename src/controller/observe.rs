//! Observers of the controller. None of them affects what the controller creates, deletes or
//! writes.

pub mod dry_run;
pub mod failing_pods;
pub mod inspect;
pub mod opt_ins;
pub mod other_writers;
