//! The TCP connection below TLS and HTTP, on the sending thread.
//!
//! The client has its own for two reasons, since ureq does not expose its socket. Behind a fence,
//! unsent bytes must not outlive the right to send them. And a request should take few system
//! calls: one call probes a pooled connection instead of three, none if two requests follow each
//! other closely, and the socket's timeouts are set once instead of four times per request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, LazyBuffers, NextTimeout, ShutdownHandle, Transport,
};
use ureq::{Error, Timeout};

use super::fence::guard_socket;
use super::stream::StreamState;

/// Timeouts of at least this are rounded up to whole seconds. Otherwise each request's timeout
/// would differ by microseconds and would have to be set again.
const ROUND_FROM: Duration = Duration::from_secs(8);

/// A connection that received bytes this recently counts as open. Hardly any server closes one
/// right after a response without announcing it there, and no probe can rule out a close while the
/// request is on its way.
const RECENT: Duration = Duration::from_millis(2);

/// Maximum bytes that a connection reads before a response's head has ended: the head, which has
/// 64 KiB at most, and before it any number of 1xx responses, such as early hints.
const HEAD_BYTES_MAX: usize = 256 << 10;

/// TCP keepalive: the idle time before the first probe, the interval of the probes, and the number
/// of unacknowledged probes after which the connection counts as broken. That is 45 s in all, as
/// with upstream's HTTP/2 (`golang.org/x/net/http2`, `ReadIdleTimeout` and `PingTimeout` of
/// `k8s.io/apimachinery/pkg/util/net`). Without keepalive a watch would take minutes to notice that
/// its server has lost power.
const IDLE_SECONDS: u32 = 30;
const PROBE_SECONDS: u32 = 5;
const N_PROBES: u32 = 3;

/// A connection without TLS.
pub(super) struct Tcp {
    /// The agent shares it, and shuts it down from another thread.
    stream: Arc<TcpStream>,
    buffers: LazyBuffers,
    last_received: Instant,
    /// Bytes received in response to the last request before its head has ended.
    head_bytes: usize,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    /// The end of the connect timeout, which limits the handshakes with proxies and with TLS in
    /// all: ureq allows the whole time for each read of a proxy's response.
    connect_by: Option<Instant>,
    /// Set for lists and watches.
    coalescer: Option<ReadCoalescer>,
}

