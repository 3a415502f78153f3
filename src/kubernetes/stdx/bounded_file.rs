//! Reads files of users with a bound: whatever a path names, the process keeps its memory, and no
//! thread waits for a pipe without a writer.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Maximum bytes of a file. A kubeconfig with hundreds of clusters has a few hundred KiB, and a
/// bundle of all public certificate authorities as well.
pub const BYTES_MAX: u64 = 4 << 20;

/// Reads a file, or a pipe until its writer closes it.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        let why = format!("it is longer than {} MiB", BYTES_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Reads a file that is read again and again. A pipe would give its content only once, and block.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_file() || kind.is_dir() {
        // Reading a folder says that it is one.
        return read(path);
    }
    let why = "it is not a regular file";
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

pub fn read_text(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read(path)?).ok();
    text.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is not text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::{BYTES_MAX, read, read_regular, read_text};

    #[test]
    fn long_files_devices_and_pipes_are_errors() {
        let folder = tempfile::tempdir().expect("there is room");
        let file = folder.path().join("file");
        fs::write(&file, vec![b'a'; 4 << 20]).expect("there is room");
        assert_eq!(read(&file).expect("it fits").len() as u64, BYTES_MAX);
        fs::write(&file, vec![b'a'; (4 << 20) + 1]).expect("there is room");
        for path in [&file, Path::new("/dev/zero")] {
            let error = read(path).expect_err("it is too long");
            assert_eq!(error.to_string(), "it is longer than 4 MiB");
        }
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        for path in [&pipe, Path::new("/dev/null")] {
            let error = read_regular(path).expect_err("it is not a file");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        let error = read_regular(folder.path()).expect_err("it is a folder");
        assert_eq!(error.kind(), ErrorKind::IsADirectory);
        fs::write(&file, b"\xff").expect("there is room");
        read_text(&file).expect_err("it is not UTF-8");
        assert_eq!(read_regular(&file).expect("it is a file"), b"\xff");
    }
}
