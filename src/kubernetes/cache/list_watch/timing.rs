//! How long a [`ListWatch`](super::ListWatch) watches and waits, by upstream's values.

use std::time::Duration;

use crate::stdx::backoff::BackoffParameters;

/// Minimum `timeoutSeconds` of a watch. Each watch draws a random timeout up to twice as long, so
/// that watches do not all reconnect at once (client-go
/// `tools/cache/reflector.go:defaultMinWatchTimeout`).
const MIN_WATCH_TIMEOUT: Duration = Duration::from_mins(5);

/// The back-off after failures (client-go `tools/cache/reflector.go:newReflectorWithOptions`).
pub(super) const BACKOFF: BackoffParameters = BackoffParameters {
    initial: Duration::from_millis(800),
    cap: Duration::from_secs(30),
    jitter: 1.0,
    reset_after: Duration::from_mins(2),
};

/// The back-off while no process listens at the API server's address. With its jitter the longest
/// pause is 3.2 s, however long the outage lasts. Such an attempt is cheap for everyone, and all
/// watches use a restarted API server within this time.
///
/// DIFFERS: upstream takes these steps from the one back-off of its reflector, up to a minute.
pub(super) const REFUSED_BACKOFF: BackoffParameters = BackoffParameters {
    cap: Duration::from_millis(1600),
    ..BACKOFF
};

/// A watch that closes sooner than this without a message has failed (client-go
/// `tools/cache/reflector.go:handleAnyWatch`).
pub(super) const VERY_SHORT_WATCH: Duration = Duration::from_secs(1);

/// Maximum time of a streamed list without a message of the list. An API server that streams a list
/// sends its messages as fast as the client reads, and the bookmark after them within seconds. The
/// client's `request_timeout` is the same limit for a stream without any message.
pub(super) const UNENDED_MAX: Duration = Duration::from_mins(1);

/// A watch that ends is followed by a list if nothing was heard for longer than this. Some proxies
/// close every watch that is idle for 30 s, before its first bookmark. The next end comes after
/// five minutes at the latest (`client::ClientOptions::watch_silence_timeout`), so that a healthy
/// API server is heard within five minutes.
pub(super) const UNCHECKED_MAX: Duration = Duration::from_mins(2);

/// Returns the timeout to request for a watch; `random` is uniform in `0.0..1.0`.
pub(super) fn watch_timeout_seconds(random: f64) -> u64 {
    MIN_WATCH_TIMEOUT.mul_f64(1.0 + random).as_secs()
}
