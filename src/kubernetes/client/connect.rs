//! How the client opens a connection to the API server: proxy, name resolution, TCP, TLS. `http`
//! builds the chain once per agent; it runs on the thread whose request found no idle connection.
//!
//! The client has its own chain for three reasons. It resolves names only when it opens a
//! connection, not for every request. `tls-server-name` and the server's own certificate
//! authorities apply to the server and not to a proxy. The chain marks every failure, since a
//! failure in here proves that the request was not sent.

use std::sync::Arc;
use std::{fmt, io};

use rustls::{ClientConnection, StreamOwned};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, LazyBuffers, NextTimeout,
    Transport, TransportAdapter,
};
use ureq::{Error, Proxy, ProxyProtocol};

use super::config::default_port;
use super::error::{TransportErrorKind, kind_of};
use super::fence::{Fence, Fenced, HeldBack};
use super::live_tls::LiveTls;
use super::socks;
use super::stream::StreamState;
use super::tcp::{Tcp, check_capacity};
use super::tls::{Hints, describe};

/// Builds the connector chain. A closed `fence` blocks everything on its connections. `stream` is
/// set for lists and watches: a new identity ends their connections, while others end with their
/// current response.
pub(super) fn connector(
    tls: Option<Arc<LiveTls>>,
    hints: &'static Hints,
    fence: Option<&Arc<dyn Fence>>,
    stream: Option<&StreamState>,
) -> impl Connector<()> + use<> {
    let first = ();
    #[cfg(any(test, feature = "simulation"))]
    let first = first.chain(super::simulated::ConnectSimulated);
    Marked(first.chain(ConnectProxyConnector::default()).chain(Server {
        system: DefaultResolver::default(),
        tls,
        hints,
        fence: fence.cloned(),
        stream: stream.cloned(),
    }))
}

/// Why there is no connection. The request was certainly not sent.
#[derive(Debug)]
pub(super) struct Unsent {
    pub(super) kind: TransportErrorKind,
    pub(super) message: String,
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Unsent {}

impl Unsent {
    fn wrap(error: Error) -> Error {
        // The client reports what the fence did not send as `Fenced`, not as a failed connection.
        if matches!(&error, Error::Other(inner) if inner.is::<Self>() || inner.is::<HeldBack>()) {
            return error;
        }
        let (kind, message) = match &error {
            Error::Timeout(_) => (
                TransportErrorKind::TimedOut,
                "the connection was not opened in time".to_owned(),
            ),
            Error::Io(error) => (kind_of(error), error.to_string()),
            Error::HostNotFound => (TransportErrorKind::Other, "unknown host".to_owned()),
            error => (TransportErrorKind::Other, error.to_string()),
        };
        Error::Other(Box::new(Self { kind, message }))
    }
}

/// Marks every failure of the inner connectors as [`Unsent`].
#[derive(Debug)]
struct Marked<C>(C);

impl<C: Connector<()>> Connector<()> for Marked<C> {
    type Out = C::Out;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, Error> {
        self.0.connect(details, chained).map_err(Unsent::wrap)
    }
}

/// Leaves the resolution of the API server's name to [`Server`]. ureq calls its resolver before it
/// checks the pool of idle connections, so for every request.
#[derive(Debug)]
pub(super) struct LazyResolver {
    server: Uri,
    system: DefaultResolver,
}

impl LazyResolver {
    pub(super) fn new(server: Uri) -> Self {
        Self {
            server,
            system: DefaultResolver::default(),
        }
    }
}

impl Resolver for LazyResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        _timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        if uri.authority() == self.server.authority() {
            return Ok(self.empty());
        }
        // A proxy; ureq resolves it only when it opens a connection. Without a timeout the resolver
        // runs on this thread, where a thread dump shows it.
        let proxy = self.system.resolve(uri, config, NextTimeout::default());
        proxy.map_err(Unsent::wrap)
    }
}

/// Connects to the server, or continues with a proxy's connection to it: name, TCP, fence, TLS.
#[derive(Debug)]
struct Server {
    system: DefaultResolver,
    /// `None` if no connection uses TLS.
    tls: Option<Arc<LiveTls>>,
    hints: &'static Hints,
    fence: Option<Arc<dyn Fence>>,
    /// Set for lists and watches.
    stream: Option<StreamState>,
}

impl<In: Transport> Connector<In> for Server {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let socks = socks_proxy(details).filter(|_| chained.is_none());
        let mut transport = if let Some(proxied) = chained {
            proxied.boxed()
        } else {
            let addrs = self.resolve(details)?;
            // The connect timeout starts after the resolution, which has the resolver's own limits.
            let limit = self.fence.as_ref().map(|fence| fence.delivery_limit());
            Tcp::connect(details, &addrs, limit, self.stream.as_ref())?.boxed()
        };
        // ORDER: the fence is below TLS, so that its check runs directly before the write.
        if let Some(fence) = &self.fence {
            transport = Fenced::new(transport, fence).boxed();
        }
        if let Some(proxy) = socks {
            let clock = Arc::clone(&details.current_time);
            let mut stream = TransportAdapter::new(transport, clock);
            stream.set_timeout(details.timeout);
            socks::connect(&mut stream, proxy, host_and_port(details.uri))?;
            transport = stream.into_inner();
        }
        if details.needs_tls() && !transport.is_tls() {
            transport = self.secure(details, transport)?.boxed();
        }
        Ok(Some(transport))
    }
}

