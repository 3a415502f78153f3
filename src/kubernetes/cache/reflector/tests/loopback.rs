//! One reflector with a real client and a real socket: its requests on the wire, and the end of a
//! blocked read.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

use super::script::{added, closing_bookmark, streaming};
use crate::api::Pod;
use crate::cache::decode::ContentType;
use crate::cache::reflector::{Collection, Handler, Reflector, ReflectorParts};
use crate::cache::{CacheEvent, PodStore};
use crate::client::{Client, ClientConfig, ClientOptions};
use crate::stdx::clock::SystemClock;
use crate::stdx::stop::{Cause, Stop};
use crate::stdx::thread::spawn;

/// Timeout of each step of this test.
const PATIENCE: Duration = Duration::from_mins(2);

/// Says when the store has reached a position. The channel has room for all of them.
struct Positions(Sender<()>);

impl Handler<Pod> for Positions {
    fn on_event(&mut self, _event: &CacheEvent<Pod>) {}

    fn on_position(&mut self) {
        self.0.send(()).expect("the test listens");
    }
}

/// Sends these messages in response to the first request and leaves the watch open until the client
/// closes it. The channel delivers the request's head, and an empty head once the watch is closed.
fn serve(listener: TcpListener, messages: Vec<String>, stop: &Stop) -> Receiver<Vec<String>> {
    let (sender, heads) = crossbeam_channel::bounded(2);
    let body = move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
        let head = lines.by_ref().map(|line| line.expect("a request"));
        let head = head.take_while(|line| !line.is_empty()).collect();
        sender.send(head).expect("the test listens");
        let headers = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                       Transfer-Encoding: chunked\r\n\r\n";
        stream
            .write_all(headers.as_bytes())
            .expect("the client reads");
        for message in messages {
            let chunk = format!("{:x}\r\n{message}\n\r\n", message.len() + 1);
            stream
                .write_all(chunk.as_bytes())
                .expect("the client reads");
        }
        // The connection may end by a FIN or by a reset.
        drop(lines.next());
        sender.send(Vec::new()).expect("the test listens");
    };
    drop(spawn("t-server", stop, body));
    heads
}

#[test]
fn j_07_a_stop_ends_the_thread_in_a_blocked_read() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let stop = Stop::new();
    let heads = serve(listener, vec![added("p1@1"), closing_bookmark("7")], &stop);

    let config = ClientConfig::plain(&format!("http://{address}"));
    let client = Client::new(&config, &ClientOptions::default(), &stop);
    let accept = ContentType::default().accept();
    let collection = Collection::new(client.stream_client(), "/api/v1/namespaces/n/pods", accept);
    let store = Arc::new(PodStore::new());
    let (sender, positions) = crossbeam_channel::bounded(16);
    let reflector = Reflector::<Pod>::new(
        streaming(),
        ReflectorParts {
            store: Arc::clone(&store),
            source: Box::new(collection),
            handler: Box::new(Positions(sender)),
            stats: Arc::default(),
            pace: Arc::new(SystemClock),
            if_forbidden: None,
            stop: stop.clone(),
        },
        || 0.0,
    );
    let thread = spawn("watch-pods", &stop, move || reflector.run());

    assert_eq!(positions.recv_timeout(PATIENCE), Ok(()));
    assert_eq!(store.resource_version(), "7".into());
    assert!(store.has_synced());
    assert_eq!(store.len(), 1);
    let head = heads.recv_timeout(PATIENCE).expect("a request");
    let expected = "GET /api/v1/namespaces/n/pods?watch=true&sendInitialEvents=true&\
        resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=300 HTTP/1.1";
    assert_eq!(head.first().map(String::as_str), Some(expected));
    let accept = format!("accept: {accept}");
    assert!(
        head.iter().any(|line| line.eq_ignore_ascii_case(&accept)),
        "{head:?}"
    );

    stop.stop(Cause::Requested("test".to_owned()));
    assert_eq!(heads.recv_timeout(PATIENCE), Ok(Vec::new()));
    assert!(
        positions.recv_timeout(PATIENCE).is_err(),
        "no further position is delivered"
    );
    thread.join().expect("the thread ends");
}
