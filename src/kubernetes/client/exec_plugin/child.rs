//! Runs a program for its standard output, on the calling thread, which blocks. The program never
//! outlives the call: if it does not end in time, it is killed, with the process group that it
//! leads.
//!
//! It does not use `std::process`, because a child inherits the blocked signals. This daemon blocks
//! SIGHUP and SIGUSR1 (`run::signals`), and the standard library cannot unblock them without
//! `unsafe`.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, IsTerminal, PipeReader, PipeWriter, Read, pipe};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::stdx::stop::Stop;
use crate::telemetry::metrics::credentials::ExecPluginCall;

/// Interval at which a waiting thread checks the deadline and the stop signal.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long a program may still run once the daemon stops. The last requests, such as events, may
/// need its credential, and the complete stop has 30 seconds.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Maximum time for the system to end a killed program.
const REAP_TIMEOUT: Duration = Duration::from_secs(5);

const OUTPUT_MAX: usize = 1 << 20;

/// How much of its standard error is kept: the end.
const COMPLAINT_MAX: usize = 1024;

/// A program and how to run it. Not `Debug`, since arguments and variables may hold secrets.
pub(super) struct Program<'a> {
    /// A path, or a name to look up in `$PATH`.
    pub(super) command: &'a str,
    pub(super) arguments: &'a [String],
    pub(super) environment: Vec<(&'a str, &'a str)>,
    /// The program may read this process's standard input.
    pub(super) interactive: bool,
    pub(super) timeout: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChildError {
    /// For the metrics.
    pub(super) call: ExecPluginCall,
    pub(super) problem: String,
}

impl ChildError {
    pub(super) fn failed(problem: impl Into<String>) -> Self {
        Self {
            call: ExecPluginCall::ClientInternalError,
            problem: problem.into(),
        }
    }
}

/// True if a user could respond to a program's prompts.
pub(super) fn has_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Runs a program and returns its output. Blocks until it has ended, for at most
/// [`Program::timeout`]; five seconds once `stop` is triggered. What it writes to its standard
/// error is logged. If it is interactive, the user sees that instead.
///
/// # Errors
/// [`ChildError`], also for a nonzero exit code.
pub(super) fn run(program: &Program<'_>, stop: &Stop) -> Result<Vec<u8>, ChildError> {
    let system = |error: io::Error| ChildError::failed(format!("it cannot be started: {error}"));
    let (reader, writer) = pipe().map_err(system)?;
    // Never the daemon's own standard error: if nobody reads the log, the program would hang.
    let (complaint, complaint_writer) = pipe().map_err(system)?;
    let mut child = Child::spawn(program, &writer, &complaint_writer)?;
    // Close this process's copies of the write ends, or the pipes would never report their end.
    drop((writer, complaint_writer));
    let mut complaint = Complaint::new(complaint).map_err(system)?;
    let mut limit = Limit::new(program.timeout, stop);
    let output = read_all(reader, &mut complaint, &mut limit)
        .and_then(|output| child.wait(&mut complaint, &mut limit).map(|()| output));
    complaint.read();
    let text = String::from_utf8_lossy(&complaint.end);
    // Not a part of the error, which users of the cluster may see in events: it may hold secrets.
    match text.trim() {
        "" => {}
        text => log::warn!("credential plugin {:?} complains: {text}", program.command),
    }
    output
}

/// The end of what a program writes to its standard error.
struct Complaint {
    /// `None` after its end.
    reader: Option<PipeReader>,
    end: Vec<u8>,
}

impl Complaint {
    fn new(reader: PipeReader) -> io::Result<Self> {
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self {
            reader: Some(reader),
            end: Vec::new(),
        })
    }

    /// Reads what is there, so that the program never waits for this process. Does not block.
    fn read(&mut self) {
        let mut buffer = [0; 8192];
        while let Some(Ok(n)) = self.reader.as_mut().map(|it| it.read(&mut buffer)) {
            if n == 0 {
                self.reader = None;
            }
            self.end.extend_from_slice(&buffer[..n]);
            let n_surplus = self.end.len().saturating_sub(COMPLAINT_MAX);
            self.end.drain(..n_surplus);
        }
    }
}

/// The deadline of a wait: after a timeout, or five seconds after `stop` is triggered.
pub(super) struct Limit<'a> {
    deadline: Instant,
    timeout: Duration,
    stop: &'a Stop,
    stopping: bool,
}

impl<'a> Limit<'a> {
    pub(super) fn new(timeout: Duration, stop: &'a Stop) -> Self {
        Self {
            deadline: Instant::now() + timeout,
            timeout,
            stop,
            stopping: false,
        }
    }

    /// True once the deadline has passed. Call it every [`POLL_INTERVAL`].
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
            "it was killed because the daemon stops".to_owned()
        } else {
            format!("it was killed: timed out after {:?}", self.timeout)
        };
        Err(ChildError::failed(problem))
    }
}

