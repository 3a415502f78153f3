//! The last look before bytes leave: may this process still write? Asked for every request of a
//! fenced client right before each `write` into the socket, on the thread that sends, and nowhere
//! else.
//!
//! A thread may be frozen for any time between two instructions, so a question asked early says nothing.
//! What is left here is the way from the question to the system call: microseconds, in which the process
//! would have to be frozen for longer than the lock's margin. What the kernel has taken by then is out of
//! reach of any question; two options of the socket bound it, see [`guard_socket`].

use std::fmt;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, NextTimeout, Transport,
};

/// Knows whether this process may still write.
pub trait Fence: fmt::Debug + Send + Sync {
    /// True while requests may leave. Must be cheap, must not block, and must not become true again
    /// after a request in between may have been wrong.
    fn is_open(&self) -> bool;

    /// How long after the last look at [`is_open`](Self::is_open) bytes may still reach the server:
    /// what the kernel could not deliver within this time is thrown away.
    fn delivery_limit(&self) -> Duration;
}

/// What a connection says of bytes that it did not send.
#[derive(Debug, thiserror::Error)]
#[error("held back, because the right to write is gone")]
pub(super) struct HeldBack;

/// Sees to it that what the kernel holds of a request does not outlive the right to send it: bytes that
/// are not acknowledged within `limit` end the connection, and a connection that is closed, also by the
/// death of the process, throws away what it has not sent instead of trying on for minutes.
pub(super) fn guard_socket(stream: &TcpStream, limit: Duration) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).max(1);
        rustix::net::sockopt::set_tcp_user_timeout(stream, ms)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = limit;
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
    Ok(())
}

/// Puts the last look right above the socket, below TLS.
#[derive(Debug)]
pub(super) struct FenceConnector(pub(super) Option<Arc<dyn Fence>>);

impl<In: Transport> Connector<In> for FenceConnector {
    type Out = Either<In, Fenced<In>>;

    fn connect(
        &self,
        _details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        Ok(match (&self.0, chained) {
            (_, None) => None,
            (None, Some(transport)) => Some(Either::A(transport)),
            (Some(fence), Some(transport)) => Some(Either::B(Fenced {
                inner: transport,
                fence: Arc::clone(fence),
            })),
        })
    }
}

/// A connection that sends nothing while the fence is closed.
///
/// A request of which a part was held back is incomplete, and the server does not act on it: so it
/// counts as not sent.
#[derive(Debug)]
pub(super) struct Fenced<T> {
    inner: T,
    fence: Arc<dyn Fence>,
}

impl<T: Transport> Transport for Fenced<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        // ORDER: nothing may come between this and the write.
        if !self.fence.is_open() {
            return Err(Error::Other(Box::new(HeldBack)));
        }
        self.inner.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.inner.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}
