//! CPU time of other processes.

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// CPU time of a process so far in seconds, including threads that have ended.
///
/// The process clock counts nanoseconds. `utime` and `stime` in `/proc` count hundredths of a
/// second, and `schedstat` drops threads that have ended.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let id = i32::try_from(pid).map_err(|error| format!("process {pid}: {error}"))?;
    let clock = clock_getcpuclockid(Pid::from_raw(id));
    let time = clock.and_then(clock_gettime);
    let time = time.map_err(|error| format!("no CPU time of process {pid}: {error}"))?;
    Ok(std::time::Duration::from(time).as_secs_f64())
}
