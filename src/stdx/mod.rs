//! What the standard library lacks: named threads that tell what they work on, a stop signal and what
//! gives it, a clock that tests can turn, and back-off. Imports nothing of the project.

pub mod activity;
pub mod backoff;
pub mod clock;
pub mod report;
pub mod signals;
pub mod stop;
pub mod thread;
