//! How a connection to the API server is opened: proxy, name resolution, TCP, TLS. Runs on the
//! thread whose request found no idle connection. Built once per agent by `http`.
//!
//! The chain is this room's own for three reasons: names are looked up only when a connection is
//! opened and not with every request; `tls-server-name` and the server's own certificate
//! authorities apply to the server and not to a proxy; and every failure in here is marked, since
//! it proves that the request was not sent.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

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
use super::read_coalescing::ReadCoalescing;
use super::tcp::Tcp;

/// The chain of everything that has a part in opening a connection. With a fence, nothing is sent on
/// it while that is closed. With `cut_at_change` connections in use are cut when the identity changes;
/// otherwise they end with the answer that they carry. Their reads rest where `coalescing` lets them.
pub(super) fn connector(
    tls: Option<Arc<LiveTls>>,
    cut_at_change: bool,
    fence: Option<&Arc<dyn Fence>>,
    coalescing: Option<&ReadCoalescing>,
) -> impl Connector<()> + use<> {
    let cut_by = tls.clone().filter(|_| cut_at_change);
    let tcp = ConnectTcp {
        delivery_limit: fence.map(|fence| fence.delivery_limit()),
        coalescing: coalescing.cloned(),
    };
    let server = tcp.chain(FenceConnector(fence.cloned())).chain(Wrap(tls));
    let chain =
        ().chain(SocksConnector::default())
            .chain(ConnectProxyConnector::default())
            .chain(Resolve {
                system: DefaultResolver::default(),
                chain: server,
            });
    Marked { chain, cut_by }
}

/// Why there is no connection, and so why the request was surely not sent.
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
        // What the fence has held back is told by its own name.
        if matches!(&error, Error::Other(inner) if inner.is::<Self>() || inner.is::<HeldBack>()) {
            return error;
        }
        let (kind, message) = match &error {
            Error::Timeout(_) => (
                TransportErrorKind::TimedOut,
                "the connection was not opened in time".to_owned(),
            ),
            Error::Io(error) => (kind_of(error), describe_io(error)),
            Error::HostNotFound => (TransportErrorKind::Other, "unknown host".to_owned()),
            error => (TransportErrorKind::Other, error.to_string()),
        };
        Error::Other(Box::new(Self { kind, message }))
    }
}

/// An I/O error for people; above all, what is wrong with a certificate.
pub(super) fn describe_io(error: &io::Error) -> String {
    let inner = error.get_ref();
    match inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => super::tls::describe(error),
        None => error.to_string(),
    }
}

/// Marks every failure of the connectors inside as [`Unsent`], and tells [`LiveTls`] of the
/// connections that it is to cut.
#[derive(Debug)]
struct Marked<C> {
    chain: C,
    cut_by: Option<Arc<LiveTls>>,
}

impl<C: Connector<()>> Connector<()> for Marked<C> {
    type Out = C::Out;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<()>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(tls) = &self.cut_by else {
            return self.chain.connect(details, chained).map_err(Unsent::wrap);
        };
        let (tls, register) = (Arc::clone(tls), Arc::clone(&details.register_shutdown));
        let details = ConnectionDetails {
            register_shutdown: Arc::new(move |handle: Weak<dyn ShutdownHandle>| {
                tls.cut_at_change(Weak::clone(&handle));
                register(handle)
            }),
            ..copy(details)
        };
        self.chain.connect(&details, chained).map_err(Unsent::wrap)
    }
}

/// The same details; those of ureq cannot be cloned.
fn copy<'a>(details: &ConnectionDetails<'a>) -> ConnectionDetails<'a> {
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

/// Leaves the look-up of the API server's name to [`Resolve`]: a resolver is asked before the pool of
/// idle connections is looked at, so with every request.
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
        // A proxy, looked up only when a connection is opened. Without a timeout the look-up is
        // done on this thread, where a thread dump shows it.
        let proxy = self.system.resolve(uri, config, NextTimeout::default());
        proxy.map_err(Unsent::wrap)
    }
}

