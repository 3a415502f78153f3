//! CPU time of other processes.

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// What all threads of a process have used so far, those that have ended too, in seconds.
///
/// The clock of the process counts nanoseconds. `utime` and `stime` of `/proc` have only hundredths of
/// a second, and its `schedstat` loses a thread when it ends.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let id = i32::try_from(pid).map_err(|error| format!("process {pid}: {error}"))?;
    let clock = clock_getcpuclockid(Pid::from_raw(id));
    let time = clock.and_then(clock_gettime);
    let time = time.map_err(|error| format!("no CPU time of process {pid}: {error}"))?;
    Ok(std::time::Duration::from(time).as_secs_f64())
}
