//! Both ports of a daemon, and connections to them from any address of the loopback interface.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
use rustls::{ClientConnection, RootCertStore, StreamOwned};

use super::{Authority, DnType, write};
use crate::support::{DaemonProcess, PlainPort, ScriptedServer, Waiting};

/// How long a client waits for the daemon.
const PATIENCE: Duration = Duration::from_mins(5);

/// A connection to either port.
pub(super) trait Connection: Read + Write {
    /// Sends no more; the other direction stays open.
    fn end(&mut self);

    /// Everything that arrives until the daemon closes the connection.
    fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        // A reset, or the end of TCP without that of TLS, ends the connection too.
        self.read_to_end(&mut bytes).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Connection for TcpStream {
    fn end(&mut self) {
        // The daemon may have closed the connection already.
        self.shutdown(Shutdown::Write).unwrap_or_default();
    }
}

impl Connection for StreamOwned<ClientConnection, TcpStream> {
    fn end(&mut self) {
        self.conn.send_close_notify();
        self.flush().unwrap_or_default();
        self.sock.end();
    }
}

/// The ports `--insecure-port` and `--secure-port`.
pub(super) struct Ports {
    pub(super) plain: PlainPort,
    pub(super) secure: PlainPort,
    arguments: Vec<String>,
    tls: Arc<rustls::ClientConfig>,
    _folder: tempfile::TempDir,
}

impl Ports {
    pub(super) fn free() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::new();
        let (certificate, key) = authority.issue(&[(DnType::CommonName, "localhost")]);
        let certificate = write(folder.path(), "tls.crt", &certificate);
        let key = write(folder.path(), "tls.key", &key);
        let (plain, secure) = (PlainPort::free(), PlainPort::free());
        let mut roots = RootCertStore::empty();
        let root = authority.0.der().clone();
        roots.add(root).expect("a root certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring supports the default versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let arguments = vec![
            plain.argument(),
            "--bind-address=127.0.0.1".to_owned(),
            secure.argument().replace("insecure", "secure"),
            format!("--tls-cert-file={}", certificate.display()),
            format!("--tls-private-key-file={}", key.display()),
        ];
        Self {
            plain,
            secure,
            arguments,
            tls: Arc::new(tls),
            _folder: folder,
        }
    }

    /// The daemon's flags for both ports.
    pub(super) fn arguments(&self) -> Vec<&str> {
        self.arguments.iter().map(String::as_str).collect()
    }

    /// Starts a daemon on both ports, for the cluster of `server`, and waits until it is ready.
    pub(super) fn start(&self, server: &ScriptedServer) -> DaemonProcess {
        let url = server.url();
        let arguments = [&["run", "--master", &url][..], &self.arguments()].concat();
        let process = DaemonProcess::start(&arguments);
        Waiting::new(server.stop())
            .eventually("the daemon is ready", || self.plain.get("/readyz").0 == 200);
        process
    }

    /// A TCP connection from this address to a port.
    pub(super) fn tcp(from: Ipv4Addr, port: &PlainPort) -> TcpStream {
        let (family, kind) = (AddressFamily::Inet, SockType::Stream);
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        let number = socket.as_raw_fd();
        let from = SockaddrIn::from(SocketAddrV4::new(from, 0));
        bind(number, &from).expect("an address of this machine");
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port.address().port());
        connect(number, &SockaddrIn::from(to)).expect("the daemon listens");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.set_nodelay(true).expect("a socket of TCP");
        stream
    }

    /// A connection from this address to the plain port.
    pub(super) fn plain(&self, from: Ipv4Addr) -> TcpStream {
        Self::tcp(from, &self.plain)
    }

    /// A TLS connection over `tcp`, which shakes hands at the first write.
    pub(super) fn tls(&self, tcp: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
        let name = "localhost".try_into().expect("a name");
        let tls = ClientConnection::new(Arc::clone(&self.tls), name);
        StreamOwned::new(tls.expect("a valid configuration"), tcp)
    }

    /// A connection from this address to the secure port.
    pub(super) fn secure(&self, from: Ipv4Addr) -> StreamOwned<ClientConnection, TcpStream> {
        self.tls(Self::tcp(from, &self.secure))
    }
}

/// Sends these bytes, and returns the codes of all responses until the daemon closes the
/// connection.
pub(super) fn codes(connection: &mut dyn Connection, bytes: &[u8]) -> Vec<u16> {
    // The daemon may close the connection before it has read everything.
    connection.write_all(bytes).unwrap_or_default();
    connection.flush().unwrap_or_default();
    connection.end();
    let responses = connection.rest();
    let codes = responses.split("HTTP/1.1 ").skip(1);
    codes
        .filter_map(|response| response.get(..3)?.parse().ok())
        .collect()
}
