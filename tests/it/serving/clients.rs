//! Clients that cost the HTTPS pages much: chains of certificates that take long to verify, and
//! requests that need reviews. A monitor beside them gets its metrics.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use replicaset_controller::client::ClientConfig;
use replicaset_controller::serving::CertificateFiles;
use replicaset_controller::stdx::stop::Latch;
use replicaset_controller::stdx::tls::{certified_key, provider};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use super::ports::Connection as _;
use super::{Authority, DnType, Front, token, write};
use crate::support::{Reply, ScriptedServer, Waiting};

/// How long a client waits for an answer that must come.
const PATIENCE: Duration = Duration::from_mins(2);

const GET: &[u8] = b"GET /flagz HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Pages that trust client certificates of `authority` and have a certificate of it.
fn front(folder: &std::path::Path, authority: &Authority) -> Front {
    let (certificate, key) = authority.issue(&[(DnType::CommonName, "localhost")]);
    let files = CertificateFiles {
        serving: Some((
            write(folder, "tls.crt", &certificate),
            write(folder, "tls.key", &key),
        )),
        client_ca: Some(write(folder, "ca.crt", &authority.0.pem())),
    };
    Front::start(&ClientConfig::plain("http://127.0.0.1:1"), files)
}

/// A TLS connection with this identity, of a client that trusts `authority`.
fn connect(
    front: &Front,
    authority: &Authority,
    (chain, key): (&str, &str),
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.0.der().clone()).expect("a root");
    let identity = certified_key(("chain", chain.as_bytes()), ("key", key.as_bytes()));
    let identity = SingleCertAndKey::from(identity.expect("they belong together"));
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(identity));
    let name = "localhost".try_into().expect("a name");
    let tls = ClientConnection::new(Arc::new(config), name).expect("a good configuration");
    let tcp = TcpStream::connect(front.address).expect("it listens");
    tcp.set_read_timeout(Some(PATIENCE)).expect("not zero");
    StreamOwned::new(tls, tcp)
}

#[test]
fn rejected_certificates_and_long_chains_end_the_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let (known, unknown) = (Authority::new(), Authority::new());
    let front = front(folder.path(), &known);
    let subject = [
        (DnType::CommonName, "alice"),
        (DnType::OrganizationName, "system:masters"),
    ];
    let (good, key) = known.issue(&subject);
    let mut connection = connect(&front, &known, (&good, &key));
    for _ in 0..2 {
        connection.write_all(GET).expect("the connection is open");
        let mut start = [0; 12];
        connection.read_exact(&mut start).expect("an answer");
        assert_eq!(&start, b"HTTP/1.1 200");
        let mut rest = [0; 16 << 10];
        let _page = connection.read(&mut rest).expect("the page");
    }
    assert_eq!(connection.conn.tls13_tickets_received(), 0);

    let (forged, forged_key) = unknown.issue(&subject);
    let mut connection = connect(&front, &known, (&forged, &forged_key));
    connection.write_all(&GET.repeat(3)).expect("it is sent");
    let answers = connection.rest();
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
    assert!(answers.starts_with("HTTP/1.1 401 "), "{answers}");

    for chain in [good.repeat(6), good.clone() + &known.0.pem().repeat(5)] {
        let mut connection = connect(&front, &known, (&chain, &key));
        // The daemon may have closed the connection already.
        connection.write_all(GET).unwrap_or_default();
        assert_eq!(connection.rest(), "");
    }
    let mut connection = connect(&front, &known, (&good.repeat(5), &key));
    connection.write_all(GET).expect("it is sent");
    connection.end();
    assert!(connection.rest().starts_with("HTTP/1.1 200 "));
}

/// Answers reviews: any token is a monitor's, which may read everything. Reviews of others wait for
/// `release`.
fn reviewer(release: Arc<Latch>, n_held: Arc<AtomicUsize>) -> ScriptedServer {
    ScriptedServer::start(move |asked| {
        let mut review: Value = serde_json::from_slice(&asked.body).ok()?;
        review["status"] = if asked.path.ends_with("/tokenreviews") {
            json!({"authenticated": true, "user": {"username": "monitor"}})
        } else if review["spec"]["user"] == "monitor" {
            json!({"allowed": true})
        } else {
            n_held.fetch_add(1, Ordering::SeqCst);
            release.wait_timeout(PATIENCE);
            json!({"allowed": false})
        };
        Some(Reply::whole("201 Created", "", review.to_string()))
    })
}

#[test]
fn an_anonymous_flood_does_not_keep_a_monitor_out() {
    let (release, n_held) = (Arc::<Latch>::default(), Arc::<AtomicUsize>::default());
    let server = reviewer(Arc::clone(&release), Arc::clone(&n_held));
    let front = Front::start(
        &ClientConfig::plain(&server.url()),
        CertificateFiles::default(),
    );
    let nobody = json!({});
    for path in ["/nowhere", "/METRICS", "//metrics"] {
        assert_eq!(front.get(&nobody, path).0, 404, "{path}");
    }
    assert_eq!(
        server.asked().len(),
        0,
        "a path without a page has no review"
    );
    let n_failed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..20 {
            let (front, nobody, n_failed) = (&front, &nobody, &n_failed);
            scope.spawn(move || {
                if front.get(nobody, &format!("/debug/pprof/{number}")).0 == 500 {
                    n_failed.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        Waiting::new(server.stop()).eventually("each request waits or has failed", || {
            n_held.load(Ordering::SeqCst) + n_failed.load(Ordering::SeqCst) >= 20
        });
        for monitor in ["one", "another"] {
            let (code, body) = front.get(&token(monitor), "/metrics");
            assert_eq!(code, 200, "{body}");
        }
        release.set();
    });
}