impl Tcp {
    /// Connects to the first of `addrs` that responds, with an equal part of the timeout for each.
    /// Bytes that are not delivered within `delivery_limit` end the connection. `list_or_watch`
    /// is set for lists and watches.
    pub(super) fn connect(
        details: &ConnectionDetails,
        addrs: &[SocketAddr],
        delivery_limit: Option<Duration>,
        list_or_watch: Option<&StreamState>,
    ) -> Result<Self, Error> {
        let connect_by = details.timeout.not_zero().map(|all| Instant::now() + *all);
        let n_addrs = u32::try_from(addrs.len()).unwrap_or(u32::MAX).max(1);
        let per_addr = details.timeout.not_zero().map(|all| *all / n_addrs);
        let mut last = Error::HostNotFound;
        for addr in addrs {
            let connected = match per_addr {
                Some(limit) => TcpStream::connect_timeout(addr, limit),
                None => TcpStream::connect(addr),
            };
            match connected {
                Ok(stream) => {
                    let tcp = Self::new(stream, details, delivery_limit, list_or_watch)?;
                    return Ok(Self { connect_by, ..tcp });
                }
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    fn new(
        stream: TcpStream,
        details: &ConnectionDetails,
        delivery_limit: Option<Duration>,
        list_or_watch: Option<&StreamState>,
    ) -> Result<Self, Error> {
        stream.set_nodelay(true)?;
        keep_alive(&stream)?;
        if let Some(limit) = delivery_limit {
            guard_socket(&stream, limit)?;
        }
        let stream = Arc::new(stream);
        // The agent can shut this socket down from here on, which ends a blocked read.
        (details.register_shutdown)(Arc::downgrade(&stream) as Weak<dyn ShutdownHandle>)?;
        let config = details.config;
        Ok(Self {
            stream,
            buffers: LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size()),
            last_received: Instant::now(),
            head_bytes: 0,
            read_timeout: None,
            write_timeout: None,
            connect_by: None,
            coalescer: list_or_watch.cloned().map(ReadCoalescer::new),
        })
    }
}

impl Tcp {
    /// Returns the timeout for the socket; `None`: no limit.
    fn socket_timeout(&self, timeout: NextTimeout) -> Result<Option<Duration>, Error> {
        let connect_by = self
            .connect_by
            .filter(|_| timeout.reason == Timeout::Connect);
        let left = connect_by.map(|by| by.saturating_duration_since(Instant::now()));
        if timeout.after.is_zero() || left == Some(Duration::ZERO) {
            return Err(Error::Timeout(timeout.reason));
        }
        let limits = timeout
            .not_zero()
            .map(|limit| *limit)
            .into_iter()
            .chain(left);
        Ok(limits.min().map(rounded_up))
    }
}

impl Transport for Tcp {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        let limit = self.socket_timeout(timeout)?;
        if self.write_timeout != limit {
            self.stream.set_write_timeout(limit)?;
            self.write_timeout = limit;
        }
        let output = &self.buffers.output()[..amount];
        self.head_bytes = 0;
        let sent = (&*self.stream).write_all(output);
        sent.map_err(|error| to_error(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let is_head = timeout.reason == Timeout::RecvResponse;
        let timeout = timeout.for_read();
        let mut limit = self.socket_timeout(timeout)?;
        if let Some(coalescer) = &self.coalescer {
            limit = coalescer.stream.read_limit(limit);
        }
        if self.read_timeout != limit {
            self.stream.set_read_timeout(limit)?;
            self.read_timeout = limit;
        }
        let wait = self
            .coalescer
            .as_ref()
            .map_or(Duration::ZERO, ReadCoalescer::wait);
        if !wait.is_zero() {
            // No code unparks this thread; an early unpark would only shorten the wait.
            thread::park_timeout(wait);
        }
        check_capacity(&mut self.buffers)?;
        let input = self.buffers.input_append_buf();
        let capacity = input.len();
        let amount = loop {
            match (&*self.stream).read(input) {
                // A signal interrupted the read. The timeout starts again, so each signal extends
                // it at most once.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| to_error(error, timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        if is_head {
            self.head_bytes += amount;
            check_head(self.head_bytes)?;
        }
        let now = Instant::now();
        if amount > 0 {
            self.last_received = now;
        }
        if let Some(coalescer) = &mut self.coalescer {
            coalescer.record(amount, capacity, now);
        }
        Ok(amount > 0)
    }

    /// True if bytes arrived a moment ago, or if nothing is readable: neither the end of the stream
    /// nor unsolicited bytes.
    fn is_open(&mut self) -> bool {
        self.last_received.elapsed() < RECENT || has_no_input(&self.stream)
    }
}

impl fmt::Debug for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tcp")
            .field(&self.stream.peer_addr().ok())
            .finish()
    }
}

/// Checks that the input buffer has capacity. A read into a full one would look like the end of the
/// connection.
pub(super) fn check_capacity(buffers: &mut LazyBuffers) -> Result<(), Error> {
    if !buffers.input_append_buf().is_empty() {
        return Ok(());
    }
    let length = buffers.input().len();
    let why = format!("no end of the response's head or of a chunk's size within {length} bytes");
    Err(io::Error::new(io::ErrorKind::InvalidData, why).into())
}

fn check_head(n_bytes: usize) -> Result<(), Error> {
    if n_bytes <= HEAD_BYTES_MAX {
        return Ok(());
    }
    let why = format!("{n_bytes} bytes of 1xx responses without a final one");
    Err(io::Error::new(io::ErrorKind::InvalidData, why).into())
}

fn has_no_input(stream: &TcpStream) -> bool {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    let peeked = recv(stream.as_raw_fd(), &mut [0; 1], flags);
    peeked == Err(Errno::EWOULDBLOCK)
}

fn rounded_up(limit: Duration) -> Duration {
    if limit < ROUND_FROM || limit.subsec_nanos() == 0 {
        return limit;
    }
    Duration::from_secs(limit.as_secs().saturating_add(1))
}

fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    #[cfg(target_os = "macos")]
    setsockopt(stream, sockopt::TcpKeepAlive, &IDLE_SECONDS)?;
    #[cfg(not(target_os = "macos"))]
    setsockopt(stream, sockopt::TcpKeepIdle, &IDLE_SECONDS)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &PROBE_SECONDS)?;
    setsockopt(stream, sockopt::TcpKeepCount, &N_PROBES)?;
    Ok(())
}

