//! A program that is run for what it writes to its standard output. Runs on the thread that asks,
//! which waits; nothing is left of the program afterwards, however it ended.
//!
//! Not by `std::process`: a child inherits which signals are blocked, and here SIGHUP and SIGUSR1 are
//! (`run::signals`), which the standard library cannot give back without `unsafe`.

use std::ffi::{CString, NulError};
use std::fs::File;
use std::io::{self, IsTerminal, PipeReader, PipeWriter, Read, pipe};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::stdx::stop::Stop;

/// A slice of the wait, after which it is looked whether the daemon stops.
pub(super) const SLICE: Duration = Duration::from_millis(50);

/// How long a program may still run once the daemon stops: what is sent then, such as the last
/// events, may need its answer, and the whole stop has 30 seconds.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// How long the system may take to end a program that was killed.
const REAP_WITHIN: Duration = Duration::from_secs(5);

/// What it may write at most, in bytes.
const OUTPUT_MAX: usize = 1 << 20;

/// A program and how it is run. Not `Debug`, since arguments and variables may hold secrets.
pub(super) struct Program<'a> {
    /// A path, or a name that `$PATH` leads to.
    pub(super) command: &'a str,
    pub(super) arguments: &'a [String],
    /// The whole environment.
    pub(super) environment: Vec<(&'a str, &'a str)>,
    /// It may read from this process's standard input.
    pub(super) interactive: bool,
    /// It is killed after this time.
    pub(super) within: Duration,
}

/// Why a program gave nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChildError {
    /// It is not there, or may not be run.
    NotFound(String),
    /// It ran, and what went wrong.
    Failed {
        /// Its exit code, if it got that far.
        code: Option<i32>,
        /// For people.
        problem: String,
    },
}

impl ChildError {
    fn failed(problem: impl Into<String>) -> Self {
        Self::Failed {
            code: None,
            problem: problem.into(),
        }
    }
}

/// True if somebody could answer a program's questions.
pub(super) fn has_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Runs a program and returns what it wrote. Waits until it has ended, at most
/// [`Program::within`]; five seconds once `stop` is given. Its standard error is this process's.
///
/// # Errors
/// [`ChildError`], also if it ended with another code than 0.
pub(super) fn run(program: &Program<'_>, stop: &Stop) -> Result<Vec<u8>, ChildError> {
    let system = |error: io::Error| ChildError::failed(format!("it cannot be started: {error}"));
    let (reader, writer) = pipe().map_err(system)?;
    let mut child = Child::spawn(program, &writer)?;
    // The program's end of the pipe must be the only one, or its end would never be seen.
    drop(writer);
    let mut limit = Limit::new(program.within, stop);
    let output = read_all(reader, &mut limit)?;
    match child.wait(&mut limit)? {
        WaitStatus::Exited(_, 0) => Ok(output),
        WaitStatus::Exited(_, code) => Err(ChildError::Failed {
            code: Some(code),
            problem: format!("it ended with exit code {code}"),
        }),
        WaitStatus::Signaled(_, signal, _) => {
            Err(ChildError::failed(format!("it was ended by {signal}")))
        }
        other => Err(ChildError::failed(format!("it ended oddly: {other:?}"))),
    }
}

/// When the wait is over: after a while, and five seconds after `stop` is given.
pub(super) struct Limit<'a> {
    deadline: Instant,
    within: Duration,
    stop: &'a Stop,
    stopping: bool,
}

impl<'a> Limit<'a> {
    pub(super) fn new(within: Duration, stop: &'a Stop) -> Self {
        Self {
            deadline: Instant::now() + within,
            within,
            stop,
            stopping: false,
        }
    }

    /// To be asked every [`SLICE`].
    pub(super) fn is_over(&mut self) -> bool {
        if !self.stopping && self.stop.is_stopped() {
            self.stopping = true;
            self.deadline = self.deadline.min(Instant::now() + STOP_GRACE);
        }
        Instant::now() >= self.deadline
    }

    fn check(&mut self) -> Result<(), ChildError> {
        if !self.is_over() {
            return Ok(());
        }
        let problem = if self.stopping {
            "it was killed since the daemon stops".to_owned()
        } else {
            format!(
                "it was killed since it had not ended after {:?}",
                self.within
            )
        };
        Err(ChildError::failed(problem))
    }
}

