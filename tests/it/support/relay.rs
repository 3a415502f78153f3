//! A network between a daemon and its API server that a test can cut: bytes are passed on, or,
//! while it is cut, swallowed without a word. What comes to the daemon on a single connection can
//! be held.
//!
//! The threads `relay` (accepts) and `relay-N` (two for each connection) end with the test's stop signal.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use replicaset_controller::stdx::stop::{Cause, Stop};
use replicaset_controller::stdx::thread::Thread;

/// Such a network.
#[derive(Clone, Debug)]
pub(crate) struct Relay(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    listener: TcpListener,
    address: SocketAddr,
    target: SocketAddr,
    is_cut: AtomicBool,
    is_full: AtomicBool,
    /// Given when no connection is accepted any more.
    full: Stop,
    sockets: Mutex<Vec<TcpStream>>,
    links: Mutex<Vec<Arc<Link>>>,
    n_threads: AtomicUsize,
    stop: Stop,
}

/// The way from the server to the daemon on one connection.
#[derive(Debug, Default)]
struct Link {
    n_bytes: AtomicUsize,
    is_held: AtomicBool,
}

/// A connection that is not there by then never will be.
const FULL_AFTER: Duration = Duration::from_millis(200);

/// How often a connection that is held is looked at.
const HELD_PAUSE: Duration = Duration::from_millis(20);

impl Relay {
    /// Passes on to `target` until `stop`.
    pub(crate) fn start(target: SocketAddr, stop: &Stop) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let relay = Self(Arc::new(Shared {
            address: listener.local_addr().expect("an address"),
            listener: listener.try_clone().expect("a second handle"),
            target,
            is_cut: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            full: Stop::new(),
            sockets: Mutex::default(),
            links: Mutex::default(),
            n_threads: AtomicUsize::new(0),
            stop: stop.clone(),
        }));
        let (accepting, ending) = (relay.clone(), relay.clone());
        stop.on_stop(move || {
            ending.break_connections();
            // Wakes the thread that accepts.
            drop(TcpStream::connect_timeout(&ending.0.address, FULL_AFTER));
        });
        drop(Thread::spawn("relay", stop, move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.0.is_full.load(Ordering::SeqCst) {
                    let why = "the test wants it".to_owned();
                    accepting.0.full.stop(Cause::Requested(why));
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

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// From now on nothing gets through, and nobody is told.
    pub(crate) fn cut(&self) {
        self.0.is_cut.store(true, Ordering::SeqCst);
    }

    /// From now on new connections get through. Those from before are broken: what was sent into them
    /// is lost.
    pub(crate) fn mend(&self) {
        self.break_connections();
        self.0.is_cut.store(false, Ordering::SeqCst);
    }

    /// From now on a new connection is neither opened nor refused. Those that are there go on. To
    /// be kept is what fills the queue.
    pub(crate) fn open_no_more(&self) -> Vec<TcpStream> {
        self.0.is_full.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.0.address));
        self.0.full.wait();
        rustix::net::listen(&self.0.listener, 0).expect("it listens already");
        let connect = || TcpStream::connect_timeout(&self.0.address, FULL_AFTER).ok();
        std::iter::from_fn(connect).collect()
    }

    /// How many bytes have come to the daemon so far, on each connection that there was.
    pub(crate) fn received(&self) -> Vec<usize> {
        let links = self.links();
        let received = links.iter().map(|link| &link.n_bytes);
        received.map(|n| n.load(Ordering::SeqCst)).collect()
    }

    /// From now on nothing comes to the daemon on one connection, by its place in
    /// [`received`](Self::received).
    pub(crate) fn hold(&self, connection: usize) {
        self.links()[connection]
            .is_held
            .store(true, Ordering::SeqCst);
    }

    fn links(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Link>>> {
        self.0.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn break_connections(&self) {
        let sockets = std::mem::take(&mut *self.sockets());
        for socket in sockets {
            // Closed already is as good.
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
        let Ok(far) = TcpStream::connect(self.0.target) else {
            return;
        };
        let ends = [near, far];
        for end in &ends {
            end.set_nodelay(true).unwrap_or_default();
            self.sockets().extend(end.try_clone());
        }
        let [near, far] = ends;
        let link = Arc::new(Link::default());
        self.links().push(Arc::clone(&link));
        if let (Ok(near), Ok(far)) = (near.try_clone(), far.try_clone()) {
            self.pass_on(near, far, Arc::default());
        }
        self.pass_on(far, near, link);
    }

    fn pass_on(&self, mut from: TcpStream, mut to: TcpStream, link: Arc<Link>) {
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
