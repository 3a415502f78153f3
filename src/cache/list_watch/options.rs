//! Options of a [`ListWatch`](super::ListWatch) and upstream's values.

use std::time::Duration;

use crate::stdx::backoff::BackoffParameters;

/// Objects on one page of a list (client-go `tools/pager/pager.go:defaultPageSize`).
pub const PAGE_SIZE: u32 = 500;

/// Minimum `timeoutSeconds` of a watch. Each watch draws a random timeout up to twice as long, so
/// that watches do not all reconnect at once (client-go
/// `tools/cache/reflector.go:defaultMinWatchTimeout`).
const MIN_WATCH_TIMEOUT: Duration = Duration::from_mins(5);

/// The back-off after failures (client-go `tools/cache/reflector.go:newReflectorWithOptions`).
pub const BACKOFF: BackoffParameters = BackoffParameters {
    initial: Duration::from_millis(800),
    cap: Duration::from_secs(30),
    factor: 2.0,
    jitter: 1.0,
    reset_after: Duration::from_mins(2),
};

/// The back-off while no process listens at the API server's address. With its jitter the longest
/// pause is 3.2 s, however long the outage lasts. Such an attempt is cheap for everyone, and all
/// watches use a restarted API server within this time.
///
/// DIFFERS: upstream takes these steps from the one back-off of its reflector, up to a minute.
pub const REFUSED_BACKOFF: BackoffParameters = BackoffParameters {
    cap: Duration::from_millis(1600),
    ..BACKOFF
};

/// Options for listing and watching.
#[derive(Clone, Copy, Debug)]
pub struct ListWatchOptions {
    /// Request the list as the beginning of a watch; if that fails, in pages.
    pub use_watch_list: bool,
    /// Request pages of this size for every version. `None`: request pages of [`PAGE_SIZE`], but
    /// only if the limit does not keep the server from using its cache.
    pub page_size: Option<u32>,
    /// Minimum timeout to request for a watch; values under 5 minutes count as 5 minutes.
    pub min_watch_timeout: Duration,
    /// How long to reopen a watch that reports internal errors without a new list; zero for never,
    /// as in upstream's controllers.
    pub internal_error_retry_max: Duration,
    /// The back-off after failures.
    pub backoff: BackoffParameters,
    /// The back-off while connections are refused.
    pub refused_backoff: BackoffParameters,
}

impl Default for ListWatchOptions {
    fn default() -> Self {
        Self {
            use_watch_list: true,
            page_size: None,
            min_watch_timeout: MIN_WATCH_TIMEOUT,
            internal_error_retry_max: Duration::ZERO,
            backoff: BACKOFF,
            refused_backoff: REFUSED_BACKOFF,
        }
    }
}

impl ListWatchOptions {
    /// Returns the timeout to request for a watch; `random` is uniform in `0.0..1.0`.
    pub(super) fn watch_timeout_seconds(&self, random: f64) -> u64 {
        let min = self.min_watch_timeout.max(MIN_WATCH_TIMEOUT);
        min.mul_f64(1.0 + random).as_secs()
    }
}
