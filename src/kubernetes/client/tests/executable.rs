//! Executable files for tests. Shared with the integration tests.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Lets another process write an executable file. The kernel refuses to run a file that any process
/// has open for writing, and every process that another test starts inherits this process's open
/// files for a moment.
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
