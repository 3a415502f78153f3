//! Files that are written as a whole or not at all. Only the user can read them, and another user
//! with write access to the directory cannot redirect the write.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Readable for the user only.
const MODE: u32 = 0o600;

/// Replaces `path` with a new file that holds `text`. Replaces a symbolic link instead of following
/// it.
///
/// # Errors
/// If the file cannot be written. `path` is then unchanged.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    // A leftover of an earlier run, or a link of another user.
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    // ORDER: after a power failure, a rename before the contents would leave an empty file.
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::replace;

    #[test]
    fn a_new_file_is_the_users_alone_and_follows_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("victim"), "as it was").expect("there is room");
        for link in ["state", "state.unfinished"] {
            symlink(path("victim"), path(link)).expect("there is room");
        }
        for text in ["first", "second"] {
            replace(&path("state"), text).expect("there is room");
            assert_eq!(
                fs::read_to_string(path("state")).expect("it is there"),
                text
            );
        }
        let metadata = fs::symlink_metadata(path("state")).expect("it is there");
        assert!(metadata.is_file());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        let victim = fs::read_to_string(path("victim")).expect("it is there");
        assert_eq!(victim, "as it was");
        assert!(!path("state.unfinished").exists());
    }
}
