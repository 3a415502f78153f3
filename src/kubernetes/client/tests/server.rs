//! A scripted HTTP server: one thread accepts connections, and one thread serves each. A function
//! of the request returns the reply; the server keeps the received requests for the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::PATIENCE;
use crate::stdx::stop::Stop;
use crate::stdx::thread::spawn;

/// A received request.
#[derive(Clone, Debug)]
pub(super) struct Received {
    /// The request's number on this server, from 0.
    pub(super) n: usize,
    /// The connection's number on this server, from 0.
    pub(super) connection: usize,
    pub(super) first_line: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
    /// The server name in the TLS handshake.
    pub(super) server_name: Option<String>,
}

impl Received {
    /// All values of a header.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        let headers = self.headers.iter();
        let found = headers.filter(|(have, _)| have.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str()).collect()
    }
}

/// The server's reaction to a request.
pub(super) enum Reply {
    /// Write this and wait for the next request.
    Write(Vec<u8>),
    /// Write this, then close.
    WriteAndClose(Vec<u8>),
    /// Write this, then leave the connection open and silent until the client closes it.
    WriteAndHold(Vec<u8>),
    /// Write this, then serve TLS, like the other end of a tunnel.
    WriteAndTunnel(Vec<u8>),
}

/// A response with this code, extra headers (each with its line end) and body.
pub(super) fn response(code: u16, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {code} X\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes()
}

/// The head of a chunked response and its first chunks.
pub(super) fn chunked(chunks: &[&str]) -> Vec<u8> {
    let mut bytes = b"HTTP/1.1 200 OK\r\ncontent-type: application/json;stream=watch\r\n\
                      transfer-encoding: chunked\r\n\r\n"
        .to_vec();
    for chunk in chunks {
        bytes.extend(format!("{:x}\r\n{chunk}\r\n", chunk.len()).into_bytes());
    }
    bytes
}

/// The server. Its threads end when it is dropped.
pub(super) struct Server {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
    received: Receiver<Received>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    tls: Option<Arc<ServerConfig>>,
    /// TLS only inside a tunnel.
    is_proxy: bool,
    reply: Box<dyn Fn(&Received) -> Reply + Send + Sync>,
    /// Unbounded: a test makes few requests.
    sender: Sender<Received>,
    closing: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    n_requests: usize,
    streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    pub(super) fn plain(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::start(None, false, reply)
    }

    pub(super) fn tls(
        config: Arc<ServerConfig>,
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start(Some(config), false, reply)
    }

    pub(super) fn proxy(
        config: Arc<ServerConfig>,
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start(Some(config), true, reply)
    }

