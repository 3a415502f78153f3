//! The commands `dev` and `demo`, which need no cluster: they run the controller on the stand-in for one,
//! [`crate::devserver`]. Built with the feature `devserver` only. Called by `main` on the main thread.

mod demo;
mod dev;
mod new_file;
mod world;

use super::RunError;
use crate::cli::flags::StandInCommand;
use crate::stdx::stop::Stop;

/// Runs the command. Blocks until it has ended, or `stop` is given and all threads have ended.
///
/// # Errors
/// If the dev server cannot start, if files cannot be used, if a chapter of the demo did not come out as
/// told, or what made the daemon fail.
pub fn stand_in(command: &StandInCommand, stop: &Stop) -> Result<(), RunError> {
    match command {
        StandInCommand::Dev(args) => dev::dev(args, stop),
        StandInCommand::Demo(args) => demo::demo(args, stop),
    }
}