/// Looks up the server's name unless there is a connection to it through a proxy. That takes as long as the
/// system's resolver does (`timeout` and `attempts` of `resolv.conf`), and what is opened then as long as is
/// configured.
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
            now: (details.current_time)(),
            ..copy(details)
        };
        self.chain.connect(&details, None)
    }
}

/// Opens the TCP connection.
#[derive(Debug)]
struct ConnectTcp {
    /// For connections behind a fence.
    delivery_limit: Option<Duration>,
    /// For watches.
    coalescing: Option<ReadCoalescing>,
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
            self.coalescing.as_ref(),
        )?)))
    }
}

/// Wraps the connection in TLS where the URI says `https`; `None` where it never does.
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
        let (config, name, generation) = tls.towards(details.uri).map_err(io::Error::other)?;
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let config = details.config;
        let input = config.input_buffer_size().min(RECORD);
        let buffers = LazyBuffers::new(input, config.output_buffer_size());
        let mut stream = StreamOwned {
            conn: connection,
            sock: TransportAdapter::new(transport.boxed(), Arc::clone(&details.current_time)),
        };
        stream.sock.set_timeout(time_left(details)?);
        if let Err(error) = stream.conn.complete_io(&mut stream.sock) {
            if is_certificate_problem(&error) {
                tls.server_not_accepted();
            }
            return Err(error.into());
        }
        Ok(Some(Either::B(TlsTransport {
            buffers,
            unsent: Vec::new(),
            send_timeout: details.timeout,
            stream,
            tls: Arc::clone(tls),
            generation,
        })))
    }
}

/// What TCP and proxies have left of the time for a connection.
fn time_left(details: &ConnectionDetails) -> Result<NextTimeout, Error> {
    let mut timeout = details.timeout;
    let now = (details.current_time)();
    if let (time::Duration::Exact(limit), time::Instant::Exact(began), time::Instant::Exact(now)) =
        (timeout.after, details.now, now)
    {
        let left = limit.saturating_sub(now.saturating_duration_since(began));
        if left.is_zero() {
            return Err(Error::Timeout(timeout.reason));
        }
        timeout.after = time::Duration::Exact(left);
    }
    Ok(timeout)
}

fn is_certificate_problem(error: &io::Error) -> bool {
    let inner = error.get_ref();
    let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

/// A request is sent in pieces of this size, in bytes; a shorter one in one piece.
const SENT_AT_ONCE: usize = RECORD;

/// What a TLS record carries at most, in bytes (RFC 8446, section 5.1). One at a time is read out of TLS;
/// a larger buffer above it would only take memory.
const RECORD: usize = 16 << 10;

/// A connection inside TLS.
///
/// What is to be sent is held back until the answer is waited for: head and body of a request so go out
/// in one TLS record and one packet, which spares both sides a system call and a wake-up.
struct TlsTransport {
    buffers: LazyBuffers,
    /// What was handed over to be sent and is held back.
    unsent: Vec<u8>,
    /// How long it may take to send that.
    send_timeout: NextTimeout,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
    tls: Arc<LiveTls>,
    /// Which identity this connection has shown.
    generation: u64,
}

impl TlsTransport {
    fn send(&mut self) -> Result<(), Error> {
        self.stream.sock.set_timeout(self.send_timeout);
        let sent = io::Write::write_all(&mut self.stream, &self.unsent);
        self.unsent.clear();
        Ok(sent?)
    }
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.unsent.extend(&self.buffers.output()[..amount]);
        self.send_timeout = timeout;
        if self.unsent.len() >= SENT_AT_ONCE {
            self.send()?;
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        if !self.unsent.is_empty() {
            self.send()?;
        }
        self.stream.sock.set_timeout(timeout);
        let amount = io::Read::read(&mut self.stream, self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// Asked between two requests, and so where a connection with an old identity ends.
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
