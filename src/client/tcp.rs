//! The TCP connection under everything, on the thread that sends.
//!
//! It is this room's own for two reasons, since ureq's does not let anybody near its socket. With a
//! fence, unsent bytes must not outlive the right to send them. And a request should take as few system
//! calls as it can: here a pooled connection is probed by one and not by three, and not at all between
//! two requests that follow each other closely; and the socket's timeouts are set once and not four times
//! a request.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, LazyBuffers, NextTimeout, ShutdownHandle, Transport,
};

use super::fence::guard_socket;
use super::read_coalescing::{ReadCoalescer, ReadCoalescing};

/// Timeouts from here on are rounded up to whole seconds, so that one does for many requests, each of
/// which would have a few microseconds less.
const EXACT_BELOW: Duration = Duration::from_secs(8);

/// A connection on which something came so short a time ago is taken to be open: hardly any server ends one
/// right after an answer without saying so in it, and that the other side ends it while the request is on its
/// way cannot be ruled out by any look.
const OPEN_FOR: Duration = Duration::from_millis(2);

/// When a silent connection is probed first, how often again, and after how many probes without an answer
/// it counts as broken: 45 s in all, as with upstream's HTTP/2 (`golang.org/x/net/http2`,
/// `ReadIdleTimeout` and `PingTimeout` of `k8s.io/apimachinery/pkg/util/net`). Without this, a watch whose
/// server has lost its power would be trusted for minutes.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEP_ALIVE_PROBES: u32 = 3;

/// A connection without TLS.
pub(super) struct Tcp {
    /// Shared with the agent, which shuts it down from another thread.
    stream: Arc<TcpStream>,
    buffers: LazyBuffers,
    heard: Instant,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    /// For watches.
    coalescer: Option<ReadCoalescer>,
}

impl Tcp {
    /// Connects to the first address that answers. Waits for each an equal part of the time. Bytes that
    /// are not delivered within `delivery_limit` end the connection. Reads rest where `coalescing` lets them.
    pub(super) fn connect(
        details: &ConnectionDetails,
        delivery_limit: Option<Duration>,
        coalescing: Option<&ReadCoalescing>,
    ) -> Result<Self, Error> {
        let addrs: &[SocketAddr] = &details.addrs;
        let n_addrs = u32::try_from(addrs.len()).unwrap_or(u32::MAX).max(1);
        let per_addr = details.timeout.not_zero().map(|all| *all / n_addrs);
        let mut last = Error::HostNotFound;
        for addr in addrs {
            let connected = match per_addr {
                Some(limit) => TcpStream::connect_timeout(addr, limit),
                None => TcpStream::connect(addr),
            };
            match connected {
                Ok(stream) => return Self::new(stream, details, delivery_limit, coalescing),
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    fn new(
        stream: TcpStream,
        details: &ConnectionDetails,
        delivery_limit: Option<Duration>,
        coalescing: Option<&ReadCoalescing>,
    ) -> Result<Self, Error> {
        stream.set_nodelay(true)?;
        keep_alive(&stream)?;
        if let Some(limit) = delivery_limit {
            guard_socket(&stream, limit)?;
        }
        let stream = Arc::new(stream);
        (details.register_shutdown)(Arc::downgrade(&stream) as Weak<dyn ShutdownHandle>)?;
        let config = details.config;
        Ok(Self {
            stream,
            buffers: LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size()),
            heard: Instant::now(),
            read_timeout: None,
            write_timeout: None,
            coalescer: coalescing.cloned().map(ReadCoalescer::new),
        })
    }
}

impl Transport for Tcp {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        let limit = limit_of(timeout)?;
        if self.write_timeout != limit {
            self.stream.set_write_timeout(limit)?;
            self.write_timeout = limit;
        }
        let output = &self.buffers.output()[..amount];
        let sent = (&*self.stream).write_all(output);
        sent.map_err(|error| or_timeout(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        let limit = limit_of(timeout)?;
        if self.read_timeout != limit {
            self.stream.set_read_timeout(limit)?;
            self.read_timeout = limit;
        }
        if let Some(coalescer) = &self.coalescer {
            coalescer.before_read();
        }
        let input = self.buffers.input_append_buf();
        let room = input.len();
        let amount = loop {
            match (&*self.stream).read(input) {
                // A signal; the wait begins anew, which makes it longer at most once for each.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| or_timeout(error, timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        if amount > 0 {
            self.heard = Instant::now();
        }
        if let Some(coalescer) = &mut self.coalescer {
            coalescer.after_read(amount, room);
        }
        Ok(amount > 0)
    }

    /// True if nothing has come, neither an end nor bytes that nobody asked for, or something just before.
    fn is_open(&mut self) -> bool {
        self.heard.elapsed() < OPEN_FOR || has_nothing_come(&self.stream)
    }
}

impl fmt::Debug for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tcp")
            .field(&self.stream.peer_addr().ok())
            .finish()
    }
}

/// `None`: no limit.
fn limit_of(timeout: NextTimeout) -> Result<Option<Duration>, Error> {
    if timeout.after.is_zero() {
        return Err(Error::Timeout(timeout.reason));
    }
    Ok(timeout.not_zero().map(|limit| in_steps(*limit)))
}

fn has_nothing_come(stream: &TcpStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let peeked = recv(stream, &mut [0; 1], flags);
    peeked.is_err_and(|error| error == Errno::WOULDBLOCK)
}

fn in_steps(limit: Duration) -> Duration {
    if limit < EXACT_BELOW || limit.subsec_nanos() == 0 {
        return limit;
    }
    Duration::from_secs(limit.as_secs().saturating_add(1))
}

fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE_PROBES)?;
    Ok(())
}

fn or_timeout(error: io::Error, timeout: NextTimeout) -> Error {
    if error.raw_os_error() == Some(Errno::TIMEDOUT.raw_os_error()) {
        let why = "the other side does not even acknowledge what is sent";
        return io::Error::new(io::ErrorKind::ConnectionAborted, why).into();
    }
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use rustix::net::sockopt;

    use super::{in_steps, keep_alive};

    #[test]
    fn a_silent_connection_is_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let stream = TcpStream::connect(address).expect("it listens");
        keep_alive(&stream).expect("the kernel knows this");
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(Duration::from_secs(30)));
        assert_eq!(sockopt::tcp_keepintvl(&stream), Ok(Duration::from_secs(5)));
        assert_eq!(sockopt::tcp_keepcnt(&stream), Ok(3));
    }

    #[test]
    fn long_limits_are_whole_seconds_and_never_shorter() {
        let check = |ms, expected| {
            let limit = in_steps(Duration::from_millis(ms));
            assert_eq!(limit, Duration::from_millis(expected));
        };
        check(1, 1);
        check(7_999, 7_999);
        check(8_000, 8_000);
        check(8_001, 9_000);
        check(31_999, 32_000);
        check(32_000, 32_000);
    }
}