impl Server {
    /// The addresses of the proxy (ureq has resolved that of a CONNECT proxy), or of the server.
    /// Blocks for as long as the system's resolver does (`timeout` and `attempts` of
    /// `resolv.conf`).
    fn resolve(&self, details: &ConnectionDetails) -> Result<ResolvedSocketAddrs, Error> {
        let no_limit = NextTimeout::default();
        if let Some(proxy) = socks_proxy(details) {
            return details
                .resolver
                .resolve(proxy.uri(), details.config, no_limit);
        }
        if !details.addrs.is_empty() {
            return Ok(details.addrs.clone());
        }
        self.system.resolve(details.uri, details.config, no_limit)
    }

    /// Does the TLS handshake in what is left of the connect timeout.
    fn secure(
        &self,
        details: &ConnectionDetails,
        transport: Box<dyn Transport>,
    ) -> Result<TlsTransport, Error> {
        let tls = self.tls.as_ref();
        let tls = tls.ok_or(Error::Tls("TLS is needed but not configured"))?;
        let (config, name, generation) = tls.settings_for(details.uri).map_err(io::Error::other)?;
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let config = details.config;
        let input = config.input_buffer_size().min(RECORD_MAX);
        let buffers = LazyBuffers::new(input, config.output_buffer_size());
        let mut stream = StreamOwned {
            conn: connection,
            sock: TransportAdapter::new(transport, Arc::clone(&details.current_time)),
        };
        let peer = tls.peer(details.uri);
        stream.sock.set_timeout(details.timeout);
        if let Err(error) = stream.conn.complete_io(&mut stream.sock) {
            if is_certificate_problem(&error) {
                // The cluster's authority may have been rotated since the last check.
                tls.server_certificate_rejected();
            }
            return Err(described(peer, self.hints, error).into());
        }
        Ok(TlsTransport {
            buffers,
            unsent: Vec::new(),
            send_timeout: details.timeout,
            stream,
            tls: Arc::clone(tls),
            peer,
            hints: self.hints,
            generation,
            is_list_or_watch: self.stream.is_some(),
        })
    }
}

/// The proxy if it speaks SOCKS. ureq opens the tunnel of others.
fn socks_proxy<'a>(details: &ConnectionDetails<'a>) -> Option<&'a Proxy> {
    let proxy = details.config.proxy();
    proxy.filter(|proxy| proxy.protocol() == ProxyProtocol::Socks5h)
}

fn host_and_port(uri: &Uri) -> (&str, u16) {
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().or_else(|| default_port(uri));
    (host, port.unwrap_or_default())
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn is_certificate_problem(error: &io::Error) -> bool {
    matches!(tls_error(error), Some(rustls::Error::InvalidCertificate(_)))
}

/// Replaces a failure of TLS by one that names the peer, the cause and the remedy.
fn described(peer: &str, hints: &Hints, error: io::Error) -> io::Error {
    match tls_error(&error) {
        Some(failure) => io::Error::new(error.kind(), describe(peer, hints, failure)),
        None => error,
    }
}

/// Maximum bytes per send; a shorter request is sent in one piece.
const SEND_MAX: usize = RECORD_MAX;

/// Maximum payload of a TLS record, in bytes (RFC 8446, section 5.1). rustls returns one record at
/// a time, so a larger buffer above it would only take memory.
const RECORD_MAX: usize = 16 << 10;

/// A connection inside TLS.
///
/// It buffers output until the agent waits for the response, so that head and body of a request go
/// out in one TLS record and one packet. That saves both sides a system call and a wake-up.
struct TlsTransport {
    buffers: LazyBuffers,
    unsent: Vec<u8>,
    send_timeout: NextTimeout,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
    tls: Arc<LiveTls>,
    /// "the server" or "the proxy".
    peer: &'static str,
    hints: &'static Hints,
    /// The identity that this connection was opened with.
    generation: u64,
    is_list_or_watch: bool,
}

impl TlsTransport {
    fn has_current_identity(&self) -> bool {
        self.generation == self.tls.generation()
    }

    fn send(&mut self) -> Result<(), Error> {
        self.stream.sock.set_timeout(self.send_timeout);
        let sent = io::Write::write_all(&mut self.stream, &self.unsent);
        self.unsent.clear();
        sent.map_err(|error| described(self.peer, self.hints, error).into())
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.unsent.extend(&self.buffers.output()[..amount]);
        self.send_timeout = timeout;
        if self.unsent.len() >= SEND_MAX {
            self.send()?;
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        if !self.unsent.is_empty() {
            self.send()?;
        }
        // A response is short; a watch ends at the first read after the change.
        if self.is_list_or_watch && !self.has_current_identity() {
            let why = "the TLS settings have changed";
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why).into());
        }
        self.stream.sock.set_timeout(timeout);
        check_capacity(&mut self.buffers)?;
        let input = self.buffers.input_append_buf();
        let amount = io::Read::read(&mut self.stream, input);
        let amount = amount.map_err(|error| described(self.peer, self.hints, error))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// ureq calls this between two requests, so a connection with an old identity ends there.
    fn is_open(&mut self) -> bool {
        self.has_current_identity() && self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsTransport")
            .field(&self.stream.sock.get_ref())
            .finish()
    }
}
