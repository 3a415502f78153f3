//! A TCP connection whose unsent bytes do not outlive the right to send them: what a fenced client
//! connects by, on the thread that sends. Everything but the socket's options is as in ureq's own
//! transport, which does not let anybody near its socket.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, LazyBuffers, NextTimeout, ShutdownHandle, Transport,
};

use super::fence::guard_socket;

/// Such a connection.
pub(super) struct GuardedTcp {
    /// Shared with the agent, which shuts it down from another thread.
    stream: Arc<TcpStream>,
    buffers: LazyBuffers,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

impl GuardedTcp {
    /// Connects to the first address that answers. Waits for each an equal part of the time.
    pub(super) fn connect(details: &ConnectionDetails, limit: Duration) -> Result<Self, Error> {
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
                Ok(stream) => return Self::new(stream, details, limit),
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }

    fn new(stream: TcpStream, details: &ConnectionDetails, limit: Duration) -> Result<Self, Error> {
        stream.set_nodelay(true)?;
        guard_socket(&stream, limit)?;
        let stream = Arc::new(stream);
        (details.register_shutdown)(Arc::downgrade(&stream) as Weak<dyn ShutdownHandle>)?;
        let config = details.config;
        Ok(Self {
            stream,
            buffers: LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size()),
            read_timeout: None,
            write_timeout: None,
        })
    }

    fn is_quiet(&self) -> io::Result<bool> {
        self.stream.set_nonblocking(true)?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false)?;
        Ok(peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock))
    }
}

impl Transport for GuardedTcp {
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
        let input = self.buffers.input_append_buf();
        let amount = loop {
            match (&*self.stream).read(input) {
                // A signal; the wait begins anew, which makes it longer at most once for each.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| or_timeout(error, timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.is_quiet().unwrap_or(false)
    }
}

impl fmt::Debug for GuardedTcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GuardedTcp")
            .field(&self.stream.peer_addr().ok())
            .finish()
    }
}

/// `None`: no limit.
fn limit_of(timeout: NextTimeout) -> Result<Option<Duration>, Error> {
    if timeout.after.is_zero() {
        return Err(Error::Timeout(timeout.reason));
    }
    Ok(timeout.not_zero().map(|limit| *limit))
}

fn or_timeout(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}
