//! Requests through a proxy.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::plain::OpenFor;
use super::secure::{Authority, base64, kubeconfig, load};
use super::server::{Reply, Server, response};
use super::{check_within, client, unlimited};
use crate::client::{ClientOptions, Request};
use crate::stdx::stop::Stop;
use crate::stdx::thread::spawn;

#[test]
fn a_tunnel_carries_tls_and_the_proxy_resolves_the_name() {
    let authority = Authority::new();
    let proxy = Server::proxy(authority.server(&["cluster.invalid"], None), |received| {
        if received.first_line.starts_with("CONNECT") {
            Reply::WriteAndTunnel(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())
        } else {
            Reply::Write(response(200, "", "ok"))
        }
    });
    let ca = base64(&authority.pem());
    let url = proxy.url().replace("http://", "http://us%40er:se%3Acret@");
    let cluster = [
        ("certificate-authority-data", ca.as_str()),
        ("proxy-url", &url),
    ];
    let config = load(&kubeconfig(
        "https://cluster.invalid:6443",
        &cluster,
        &[("token", "t")],
    ));
    let config = config.expect("the kubeconfig is good");
    assert!(!format!("{config:?}").contains("cret"));
    let (client, _) = client(&config, &unlimited());
    for _ in 0..2 {
        client.send(&Request::get("/a")).expect("it gets through");
    }
    let (connect, get) = (proxy.next(), proxy.next());
    assert_eq!(connect.first_line, "CONNECT cluster.invalid:6443 HTTP/1.1");
    assert_eq!(
        connect.all("proxy-authorization"),
        [format!("Basic {}", base64("us@er:se:cret"))]
    );
    assert_eq!(connect.all("authorization"), [""; 0]);
    assert_eq!(get.first_line, "GET /a HTTP/1.1");
    assert_eq!(get.all("authorization"), ["Bearer t"]);
    assert_eq!(get.server_name.as_deref(), Some("cluster.invalid"));
    assert_eq!(proxy.remaining().len(), 1);
}

#[test]
fn a_proxy_that_rejects_means_that_nothing_was_sent() {
    let proxy = Server::plain(|_| Reply::WriteAndClose(response(403, "", "no")));
    let url = proxy.url();
    let cluster = [
        ("insecure-skip-tls-verify", "true"),
        ("proxy-url", url.as_str()),
    ];
    let config = load(&kubeconfig("https://cluster.invalid:6443", &cluster, &[]));
    let (client, _) = client(&config.expect("the kubeconfig is good"), &unlimited());
    let error = client
        .send(&Request::get("/a"))
        .expect_err("the proxy rejects it");
    assert!(error.is_unsent() && error.status().is_none(), "{error:?}");
    assert!(error.to_string().contains("403"), "{error}");
}

#[test]
fn tls_has_what_the_proxy_leaves_of_the_connect_timeout() {
    let proxy = Server::plain(|_| {
        Stop::new().wait_timeout(Duration::from_millis(1500));
        Reply::WriteAndHold(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())
    });
    let url = proxy.url();
    let cluster = [
        ("insecure-skip-tls-verify", "true"),
        ("proxy-url", url.as_str()),
    ];
    let config = load(&kubeconfig("https://cluster.invalid:6443", &cluster, &[]));
    let options = ClientOptions {
        request_timeout: Duration::from_secs(2),
        ..unlimited()
    };
    let (client, _) = client(&config.expect("the kubeconfig is good"), &options);
    check_within(Duration::from_secs(3), || {
        let error = client
            .send(&Request::get("/a"))
            .expect_err("nobody talks TLS");
        assert!(error.is_unsent(), "{error:?}");
        assert!(error.to_string().contains("in time"), "{error}");
    });
}

/// Serves one exchange as a SOCKS 5 proxy: requires `login`, if it is not empty, and responds as if
/// it had reached the requested host. Returns that host's name, and how the connection ends.
fn socks(mut stream: TcpStream, login: &[u8]) -> std::io::Result<(String, std::io::Result<usize>)> {
    let mut greeting = [0; 2];
    stream.read_exact(&mut greeting)?;
    let mut methods = vec![0; greeting[1].into()];
    stream.read_exact(&mut methods)?;
    if login.is_empty() {
        stream.write_all(&[5, 0])?;
    } else {
        assert_eq!(methods, [0, 2]);
        stream.write_all(&[5, 2])?;
        let mut given = vec![0; login.len()];
        stream.read_exact(&mut given)?;
        assert_eq!(given, login);
        stream.write_all(&[1, 0])?;
    }
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    assert_eq!(
        head[..4],
        [5, 1, 0, 3],
        "it requests a connection to a name"
    );
    let mut name_and_port = vec![0; usize::from(head[4]) + 2];
    stream.read_exact(&mut name_and_port)?;
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    let mut request = [0; 4096];
    let _some = stream.read(&mut request)?;
    stream.write_all(&response(200, "", "ok"))?;
    name_and_port.truncate(head[4].into());
    let name = String::from_utf8(name_and_port).expect("names are text");
    Ok((name, stream.read(&mut request)))
}

