//! A small HTTP/1.1 server without async. One thread accepts connections, one thread serves each
//! connection, and a [`Handler`] returns the responses. The server knows nothing of Kubernetes
//! except `Status`. httparse parses request heads, and rustls does TLS.
//!
//! Every resource that a client can occupy has a bound, whatever the client sends. The server
//! rejects each message that two parsers could read differently (RFC 9112).
//!
//! `devserver` uses it without limits, for loopback and tests (threads `dev-accept` and
//! `dev-conn-N`). `serving` uses it with [`Limits`], because any client may connect (threads `http`
//! and `http-N`). Every wait ends with the socket: the server shuts the socket when it stops, or
//! earlier at a limit.
//!
//! DIFFERS: HTTP/1.1 only, where Go's server speaks HTTP/2 too.
//!
//! # Locks
//!
//! `server` guards the table of open connections. The accepting and the connection threads take it,
//! and the thread that stops the server.

mod connection;
mod exchange;
mod head;
mod received;
mod server;
mod socket;
#[cfg(any(test, feature = "simulation"))]
pub mod testing;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use exchange::{ChunkStream, Handler, Next, Peer, Request, Response, ResponseBody};
pub use server::Server;

/// Returns the TLS configuration for the next connection, so renewed certificates apply to new
/// connections. Connection threads call it concurrently, each for its own connection.
pub type TlsSource = Arc<dyn Fn() -> Arc<rustls::ServerConfig> + Send + Sync>;

#[derive(Clone)]
pub struct ServerOptions {
    pub accept_thread: &'static str,
    /// Prefix of the connection threads' names; the connection's number follows.
    pub connection_thread: &'static str,
    /// Limits per client and for the whole server; `None` for none.
    pub limits: Option<Limits>,
    /// Maximum body bytes the server keeps. The handler gets the body cut at this length. If the
    /// body is much longer, the server closes the connection after the response.
    pub body_bytes: usize,
    pub tls: Option<TlsSource>,
    /// If set, the server rejects requests from foreign web pages. It also rejects a `Host` that is
    /// neither a loopback name, nor the local address of the connection, nor in this list.
    pub accept_hosts: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum open connections. At the maximum, a new connection displaces a connection that waits
    /// for its client: the oldest of the address with the most connections. The server closes the
    /// new connection instead if no connection waits, or if the oldest is younger than a second and
    /// its address, another one, has no more connections than the new client's.
    pub connections: usize,
    /// Time for TLS handshake, head and body. It runs from the start of the connection or, for a
    /// later request, from the request's first byte.
    pub request: Duration,
    pub idle: Duration,
    /// Time for the client to read a whole response.
    pub answer: Duration,
}

/// Checks `Host` and `Origin` of a request that arrived at the address `local` of a server without
/// authentication. Accepts loopback names, `local` and `names`. A web page can make a browser send
/// requests to loopback in two ways. Under DNS rebinding, the page's own name resolves to loopback
/// and is in `Host`. Otherwise, the page's address is in `Origin`.
///
/// DIFFERS: `kubectl proxy --accept-hosts` takes regular expressions; here names are whole.
///
/// # Errors
/// The reason, and for a name the flag that would allow it.
fn check_hosts(request: &Request, local: IpAddr, names: &[String]) -> Result<(), String> {
    let host = request.header("host");
    // Only HTTP/1.0 allows a missing `Host`, and browsers always send it.
    if !host.is_empty() && !is_accepted(host, local, names) {
        return Err(format!(
            "the Host header {host} is not accepted: add it to --accept-hosts"
        ));
    }
    let origin = request.header("origin");
    if !origin.is_empty() && !is_same_origin(origin, host) {
        return Err(format!("requests from web pages of {origin} are rejected"));
    }
    Ok(())
}

fn is_accepted(host: &str, local: IpAddr, names: &[String]) -> bool {
    let name = without_port(host);
    let is_address = |address: IpAddr| {
        let address = address.to_canonical();
        address.is_loopback() || address == local.to_canonical()
    };
    match name.trim_matches(['[', ']']).parse() {
        Ok(address) if is_address(address) => true,
        _ => {
            let mut names = names.iter().map(String::as_str).chain(["localhost"]);
            names.any(|it| it.eq_ignore_ascii_case(name))
        }
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // An IPv6 address without brackets has more than one colon.
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_same_origin(origin: &str, host: &str) -> bool {
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests;
