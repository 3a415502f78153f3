//! The commands `dev` and `demo`, which need no cluster: they run the controller on the dev server,
//! [`crate::devserver`]. Only with the feature `devserver`. `main` calls them on the main thread.

mod demo;
mod dev;
mod files;

use serde_json::Value;

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

fn text(object: &Value, pointer: &str) -> String {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

/// The condition of this type, if it is true.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.find(|entry| entry["type"] == kind && entry["status"] == "True")
}
