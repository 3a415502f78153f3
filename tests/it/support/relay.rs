//! A TCP proxy between a daemon and its API server. A test can cut it, which drops all bytes
//! silently, hold the bytes from the server on a single connection, delay all bytes, or stop
//! accepting connections.
//!
//! The threads `relay` (accepts) and `relay-N` (two per connection) end with the test's stop
//! signal.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::socket::{Backlog, listen};
use replicaset_controller::stdx::stop::{Cause, Stop};
use replicaset_controller::stdx::thread::Thread;

/// The proxy. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Relay(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    listener: TcpListener,
    address: SocketAddr,
    /// Connections go to each in turn.
    targets: Vec<SocketAddr>,
    n_accepted: AtomicUsize,
    is_cut: AtomicBool,
    is_full: AtomicBool,
    /// Longest delay of a piece of bytes, in milliseconds.
    delay_max_ms: AtomicU64,
    /// Trips when the thread `relay` has stopped accepting for [`Relay::stop_accepting`].
    full: Stop,
    sockets: Mutex<Vec<TcpStream>>,
    links: Mutex<Vec<Arc<Link>>>,
    n_threads: AtomicUsize,
    stop: Stop,
}

/// The bytes of one connection in one direction.
#[derive(Debug, Default)]
struct Link {
    n_bytes: AtomicUsize,
    is_held: AtomicBool,
    is_slow: bool,
}

/// Connect timeout. A connect to a full accept queue on loopback never completes.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(200);

/// How often the thread of a held connection checks whether to end.
const HELD_PAUSE: Duration = Duration::from_millis(20);

impl Relay {
    /// Listens on a free port and forwards to `target` until `stop` trips.
    pub(crate) fn start(target: SocketAddr, stop: &Stop) -> Self {
        Self::between(vec![target], stop)
    }

