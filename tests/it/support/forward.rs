//! Forwards requests to a real API server with the controller's credentials. The dev server's
//! recorder and fault layer are in front.
//!
//! Runs on the proxy's connection threads. Each watch and list adds a thread `forward-N` that reads
//! from the API server.

use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use replicaset_controller::client::{
    self, BodyStream, Client, ClientConfig, ClientError, ClientOptions, Request,
};
use replicaset_controller::devserver::{ApiCall, ApiRequest, ChunkStream, Handler, Next, Response};
use replicaset_controller::stdx::stop::Stop;
use replicaset_controller::stdx::thread::Thread;

/// Chunks of a response body that wait for the proxy's client. When the channel is full, the thread
/// that reads from the API server blocks.
const CHUNKS_MAX: usize = 64;

/// Bytes of a list per chunk.
const CHUNK_BYTES: usize = 32 * 1024;

/// The [`Handler`] that forwards.
pub(crate) struct Forward {
    client: Client,
    stop: Stop,
    n_streams: AtomicU64,
}

impl Forward {
    pub(crate) fn new(config: &ClientConfig, stop: &Stop) -> Self {
        let options = ClientOptions {
            qps: 0.0,
            ..ClientOptions::default()
        };
        Self {
            client: Client::new(config, &options, stop),
            stop: stop.clone(),
            n_streams: AtomicU64::new(0),
        }
    }

    /// Streams a response body from a new thread. The thread ends with the body, with the test, or
    /// at the next chunk after the client has disconnected.
    fn stream(&self, stream: BodyStream) -> Response {
        let content_type = stream.content_type().to_owned();
        let is_lines = content_type.starts_with("application/json");
        let (sender, chunks) = crossbeam_channel::bounded(CHUNKS_MAX);
        let number = self.n_streams.fetch_add(1, Ordering::Relaxed) % 1_000_000;
        let body = move || {
            if is_lines {
                forward_lines(stream, &sender);
            } else {
                forward_bytes(stream, &sender);
            }
        };
        // Not joined: the thread ends with the connection, which the test's stop signal closes.
        drop(Thread::spawn(
            &format!("forward-{number}"),
            &self.stop,
            body,
        ));
        let mut response = Response::stream(ChannelStream(chunks));
        response.content_type = content_type;
        response
    }
}

impl Handler for Forward {
    fn handle(&self, request: ApiRequest) -> Response {
        let verb = request.verb();
        let outgoing = outgoing(&request);
        let result = match verb {
            "watch" => {
                let opened = self.client.stream_client().open_watch(&outgoing);
                opened.map(|stream| self.stream(stream))
            }
            "list" => {
                let opened = self.client.stream_client().open_list(&outgoing);
                opened.map(|stream| self.stream(stream))
            }
            _ => {
                let received = self.client.send(&outgoing);
                received.map(|client::Response { code, body }| Response::json(code, body))
            }
        };
        result.unwrap_or_else(|error| match error {
            ClientError::Status(status) => Response::status(&status),
            error => {
                log::info!("could not forward {outgoing}: {error}");
                Response::cut()
            }
        })
    }
}

/// A stream of chunks that another thread sends. A closed channel means that the client has
/// disconnected.
#[derive(Debug)]
struct ChannelStream(Receiver<Vec<u8>>);

impl ChunkStream for ChannelStream {
    fn next(&mut self, timeout: Duration) -> Next {
        match self.0.recv_timeout(timeout) {
            Ok(chunk) => Next::Chunk(chunk),
            Err(RecvTimeoutError::Timeout) => Next::Idle,
            Err(RecvTimeoutError::Disconnected) => Next::End,
        }
    }
}

fn outgoing(request: &ApiRequest) -> Request {
    let path = request.path.as_str();
    let mut outgoing = match request.method.as_str() {
        "POST" => Request::post(path),
        "PUT" => Request::put(path),
        "PATCH" => Request::patch(path),
        "DELETE" => Request::delete(path),
        _ => Request::get(path),
    };
    for (name, value) in &request.query {
        outgoing = outgoing.query(name, value);
    }
    if matches!(request.verb(), "watch" | "list") {
        outgoing = outgoing.accept(request.header("accept").to_owned());
    }
    if request.body.is_empty() {
        return outgoing;
    }
    let content_type = request.header("content-type").to_owned();
    outgoing.body(content_type, request.body.clone())
}

/// Forwards one watch event per chunk, so that a fault never cuts an event in half.
fn forward_lines(stream: BodyStream, sender: &Sender<Vec<u8>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if sender.send(line).is_err() => return,
            Ok(_) => {}
        }
    }
}

fn forward_bytes(mut stream: BodyStream, sender: &Sender<Vec<u8>>) {
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                chunk.truncate(length);
                if sender.send(chunk).is_err() {
                    return;
                }
            }
        }
    }
}
