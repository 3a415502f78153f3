//! The kubeconfig for a dev server.

use std::fs;
use std::io;
use std::path::Path;

use crate::run::stand_in::new_file;

/// The first line of every file that this command writes. It overwrites no other file.
const MARK: &str = "# Written by replicaset-controller dev; it may be overwritten.";

/// Writes a kubeconfig for the server at `url`.
///
/// # Errors
/// If the file exists and is not from this command, such as a kubeconfig with credentials, or if it
/// cannot be written.
pub(super) fn write(path: &Path, url: &str) -> io::Result<()> {
    // The target of a link can belong to another user, whatever its first line is.
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink()) {
        let why = "it is a symbolic link; name a regular file";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    match fs::read(path) {
        Ok(text) if !text.starts_with(MARK.as_bytes()) && !text.is_empty() => {
            let why = "the file exists and is not from this command; name another file";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    new_file::replace(path, &text(url))
}

fn text(url: &str) -> String {
    format!(
        "{MARK}
apiVersion: v1
kind: Config
clusters:
  - name: dev
    cluster: {{ server: \"{url}\" }}
users:
  - name: dev
    user: {{}}
contexts:
  - name: dev
    context: {{ cluster: dev, user: dev, namespace: default }}
current-context: dev
"
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::write;
    use crate::client::{ClientConfig, ConfigSource};

    #[test]
    fn it_is_read_back_and_only_its_own_is_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        for port in [1, 2] {
            let url = format!("http://127.0.0.1:{port}");
            write(&path, &url).expect("a new file, or its own");
            let config = ClientConfig::load(&ConfigSource {
                kubeconfig: Some(path.clone()),
                ..ConfigSource::default()
            });
            let config = config.expect("a good kubeconfig");
            assert!(config.server().starts_with(&url), "{}", config.server());
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("there is room");
        write(&link, "http://127.0.0.1:4").expect_err("it is a link");
        fs::write(&path, "apiVersion: v1\n").expect("a file of somebody's");
        write(&path, "http://127.0.0.1:3").expect_err("it is not its own");
        let text = fs::read_to_string(&path).expect("it is there");
        assert_eq!(text, "apiVersion: v1\n");
    }
}
