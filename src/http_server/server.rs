//! The thread that accepts, and the book of the connections: how many there are, which one has to go
//! for another, and how all of them end.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::ServerOptions;
use super::connection::{Connection, ConnectionParts};
use super::exchange::Handler;
use crate::stdx::stop::Stop;
use crate::stdx::thread;

/// How long the server waits for its own accepting thread to take the connection that wakes it.
const WAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long nothing is accepted when the system has no descriptor or no memory for it.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection has for its handshake before another address that has as many may displace
/// it.
const STAYS_AT_LEAST: Duration = Duration::from_secs(1);

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
    /// Its socket, to shut it from outside.
    socket: Arc<TcpStream>,
    /// Where its client is.
    client: IpAddr,
    since: Instant,
    waits_for_client: Arc<AtomicBool>,
}

impl Server {
    /// Listens at `address` (port 0 takes a free one) and answers by `handler` until
    /// [`Server::stop`] or the signal `stop`. A panic in a handler gives that signal.
    ///
    /// # Errors
    /// If the address cannot be listened at, or the system refuses the accepting thread.
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
                    // Without the pause the same error would come again at once, and again.
                    self.shut_oldest_waiting();
                    stop.wait_timeout(SHORTAGE_PAUSE);
                }
                // A client that has gone already: the next one may do.
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
            log::debug!("a connection is refused: there are too many");
            return;
        };
        let shared = Arc::clone(self);
        // The kernel keeps 15 bytes of the name, so the number starts anew after a million.
        let name = format!("{}{}", self.options.connection_thread, id % 1_000_000);
        let thread = thread::try_spawn(&name, stop, move || {
            let parts = ConnectionParts {
                handler: Arc::clone(&shared.handler),
                limits: shared.options.limits,
                accept_hosts: shared.options.accept_hosts.clone(),
                stopping: Arc::clone(&shared.stopping),
                waits_for_client,
            };
            let tls = shared.options.tls.as_ref().map(|source| source());
            match Connection::new(socket, tls, parts) {
                Ok(connection) => connection.serve(),
                Err(error) => log::debug!(error:%; "connection ends"),
            }
            drop(shared.lock().open.remove(&id));
        });
        match thread {
            Ok(thread) => self.lock().threads.push(thread),
            Err(error) => {
                log::warn!(error:%; "a connection is closed: cannot start a thread for it");
                drop(self.lock().open.remove(&id));
                return;
            }
        }
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
            let displaced = connections.displaced_for(&open)?;
            connections.open.remove(&displaced)?.shut();
        }
        let id = connections.n_accepted;
        connections.n_accepted += 1;
        connections.open.insert(id, open);
        connections.threads.retain(|thread| !thread.is_finished());
        Some(id)
    }

    /// Gives back the descriptor of a connection that keeps nobody but its client waiting.
    fn shut_oldest_waiting(&self) {
        let mut connections = self.lock();
        let oldest = connections.waiting().next().map(|(id, _)| id);
        if let Some(open) = oldest.and_then(|oldest| connections.open.remove(&oldest)) {
            open.shut();
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
            log::debug!(error:%; "waking the accepting thread");
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

impl Connections {
    /// Those that wait for their clients, the oldest first.
    fn waiting(&self) -> impl Iterator<Item = (u64, &Open)> {
        let all = self.open.iter().map(|(id, open)| (*id, open));
        all.filter(|(_, open)| open.waits_for_client.load(Ordering::Relaxed))
    }

    /// Which one goes for `new`: of those that wait for their clients, the oldest of the address
    /// that has most. That of another address that has no more than the newcomer's stays if it came
    /// just now: it may be in the middle of its handshake.
    fn displaced_for(&self, new: &Open) -> Option<u64> {
        let mut n_of: HashMap<IpAddr, usize> = HashMap::new();
        for open in self.open.values() {
            *n_of.entry(open.client).or_default() += 1;
        }
        let n_new = n_of.get(&new.client).copied().unwrap_or(0) + 1;
        // Of equals `max_by_key` takes the last one, and the oldest is wanted.
        let newest_first = self.waiting().collect::<Vec<_>>().into_iter().rev();
        let (id, oldest) = newest_first.max_by_key(|(_, open)| n_of[&open.client])?;
        let gives_way = oldest.client == new.client || n_of[&oldest.client] > n_new;
        let is_young = new.since.saturating_duration_since(oldest.since) < STAYS_AT_LEAST;
        (gives_way || !is_young).then_some(id)
    }
}

/// True if there will be an error at every try until somebody gives something back.
fn is_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)
    )
}

impl Open {
    fn shut(&self) {
        // A connection that is closed already is as shut as it can be.
        self.socket.shutdown(Shutdown::Both).unwrap_or_default();
    }
}

fn join(thread: JoinHandle<()>) {
    // `thread::try_spawn` catches panics, reports them and gives the signal to stop.
    thread.join().unwrap_or_default();
}
