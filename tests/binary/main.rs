//! The binary without a cluster: arguments, files, exit codes. `tests/it` has the tests on the dev
//! server; these tests need no feature.

/// Arguments, exit codes and the verbs of the Makefile.
mod command_line;
/// Sources of flags, and the first lines of the log.
mod configuration;
/// What `make install` installs.
mod installation;
/// What `rbac` prints.
mod rights;

use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