/// The client connects to the proxy as to a server: a leader that ends discards what it has not
/// delivered.
#[test]
fn a_socks_proxy_resolves_the_name() {
    for (user, login) in [
        ("", &b""[..]),
        ("us%40er:se%3Acret@", b"\x01\x05us@er\x07se:cret"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let (sender, names) = crossbeam_channel::bounded(1);
        let thread = spawn("t-socks", &Stop::new(), move || {
            let (stream, _) = listener.accept().expect("the client comes");
            let served = socks(stream, login);
            sender.send(served).expect("the test waits for it");
        });
        let proxy = format!("socks5://{user}{address}");
        let cluster = [("proxy-url", proxy.as_str())];
        let config = load(&kubeconfig("http://cluster.invalid", &cluster, &[]));
        let options = ClientOptions {
            fence: Some(Arc::new(OpenFor(AtomicUsize::new(usize::MAX)))),
            ..unlimited()
        };
        let (client, stop) = client(&config.expect("the kubeconfig is good"), &options);
        client.send(&Request::get("/a")).expect("it gets through");
        drop((client, stop));
        let served = names.recv_timeout(super::PATIENCE);
        let served = served.expect("the proxy got a request");
        let (name, end) = served.expect("nothing broke");
        assert_eq!(name, "cluster.invalid");
        let end = end.map_err(|error| error.kind());
        assert_eq!(end, Err(ErrorKind::ConnectionReset));
        thread.join().expect("the proxy does not panic");
    }
}

/// The thread `lease` must not wait for hours while it neither leads nor ends.
#[test]
fn a_proxy_that_responds_byte_by_byte_has_the_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = listener.local_addr().expect("it is bound");
    let thread = spawn("t-drip", &Stop::new(), move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        let _connect = stream.read(&mut [0; 4096]);
        let mut bytes = response(200, "", "");
        bytes.extend(response(200, "", "ok"));
        // The client may leave.
        for byte in bytes {
            Stop::new().wait_timeout(Duration::from_millis(100));
            if stream.write_all(&[byte]).is_err() {
                return;
            }
        }
        stream.read(&mut [0; 4096]).unwrap_or_default();
    });
    let proxy = format!("http://{address}");
    let cluster = [("proxy-url", proxy.as_str())];
    let config = load(&kubeconfig("http://cluster.invalid", &cluster, &[]));
    let options = ClientOptions {
        request_timeout: Duration::from_secs(1),
        ..unlimited()
    };
    let (client, _) = client(&config.expect("the kubeconfig is good"), &options);
    let error = client
        .send(&Request::get("/a"))
        .expect_err("it takes seconds");
    assert!(error.is_unsent(), "{error:?}");
    assert!(error.to_string().contains("in time"), "{error}");
    thread.join().expect("the proxy does not panic");
}

/// Serves one exchange as a proxy with TLS and as the server behind it. Returns the request line of
/// the tunnel.
fn tls_proxy(stream: TcpStream, outer: Arc<ServerConfig>, inner: Arc<ServerConfig>) -> String {
    let outer = ServerConnection::new(outer).expect("the configuration is good");
    let mut tunnel = BufReader::new(StreamOwned::new(outer, stream));
    let mut connect = String::new();
    let mut read_head = |reader: &mut dyn BufRead| loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("the head is complete");
        if line.trim().is_empty() {
            break;
        }
        connect.push_str(&line);
    };
    read_head(&mut tunnel);
    let mut tunnel = tunnel.into_inner();
    let established = b"HTTP/1.1 200 OK\r\n\r\n";
    tunnel.write_all(established).expect("the client reads");
    let inner = ServerConnection::new(inner).expect("the configuration is good");
    let mut server = BufReader::new(StreamOwned::new(inner, tunnel));
    read_head(&mut server);
    let reply = response(200, "", "ok");
    server
        .get_mut()
        .write_all(&reply)
        .expect("the client reads");
    connect
}

#[test]
fn a_connection_to_the_proxy_may_use_tls() {
    let authority = Authority::new();
    let outer = authority.server(&["localhost"], None);
    let inner = authority.server(&["cluster.invalid"], None);
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let (sender, heads) = crossbeam_channel::bounded(1);
    let thread = spawn("t-proxy", &Stop::new(), move || {
        let (stream, _) = listener.accept().expect("the client comes");
        let heads = tls_proxy(stream, outer, inner);
        sender.send(heads).expect("the test waits for it");
    });
    let (ca, proxy) = (
        base64(&authority.pem()),
        format!("https://localhost:{port}"),
    );
    let cluster = [
        ("certificate-authority-data", ca.as_str()),
        ("proxy-url", proxy.as_str()),
    ];
    let user = [("token", "t")];
    let config = load(&kubeconfig("https://cluster.invalid:6443", &cluster, &user));
    let (client, _) = client(&config.expect("the kubeconfig is good"), &unlimited());
    client.send(&Request::get("/a")).expect("it gets through");
    let heads = heads
        .recv_timeout(super::PATIENCE)
        .expect("both got a request");
    let (connect, get) = heads.split_once("GET ").expect("a tunnel, then a request");
    assert!(
        connect.starts_with("CONNECT cluster.invalid:6443 "),
        "{heads}"
    );
    assert!(
        get.contains("Bearer t") && !connect.contains("Bearer"),
        "{heads}"
    );
    thread.join().expect("the proxy does not panic");
}

#[test]
fn a_proxy_s_bad_certificate_is_named_as_the_proxy_s() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let proxy = Server::tls(foreign.server(&["127.0.0.1"], None), |_| {
        Reply::Write(response(200, "", ""))
    });
    let (ca, url) = (base64(&authority.pem()), proxy.url());
    let cluster = [
        ("certificate-authority-data", ca.as_str()),
        ("proxy-url", url.as_str()),
    ];
    let config = load(&kubeconfig("https://cluster.invalid:6443", &cluster, &[]));
    let (client, _) = client(&config.expect("the kubeconfig is good"), &unlimited());
    let error = client
        .send(&Request::get("/a"))
        .expect_err("another authority");
    let text = error.to_string();
    assert!(
        text.contains("the proxy's certificate is not accepted"),
        "{text}"
    );
}
