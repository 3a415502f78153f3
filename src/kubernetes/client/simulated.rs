//! Connections of a simulation, in place of TCP. A request leaves through the same chain of
//! connectors, with the fence directly above the bytes; [`Network`] is what lies below.

use std::io;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, ShutdownHandle,
    Transport,
};

use crate::stdx::clock;
use crate::stdx::turns::simulation::{self, Process};
use crate::stdx::turns::{self, Spot, Waited};

/// The network of a simulation, attached to its scheduler.
#[expect(missing_debug_implementations, reason = "a network is not a value")]
pub struct Attached(pub Arc<dyn Network>);

/// What lies below the client's connections.
pub trait Network: Send + Sync {
    /// Opens a connection for the current process.
    ///
    /// # Errors
    /// If the process cannot reach the server.
    fn connect(&self) -> io::Result<Arc<Connection>>;

    /// Bytes were written to `connection`; the current thread has written them. If the connection
    /// is reset, they are lost, and its next read fails.
    fn sent(&self, connection: &Arc<Connection>);

    /// The current thread has dealt with everything that it has read.
    fn settled(&self);

    /// The client has read `n_bytes` more.
    fn received(&self, connection: &Arc<Connection>, n_bytes: usize);
}

/// One connection, as client and server share it.
pub struct Connection {
    /// Counts the connections of the process.
    pub number: usize,
    /// Who opened it.
    pub process: Process,
    pipe: Mutex<Pipe>,
    spot: Spot,
}

/// What is in a connection.
#[derive(Debug, Default)]
pub struct Pipe {
    /// Bytes that the server has not taken.
    pub to_server: Vec<u8>,
    /// Bytes that the client has not read.
    pub to_client: Vec<u8>,
    /// The server has ended the connection: in order, or not.
    pub end: Option<End>,
    /// The client has dropped the connection.
    pub is_dropped: bool,
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server closed it.
    Closed,
    /// It was reset.
    Reset,
}

impl Connection {
    /// A connection of `process`.
    pub fn new(number: usize, process: Process) -> Arc<Self> {
        Arc::new(Self {
            number,
            process,
            pipe: Mutex::default(),
            spot: Spot::default(),
        })
    }

    /// What is in the connection.
    pub fn pipe(&self) -> MutexGuard<'_, Pipe> {
        self.pipe.lock()
    }

    /// Bytes reach the client.
    pub fn deliver(&self, bytes: &[u8]) {
        self.pipe().to_client.extend(bytes);
        self.spot.wake();
    }

    /// The connection ends after the bytes delivered so far.
    pub fn end(&self, end: End) {
        let mut pipe = self.pipe();
        let _ = pipe.end.get_or_insert(end);
        drop(pipe);
        self.spot.wake();
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {}", self.number)
    }
}

impl ShutdownHandle for Connection {
    fn shutdown(&self) {
        self.end(End::Reset);
    }
}

fn network() -> Option<Arc<Attached>> {
    simulation::extension::<Attached>()
}

/// Connects threads of a simulation to its network, and leaves all others to the next connector.
#[derive(Debug)]
pub(super) struct ConnectSimulated;

impl<In: Transport> Connector<In> for ConnectSimulated {
    type Out = Either<In, Simulated>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        if let Some(transport) = chained {
            return Ok(Some(Either::A(transport)));
        }
        let Some(network) = network() else {
            return Ok(None);
        };
        let connection = network.0.connect()?;
        let handle: Weak<Connection> = Arc::downgrade(&connection);
        (details.register_shutdown)(handle as Weak<dyn ShutdownHandle>)?;
        let config = details.config;
        Ok(Some(Either::B(Simulated {
            connection,
            buffers: LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size()),
        })))
    }
}

/// The client's end of a connection.
pub(super) struct Simulated {
    connection: Arc<Connection>,
    buffers: LazyBuffers,
}

impl Transport for Simulated {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    /// Gives no turn away: nothing lies between the fence's check and these bytes.
    fn transmit_output(&mut self, amount: usize, _timeout: NextTimeout) -> Result<(), Error> {
        let mut pipe = self.connection.pipe();
        pipe.to_server.extend(&self.buffers.output()[..amount]);
        drop(pipe);
        if let Some(network) = network() {
            network.0.settled();
            network.0.sent(&self.connection);
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        if let Some(network) = network() {
            network.0.settled();
        }
        let deadline = timeout.not_zero().map(|limit| clock::now() + *limit);
        let connection = Arc::clone(&self.connection);
        let input = self.buffers.input_append_buf();
        let read = turns::wait(&[&connection.spot], deadline, || {
            let mut pipe = connection.pipe();
            let n_bytes = pipe.to_client.len().min(input.len());
            match pipe.end {
                _ if n_bytes > 0 => {
                    input[..n_bytes].copy_from_slice(&pipe.to_client[..n_bytes]);
                    pipe.to_client.drain(..n_bytes);
                    Some(Ok(n_bytes))
                }
                Some(End::Closed) => Some(Ok(0)),
                Some(End::Reset) => Some(Err(io::ErrorKind::ConnectionReset)),
                None => None,
            }
        });
        let Waited::Ready(read) = read else {
            return Err(Error::Timeout(timeout.reason));
        };
        let n_bytes = read.map_err(io::Error::from)?;
        if let Some(network) = network() {
            network.0.received(&self.connection, n_bytes);
        }
        self.buffers.input_appended(n_bytes);
        Ok(n_bytes > 0)
    }

    fn is_open(&mut self) -> bool {
        let pipe = self.connection.pipe();
        pipe.end.is_none() && pipe.to_client.is_empty()
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.connection.pipe().is_dropped = true;
    }
}

impl std::fmt::Debug for Simulated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {}", self.connection.number)
    }
}
