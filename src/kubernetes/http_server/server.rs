//! The accepting thread and the connection table: it counts connections, picks the connection to
//! displace for a new one, and ends all of them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use parking_lot::Mutex;

use super::ServerOptions;
use super::connection::Connection;
use super::exchange::Handler;
use crate::stdx::stop::Stop;
use crate::stdx::thread;

/// How long the server accepts nothing when the system lacks descriptors or memory.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection has for its handshake before an address with as many connections may
/// displace it.
const DISPLACEABLE_AFTER: Duration = Duration::from_secs(1);

/// A running server. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

pub(super) struct Shared {
    address: SocketAddr,
    /// The listening socket, which a listener cannot shut: so it is held as a stream.
    listening: TcpStream,
    pub(super) options: ServerOptions,
    pub(super) handler: Arc<dyn Handler>,
    stopping: AtomicBool,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    n_accepted: u64,
    /// Keyed by number, so the first is the oldest.
    open: BTreeMap<u64, Open>,
}

struct Open {
    /// The socket, so the server can shut it from another thread.
    socket: Arc<TcpStream>,
    client: IpAddr,
    since: Instant,
    waits_for_client: Arc<AtomicBool>,
}

impl Server {
    /// Listens at `address` (port 0 picks a free port) and serves `handler` until [`Server::stop`]
    /// or the signal `stop`. A panic in a handler gives that signal.
    pub fn start(
        address: impl ToSocketAddrs,
        options: ServerOptions,
        handler: Arc<dyn Handler>,
        stop: &Stop,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let shared = Arc::new(Shared {
            address: listener.local_addr()?,
            listening: OwnedFd::from(listener.try_clone()?).into(),
            options,
            handler,
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let signal = stop.clone();
        let acceptor = thread::try_spawn(shared.options.accept_thread, stop, move || {
            accepting.accept(&listener, &signal);
        })?;
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

    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    pub fn url(&self) -> String {
        let scheme = if self.shared.options.tls.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.shared.address)
    }

    /// Accepts no more connections and shuts the open ones. Does not wait for their threads, which
    /// end as soon as their handlers return. A second call does nothing.
    pub fn stop(&mut self) {
        self.shared.stop_accepting();
        let Some(acceptor) = self.acceptor.take() else {
            return;
        };
        // ORDER: the listener closes before the connections end, so a client that reconnects gets
        // "connection refused" at once.
        // `thread::try_spawn` has caught a panic, logged it and given the stop signal.
        acceptor.join().unwrap_or_default();
        self.shared.shut_sockets();
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
        let mut is_short = false;
        loop {
            let accepted = listener.accept();
            if self.is_stopping() {
                return;
            }
            match accepted {
                Ok((socket, client)) => {
                    is_short = false;
                    self.start_connection(Arc::new(socket), client.ip(), stop);
                }
                Err(error) if is_shortage(&error) => {
                    if !is_short {
                        log::warn!(error:%; "no connection can be accepted for now");
                    }
                    is_short = true;
                    // Without the pause, `accept` would return the same error in a busy loop.
                    self.shut_oldest_waiting();
                    stop.wait_timeout(SHORTAGE_PAUSE);
                }
                // The client may have disconnected already; other clients still can connect.
                Err(error) => log::warn!(error:%; "cannot accept a connection"),
            }
        }
    }

    fn start_connection(self: &Arc<Self>, socket: Arc<TcpStream>, client: IpAddr, stop: &Stop) {
        let waits_for_client = Arc::new(AtomicBool::new(true));
        let open = Open {
            socket: Arc::clone(&socket),
            client: client.to_canonical(),
            since: Instant::now(),
            waits_for_client: Arc::clone(&waits_for_client),
        };
        let Some(id) = self.admit(open) else {
            log::debug!("rejected a connection: there are too many");
            return;
        };
        let shared = Arc::clone(self);
        // The kernel keeps 15 bytes of a thread name, so the number wraps after a million.
        let name = format!("{}{}", self.options.connection_thread, id % 1_000_000);
        let thread = thread::try_spawn(&name, stop, move || {
            match Connection::new(socket, Arc::clone(&shared), waits_for_client) {
                Ok(connection) => connection.serve(),
                Err(error) => log::debug!(error:%; "connection ends"),
            }
            drop(shared.connections.lock().open.remove(&id));
        });
        if let Err(error) = thread {
            log::warn!(error:%; "closed a connection: cannot start a thread for it");
            drop(self.connections.lock().open.remove(&id));
            return;
        }
        if self.is_stopping() {
            // The server stopped after the accept, so only this thread can shut the socket.
            self.shut_sockets();
        }
    }

    /// Adds a connection to the table. Returns its number, or `None` if the table is full.
    fn admit(&self, open: Open) -> Option<u64> {
        let limits = self.options.limits;
        let mut connections = self.connections.lock();
        if limits.is_some_and(|limits| connections.open.len() >= limits.connections) {
            let displaced = connections.displaced_for(&open)?;
            connections.open.remove(&displaced)?.shut();
        }
        let id = connections.n_accepted;
        connections.n_accepted += 1;
        connections.open.insert(id, open);
        Some(id)
    }

    /// Frees a descriptor by shutting the oldest connection that waits for its client.
    fn shut_oldest_waiting(&self) {
        let mut connections = self.connections.lock();
        let oldest = connections.waiting().next().map(|(id, _)| id);
        if let Some(open) = oldest.and_then(|oldest| connections.open.remove(&oldest)) {
            open.shut();
        }
    }

    fn shut(&self) {
        self.stop_accepting();
        self.shut_sockets();
    }

    /// Wakes the accepting thread so that it ends: Linux lets `accept` fail once its socket is
    /// shut.
    fn stop_accepting(&self) {
        if self.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Err(error) = self.listening.shutdown(Shutdown::Both) {
            log::debug!(error:%; "waking the accepting thread");
        }
    }

    fn shut_sockets(&self) {
        let open = std::mem::take(&mut self.connections.lock().open);
        open.values().for_each(Open::shut);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

impl Connections {
    fn waiting(&self) -> impl Iterator<Item = (u64, &Open)> {
        let all = self.open.iter().map(|(id, open)| (*id, open));
        all.filter(|(_, open)| open.waits_for_client.load(Ordering::Relaxed))
    }

    /// Picks the connection to displace for `new`: of those that wait for their clients, the oldest
    /// of the address with the most connections. A connection of another address with no more
    /// connections than `new`'s stays while it is young, because it may be in its handshake.
    fn displaced_for(&self, new: &Open) -> Option<u64> {
        let mut n_by_client: HashMap<IpAddr, usize> = HashMap::new();
        for open in self.open.values() {
            *n_by_client.entry(open.client).or_default() += 1;
        }
        let n_new = n_by_client.get(&new.client).copied().unwrap_or(0) + 1;
        // `max_by_key` returns the last of equal items, and the oldest is wanted.
        let newest_first = self.waiting().collect::<Vec<_>>().into_iter().rev();
        let (id, oldest) = newest_first.max_by_key(|(_, open)| n_by_client[&open.client])?;
        let may_displace = oldest.client == new.client || n_by_client[&oldest.client] > n_new;
        let is_young = new.since.saturating_duration_since(oldest.since) < DISPLACEABLE_AFTER;
        (may_displace || !is_young).then_some(id)
    }
}

/// True if every `accept` fails until the system frees descriptors or memory.
fn is_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)
    )
}

impl Open {
    fn shut(&self) {
        // The connection may be closed already, so an error here does not matter.
        self.socket.shutdown(Shutdown::Both).unwrap_or_default();
    }
}
