//! What systemd is told (`Type=notify`, sd_notify(3)): ready, how things are, reloading, stopping, and
//! that the daemon is alive, by the thread `systemd`. Without `$NOTIFY_SOCKET` there is no such thread
//! and nothing is told.
//!
//! The watchdog is fed only while all checks of [`Probe::Livez`] pass, so that it strikes when a restart
//! helps, and not because a thread that only feeds it still runs. In the same way a start that takes long
//! (a large cluster's lists, an API server that is away) is extended as long as a restart would not help.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;

use super::health::{Health, Probe};
use crate::stdx::stop::Stop;
use crate::stdx::thread::Thread;

/// The status line is renewed this often, if it has changed, and readiness noticed.
const PERIOD: Duration = Duration::from_secs(1);

/// However short the watchdog's time is.
const PERIOD_MIN: Duration = Duration::from_millis(10);

/// The watchdog is fed this often in its time, so that one late turn costs nothing
/// (sd_watchdog_enabled(3) recommends half of it).
const FEEDS_PER_PERIOD: u32 = 3;

/// A start may take this much longer each time that the thread looks, if all is well: far above
/// [`PERIOD`], so that a start is given up for what fails and not for a busy machine.
const START_EXTENSION: Duration = Duration::from_secs(30);

/// What the thread `systemd` asks the daemon. Both must not wait for anything.
pub struct Daemon {
    /// True once it does its work, or could take over at once.
    pub is_ready: Box<dyn Fn() -> bool + Send>,
    /// What it does, in one line.
    pub status: Box<dyn Fn() -> String + Send>,
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").finish_non_exhaustive()
    }
}

/// Starts the thread if systemd, or who stands for it, listens. It ends with `stop`.
pub fn start(health: &Arc<Health>, daemon: Daemon, stop: &Stop) -> Option<Thread> {
    std::env::var_os("NOTIFY_SOCKET")?;
    let watchdog = sd_notify::watchdog_enabled();
    let (health, stopping) = (Arc::clone(health), stop.clone());
    let mut notifier = Notifier {
        health,
        daemon,
        is_ready: false,
        told: String::new(),
        failing: None,
        tell,
    };
    let period = watchdog.map_or(PERIOD, |within| PERIOD.min(within / FEEDS_PER_PERIOD));
    let period = period.max(PERIOD_MIN);
    Some(Thread::spawn("systemd", stop, move || {
        while !stopping.is_stopped() {
            notifier.turn(watchdog);
            stopping.wait_timeout(period);
        }
        tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }))
}

/// Says that the configuration is read again. [`reloaded`] must follow.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => log::warn!(error:%; "cannot tell systemd of the reload"),
    }
}

/// Says that the configuration has been read again, or stands as it was.
pub fn reloaded() {
    tell(&[NotifyState::Ready]);
}

struct Notifier<T> {
    health: Arc<Health>,
    daemon: Daemon,
    is_ready: bool,
    /// The last status line.
    told: String,
    /// The check that kept the watchdog from being fed the last time.
    failing: Option<String>,
    /// Sends to systemd.
    tell: T,
}

impl<T: FnMut(&[NotifyState<'_>])> Notifier<T> {
    fn turn(&mut self, watchdog: Option<Duration>) {
        if !self.is_ready && (self.daemon.is_ready)() {
            self.is_ready = true;
            (self.tell)(&[NotifyState::Ready]);
        }
        let failure = self.health.first_failure(Probe::Livez);
        let status = match &failure {
            Some((check, why)) => format!("failing: {check}: {why}"),
            None => (self.daemon.status)(),
        };
        // Each line of a datagram is a message of its own.
        let status = status.replace('\n', " | ");
        // ORDER: the reason is known before the watchdog can strike for it.
        if status != self.told {
            (self.tell)(&[NotifyState::Status(&status)]);
            self.told = status;
        }
        let failing = failure.as_ref().map(|(check, _)| check.clone());
        if failing != self.failing {
            match (&failure, watchdog) {
                (Some((check, why)), Some(within)) => log::error!(
                    error:% = why,
                    then:% = format_args!(
                        "the watchdog is not fed any more and strikes in {within:?} at the latest"
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
            (self.tell)(&[NotifyState::ExtendTimeoutUsec(extension)]);
        }
        if watchdog.is_some() && failure.is_none() {
            (self.tell)(&[NotifyState::Watchdog]);
        }
    }
}

/// Sends one datagram, which never waits for long: systemd reads as fast as it can.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        log::warn!(error:%; "cannot tell systemd {states:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::{Daemon, Health, Notifier, Probe};
    use crate::telemetry::metrics::global;

    #[test]
    fn a_start_is_extended_and_the_failing_check_is_named_before_the_watchdog_starves() {
        let health = Arc::new(Health::new(global()));
        let is_stuck = Arc::new(AtomicBool::new(false));
        let stuck = Arc::clone(&is_stuck);
        health.add("workers", &[Probe::Livez], move || {
            let finding = (!stuck.load(Ordering::Relaxed)).then_some(());
            finding.ok_or_else(|| "since\nnoon".to_owned())
        });
        let is_synced = Arc::new(AtomicBool::new(false));
        let synced = Arc::clone(&is_synced);
        let mut heard = Vec::new();
        let mut notifier = Notifier {
            health,
            daemon: Daemon {
                is_ready: Box::new(move || synced.load(Ordering::Relaxed)),
                status: Box::new(|| "all is well".to_owned()),
            },
            is_ready: false,
            told: String::new(),
            failing: None,
            tell: |states: &[super::NotifyState<'_>]| {
                heard.extend(states.iter().map(ToString::to_string));
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
        assert_eq!(heard, expected);
    }
}