    fn start(
        tls: Option<Arc<ServerConfig>>,
        is_proxy: bool,
        reply: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let (sender, received) = crossbeam_channel::unbounded();
        let scheme = match tls {
            Some(_) if !is_proxy => "https",
            _ => "http",
        };
        let shared = Arc::new(Shared {
            tls,
            is_proxy,
            reply: Box::new(reply),
            sender,
            closing: AtomicBool::new(false),
            state: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let thread = spawn("t-accept", &Stop::new(), move || {
            accept(&listener, &accepting);
        });
        Self {
            address,
            scheme,
            shared,
            received,
            threads: vec![thread],
        }
    }

    pub(super) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Blocks until the next request arrives and returns it.
    #[track_caller]
    pub(super) fn next(&self) -> Received {
        let next = self.received.recv_timeout(PATIENCE);
        next.expect("another request arrives")
    }

    /// The requests that [`next`](Self::next) has not returned.
    pub(super) fn remaining(&self) -> Vec<Received> {
        self.received.try_iter().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        // Wakes the accepting thread. An error means that the thread has ended.
        TcpStream::connect(self.address).ok();
        for thread in self.threads.drain(..) {
            thread.join().expect("the accepting thread does not panic");
        }
        let mut state = self.shared.lock();
        let threads = std::mem::take(&mut state.threads);
        for stream in state.streams.drain(..) {
            // It may be closed already.
            stream.shutdown(Shutdown::Both).ok();
        }
        drop(state);
        for thread in threads {
            thread.join().expect("no connection's thread panics");
        }
    }
}

impl Shared {
    fn lock(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for connection in 0.. {
        let Ok((stream, _)) = listener.accept() else {
            return;
        };
        if shared.closing.load(Ordering::SeqCst) {
            return;
        }
        stream.set_nodelay(true).expect("sockets can do that");
        let copy = stream.try_clone().expect("sockets can be cloned");
        let serving = Arc::clone(shared);
        let thread = spawn("t-serve", &Stop::new(), move || {
            let ended = stream.try_clone().expect("sockets can be cloned");
            serve(stream, connection, &serving);
            // The copy in `streams` would keep the connection open.
            ended.shutdown(Shutdown::Both).ok();
        });
        let mut state = shared.lock();
        state.streams.push(copy);
        state.threads.push(thread);
    }
}

fn serve(stream: TcpStream, connection: usize, shared: &Shared) {
    match &shared.tls {
        Some(config) if !shared.is_proxy => serve_tls(stream, config, connection, shared),
        _ => {
            let copy = stream.try_clone().expect("sockets can be cloned");
            if serve_requests(stream, connection, None, shared) == Then::Tunnel {
                let config = shared.tls.as_ref().expect("tunnels lead to TLS");
                serve_tls(copy, config, connection, shared);
            }
        }
    }
}

fn serve_tls(mut stream: TcpStream, config: &Arc<ServerConfig>, n: usize, shared: &Shared) {
    let mut tls = ServerConnection::new(Arc::clone(config)).expect("the configuration is good");
    if tls.complete_io(&mut stream).is_err() {
        // Send the pending alert, which reports the error to the client.
        tls.write_tls(&mut stream).ok();
        return;
    }
    let name = tls.server_name().map(str::to_owned);
    serve_requests(StreamOwned::new(tls, stream), n, name.as_deref(), shared);
}

#[derive(PartialEq, Eq)]
enum Then {
    Close,
    Tunnel,
}

fn serve_requests(
    stream: impl Read + Write,
    connection: usize,
    server_name: Option<&str>,
    shared: &Shared,
) -> Then {
    let mut stream = BufReader::new(stream);
    while let Some(mut received) = receive(&mut stream) {
        received.connection = connection;
        received.server_name = server_name.map(str::to_owned);
        let mut state = shared.lock();
        received.n = state.n_requests;
        state.n_requests += 1;
        drop(state);
        let reply = (shared.reply)(&received);
        let (Reply::Write(bytes)
        | Reply::WriteAndClose(bytes)
        | Reply::WriteAndHold(bytes)
        | Reply::WriteAndTunnel(bytes)) = &reply;
        // ORDER: record the request before the response, so that the test finds it once the client
        // returns. An error means that the test is over.
        shared.sender.send(received).ok();
        let written = stream.get_mut().write_all(bytes);
        let written = written.and_then(|()| stream.get_mut().flush());
        match reply {
            _ if written.is_err() => return Then::Close,
            Reply::Write(_) => {}
            Reply::WriteAndClose(_) => return Then::Close,
            Reply::WriteAndTunnel(_) => return Then::Tunnel,
            Reply::WriteAndHold(_) => {
                // Ends when the client closes or this server is dropped.
                std::io::copy(&mut stream, &mut std::io::sink()).ok();
                return Then::Close;
            }
        }
    }
    Then::Close
}

/// Reads the next request; `None` at the end of the connection.
fn receive(stream: &mut impl BufRead) -> Option<Received> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        lines.push(line.to_owned());
    }
    let mut lines = lines.into_iter();
    let first_line = lines.next()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_owned(), value.to_owned()))
        })
        .collect();
    let mut received = Received {
        n: 0,
        connection: 0,
        first_line,
        headers,
        body: String::new(),
        server_name: None,
    };
    let length = received.all("content-length").first().copied();
    let length = length.map_or(0, |length| length.parse().expect("it is a number"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    received.body = String::from_utf8(body).expect("tests send text");
    Some(received)
}
