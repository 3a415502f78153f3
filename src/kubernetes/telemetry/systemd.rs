//! Notifies systemd (`Type=notify`, sd_notify(3)) of readiness, status, reloads, stopping and
//! liveness, on the thread `systemd`. Without `$NOTIFY_SOCKET` that thread does not exist.
//!
//! The thread feeds the watchdog only while all checks of [`Probe::Livez`] pass. So the watchdog
//! fires when a restart would help, and a stuck worker cannot hide behind a live notifier thread.
//! Likewise the thread extends a slow start (large lists, an unreachable API server) as long as
//! these checks pass.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sd_notify::NotifyState;

use super::{Health, Probe};
use crate::stdx::stop::Stop;
use crate::stdx::thread::Thread;

/// Interval between checks for a new status line and for readiness.
const PERIOD: Duration = Duration::from_secs(1);

/// Lower bound of the interval, even with a very short watchdog timeout.
const PERIOD_MIN: Duration = Duration::from_millis(10);

/// Watchdog notifications per timeout, so that one late notification does no harm
/// (sd_watchdog_enabled(3) recommends half the timeout).
const FEEDS_PER_PERIOD: u32 = 3;

/// Each turn extends the start timeout by this, if all checks pass. It is far above [`PERIOD`], so
/// that a late turn on a busy machine does not abort the start.
const START_EXTENSION: Duration = Duration::from_secs(30);

/// True once systemd was notified that the daemon is ready. A READY that ends a reload looks the
/// same, so a reload during the start must not send it. Signals belong to the process, so this is
/// global.
static IS_READY: Mutex<bool> = Mutex::new(false);

/// The callbacks of the thread `systemd`. Neither may block.
pub struct Daemon {
    /// True once the daemon syncs, or could take over at once.
    pub is_ready: Box<dyn Fn() -> bool + Send>,
    pub status: Box<dyn Fn() -> String + Send>,
}

pub fn start(health: &Arc<Health>, daemon: Daemon, stop: &Stop) -> Option<Thread> {
    std::env::var_os("NOTIFY_SOCKET")?;
    let watchdog = sd_notify::watchdog_enabled();
    let (health, stopping) = (Arc::clone(health), stop.clone());
    let mut notifier = Notifier {
        health,
        daemon,
        is_ready: false,
        last_status: String::new(),
        failing: None,
        notify,
    };
    let period = watchdog.map_or(PERIOD, |within| PERIOD.min(within / FEEDS_PER_PERIOD));
    let period = period.max(PERIOD_MIN);
    Some(Thread::spawn("systemd", stop, move || {
        while !stopping.is_stopped() {
            notifier.turn(watchdog);
            stopping.wait_timeout(period);
        }
        notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }))
}

/// Notifies systemd that a configuration reload starts, unless the daemon is still starting.
/// [`reloaded`] must follow.
pub fn reloading() {
    if !is_ready() {
        return;
    }
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => log::warn!(error:%; "cannot notify systemd of the reload"),
    }
}

/// Notifies systemd that the reload ended, successfully or not, unless the daemon is still
/// starting.
pub fn reloaded() {
    if is_ready() {
        notify(&[NotifyState::Ready]);
    }
}

fn is_ready() -> bool {
    *IS_READY.lock()
}

struct Notifier<T> {
    health: Arc<Health>,
    daemon: Daemon,
    is_ready: bool,
    /// The last status line sent.
    last_status: String,
    /// The failing check in the previous turn.
    failing: Option<String>,
    /// Sends to systemd.
    notify: T,
}

impl<T: FnMut(&[NotifyState<'_>])> Notifier<T> {
    fn turn(&mut self, watchdog: Option<Duration>) {
        if !self.is_ready && (self.daemon.is_ready)() {
            self.is_ready = true;
            // ORDER: systemd may ask for a reload as soon as it has this, and the reload must see
            // the flag.
            let mut is_ready = IS_READY.lock();
            (self.notify)(&[NotifyState::Ready]);
            *is_ready = true;
        }
        let failure = self.health.first_failure(Probe::Livez);
        let status = match &failure {
            Some((check, why)) => format!("failing: {check}: {why}"),
            None => (self.daemon.status)(),
        };
        // A line break would start another message within the datagram.
        let status = status.replace('\n', " | ");
        // ORDER: send the reason before the watchdog can fire.
        if status != self.last_status {
            (self.notify)(&[NotifyState::Status(&status)]);
            self.last_status = status;
        }
        let failing = failure.as_ref().map(|(check, _)| check.clone());
        if failing != self.failing {
            match (&failure, watchdog) {
                (Some((check, why)), Some(within)) => log::error!(
                    error:% = why,
                    then:% = format_args!(
                        "the watchdog fires in {within:?} at the latest"
                    );
                    "the check {check} fails"
                ),
                (Some((check, why)), None) => log::error!(error:% = why; "the check {check} fails"),
                (None, _) => log::info!("all checks pass again"),
            }
            self.failing = failing;
        }
        if !self.is_ready && failure.is_none() {
            let extension = u32::try_from(START_EXTENSION.as_micros()).unwrap_or(u32::MAX);
            (self.notify)(&[NotifyState::ExtendTimeoutUsec(extension)]);
        }
        if watchdog.is_some() && failure.is_none() {
            (self.notify)(&[NotifyState::Watchdog]);
        }
    }
}

/// Sends one datagram. Does not block for long, since systemd reads continuously.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::warn!(error:%; "cannot notify systemd of {states:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::{Daemon, Health, Notifier, Probe};

    #[test]
    fn a_failing_check_is_reported_before_the_watchdog_fires() {
        let health = Arc::new(Health::default());
        let is_stuck = Arc::new(AtomicBool::new(false));
        let stuck = Arc::clone(&is_stuck);
        health.add("workers", &[Probe::Livez], move || {
            let finding = (!stuck.load(Ordering::Relaxed)).then_some(());
            finding.ok_or_else(|| "since\nnoon".to_owned())
        });
        let is_synced = Arc::new(AtomicBool::new(false));
        let synced = Arc::clone(&is_synced);
        let mut sent = Vec::new();
        let mut notifier = Notifier {
            health,
            daemon: Daemon {
                is_ready: Box::new(move || synced.load(Ordering::Relaxed)),
                status: Box::new(|| "all is well".to_owned()),
            },
            is_ready: false,
            last_status: String::new(),
            failing: None,
            notify: |states: &[super::NotifyState<'_>]| {
                sent.extend(states.iter().map(ToString::to_string));
            },
        };
        let watchdog = Some(Duration::from_secs(1));
        notifier.turn(watchdog);
        is_synced.store(true, Ordering::Relaxed);
        notifier.turn(watchdog);
        is_stuck.store(true, Ordering::Relaxed);
        notifier.turn(watchdog);
        notifier.turn(watchdog);
        is_stuck.store(false, Ordering::Relaxed);
        notifier.turn(watchdog);
        drop(notifier);
        let expected = [
            "STATUS=all is well",
            "EXTEND_TIMEOUT_USEC=30000000",
            "WATCHDOG=1",
            "READY=1",
            "WATCHDOG=1",
            "STATUS=failing: workers: since | noon",
            "STATUS=all is well",
            "WATCHDOG=1",
        ];
        assert_eq!(sent, expected);
    }
}
