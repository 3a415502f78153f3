//! What can be set on a [`ListWatch`](super::ListWatch), and upstream's values.

use std::time::Duration;

use crate::stdx::backoff::BackoffParameters;

/// Objects on one page of a list (client-go `tools/pager/pager.go:defaultPageSize`).
pub const PAGE_SIZE: u32 = 500;

/// No watch is asked to end sooner than this, and each at random up to twice as late, so that
/// watches do not all reconnect at once
/// (client-go `tools/cache/reflector.go:defaultMinWatchTimeout`).
const MIN_WATCH_TIMEOUT: Duration = Duration::from_mins(5);

/// How requests are spaced out after failures
/// (client-go `tools/cache/reflector.go:newReflectorWithOptions`).
pub const BACKOFF: BackoffParameters = BackoffParameters {
    initial: Duration::from_millis(800),
    cap: Duration::from_secs(30),
    factor: 2.0,
    jitter: 1.0,
    reset_after: Duration::from_mins(2),
};

/// How attempts are spaced out while nobody listens at the API server's address: with its jitter
/// the longest pause is 3.2 s, however long that lasts. Such an attempt costs nobody anything, and an API
/// server that comes back is used by all watches within this time.
///
/// DIFFERS: upstream takes these steps from the one back-off of its reflector, up to a minute.
pub const REFUSED_BACKOFF: BackoffParameters = BackoffParameters {
    cap: Duration::from_millis(1600),
    ..BACKOFF
};

/// How to list and watch.
#[derive(Clone, Copy, Debug)]
pub struct ListWatchOptions {
    /// Ask for the list as the beginning of a watch; where that fails, in pages.
    pub use_watch_list: bool,
    /// Ask for pages of this size whatever the version. `None` means pages of [`PAGE_SIZE`] where
    /// they do not keep the server from answering out of its cache.
    pub page_size: Option<u32>,
    /// The shortest time that a watch is asked to last; under 5 minutes counts as 5 minutes.
    pub min_watch_timeout: Duration,
    /// For how long a watch that reports internal errors is opened again without a list; zero for
    /// never, as upstream's controllers have it.
    pub internal_error_retry_max: Duration,
    /// How requests are spaced out after failures.
    pub backoff: BackoffParameters,
    /// The same while connections are refused.
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
    /// How long to ask a watch to last; `random` is uniform in `0.0..1.0`.
    pub(super) fn watch_timeout_seconds(&self, random: f64) -> u64 {
        let min = self.min_watch_timeout.max(MIN_WATCH_TIMEOUT);
        min.mul_f64(1.0 + random).as_secs()
    }
}
