//! A small HTTP/1.1 server on loopback: one thread accepts (`dev-accept`), one thread serves each
//! connection (`dev-conn-N`). It knows nothing of Kubernetes; a [`Handler`] answers.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::connection::Connection;
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
    handler: Arc<dyn Handler>,
    stopping: Arc<AtomicBool>,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    n_accepted: u64,
    /// A second handle to the socket of each open connection, to shut it when the server stops.
    sockets: HashMap<u64, TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Listens at `address` (port 0 takes a free one) and answers by `handler` until
    /// [`Server::stop`] or the signal `stop`. A panic in a handler gives that signal.
    ///
    /// # Errors
    /// If the address cannot be listened at.
    pub fn start(
        address: impl ToSocketAddrs,
        handler: Arc<dyn Handler>,
        stop: &Stop,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let shared = Arc::new(Shared {
            address: listener.local_addr()?,
            handler,
            stopping: Arc::default(),
            connections: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let signal = stop.clone();
        let acceptor = thread::spawn("dev-accept", stop, move || {
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
        format!("http://{}", self.shared.address)
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
        let mut connections = self.lock();
        let id = connections.n_accepted;
        connections.n_accepted += 1;
        connections.sockets.insert(id, second);
        connections.threads.retain(|thread| !thread.is_finished());
        drop(connections);
        let shared = Arc::clone(self);
        // The kernel keeps 15 bytes of the name, so the number starts anew after a million.
        let name = format!("dev-conn-{}", id % 1_000_000);
        let thread = thread::spawn(&name, stop, move || {
            let handler = Arc::clone(&shared.handler);
            Connection::new(socket, handler, Arc::clone(&shared.stopping)).serve();
            drop(shared.lock().sockets.remove(&id));
        });
        self.lock().threads.push(thread);
        if self.is_stopping() {
            // The server stopped between accepting and here, so nobody else shuts this socket.
            self.shut_sockets();
        }
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
        let sockets = std::mem::take(&mut self.lock().sockets);
        for socket in sockets.into_values() {
            // A connection that is closed already is as shut as it can be.
            socket.shutdown(Shutdown::Both).unwrap_or_default();
        }
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

fn join(thread: JoinHandle<()>) {
    // `thread::spawn` catches panics, reports them and gives the signal to stop.
    thread.join().unwrap_or_default();
}
