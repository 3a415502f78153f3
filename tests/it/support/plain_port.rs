//! A port for `--insecure-port`, and a client for the pages that a daemon's process serves there.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

use replicaset_controller::client::{Client, ClientConfig, ClientError, ClientOptions, Request};
use replicaset_controller::stdx::stop::Stop;

/// Below the range of ephemeral ports.
const PORTS: Range<u16> = 11_000..31_000;

/// The port to try next. Two draws by chance would now and then agree before one is bound; other
/// processes that test at the same time begin elsewhere.
static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new(fastrand::u16(PORTS)));

/// A port of 127.0.0.1 for `--insecure-port`.
#[derive(Debug)]
pub(crate) struct PlainPort(u16);

impl PlainPort {
    /// A free port that this process has not had before.
    pub(crate) fn free() -> Self {
        let following = |port| match port + 1 {
            port if PORTS.contains(&port) => port,
            _ => PORTS.start,
        };
        let port = loop {
            let port = NEXT.update(Ordering::Relaxed, Ordering::Relaxed, following);
            if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                break port;
            }
        };
        Self(port)
    }

    /// The daemon's flag for this port.
    pub(crate) fn argument(&self) -> String {
        format!("--insecure-port={}", self.0)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.0).into()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Status code and body of a page; 0 and the error if there is no HTTP response.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let config = ClientConfig::plain(&self.url());
        let client = Client::new(&config, &ClientOptions::default(), &Stop::new());
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut request = Request::get(path).accept("*/*").once();
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
