//! Limits how long the reflector reopens a watch after internal errors of the server.

use std::time::{Duration, Instant};

/// Internal errors further apart than this are not one series (client-go
/// `tools/cache/reflector.go:watch`).
const RESET_AFTER: Duration = Duration::from_mins(1);

/// A window that opens with the first of a series of internal errors (client-go
/// `tools/cache/retry_with_deadline.go`).
#[derive(Debug)]
pub(super) struct InternalErrorWindow {
    length: Duration,
    /// The first and the last error of the series.
    series: Option<(Instant, Instant)>,
}

impl InternalErrorWindow {
    /// Creates a window that stays open for `length`; zero for never.
    pub(super) fn new(length: Duration) -> Self {
        let series = None;
        Self { length, series }
    }

    /// Records an internal error; true if the reflector may reopen the watch.
    pub(super) fn on_internal_error(&mut self, now: Instant) -> bool {
        let first = match self.series {
            Some((first, last)) if now.saturating_duration_since(last) < RESET_AFTER => first,
            _ => now,
        };
        self.series = Some((first, now));
        let is_open = !self.length.is_zero() && now - first <= self.length;
        if !is_open {
            self.series = None;
        }
        is_open
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::InternalErrorWindow;

    /// One error arrives per second, with one longer pause before the error of the given number.
    #[track_caller]
    fn check(window_seconds: u64, pause: Option<(usize, u64)>, expected_retries: usize) {
        let mut window = InternalErrorWindow::new(Duration::from_secs(window_seconds));
        let mut now = Instant::now();
        let mut n_retries = 0;
        while window.on_internal_error(now) {
            n_retries += 1;
            let seconds = match pause {
                Some((at, seconds)) if at == n_retries => seconds,
                _ => 1,
            };
            now += Duration::from_secs(seconds);
            assert!(n_retries < 1000, "the window never closes");
        }
        assert_eq!(n_retries, expected_retries);
    }

    #[test]
    fn j_13_internal_errors_are_retried_within_the_window() {
        check(0, None, 0);
        check(30, None, 31);
        check(30, Some((9, 60)), 40);
    }
}
