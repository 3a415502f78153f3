//! Standard error, and standard output of what runs on. Their readers may hang: a stuck collector
//! of logs, a stopped terminal. So each write has a deadline, and text that misses it is dropped
//! and counted.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::{Condvar, Mutex};

/// Maximum wait for the reader. After a text missed it, the next ones do not wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// [`PATIENCE`] once the process exits.
const PATIENCE_AT_EXIT: Duration = Duration::from_millis(50);

/// A pipe that polls as writable accepts this much without blocking (`PIPE_BUF` in pipe(7)).
const CHUNK: usize = 4096;

/// Milliseconds to pause if the descriptor polls as writable but accepts nothing.
const PAUSE: u8 = 1;

static STDERR: Output = Output::new();
static STDOUT: Output = Output::new();

/// Writes `text` to standard error, or drops it after a second. Returns the number of texts that
/// were dropped since the last one that was written.
pub fn write(text: &str) -> Result<u64, Dropped> {
    STDERR.write(io::stderr(), text.as_bytes())
}

/// Writes `text` to standard output, or drops it after a second.
pub fn write_out(text: &str) {
    // Without a reader the message is dropped.
    STDOUT
        .write(io::stdout(), text.as_bytes())
        .unwrap_or_default();
}

/// The process exits next, so from now on no write waits noticeably.
pub fn hurry() {
    STDERR.state.lock().patience = PATIENCE_AT_EXIT;
}

pub fn dropped_total() -> u64 {
    STDERR.state.lock().dropped_total
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped;

struct Output {
    state: Mutex<State>,
    free: Condvar,
}

struct State {
    patience: Duration,
    is_busy: bool,
    is_blocked: bool,
    /// The last text was dropped after a part of it was written.
    is_torn: bool,
    /// Texts dropped since the last one that was written.
    dropped: u64,
    dropped_total: u64,
}

impl Output {
    const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                patience: PATIENCE,
                is_busy: false,
                is_blocked: false,
                is_torn: false,
                dropped: 0,
                dropped_total: 0,
            }),
            free: Condvar::new(),
        }
    }

    fn write(&self, to: impl Write + AsFd, text: &[u8]) -> Result<u64, Dropped> {
        let began = Instant::now();
        let mut state = self.state.lock();
        let patience = state.patience;
        self.free
            .wait_while_for(&mut state, |state| state.is_busy, patience);
        if state.is_busy {
            state.drop_text();
            return Err(Dropped);
        }
        state.is_busy = true;
        let deadline = if state.is_blocked {
            began
        } else {
            began + patience
        };
        let is_torn = state.is_torn;
        drop(state);
        let whole = if is_torn {
            Cow::Owned([b"\n", text].concat())
        } else {
            Cow::Borrowed(text)
        };
        let n_written = write_until(to, &whole, deadline);
        let mut state = self.state.lock();
        state.is_busy = false;
        self.free.notify_one();
        state.is_blocked = n_written < whole.len();
        if state.is_blocked {
            state.is_torn |= n_written > 0;
            state.drop_text();
            return Err(Dropped);
        }
        state.is_torn = false;
        Ok(std::mem::take(&mut state.dropped))
    }
}

impl State {
    fn drop_text(&mut self) {
        self.dropped += 1;
        self.dropped_total += 1;
    }
}

/// Writes as much of `text` as `to` accepts until `deadline`; returns how much that is.
fn write_until(mut to: impl Write + AsFd, text: &[u8], deadline: Instant) -> usize {
    let mut rest = text;
    while !rest.is_empty() {
        if !is_writable_by(to.as_fd(), deadline) {
            break;
        }
        match to.write(&rest[..rest.len().min(CHUNK)]) {
            Ok(0) => break,
            Ok(n) => rest = &rest[n..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {
                poll(&mut [], PAUSE).unwrap_or_default();
            }
            // Nothing can report that the log itself is not writable.
            Err(_) => break,
        }
    }
    text.len() - rest.len()
}

/// Blocks until a write would not block, at most until `deadline`; returns whether it would not.
fn is_writable_by(fd: BorrowedFd<'_>, deadline: Instant) -> bool {
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(remaining).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(fd, PollFlags::POLLOUT)], timeout) {
            Ok(n) => return n > 0,
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::{Dropped, Output, PATIENCE_AT_EXIT};
    use crate::stdx::stop::Stop;
    use crate::stdx::thread::spawn;

    #[test]
    fn unread_text_is_dropped_and_counted() {
        let (mut reader, writer) = pipe().expect("a pipe");
        let output = Output::new();
        output.state.lock().patience = PATIENCE_AT_EXIT;
        let line = [b"x".repeat(99).as_slice(), b"\n"].concat();
        let mut n_written = 0;
        while output.write(&writer, &line) == Ok(0) {
            n_written += 1;
        }
        assert_eq!(output.write(&writer, &line), Err(Dropped));
        assert_eq!(output.state.lock().dropped_total, 2);
        let mut read = vec![0; 1 << 20];
        let n_read = reader.read(&mut read).expect("the pipe is full");
        read.truncate(n_read);
        assert_eq!(output.write(&writer, b"later\n"), Ok(2));
        assert_eq!(output.write(&writer, b"last\n"), Ok(0));
        drop(writer);
        reader.read_to_end(&mut read).expect("the rest");
        let text = String::from_utf8(read).expect("ASCII");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.ends_with(&["later", "last"]), "{text}");
        assert!(n_written * line.len() <= text.len());
    }

    #[test]
    fn a_long_text_is_torn_only_once() {
        let (mut reader, writer) = pipe().expect("a pipe");
        let output = Output::new();
        output.state.lock().patience = PATIENCE_AT_EXIT;
        let long = b"y".repeat(1 << 20);
        assert_eq!(output.write(&writer, &long), Err(Dropped));
        assert_eq!(output.write(&writer, &long), Err(Dropped));
        let mut part = long.clone();
        let n_read = reader.read(&mut part).expect("the first part");
        assert!(n_read < long.len());
        assert_eq!(output.write(&writer, b"whole\n"), Ok(2));
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("ASCII");
        assert_eq!(rest, "\nwhole\n");
    }

    /// The write itself reports a closed pipe and a full disk.
    #[test]
    fn a_failed_write_is_a_dropped_text() {
        let (reader, mut writer) = pipe().expect("a pipe");
        writer.write_all(b"before").expect("a reader");
        drop(reader);
        let output = Output::new();
        assert_eq!(output.write(&writer, b"text\n"), Err(Dropped));
        let full = std::fs::File::options().write(true).open("/dev/full");
        let full = full.expect("Linux has it");
        assert_eq!(output.write(&full, b"text\n"), Err(Dropped));
        assert_eq!(output.state.lock().dropped_total, 2);
    }

    /// A thread that hangs in a write, such as on a disk, holds up no other thread.
    #[test]
    fn no_thread_waits_for_one_that_hangs() {
        let output = std::sync::Arc::new(Output::new());
        output.state.lock().is_busy = true;
        output.state.lock().patience = PATIENCE_AT_EXIT;
        let (sender, ended) = mpsc::channel();
        spawn("t-writes", &Stop::new(), move || {
            let (_reader, writer) = pipe().expect("a pipe");
            let result = output.write(&writer, b"text\n");
            sender.send(result).expect("the test waits");
        });
        let result = ended.recv_timeout(Duration::from_mins(1));
        assert_eq!(result, Ok(Err(Dropped)));
    }
}
