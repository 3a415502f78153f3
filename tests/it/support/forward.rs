//! Passes requests on to a real API server with the controller's credentials, so that the dev
//! server's recorder and faults can stand in front of it.
//!
//! Called on the threads of the proxy's connections; each watch and list has one more thread
//! (`forward-N`) that reads from the API server.

use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::Sender;
use replicaset_controller::client::{
    self, BodyStream, Client, ClientConfig, ClientError, ClientOptions, Request,
};
use replicaset_controller::devserver::{ApiCall, ApiRequest, ChannelStream, Handler, Response};
use replicaset_controller::stdx::stop::Stop;
use replicaset_controller::stdx::thread::Thread;

/// Pieces of an answer that wait for the proxy's client to read them; the thread that reads from the
/// API server waits when there are more.
const PIECES_WAITING: usize = 64;

/// Bytes of a list that are passed on at once.
const PIECE_BYTES: usize = 32 * 1024;

/// Answers as another API server does.
#[derive(Debug)]
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
            client: Client::new(config, &options, stop).expect("the options are the default ones"),
            stop: stop.clone(),
            n_streams: AtomicU64::new(0),
        }
    }

    /// Reads in a thread of its own, which ends with the answer, with the test, or when it has a
    /// piece for a client that is gone.
    fn stream(&self, stream: BodyStream) -> Response {
        let content_type = stream.content_type().to_owned();
        let is_lines = content_type.starts_with("application/json");
        let (sender, pieces) = crossbeam_channel::bounded(PIECES_WAITING);
        let number = self.n_streams.fetch_add(1, Ordering::Relaxed) % 1_000_000;
        let body = move || {
            if is_lines {
                pass_lines(stream, &sender);
            } else {
                pass_bytes(stream, &sender);
            }
        };
        // Nobody joins it: it ends with the connection, which the test's stop signal shuts.
        drop(Thread::spawn(
            &format!("forward-{number}"),
            &self.stop,
            body,
        ));
        let mut answer = Response::stream(ChannelStream(pieces));
        answer.content_type = content_type;
        answer
    }
}

impl Handler for Forward {
    fn handle(&self, request: ApiRequest) -> Response {
        let verb = request.verb();
        let outgoing = outgoing(&request);
        let answer = match verb {
            "watch" => {
                let opened = self.client.stream_client().open_watch(&outgoing);
                opened.map(|stream| self.stream(stream))
            }
            "list" => {
                let opened = self.client.stream_client().open_list(&outgoing);
                opened.map(|stream| self.stream(stream))
            }
            _ => {
                let answered = self.client.send(&outgoing);
                answered.map(|client::Response { code, body }| Response::json(code, body))
            }
        };
        answer.unwrap_or_else(|error| match error {
            ClientError::Status(status) => Response::status(&status),
            error => {
                log::info!("{outgoing} could not be passed on: {error}");
                Response::cut()
            }
        })
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

/// A frame of a watch at a time, so that faults never cut one in halves.
fn pass_lines(stream: BodyStream, sender: &Sender<Vec<u8>>) {
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

fn pass_bytes(mut stream: BodyStream, sender: &Sender<Vec<u8>>) {
    loop {
        let mut piece = vec![0; PIECE_BYTES];
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                piece.truncate(length);
                if sender.send(piece).is_err() {
                    return;
                }
            }
        }
    }
}
