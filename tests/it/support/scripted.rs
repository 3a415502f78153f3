//! An API server that follows a script, byte by byte, so that its answers need not be HTTP, nor
//! end. What the script leaves out gets the answer of an API server without objects.
//!
//! The threads `scripted` (accepts) and `scripted-N` (one per connection) end when the server is
//! dropped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use replicaset_controller::stdx::stop::{Cause, Stop};
use replicaset_controller::stdx::thread::Thread;

/// Longest head or body of a request, in bytes. The daemon's requests are far shorter.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// Pause between two bytes of [`Then::Trickle`].
const TRICKLE_PAUSE: Duration = Duration::from_millis(20);

/// A request of the daemon.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    /// Lines of the head after the first, as received.
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    /// True for a list or watch of all objects of this resource.
    pub(crate) fn is_about(&self, resource: &str) -> bool {
        let path = self.path.split('?').next().unwrap_or_default();
        self.method == "GET" && path.rsplit('/').next() == Some(resource)
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.path.contains("watch=true")
    }

    /// True for a watch that sends the list first.
    pub(crate) fn is_streamed_list(&self) -> bool {
        self.path.contains("sendInitialEvents=true")
    }

    fn content_type(&self) -> &str {
        let mut lines = self.headers.lines();
        let found = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_found = name.eq_ignore_ascii_case("content-type");
            is_found.then_some(value.trim())
        });
        found.unwrap_or("application/json")
    }
}

/// What the server does after the first bytes of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// It reads the next request.
    Next,
    /// It closes the connection.
    Close,
    /// It stays silent until the daemon closes the connection.
    Hold,
    /// It sends these bytes again and again.
    Repeat(Vec<u8>),
    /// It sends these bytes one at a time, again and again.
    Trickle(&'static [u8]),
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) bytes: Vec<u8>,
    pub(crate) then: Then,
}

impl Reply {
    /// A whole answer with this status line (`200 OK`), these headers (each with its line end) and
    /// this body in JSON.
    pub(crate) fn whole(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Self {
        Self::typed(status, headers, "application/json", body.as_ref())
    }

    /// [`whole`](Self::whole) with a body of this media type.
    pub(crate) fn typed(status: &str, headers: &str, media_type: &str, body: &[u8]) -> Self {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\n{headers}\
             Content-Length: {length}\r\n\r\n"
        );
        Self {
            bytes: [head.as_bytes(), body].concat(),
            then: Then::Next,
        }
    }

    /// A body of this media type in chunks, of which these are the first.
    pub(crate) fn chunked(media_type: &str, chunks: &[&[u8]], then: Then) -> Self {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        let chunks = chunks.iter().map(|bytes| chunk(bytes));
        Self {
            bytes: std::iter::once(head.into_bytes())
                .chain(chunks)
                .flatten()
                .collect(),
            then,
        }
    }

    /// Exactly these bytes.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>, then: Then) -> Self {
        let bytes = bytes.into();
        Self { bytes, then }
    }
}

/// A chunk of a body.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// The end of a list that a watch sends, at version 9.
pub(crate) const LIST_END: &[u8] =
    b"{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\",\
      \"annotations\":{\"k8s.io/initial-events-end\":\"true\"}}}}\n";

