//! Read coalescing for busy watches: the watch thread waits up to 10 ms before the next read, so
//! that one wake-up serves several events. The wait runs on the watch thread, directly above the
//! socket, because only the socket shows whether everything that has arrived is read.
//!
//! Reading each event separately costs a wake-up, a system call, an acknowledgement to the server,
//! and a pass through cold TLS and HTTP code: several times the cost of decoding the event.

use std::thread;
use std::time::{Duration, Instant};

use super::stream_state::StreamState;

/// Maximum wait before a read, and so the maximum delay that it adds to an event. Without the wait
/// a created pod costs 1.3 times the CPU (tests/bench/README.md).
pub const READ_WAIT_MAX: Duration = Duration::from_millis(10);

/// Bytes that one read should return: about ten usual pods. The faster the bytes arrive, the
/// shorter the wait, so that coalescing delays the last of 500 pods by at most a fiftieth of the
/// time that they take.
const BYTES_PER_READ: u64 = 48 << 10;

/// If [`BYTES_PER_READ`] bytes take longer than this to arrive, a wait would gain next to nothing.
const WORTHWHILE_MAX: Duration = READ_WAIT_MAX.saturating_mul(8);

/// The arrival rate of one connection's bytes, and whether the last read emptied the socket.
#[derive(Debug)]
pub(super) struct ReadCoalescer {
    stream: StreamState,
    /// Bytes of the recent reads and the time that they took to arrive. Every read halves both.
    bytes: u64,
    time: Duration,
    last_read: Instant,
    has_read_all: bool,
}

impl ReadCoalescer {
    pub(super) fn new(stream: StreamState) -> Self {
        Self {
            stream,
            bytes: 0,
            time: WORTHWHILE_MAX,
            last_read: Instant::now(),
            has_read_all: false,
        }
    }

    /// Waits if that is allowed and worthwhile, for at most [`READ_WAIT_MAX`].
    pub(super) fn before_read(&self) {
        let wait = self.wait();
        if !wait.is_zero() {
            // No code unparks this thread; an early unpark would only shorten the wait.
            thread::park_timeout(wait);
        }
    }

    fn wait(&self) -> Duration {
        // Bytes that are in the socket already need no wait.
        if self.has_read_all && self.stream.coalesces() {
            wait_for(self.bytes, self.time)
        } else {
            Duration::ZERO
        }
    }

    /// Records a read that returned `bytes` bytes into a buffer with room for `room`.
    pub(super) fn after_read(&mut self, bytes: usize, room: usize) {
        self.record(bytes, room, Instant::now());
    }

    fn record(&mut self, bytes: usize, room: usize, now: Instant) {
        // A long silence must not make the next burst look slow.
        let elapsed = now.duration_since(self.last_read).min(WORTHWHILE_MAX);
        self.bytes = self.bytes / 2 + bytes as u64;
        self.time = self.time / 2 + elapsed;
        self.last_read = now;
        self.has_read_all = bytes < room;
    }
}

/// Returns the time in which [`BYTES_PER_READ`] bytes arrive at a rate of `bytes` per `time`, at
/// most [`READ_WAIT_MAX`]; zero if a wait is not worthwhile.
fn wait_for(bytes: u64, time: Duration) -> Duration {
    let nanos = time.as_nanos() * u128::from(BYTES_PER_READ) / u128::from(bytes.max(1));
    let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    if wait > WORTHWHILE_MAX {
        return Duration::ZERO;
    }
    wait.min(READ_WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{READ_WAIT_MAX, ReadCoalescer, wait_for};
    use crate::client::StreamState;

    const MS: Duration = Duration::from_millis(1);
    const POD: usize = 4600;
    const ROOM: usize = 64 << 10;

    #[test]
    fn the_wait_shrinks_with_the_rate_and_is_zero_at_low_rates() {
        let check = |bytes, time, expected| {
            assert_eq!(wait_for(bytes, time), expected, "{bytes} bytes in {time:?}");
        };
        check(0, MS, Duration::ZERO);
        check(4 << 10, 10 * MS, Duration::ZERO);
        check(5 << 10, 10 * MS, Duration::ZERO);
        check(6 << 10, 10 * MS, READ_WAIT_MAX);
        check(24 << 10, 10 * MS, READ_WAIT_MAX);
        check(48 << 10, 10 * MS, READ_WAIT_MAX);
        check(96 << 10, 10 * MS, 5 * MS);
        check(96 << 20, 10 * MS, 5 * MS / 1024);
        check(u64::MAX, MS, Duration::ZERO);
        check(1, Duration::MAX, Duration::ZERO);
    }

    /// Returns the wait of a connection that read one pod at each of `ms`, the first after a minute
    /// of silence.
    fn wait_after(ms: impl IntoIterator<Item = u32>, allow: bool, room: usize) -> Duration {
        let stream = StreamState::new(Duration::MAX);
        stream.begin_watch(allow);
        let mut coalescer = ReadCoalescer::new(stream);
        let first = coalescer.last_read + 60_000 * MS;
        for at in ms {
            coalescer.record(POD, room, first + at * MS);
        }
        coalescer.wait()
    }

    #[test]
    fn a_busy_connection_waits_if_allowed_and_all_is_read() {
        let every_2_ms = || (0..12).map(|n| 2 * n);
        assert_eq!(wait_after(every_2_ms(), true, ROOM), READ_WAIT_MAX);
        assert_eq!(wait_after(every_2_ms(), true, POD), Duration::ZERO);
        assert_eq!(wait_after(every_2_ms(), false, ROOM), Duration::ZERO);
    }

    #[test]
    fn a_quiet_connection_does_not_wait() {
        assert_eq!(wait_after([0], true, ROOM), Duration::ZERO);
        assert_eq!(wait_after([0, 1], true, ROOM), Duration::ZERO);
        assert_eq!(
            wait_after((0..12).map(|n| 20 * n), true, ROOM),
            Duration::ZERO
        );
    }
}
