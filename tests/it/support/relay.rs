//! A network between a daemon and its API server that a test can cut: bytes are passed on, or, while it
//! is cut, swallowed without a word.
//!
//! The threads `relay` (accepts) and `relay-N` (two for each connection) end with the test's stop signal.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use replicaset_controller::stdx::stop::Stop;
use replicaset_controller::stdx::thread::Thread;

/// Such a network.
#[derive(Clone, Debug)]
pub(crate) struct Relay(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    target: SocketAddr,
    is_cut: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
    n_threads: AtomicUsize,
    stop: Stop,
}

impl Relay {
    /// Passes on to `target` until `stop`.
    pub(crate) fn start(target: SocketAddr, stop: &Stop) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let relay = Self(Arc::new(Shared {
            address: listener.local_addr().expect("an address"),
            target,
            is_cut: AtomicBool::new(false),
            sockets: Mutex::default(),
            n_threads: AtomicUsize::new(0),
            stop: stop.clone(),
        }));
        let (accepting, ending) = (relay.clone(), relay.clone());
        stop.on_stop(move || {
            ending.break_connections();
            // Wakes the thread that accepts.
            drop(TcpStream::connect(ending.0.address));
        });
        drop(Thread::spawn("relay", stop, move || {
            for stream in listener.incoming().map_while(Result::ok) {
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
        let pairs = [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))];
        for (from, to) in pairs {
            if let (Ok(from), Ok(to)) = (from, to) {
                self.pass_on(from, to);
            }
        }
    }

    fn pass_on(&self, mut from: TcpStream, mut to: TcpStream) {
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