/// The answer of an API server without objects, where everything may be written.
fn ordinary(asked: &Asked) -> Reply {
    let path = asked.path.split('?').next().unwrap_or_default();
    let is_list = ["/pods", "/replicasets", "/replicationcontrollers"]
        .iter()
        .any(|resource| path.ends_with(resource));
    let json = "application/json";
    match asked.method.as_str() {
        "GET" if asked.is_streamed_list() => Reply::chunked(json, &[LIST_END], Then::Hold),
        "GET" if asked.is_watch() => Reply::chunked(json, &[], Then::Hold),
        "GET" if is_list => Reply::whole(
            "200 OK",
            "",
            r#"{"metadata":{"resourceVersion":"9"},"items":[]}"#,
        ),
        "GET" => {
            let status = r#"{"kind":"Status","code":404,"reason":"NotFound","message":"gone"}"#;
            Reply::whole("404 Not Found", "", status)
        }
        "POST" if path.ends_with("accessreviews") => {
            Reply::whole("201 Created", "", r#"{"status":{"allowed":true}}"#)
        }
        "DELETE" => Reply::whole("200 OK", "", r#"{"kind":"Status","status":"Success"}"#),
        _ => Reply::typed("200 OK", "", asked.content_type(), &asked.body),
    }
}

type Script = dyn Fn(&Asked) -> Option<Reply> + Send + Sync;

struct Shared {
    script: Box<Script>,
    asked: Mutex<Vec<Asked>>,
    n_scripted: AtomicUsize,
    sockets: Mutex<Vec<TcpStream>>,
    stop: Stop,
}

/// The server. Dropping it closes all connections.
pub(crate) struct ScriptedServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl ScriptedServer {
    /// Listens on a free port of 127.0.0.1. `script` answers requests; those for which it returns
    /// `None` get an ordinary answer.
    pub(crate) fn start(script: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let shared = Arc::new(Shared {
            script: Box::new(script),
            asked: Mutex::default(),
            n_scripted: AtomicUsize::new(0),
            sockets: Mutex::default(),
            stop: Stop::new(),
        });
        let accepting = Arc::clone(&shared);
        drop(Thread::spawn("scripted", &shared.stop, move || {
            let mut number = 0;
            for stream in listener.incoming().flatten() {
                if accepting.stop.is_stopped() {
                    break;
                }
                number += 1;
                accepting.serve(stream, number);
            }
        }));
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        let asked = self.shared.asked.lock();
        asked.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests the script has answered.
    pub(crate) fn n_scripted(&self) -> usize {
        self.shared.n_scripted.load(Ordering::SeqCst)
    }

    /// Trips when a thread of the server panics.
    pub(crate) fn stop(&self) -> &Stop {
        &self.shared.stop
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        let ended = Cause::Requested("the test has ended".to_owned());
        self.shared.stop.stop(ended);
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.address));
        let sockets = self.shared.sockets.lock();
        for socket in sockets.unwrap_or_else(PoisonError::into_inner).drain(..) {
            socket.shutdown(Shutdown::Both).unwrap_or_default();
        }
    }
}

impl Shared {
    fn serve(self: &Arc<Self>, stream: TcpStream, number: usize) {
        let socket = stream.try_clone().expect("a second handle");
        let sockets = self.sockets.lock();
        sockets.unwrap_or_else(PoisonError::into_inner).push(socket);
        let shared = Arc::clone(self);
        let name = format!("scripted-{}", number % 1_000_000);
        drop(Thread::spawn(&name, &self.stop, move || {
            // Whatever ends the connection, the daemon or the drop of the server has done so.
            shared.answer_all(&stream).unwrap_or_default();
            stream.shutdown(Shutdown::Both).unwrap_or_default();
        }));
    }

    fn answer_all(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(asked) = read_request(&mut reader)? {
            let all = self.asked.lock();
            all.unwrap_or_else(PoisonError::into_inner)
                .push(asked.clone());
            let scripted = (self.script)(&asked);
            if scripted.is_some() {
                self.n_scripted.fetch_add(1, Ordering::SeqCst);
            }
            let reply = scripted.unwrap_or_else(|| ordinary(&asked));
            self.send(stream, &reply)?;
            match reply.then {
                Then::Next => {}
                Then::Hold => {
                    // The daemon sends nothing more either, so this waits for its end.
                    reader.fill_buf()?;
                    break;
                }
                Then::Close | Then::Repeat(_) | Then::Trickle(_) => break,
            }
        }
        Ok(())
    }

    fn send(&self, mut stream: &TcpStream, reply: &Reply) -> std::io::Result<()> {
        stream.write_all(&reply.bytes)?;
        match &reply.then {
            Then::Next | Then::Close | Then::Hold => {}
            Then::Repeat(bytes) => loop {
                stream.write_all(bytes)?;
            },
            Then::Trickle(bytes) => {
                for byte in bytes.iter().cycle() {
                    stream.write_all(&[*byte])?;
                    if self.stop.wait_timeout(TRICKLE_PAUSE) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Reads a request with a `Content-Length` or with chunks; `None` if the client sends no more.
fn read_request(reader: &mut impl BufRead) -> std::io::Result<Option<Asked>> {
    let mut head = reader.take(REQUEST_BYTES_MAX);
    let mut first = String::new();
    if head.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let mut headers = String::new();
    while !headers.ends_with("\r\n\r\n") && headers != "\r\n" {
        if head.read_line(&mut headers)? == 0 {
            return Ok(None);
        }
    }
    let mut words = first.split(' ').map(str::to_owned);
    let mut asked = Asked {
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        headers,
        body: Vec::new(),
    };
    let lower = asked.headers.to_ascii_lowercase();
    let value = |name: &str| lower.lines().find_map(|line| line.strip_prefix(name));
    if let Some(length) = value("content-length:") {
        let length = length.trim().parse().unwrap_or(0);
        reader.take(length).read_to_end(&mut asked.body)?;
    } else if value("transfer-encoding:").is_some() {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size)?;
            let size = u64::from_str_radix(size.trim(), 16).unwrap_or(0);
            reader.take(size).read_to_end(&mut asked.body)?;
            reader.read_line(&mut String::new())?;
            if size == 0 {
                break;
            }
        }
    }
    Ok(Some(asked))
}
