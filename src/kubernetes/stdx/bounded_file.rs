//! Reads files of users with a bound: whatever a path names, the process keeps its memory, and no
//! thread waits for a pipe without a writer.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::O_NONBLOCK;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Maximum bytes of a file. A kubeconfig with hundreds of clusters has a few hundred KiB, and a
/// bundle of all public certificate authorities as well.
pub const BYTES_MAX: u64 = 4 << 20;

/// How long a pipe may have no writer: one that was started together with this process opens it
/// within moments.
const WITHOUT_WRITER_MAX: Duration = Duration::from_secs(1);

/// How long a pipe's writer may be silent, such as a program that asks an API server for a token.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// Reads a file, or a pipe until its writer closes it.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    // To open a pipe otherwise waits for a writer.
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(O_NONBLOCK).open(path)?;
    let is_pipe = file.metadata()?.file_type().is_fifo();
    let mut bytes = Vec::new();
    if is_pipe {
        wait(&file, WITHOUT_WRITER_MAX)?;
    }
    Patient(file).take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if is_pipe && bytes.is_empty() {
        let why = "it is a pipe that nothing is written to";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if bytes.len() as u64 > BYTES_MAX {
        let why = format!("it is longer than {} MiB", BYTES_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Waits until bytes can be read, the writer is gone, or `timeout` passes. Returns false for the
/// last.
fn wait(file: &File, timeout: Duration) -> io::Result<bool> {
    let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
    loop {
        match poll(&mut [PollFd::new(file.as_fd(), PollFlags::POLLIN)], timeout) {
            // A signal, whose handler decides what happens. The timeout starts again.
            Err(Errno::EINTR) => {}
            polled => return Ok(polled? > 0),
        }
    }
}

/// A file whose reads wait for a silent writer, with a bound.
struct Patient(File);

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if wait(&self.0, SILENCE_MAX)? {
                    return self.0.read(buffer);
                }
                let seconds = SILENCE_MAX.as_secs();
                let why = format!("nothing was written to it for {seconds} s");
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
            read => read,
        }
    }
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
    use std::io::{ErrorKind, Write};
    use std::os::fd::AsRawFd;
    use std::path::Path;
    use std::time::Duration;
    use std::{fs, io};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::{BYTES_MAX, read, read_regular, read_text};
    use crate::stdx::stop::Stop;
    use crate::stdx::thread::spawn;

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
        let error = read(&pipe).expect_err("it has no writer");
        assert_eq!(error.to_string(), "it is a pipe that nothing is written to");
        let error = read_regular(folder.path()).expect_err("it is a folder");
        assert_eq!(error.kind(), ErrorKind::IsADirectory);
        fs::write(&file, b"\xff").expect("there is room");
        read_text(&file).expect_err("it is not UTF-8");
        assert_eq!(read_regular(&file).expect("it is a file"), b"\xff");
    }

    #[test]
    fn a_pipe_is_read_until_its_writer_closes_it() {
        let (reader, mut writer) = io::pipe().expect("there are descriptors");
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let thread = spawn("t-writes", &Stop::new(), move || {
            for part in ["a", "b"] {
                Stop::new().wait_timeout(Duration::from_millis(20));
                writer.write_all(part.as_bytes()).expect("it has a reader");
            }
        });
        assert_eq!(read_text(Path::new(&path)).expect("it is text"), "ab");
        thread.join().expect("it wrote");
    }
}
