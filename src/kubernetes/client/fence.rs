//! The fence: the last check before bytes leave whether this process may still write. The sending
//! thread runs it for every request of a fenced client, right before each `write` into the socket,
//! and nowhere else.
//!
//! The kernel may freeze a thread for any time between two instructions, so an early check proves
//! nothing. Between this check and the system call lie microseconds; the process would have to
//! freeze there for longer than the lock's margin. No check reaches the bytes that the kernel has
//! already accepted; two socket options bound their delivery, see [`guard_socket`].

use std::fmt;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};
use ureq::Error;
use ureq::unversioned::transport::{Buffers, NextTimeout, Transport};

/// Decides whether this process may still write.
pub trait Fence: fmt::Debug + Send + Sync {
    /// True while requests may be sent. Implementations must be cheap, must not block, and must
    /// not reopen if a request sent in between might have been wrong.
    fn is_open(&self) -> bool;

    /// Maximum time from the last check of [`is_open`](Self::is_open) until bytes reach the server.
    /// The kernel discards what it could not deliver within this time.
    fn delivery_limit(&self) -> Duration;
}

/// The error of a connection that sent nothing because the fence is closed.
#[derive(Debug, thiserror::Error)]
#[error("not sent: this process no longer holds the lease")]
pub(super) struct HeldBack;

/// Limits how long the kernel keeps a request's bytes. Bytes that the server does not acknowledge
/// within `limit` end the connection. Closing the connection, also by the end of the process,
/// discards unsent bytes instead of retransmitting them for minutes.
pub(super) fn guard_socket(stream: &TcpStream, limit: Duration) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).max(1);
        setsockopt(stream, sockopt::TcpUserTimeout, &ms)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = limit;
    let at_once = linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(stream, sockopt::Linger, &at_once)?;
    Ok(())
}

/// A connection that sends nothing while the fence is closed.
///
/// If the fence blocks a part of a request, the request is incomplete and the server does not act
/// on it. So it counts as not sent.
#[derive(Debug)]
pub(super) struct Fenced {
    inner: Box<dyn Transport>,
    fence: Arc<dyn Fence>,
}

impl Fenced {
    pub(super) fn new(inner: Box<dyn Transport>, fence: &Arc<dyn Fence>) -> Self {
        let fence = Arc::clone(fence);
        Self { inner, fence }
    }
}

impl Transport for Fenced {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        // ORDER: nothing may come between this check and the write.
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
