//! The bytes of one connection, plain or by TLS, with one deadline for whatever is under way. Used by
//! `connection` on the connection's thread.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// One connection's bytes.
pub(super) enum Socket {
    Plain(TimedStream),
    Tls(Box<StreamOwned<ServerConnection, TimedStream>>),
}

/// A TCP stream whose every read and write ends at the deadline. It stands below TLS, so that a client
/// that sends its handshake byte by byte does not get a new allowance with each.
pub(super) struct TimedStream {
    /// Shared with the server's book, which shuts it: one descriptor for both.
    stream: Arc<TcpStream>,
    deadline: Option<Instant>,
    /// The stream has a time-out from an earlier deadline.
    is_timed: bool,
}

impl Socket {
    pub(super) fn new(stream: Arc<TcpStream>, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let stream = TimedStream {
            stream,
            deadline: None,
            is_timed: false,
        };
        let Some(config) = tls else {
            return Ok(Self::Plain(stream));
        };
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(session, stream))))
    }

    /// From now on every read and write ends at `deadline`; without one they may take for ever.
    pub(super) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.timed_mut().deadline = deadline;
    }

    /// Completes the TLS handshake; nothing to do for plain connections.
    pub(super) fn handshake(&mut self) -> io::Result<()> {
        if let Self::Tls(tls) = self {
            while tls.conn.is_handshaking() {
                tls.conn.complete_io(&mut tls.sock)?;
            }
        }
        Ok(())
    }

    /// The certificates that the client has shown, its own first, in DER.
    pub(super) fn client_certificates(&self) -> Vec<Vec<u8>> {
        let Self::Tls(tls) = self else {
            return Vec::new();
        };
        let chain = tls.conn.peer_certificates().unwrap_or_default();
        chain.iter().map(|der| der.to_vec()).collect()
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => &stream.stream,
            Self::Tls(tls) => &tls.sock.stream,
        }
    }

    /// Says goodbye, if TLS has a word for it, and closes the connection for both sides.
    pub(super) fn close(&mut self) {
        if let Self::Tls(tls) = self {
            tls.conn.send_close_notify();
            // A client that has gone already misses nothing.
            tls.flush().unwrap_or_default();
        }
        self.tcp().shutdown(Shutdown::Both).unwrap_or_default();
    }

    fn timed_mut(&mut self) -> &mut TimedStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(tls) => &mut tls.sock,
        }
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(bytes),
            Self::Tls(tls) => tls.read(bytes),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

impl TimedStream {
    fn prepare(&mut self) -> io::Result<()> {
        if self.deadline.is_none() && !self.is_timed {
            return Ok(());
        }
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.is_timed = left.is_some();
        self.stream.set_read_timeout(left)?;
        self.stream.set_write_timeout(left)
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
