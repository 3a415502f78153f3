//! What looks at the controller and is not needed for the right number of pods: each of these could go
//! without another line changing what is created, deleted or written.

pub mod dry_run;
mod failing_pods;
pub mod inspect;
pub mod other_writers;
pub mod shadow;
