//! How the client opens a connection to the API server: proxy, name resolution, TCP, TLS. `http`
//! builds the chain once per agent; it runs on the thread whose request found no idle connection.
//!
//! The client has its own chain for three reasons. It resolves names only when it opens a
//! connection, not for every request. `tls-server-name` and the server's own certificate
//! authorities apply to the server and not to a proxy. The chain marks every failure, since a
//! failure in here proves that the request was not sent.

use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fmt, io};

use rustls::{ClientConnection, StreamOwned};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
    ShutdownHandle, SocksConnector, Transport, TransportAdapter, time,
};

use super::error::{TransportErrorKind, kind_of};
use super::fence::{Fence, FenceConnector, HeldBack};
use super::live_tls::LiveTls;
use super::stream::StreamState;
use super::tcp::{Tcp, check_room};
use super::tls::describe;

/// Builds the connector chain. A closed `fence` blocks everything on its connections. With
/// `close_on_change` a new identity closes connections in use; otherwise they end with their
/// current response. `stream` is set for lists and watches.
pub(super) fn connector(
    tls: Option<Arc<LiveTls>>,
    close_on_change: bool,
    fence: Option<&Arc<dyn Fence>>,
    stream: Option<&StreamState>,
) -> impl Connector<()> + use<> {
    let closed_by = tls.clone().filter(|_| close_on_change);
    let tcp = ConnectTcp {
        delivery_limit: fence.map(|fence| fence.delivery_limit()),
        stream: stream.cloned(),
    };
    // ORDER: the fence is below TLS, so that its check runs directly before the write.
    let server = tcp.chain(FenceConnector(fence.cloned())).chain(Wrap(tls));
    let first = ();
    #[cfg(any(test, feature = "simulation"))]
    let first = first.chain(super::simulated::ConnectSimulated);
    let chain = first
        .chain(SocksConnector::default())
        .chain(ConnectProxyConnector::default())
        .chain(Resolve {
            system: DefaultResolver::default(),
            chain: server,
        });
    Marked { chain, closed_by }
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
        // The client reports what the fence held back as `Fenced`, not as a failed connection.
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

/// Marks every failure of the inner connectors as [`Unsent`], and registers with [`LiveTls`] the
/// connections that it closes when the identity changes.
#[derive(Debug)]
struct Marked<C> {
    chain: C,
    closed_by: Option<Arc<LiveTls>>,
}

impl<C: Connector<()>> Connector<()> for Marked<C> {
    type Out = C::Out;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(tls) = &self.closed_by else {
            return self.chain.connect(details, chained).map_err(Unsent::wrap);
        };
        let (tls, register) = (Arc::clone(tls), Arc::clone(&details.register_shutdown));
        let details = ConnectionDetails {
            register_shutdown: Arc::new(move |handle: Weak<dyn ShutdownHandle>| {
                tls.close_on_change(Weak::clone(&handle));
                register(handle)
            }),
            ..copy_details(details)
        };
        self.chain.connect(&details, chained).map_err(Unsent::wrap)
    }
}

/// Copies the details field by field; ureq's type is not `Clone`.
fn copy_details<'a>(details: &ConnectionDetails<'a>) -> ConnectionDetails<'a> {
    ConnectionDetails {
        uri: details.uri,
        addrs: details.addrs.clone(),
        config: details.config,
        request_level: details.request_level,
        resolver: details.resolver,
        now: details.now,
        timeout: details.timeout,
        current_time: Arc::clone(&details.current_time),
        run_connector: Arc::clone(&details.run_connector),
        register_shutdown: Arc::clone(&details.register_shutdown),
    }
}

/// Leaves the resolution of the API server's name to [`Resolve`]. ureq calls its resolver before it
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

/// Resolves the server's name unless a proxy connection to it exists. Blocks for as long as the
/// system's resolver does (`timeout` and `attempts` of `resolv.conf`). The connect timeout starts
/// after that.
#[derive(Debug)]
struct Resolve<C> {
    system: DefaultResolver,
    chain: C,
}

impl<In: Transport, C: Connector<In>> Connector<In> for Resolve<C> {
    type Out = C::Out;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        if chained.is_some() || !details.addrs.is_empty() {
            return self.chain.connect(details, chained);
        }
        let system = &self.system;
        let addrs = system.resolve(details.uri, details.config, NextTimeout::default())?;
        let details = ConnectionDetails {
            addrs,
            // The connect timeout starts after the resolution, which has the resolver's own limits.
            now: (details.current_time)(),
            ..copy_details(details)
        };
        self.chain.connect(&details, None)
    }
}

