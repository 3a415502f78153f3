//! The bytes of one connection, plain or TLS, with one deadline for the current operation.
//! `connection` uses it on the connection's thread.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use rustls::{ServerConfig, ServerConnection};

pub(super) struct Socket {
    stream: TimedStream,
    tls: Option<Box<ServerConnection>>,
}

/// A TCP stream whose reads and writes all end at the deadline. It sits below TLS, so a client that
/// sends its handshake byte by byte gets no extra time per byte.
pub(super) struct TimedStream {
    /// Shared with the server's connection table, which shuts it: one descriptor for both.
    stream: Arc<TcpStream>,
    deadline: Option<Instant>,
}

impl Socket {
    pub(super) fn new(stream: Arc<TcpStream>, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let stream = TimedStream {
            stream,
            deadline: None,
        };
        let tls = tls.map(ServerConnection::new).transpose();
        let tls = tls.map_err(io::Error::other)?.map(Box::new);
        Ok(Self { stream, tls })
    }

    pub(super) fn set_deadline(&mut self, deadline: Instant) {
        self.stream.deadline = Some(deadline);
    }

    pub(super) fn handshake(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            while tls.is_handshaking() {
                tls.complete_io(&mut self.stream)?;
            }
        }
        Ok(())
    }

    /// The client's certificates in DER, the client's own first.
    pub(super) fn client_certificates(&self) -> Vec<Vec<u8>> {
        let chain = self.tls.as_ref().and_then(|tls| tls.peer_certificates());
        let chain = chain.unwrap_or_default().iter();
        chain.map(|der| der.to_vec()).collect()
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        &self.stream.stream
    }

    /// Sends the TLS `close_notify`, if any, and shuts the connection in both directions.
    pub(super) fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // The client may have disconnected already, so an error here does not matter.
            self.flush().unwrap_or_default();
        }
        self.tcp().shutdown(Shutdown::Both).unwrap_or_default();
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.stream.read(bytes),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).read(bytes),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.stream.write(bytes),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => self.stream.flush(),
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.stream).flush(),
        }
    }
}

impl TimedStream {
    fn prepare(&mut self) -> io::Result<()> {
        let Some(deadline) = self.deadline else {
            return Ok(());
        };
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(remaining))?;
        self.stream.set_write_timeout(Some(remaining))
    }
}

impl Read for TimedStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.prepare()?;
        (&*self.stream).read(bytes)
    }
}

impl Write for TimedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.prepare()?;
        (&*self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.stream).flush()
    }
}
