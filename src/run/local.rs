//! The commands `dev` and `demo`, which need no cluster: they run the controller on the dev server,
//! [`crate::devserver`]. Only with the feature `devserver`. `main` calls them on the main thread.

mod demo;
mod dev;
mod files;
mod world;

use super::RunError;
use crate::cli::flags::LocalCommand;
use crate::stdx::stop::Stop;

/// Runs the command. Blocks until it has ended, or `stop` is given and all threads have ended.
///
/// # Errors
/// If the dev server cannot start, a file is not valid, a chapter of the demo failed, or the daemon
/// failed.
pub fn local(command: &LocalCommand, stop: &Stop) -> Result<(), RunError> {
    match command {
        LocalCommand::Dev(args) => dev::dev(args, stop),
        LocalCommand::Demo(args) => demo::demo(args, stop),
    }
}