fn read_all(mut reader: PipeReader, limit: &mut Limit<'_>) -> Result<Vec<u8>, ChildError> {
    let broken = |error: io::Error| ChildError::failed(format!("its output broke off: {error}"));
    let slice = PollTimeout::try_from(SLICE).expect("it is short");
    let mut output = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        limit.check()?;
        let mut wait = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        match poll(&mut wait, slice) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(broken(error.into())),
        }
        match reader.read(&mut buffer).map_err(broken)? {
            0 => return Ok(output),
            n if output.len() + n > OUTPUT_MAX => {
                return Err(ChildError::failed("it writes without end"));
            }
            n => output.extend_from_slice(&buffer[..n]),
        }
    }
}

/// A process that was started. Dropped, it is killed, and what is left of it is collected.
struct Child {
    pid: Pid,
    /// It leads a process group of its own, so that what it started ends with it.
    is_leader: bool,
    is_reaped: bool,
}

impl Child {
    fn spawn(program: &Program<'_>, output: &PipeWriter) -> Result<Self, ChildError> {
        let text = |text: String| CString::new(text);
        let nul = |_: NulError| ChildError::failed("a variable or an argument holds a zero byte");
        let command = text(program.command.to_owned()).map_err(nul)?;
        let arguments = std::iter::once(program.command.to_owned())
            .chain(program.arguments.iter().cloned())
            .map(text)
            .collect::<Result<Vec<_>, _>>()
            .map_err(nul)?;
        let variables = program.environment.iter();
        let environment = variables
            .map(|(name, value)| text(format!("{name}={value}")))
            .collect::<Result<Vec<_>, _>>()
            .map_err(nul)?;
        let nothing = File::open("/dev/null")
            .map_err(|error| ChildError::failed(format!("/dev/null cannot be opened: {error}")))?;
        let is_leader = !program.interactive;
        let spawned = (|| {
            let mut files = PosixSpawnFileActions::init()?;
            if !program.interactive {
                files.add_dup2(nothing.as_raw_fd(), 0)?;
            }
            files.add_dup2(output.as_raw_fd(), 1)?;
            let mut attributes = PosixSpawnAttr::init()?;
            let mut flags =
                PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF;
            if is_leader {
                flags |= PosixSpawnFlags::POSIX_SPAWN_SETPGROUP;
                attributes.set_pgroup(Pid::from_raw(0))?;
            }
            attributes.set_flags(flags)?;
            attributes.set_sigmask(&SigSet::empty())?;
            // Rust ignores it, and what is ignored is inherited.
            let mut default = SigSet::empty();
            default.add(Signal::SIGPIPE);
            attributes.set_sigdefault(&default)?;
            posix_spawnp(&command, &files, &attributes, &arguments, &environment)
        })();
        match spawned {
            Ok(pid) => Ok(Self {
                pid,
                is_leader,
                is_reaped: false,
            }),
            Err(error @ (Errno::ENOENT | Errno::EACCES | Errno::ENOTDIR)) => {
                Err(ChildError::NotFound(error.desc().to_owned()))
            }
            Err(error) => Err(ChildError::failed(format!("it cannot be started: {error}"))),
        }
    }

    /// Waits until it has ended.
    fn wait(&mut self, limit: &mut Limit<'_>) -> Result<WaitStatus, ChildError> {
        loop {
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
                Ok(status) => {
                    self.is_reaped = true;
                    return Ok(status);
                }
                Err(error) => {
                    self.is_reaped = true;
                    return Err(ChildError::failed(format!("its end was not seen: {error}")));
                }
            }
            limit.check()?;
            // Its output has ended, so it ends in a moment.
            pause();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.is_reaped {
            return;
        }
        // It may have ended by itself.
        if self.is_leader {
            killpg(self.pid, Signal::SIGKILL).unwrap_or_default();
        } else {
            kill(self.pid, Signal::SIGKILL).unwrap_or_default();
        }
        let deadline = Instant::now() + REAP_WITHIN;
        while matches!(
            waitpid(self.pid, Some(WaitPidFlag::WNOHANG)),
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR)
        ) {
            if Instant::now() >= deadline {
                log::warn!("process {} was killed and does not end", self.pid);
                return;
            }
            pause();
        }
    }
}

/// A few milliseconds in which a process may end; its end is no event that could be waited for
/// without a handler for SIGCHLD.
fn pause() {
    poll(&mut [], PollTimeout::from(2_u8)).unwrap_or_default();
}
