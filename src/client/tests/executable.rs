//! Files that tests run. Shared with the integration tests.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a file that can be run, by another process: a file that this one has open for writing cannot
/// be run, and each process that another test starts meanwhile keeps it open for a moment.
pub(crate) fn write_executable(path: &Path, text: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 700 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let mut input = writer.stdin.take().expect("it is piped");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    assert!(
        writer.wait().expect("it ends").success(),
        "{}",
        path.display()
    );
}
