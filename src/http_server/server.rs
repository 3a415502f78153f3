//! The thread that accepts, and the book of the connections: how many there are, which one has to go
//! for another, and how all of them end.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::ServerOptions;
use super::connection::{Connection, ConnectionParts};
use super::exchange::Handler;
use crate::stdx::stop::Stop;
use crate::stdx::thread;

/// How long the server waits for its own accepting thread to take the connection that wakes it.
const WAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// A running server. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    address: SocketAddr,
    options: ServerOptions,
    handler: Arc<dyn Handler>,
    stopping: Arc<AtomicBool>,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    n_accepted: u64,
    /// By number, so that the first is the oldest.
    open: BTreeMap<u64, Open>,
    threads: Vec<JoinHandle<()>>,
}

/// An open connection.
struct Open {
    /// A second handle to its socket, to shut it from outside.
    socket: TcpStream,
    waits_for_client: Arc<AtomicBool>,
}

impl Server {
    /// Listens at `address` (port 0 takes a free one) and answers by `handler` until
    /// [`Server::stop`] or the signal `stop`. A panic in a handler gives that signal.
    ///
    /// # Errors
    /// If the address cannot be listened at.
    pub fn start(
        address: impl ToSocketAddrs,
        options: ServerOptions,
        handler: Arc<dyn Handler>,
        stop: &Stop,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let shared = Arc::new(Shared {
            address: listener.local_addr()?,
            options,
            handler,
            stopping: Arc::default(),
            connections: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let signal = stop.clone();
        let acceptor = thread::spawn(shared.options.accept_thread, stop, move || {
            accepting.accept(&listener, &signal);
        });
        let stopped = Arc::downgrade(&shared);
        stop.on_stop(move || {
            if let Some(shared) = stopped.upgrade() {
                shared.shut();
            }
        });
        Ok(Self {
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Where it listens, as a URL without a path.
    pub fn url(&self) -> String {
        let scheme = if self.shared.options.tls.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.shared.address)
    }

    /// Ends all connections and waits for their threads. What they wait for are their sockets, which
    /// are shut, and their handlers, which must end by themselves. Stopping twice does nothing.
    pub fn stop(&mut self) {
        self.shared.refuse();
        let Some(acceptor) = self.acceptor.take() else {
            return;
        };
        // ORDER: nobody listens any more when the connections end, so that a client that connects
        // anew is refused at once.
        join(acceptor);
        self.shared.shut_sockets();
        let threads = std::mem::take(&mut self.shared.lock().threads);
        threads.into_iter().for_each(join);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.shared.address)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener, stop: &Stop) {
        for socket in listener.incoming() {
            if self.is_stopping() {
                return;
            }
            let connected = socket.and_then(|socket| {
                let second = socket.try_clone()?;
                Ok((socket, second))
            });
            match connected {
                Ok((socket, second)) => self.start_connection(socket, second, stop),
                // Out of file descriptors, or a client that has gone already: the next may do.
                Err(error) => log::warn!("cannot accept a connection: {error}"),
            }
        }
    }

    fn start_connection(self: &Arc<Self>, socket: TcpStream, second: TcpStream, stop: &Stop) {
        let waits_for_client = Arc::new(AtomicBool::new(true));
        let open = Open {
            socket: second,
            waits_for_client: Arc::clone(&waits_for_client),
        };
        let Some(id) = self.admit(open) else {
            log::debug!("a connection is refused: there are too many");
            return;
        };
        let shared = Arc::clone(self);
        // The kernel keeps 15 bytes of the name, so the number starts anew after a million.
        let name = format!("{}{}", self.options.connection_thread, id % 1_000_000);
        let thread = thread::spawn(&name, stop, move || {
            let parts = ConnectionParts {
                handler: Arc::clone(&shared.handler),
                limits: shared.options.limits,
                stopping: Arc::clone(&shared.stopping),
                waits_for_client,
            };
            let tls = shared.options.tls.as_ref().map(|source| source());
            match Connection::new(socket, tls, parts) {
                Ok(connection) => connection.serve(),
                Err(error) => log::debug!("connection ends: {error}"),
            }
            drop(shared.lock().open.remove(&id));
        });
        self.lock().threads.push(thread);
        if self.is_stopping() {
            // The server stopped between accepting and here, so nobody else shuts this socket.
            self.shut_sockets();
        }
    }

    /// Enters a connection in the book; its number, or `None` if there is no room for it.
    fn admit(&self, open: Open) -> Option<u64> {
        let connections_max = self.options.limits.connections.unwrap_or(usize::MAX);
        let mut connections = self.lock();
        if connections.open.len() >= connections_max {
            let mut all = connections.open.iter();
            let waiting = all.find(|(_, open)| open.waits_for_client.load(Ordering::Relaxed));
            let oldest = waiting.map(|(id, _)| *id)?;
            let displaced = connections.open.remove(&oldest)?;
            displaced.shut();
        }
        let id = connections.n_accepted;
        connections.n_accepted += 1;
        connections.open.insert(id, open);
        connections.threads.retain(|thread| !thread.is_finished());
        Some(id)
    }

    fn shut(&self) {
        self.refuse();
        self.shut_sockets();
    }

    /// Makes the accepting thread end.
    fn refuse(&self) {
        if self.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        // `accept` has no other way to be woken. If nobody listens any more, nobody needs waking.
        if let Err(error) = TcpStream::connect_timeout(&self.address, WAKE_TIMEOUT) {
            log::debug!("waking the accepting thread: {error}");
        }
    }

    fn shut_sockets(&self) {
        let open = std::mem::take(&mut self.lock().open);
        open.values().for_each(Open::shut);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn shut(&self) {
        // A connection that is closed already is as shut as it can be.
        self.socket.shutdown(Shutdown::Both).unwrap_or_default();
    }
}

fn join(thread: JoinHandle<()>) {
    // `thread::spawn` catches panics, reports them and gives the signal to stop.
    thread.join().unwrap_or_default();
}