fn read_all(
    mut reader: PipeReader,
    complaint: &mut Complaint,
    limit: &mut Limit<'_>,
) -> Result<Vec<u8>, ChildError> {
    let broken =
        |error: io::Error| ChildError::failed(format!("its output cannot be read: {error}"));
    let interval = PollTimeout::try_from(POLL_INTERVAL).expect("it is short");
    let mut output = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        limit.check()?;
        complaint.read();
        let output_and_complaint = [Some(&reader), complaint.reader.as_ref()]
            .into_iter()
            .flatten();
        let mut waits: Vec<_> = output_and_complaint
            .map(|it| PollFd::new(it.as_fd(), PollFlags::POLLIN))
            .collect();
        match poll(&mut waits, interval) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) if waits[0].any() != Some(true) => continue,
            Ok(_) => {}
            Err(error) => return Err(broken(error.into())),
        }
        match reader.read(&mut buffer).map_err(broken)? {
            0 => return Ok(output),
            n if output.len() + n > OUTPUT_MAX => {
                return Err(ChildError::failed("its output is too large"));
            }
            n => output.extend_from_slice(&buffer[..n]),
        }
    }
}

struct Child {
    pid: Pid,
    /// The process leads its own process group, so that its children are killed with it.
    is_leader: bool,
    is_reaped: bool,
}

impl Child {
    fn spawn(
        program: &Program<'_>,
        output: &PipeWriter,
        complaint: &PipeWriter,
    ) -> Result<Self, ChildError> {
        let text = |text: String| {
            let nul = |_| ChildError::failed("a variable or an argument contains a NUL byte");
            CString::new(text).map_err(nul)
        };
        let mut arguments = vec![text(program.command.to_owned())?];
        for argument in program.arguments {
            arguments.push(text(argument.clone())?);
        }
        let variables = program.environment.iter();
        let variables = variables.map(|(name, value)| text(format!("{name}={value}")));
        let environment = variables.collect::<Result<Vec<_>, _>>()?;
        let dev_null = File::open("/dev/null")
            .map_err(|error| ChildError::failed(format!("/dev/null cannot be opened: {error}")))?;
        let is_leader = !program.interactive;
        let spawned = (|| {
            let mut files = PosixSpawnFileActions::init()?;
            if !program.interactive {
                files.add_dup2(dev_null.as_raw_fd(), 0)?;
                files.add_dup2(complaint.as_raw_fd(), 2)?;
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
            // Rust ignores SIGPIPE, and this process's parent may have ignored SIGCHLD. A child
            // inherits ignored signals.
            let mut default = SigSet::empty();
            default.add(Signal::SIGPIPE);
            default.add(Signal::SIGCHLD);
            attributes.set_sigdefault(&default)?;
            posix_spawnp(&arguments[0], &files, &attributes, &arguments, &environment)
        })();
        match spawned {
            Ok(pid) => Ok(Self {
                pid,
                is_leader,
                is_reaped: false,
            }),
            Err(error @ (Errno::ENOENT | Errno::EACCES | Errno::ENOTDIR)) => Err(ChildError {
                call: ExecPluginCall::NotFound,
                problem: error.desc().to_owned(),
            }),
            Err(error) => Err(ChildError::failed(format!("it cannot be started: {error}"))),
        }
    }

    /// Waits for the end of a program whose output has ended.
    fn wait(&mut self, complaint: &mut Complaint, limit: &mut Limit<'_>) -> Result<(), ChildError> {
        let status = loop {
            let status = waitpid(self.pid, Some(WaitPidFlag::WNOHANG));
            if !matches!(status, Ok(WaitStatus::StillAlive) | Err(Errno::EINTR)) {
                break status;
            }
            limit.check()?;
            complaint.read();
            pause();
        };
        self.is_reaped = true;
        let problem = match status {
            // This process may have inherited that it ignores SIGCHLD, and then the system keeps no
            // exit status. The output shows whether the program succeeded.
            Ok(WaitStatus::Exited(_, 0)) | Err(Errno::ECHILD) => return Ok(()),
            Ok(WaitStatus::Exited(_, code)) => {
                return Err(ChildError {
                    call: ExecPluginCall::ExecutionError(code),
                    problem: format!("it ended with exit code {code}"),
                });
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => format!("it was killed by {signal}"),
            Ok(other) => format!("it ended unexpectedly: {other:?}"),
            Err(error) => format!("its exit status is unknown: {error}"),
        };
        Err(ChildError::failed(problem))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.is_reaped {
            return;
        }
        // The process may have exited by itself.
        if self.is_leader {
            killpg(self.pid, Signal::SIGKILL).unwrap_or_default();
        } else {
            kill(self.pid, Signal::SIGKILL).unwrap_or_default();
        }
        let deadline = Instant::now() + REAP_TIMEOUT;
        while matches!(
            waitpid(self.pid, Some(WaitPidFlag::WNOHANG)),
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR)
        ) {
            if Instant::now() >= deadline {
                log::warn!("process {} does not exit after SIGKILL", self.pid);
                return;
            }
            pause();
        }
    }
}

/// Sleeps for a few milliseconds. Without a handler for SIGCHLD no event announces the end of a
/// process, so the caller polls.
fn pause() {
    poll(&mut [], PollTimeout::from(2_u8)).unwrap_or_default();
}