/// Opens the TCP connection.
#[derive(Debug)]
struct ConnectTcp {
    /// Set for connections behind a fence.
    delivery_limit: Option<Duration>,
    /// Set for lists and watches.
    stream: Option<StreamState>,
}

impl<In: Transport> Connector<In> for ConnectTcp {
    type Out = Either<In, Tcp>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        if let Some(proxied) = chained {
            return Ok(Some(Either::A(proxied)));
        }
        Ok(Some(Either::B(Tcp::connect(
            details,
            self.delivery_limit,
            self.stream.as_ref(),
        )?)))
    }
}

/// Wraps the connection in TLS if the URI's scheme is `https`. Holds `None` if no connection uses
/// TLS.
#[derive(Debug)]
struct Wrap(Option<Arc<LiveTls>>);

impl<In: Transport> Connector<In> for Wrap {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let transport = match chained {
            None => return Ok(None),
            Some(transport) if !details.needs_tls() || transport.is_tls() => {
                return Ok(Some(Either::A(transport)));
            }
            Some(transport) => transport,
        };
        let tls = self.0.as_ref();
        let tls = tls.ok_or(Error::Tls("TLS is needed but not configured"))?;
        let (config, name, generation) = tls.settings_for(details.uri).map_err(io::Error::other)?;
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let config = details.config;
        let input = config.input_buffer_size().min(RECORD_MAX);
        let buffers = LazyBuffers::new(input, config.output_buffer_size());
        let mut stream = StreamOwned {
            conn: connection,
            sock: TransportAdapter::new(transport.boxed(), Arc::clone(&details.current_time)),
        };
        let peer = tls.peer(details.uri);
        stream.sock.set_timeout(remaining_time(details)?);
        if let Err(error) = stream.conn.complete_io(&mut stream.sock) {
            if is_certificate_problem(&error) {
                // The cluster's authority may have been rotated since the last check.
                tls.server_certificate_rejected();
            }
            return Err(described(peer, error).into());
        }
        Ok(Some(Either::B(TlsTransport {
            buffers,
            unsent: Vec::new(),
            send_timeout: details.timeout,
            stream,
            tls: Arc::clone(tls),
            peer,
            generation,
        })))
    }
}

/// Returns what TCP and proxies have left of the connect timeout.
fn remaining_time(details: &ConnectionDetails) -> Result<NextTimeout, Error> {
    let mut timeout = details.timeout;
    let now = (details.current_time)();
    if let (time::Duration::Exact(limit), time::Instant::Exact(began), time::Instant::Exact(now)) =
        (timeout.after, details.now, now)
    {
        let remaining = limit.saturating_sub(now.saturating_duration_since(began));
        if remaining.is_zero() {
            return Err(Error::Timeout(timeout.reason));
        }
        timeout.after = time::Duration::Exact(remaining);
    }
    Ok(timeout)
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn is_certificate_problem(error: &io::Error) -> bool {
    matches!(tls_error(error), Some(rustls::Error::InvalidCertificate(_)))
}

/// Replaces a failure of TLS by one that names the peer, the cause and the remedy.
fn described(peer: &str, error: io::Error) -> io::Error {
    match tls_error(&error) {
        Some(failure) => io::Error::new(error.kind(), describe(peer, failure)),
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
    /// Buffered output.
    unsent: Vec<u8>,
    /// The timeout for sending the buffered output.
    send_timeout: NextTimeout,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
    tls: Arc<LiveTls>,
    /// "the server" or "the proxy".
    peer: &'static str,
    /// The identity that this connection was opened with.
    generation: u64,
}

impl TlsTransport {
    fn send(&mut self) -> Result<(), Error> {
        self.stream.sock.set_timeout(self.send_timeout);
        let sent = io::Write::write_all(&mut self.stream, &self.unsent);
        self.unsent.clear();
        sent.map_err(|error| described(self.peer, error).into())
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
        self.stream.sock.set_timeout(timeout);
        check_room(&mut self.buffers)?;
        let input = self.buffers.input_append_buf();
        let amount = io::Read::read(&mut self.stream, input);
        let amount = amount.map_err(|error| described(self.peer, error))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// ureq calls this between two requests, so a connection with an old identity ends there.
    fn is_open(&mut self) -> bool {
        self.generation == self.tls.generation() && self.stream.sock.get_mut().is_open()
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
