//! A port for a process that a test starts, and a client for the pages that a daemon serves there.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, getsockname, setsockopt, socket, sockopt,
};

use replicaset_controller::client::{Client, ClientConfig, ClientError, ClientOptions, Request};
use replicaset_controller::stdx::stop::Stop;

/// A port of 127.0.0.1, such as for `--insecure-port`, on which only a process that knows it can
/// listen.
#[derive(Debug)]
pub(crate) struct PlainPort {
    port: u16,
    /// Bound and not listening: the kernel gives the port to no other process, and with
    /// `SO_REUSEADDR` a process that asks for it by number may still listen. A listener closed
    /// before the process starts does not do: a child that another thread forks holds it until it
    /// calls exec.
    _reservation: OwnedFd,
}

impl PlainPort {
    /// A free port, reserved until this is dropped.
    pub(crate) fn free() -> Self {
        let flags = SockFlag::SOCK_CLOEXEC;
        let reservation =
            socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("a socket");
        let any = SockaddrIn::new(127, 0, 0, 1, 0);
        bind(reservation.as_raw_fd(), &any).expect("a free port");
        // After the bind: with `ip_autobind_reuse` the kernel may choose a port that another
        // reservation has.
        setsockopt(&reservation, sockopt::ReuseAddr, &true).expect("a socket");
        let bound: SockaddrIn = getsockname(reservation.as_raw_fd()).expect("it is bound");
        Self {
            port: bound.port(),
            _reservation: reservation,
        }
    }

    /// The daemon's flag for this port.
    pub(crate) fn argument(&self) -> String {
        format!("--insecure-port={}", self.port)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Status code and body of a page; 0 and the error if there is no HTTP response.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.get_as(path, "*/*")
    }

    /// [`get`](Self::get) by a client that accepts this media type.
    pub(crate) fn get_as(&self, path: &str, accept: &'static str) -> (u16, String) {
        let config = ClientConfig::plain(&self.url());
        let client = Client::new(&config, &ClientOptions::default(), &Stop::new());
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut request = Request::get(path).accept(accept).once();
        if !query.is_empty() {
            request = request.query(query, "");
        }
        match client.send(&request) {
            Ok(response) => (
                response.code,
                String::from_utf8(response.body).expect("pages are text"),
            ),
            Err(ClientError::Status(status)) => {
                let message = status.object().message.clone();
                (status.code(), message.unwrap_or_default())
            }
            Err(error) => (0, error.to_string()),
        }
    }
}