    /// [`start`](Self::start) with several targets, which get the connections in turn.
    pub(crate) fn between(targets: Vec<SocketAddr>, stop: &Stop) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let relay = Self(Arc::new(Shared {
            address: listener.local_addr().expect("an address"),
            listener: listener.try_clone().expect("a second handle"),
            targets,
            n_accepted: AtomicUsize::new(0),
            is_cut: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            delay_max_ms: AtomicU64::new(0),
            full: Stop::new(),
            sockets: Mutex::default(),
            links: Mutex::default(),
            n_threads: AtomicUsize::new(0),
            stop: stop.clone(),
        }));
        let (accepting, ending) = (relay.clone(), relay.clone());
        stop.on_stop(move || {
            ending.break_connections();
            // Wakes the accepting thread.
            drop(TcpStream::connect_timeout(
                &ending.0.address,
                CONNECT_TIMEOUT,
            ));
        });
        drop(Thread::spawn("relay", stop, move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.0.is_full.load(Ordering::SeqCst) {
                    let reason = "the test stops accepting connections".to_owned();
                    accepting.0.full.stop(Cause::Requested(reason));
                    return;
                }
                if accepting.0.stop.is_stopped() {
                    return;
                }
                accepting.serve(stream);
            }
        }));
        relay
    }

    /// The listening address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Drops all bytes in both directions, and keeps the connections open.
    pub(crate) fn cut(&self) {
        self.0.is_cut.store(true, Ordering::SeqCst);
    }

    /// Ends [`cut`](Self::cut): shuts the old connections down and forwards new ones. The dropped
    /// bytes stay lost.
    pub(crate) fn restore(&self) {
        self.break_connections();
        self.0.is_cut.store(false, Ordering::SeqCst);
    }

    /// Delays each piece of bytes by a random time up to this, each connection for itself. So
    /// requests and responses overtake each other between connections. Of several targets, only
    /// the last is slow.
    pub(crate) fn slow(&self, delay_max_ms: u64) {
        self.0.delay_max_ms.store(delay_max_ms, Ordering::SeqCst);
    }

    /// Stops accepting: a new connection is neither established nor refused, existing ones keep
    /// working. The caller must hold the returned sockets, which fill the accept queue.
    pub(crate) fn stop_accepting(&self) -> Vec<TcpStream> {
        self.0.is_full.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.0.address));
        self.0.full.wait();
        listen(&self.0.listener, Backlog::new(0).expect("small")).expect("the socket listens");
        let connect = || TcpStream::connect_timeout(&self.0.address, CONNECT_TIMEOUT).ok();
        std::iter::from_fn(connect).collect()
    }

    /// Bytes read from the server so far, per connection in the order of acceptance.
    pub(crate) fn received(&self) -> Vec<usize> {
        let links = self.links();
        let received = links.iter().map(|link| &link.n_bytes);
        received.map(|n| n.load(Ordering::SeqCst)).collect()
    }

    /// Holds the bytes from the server on one connection, an index into
    /// [`received`](Self::received), until [`release`](Self::release).
    pub(crate) fn hold(&self, connection: usize) {
        self.links()[connection]
            .is_held
            .store(true, Ordering::SeqCst);
    }

    /// Forwards what was held, on all connections.
    pub(crate) fn release(&self) {
        for link in self.links().iter() {
            link.is_held.store(false, Ordering::SeqCst);
        }
    }

    fn links(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Link>>> {
        self.0.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn break_connections(&self) {
        let sockets = std::mem::take(&mut *self.sockets());
        for socket in sockets {
            // The peer may have closed the socket already.
            socket.shutdown(Shutdown::Both).unwrap_or_default();
        }
    }

    fn sockets(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.0
            .sockets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, near: TcpStream) {
        let targets = &self.0.targets;
        let n = self.0.n_accepted.fetch_add(1, Ordering::SeqCst) % targets.len();
        let Ok(far) = TcpStream::connect(targets[n]) else {
            return;
        };
        let is_slow = n + 1 == targets.len();
        let ends = [near, far];
        for end in &ends {
            end.set_nodelay(true).unwrap_or_default();
            self.sockets().extend(end.try_clone());
        }
        let [near, far] = ends;
        let link = |is_slow| {
            Arc::new(Link {
                is_slow,
                ..Link::default()
            })
        };
        let (there, link) = (link(is_slow), link(is_slow));
        self.links().push(Arc::clone(&link));
        if let (Ok(near), Ok(far)) = (near.try_clone(), far.try_clone()) {
            self.forward(near, far, there);
        }
        self.forward(far, near, link);
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream, link: Arc<Link>) {
        let number = self.0.n_threads.fetch_add(1, Ordering::Relaxed) % 1_000_000;
        let relay = self.clone();
        drop(Thread::spawn(
            &format!("relay-{number}"),
            &self.0.stop,
            move || {
                let mut bytes = vec![0; 16 * 1024];
                loop {
                    let length = match from.read(&mut bytes) {
                        Ok(0) | Err(_) => break,
                        Ok(length) => length,
                    };
                    link.n_bytes.fetch_add(length, Ordering::SeqCst);
                    while link.is_held.load(Ordering::SeqCst) {
                        if relay.0.stop.wait_timeout(HELD_PAUSE) {
                            return;
                        }
                    }
                    let delay = relay.0.delay_max_ms.load(Ordering::SeqCst);
                    let delay = if link.is_slow { delay } else { 0 };
                    let delay = Duration::from_millis(fastrand::u64(0..=delay));
                    if relay.0.stop.wait_timeout(delay) {
                        return;
                    }
                    if relay.0.is_cut.load(Ordering::SeqCst) {
                        continue;
                    }
                    if to.write_all(&bytes[..length]).is_err() {
                        break;
                    }
                }
                if !relay.0.is_cut.load(Ordering::SeqCst) {
                    to.shutdown(Shutdown::Both).unwrap_or_default();
                }
            },
        ));
    }
}
