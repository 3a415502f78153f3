//! A small HTTP/1.1 server without async: one thread accepts, one thread serves each connection, a
//! [`Handler`] answers. It knows nothing of Kubernetes but its `Status`. The grammar of heads is
//! httparse's, TLS is rustls'.
//!
//! What a client can make the server keep and do has a bound, whoever it is and whatever it sends,
//! and what two could read differently is refused (RFC 9112).
//!
//! Used by `devserver` (threads `dev-accept` and `dev-conn-N`, no limits: loopback and tests) and by
//! `serving` (threads `http` and `http-N`, with [`Limits`]: anybody may come by). Every wait ends with
//! the socket, which is shut when the server stops, or earlier at a limit.
//!
//! DIFFERS: HTTP/1.1 only, where Go's server speaks HTTP/2 too.
//!
//! # Locks
//!
//! `server` guards the list of open connections. The accepting and the serving threads take it.

mod connection;
mod exchange;
mod head;
mod hosts;
mod received;
mod server;
mod socket;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use exchange::{
    ChannelStream, ChunkStream, Handler, Next, Peer, Request, Response, ResponseBody,
};
pub use server::Server;

/// Gives the TLS configuration for the next connection, so that renewed certificates count from then
/// on. Called on the connection's own thread, many at a time.
pub type TlsSource = Arc<dyn Fn() -> Arc<rustls::ServerConfig> + Send + Sync>;

/// How a [`Server`] is set up.
#[derive(Clone)]
pub struct ServerOptions {
    /// Name of the thread that accepts.
    pub accept_thread: &'static str,
    /// What the names of the connections' threads begin with; their number follows.
    pub connection_thread: &'static str,
    /// What a client may take.
    pub limits: Limits,
    /// Speaks TLS if given.
    pub tls: Option<TlsSource>,
    /// If given, requests are refused that come from web pages of others, or that call this server
    /// by a name that is neither loopback's, nor the address that they came in at, nor one of
    /// these.
    pub accept_hosts: Option<Vec<String>>,
}

/// What a client may take of the server. `None` is no limit.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections. If one more comes, one that waits for its client is closed: the oldest of
    /// the address that has most. If there is none, or it is younger than a second and of another
    /// address that has no more than the newcomer's, the new one is closed.
    pub connections: Option<usize>,
    /// From the first moment of a connection, or the first byte of a later request, to the end of the
    /// request: TLS handshake, head and body.
    pub request: Option<Duration>,
    /// Between two requests.
    pub idle: Option<Duration>,
    /// For taking a whole answer.
    pub answer: Option<Duration>,
    /// Bytes of a body that are kept. If there is more the handler gets these, and the connection
    /// is closed after the answer if it is much more.
    pub body_bytes: usize,
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("accept_thread", &self.accept_thread)
            .field("connection_thread", &self.connection_thread)
            .field("limits", &self.limits)
            .field("tls", &self.tls.is_some())
            .field("accept_hosts", &self.accept_hosts)
            .finish()
    }
}