fn to_error(error: io::Error, timeout: NextTimeout) -> Error {
    if error.raw_os_error() == Some(Errno::ETIMEDOUT as i32) {
        // Keepalive or the delivery limit ended the connection, not a timeout of this request.
        let why = "the server does not acknowledge what is sent";
        return io::Error::new(io::ErrorKind::ConnectionAborted, why).into();
    }
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}

// Read coalescing for busy watches: the watch thread waits up to 10 ms before the next read, so
// that one wake-up serves several events. The wait runs on the watch thread, directly above the
// socket, because only the socket shows whether everything that has arrived is read.
//
// Reading each event separately costs a wake-up, a system call, an acknowledgement to the
// server, and a pass through cold TLS and HTTP code: several times the cost of decoding the
// event.

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

    /// The wait before the next read, at most [`READ_WAIT_MAX`]; zero if it is not allowed or not
    /// worthwhile.
    fn wait(&self) -> Duration {
        // Bytes that are in the socket already need no wait.
        if self.has_read_all && self.stream.coalesces() {
            wait_for(self.bytes, self.time)
        } else {
            Duration::ZERO
        }
    }

    /// Records a read that returned `bytes` bytes into a buffer with this `capacity`.
    fn record(&mut self, bytes: usize, capacity: usize, now: Instant) {
        // A long silence must not make the next burst look slow.
        let elapsed = now.duration_since(self.last_read).min(WORTHWHILE_MAX);
        self.bytes = self.bytes / 2 + bytes as u64;
        self.time = self.time / 2 + elapsed;
        self.last_read = now;
        self.has_read_all = bytes < capacity;
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
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use nix::sys::socket::{getsockopt, sockopt};

    use super::{READ_WAIT_MAX, ReadCoalescer, keep_alive, rounded_up, wait_for};
    use crate::client::StreamState;

    #[test]
    fn a_silent_connection_is_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let stream = TcpStream::connect(address).expect("it listens");
        keep_alive(&stream).expect("the kernel knows this");
        assert_eq!(getsockopt(&stream, sockopt::KeepAlive), Ok(true));
        assert_eq!(getsockopt(&stream, sockopt::TcpKeepIdle), Ok(30));
        assert_eq!(getsockopt(&stream, sockopt::TcpKeepInterval), Ok(5));
        assert_eq!(getsockopt(&stream, sockopt::TcpKeepCount), Ok(3));
    }

    #[test]
    fn long_timeouts_are_rounded_up_to_seconds() {
        let check = |ms, expected| {
            let limit = rounded_up(Duration::from_millis(ms));
            assert_eq!(limit, Duration::from_millis(expected));
        };
        check(1, 1);
        check(7_999, 7_999);
        check(8_000, 8_000);
        check(8_001, 9_000);
        check(31_999, 32_000);
        check(32_000, 32_000);
    }

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
    fn wait_after(ms: impl IntoIterator<Item = u32>, allow: bool, capacity: usize) -> Duration {
        let stream = StreamState::new(Duration::MAX);
        stream.begin_watch(allow);
        let mut coalescer = ReadCoalescer::new(stream);
        let first = coalescer.last_read + 60_000 * MS;
        for at in ms {
            coalescer.record(POD, capacity, first + at * MS);
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
