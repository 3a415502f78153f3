//! Files that change under settings that are in use, on a clock that stands still.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use ureq::http::Uri;
use ureq::unversioned::transport::ShutdownHandle;

use super::{LiveTls, TlsSource};
use crate::client::pem::Pem;
use crate::client::tests::Authority;
use crate::stdx::clock::FakeClock;

fn server() -> Uri {
    Uri::from_static("https://it.example/")
}

/// Settings whose authority, certificate and key are files.
struct Files {
    folder: tempfile::TempDir,
    authority: Authority,
    clock: Arc<FakeClock>,
}

impl Files {
    fn new() -> Self {
        let files = Self {
            folder: tempfile::tempdir().expect("there is room"),
            authority: Authority::new(),
            clock: Arc::default(),
        };
        files.write("ca.crt", &files.authority.pem());
        files.rotate();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("there is room");
    }

    fn rotate(&self) {
        let (certificate, key) = self.authority.issue(&["me"]);
        self.write("me.crt", &certificate);
        self.write("me.key", &key);
    }

    fn source(&self) -> TlsSource {
        let file = |name: &'static str| Pem::File {
            name,
            path: self.path(name),
        };
        TlsSource {
            certificate_authority: Some(file("ca.crt")),
            identity: Some((file("me.crt"), file("me.key"))),
            ..TlsSource::default()
        }
    }

    fn live(&self) -> LiveTls {
        let live = LiveTls::new(&server(), self.source(), Arc::clone(&self.clock) as _);
        live.unwrap_or_else(|problem| panic!("{problem}"))
    }
}

#[derive(Default)]
struct Connection(AtomicBool);

impl ShutdownHandle for Connection {
    fn shutdown(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What new connections use; two are equal if nothing has changed.
fn settings(live: &LiveTls) -> Arc<rustls::ClientConfig> {
    Arc::clone(&live.current.load().server)
}

#[test]
fn a_new_certificate_is_found_after_five_minutes_and_cuts_watches() {
    let files = Files::new();
    let live = files.live();
    let connection = Arc::new(Connection::default());
    let handle: Arc<dyn ShutdownHandle> = Arc::clone(&connection) as _;
    live.cut_at_change(Arc::downgrade(&handle));
    files.rotate();
    files.clock.advance(Duration::from_secs(299));
    live.check_if_due();
    assert_eq!(live.generation(), 0);
    files.clock.advance(Duration::from_secs(1));
    live.check_if_due();
    assert_eq!(live.generation(), 1);
    assert!(connection.0.load(Ordering::SeqCst));
}

#[test]
fn a_new_certificate_is_found_when_a_connection_is_opened() {
    let files = Files::new();
    let live = files.live();
    let (_, _, before) = live.towards(&server()).expect("the files are good");
    files.rotate();
    let (_, _, after) = live.towards(&server()).expect("the files are good");
    assert_eq!((before, after), (0, 1));
}

#[test]
fn no_connection_shows_an_old_certificate_while_another_thread_reads_the_new_one() {
    let files = Files::new();
    let live = files.live();
    for round in 1..=20 {
        files.rotate();
        let barrier = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    let (_, _, generation) = live.towards(&server()).expect("the files are good");
                    assert_eq!(generation, round);
                });
            }
        });
    }
}

#[test]
fn a_certificate_without_its_key_is_waited_for() {
    let files = Files::new();
    let live = files.live();
    let before = settings(&live);
    let (certificate, key) = files.authority.issue(&["me"]);
    files.write("me.crt", &certificate);
    files.clock.advance(Duration::from_mins(5));
    live.check_if_due();
    for bad in ["", "not PEM"] {
        files.write("me.key", bad);
        drop(live.towards(&server()).expect("the old ones are good"));
    }
    fs::remove_file(files.path("me.key")).expect("it is there");
    drop(live.towards(&server()).expect("the old ones are good"));
    assert!(Arc::ptr_eq(&before, &settings(&live)));
    files.write("me.key", &key);
    files.clock.advance(Duration::from_secs(10));
    live.check_if_due();
    assert_eq!(live.generation(), 1);
}

#[test]
fn a_new_authority_counts_for_new_connections_and_a_bad_one_is_ignored() {
    let files = Files::new();
    let live = files.live();
    let before = settings(&live);
    for bad in ["", "not PEM"] {
        files.write("ca.crt", bad);
        files.clock.advance(Duration::from_mins(5));
        live.check_if_due();
        assert!(Arc::ptr_eq(&before, &settings(&live)));
    }
    files.write("ca.crt", &Authority::new().pem());
    files.clock.advance(Duration::from_secs(10));
    live.check_if_due();
    assert!(!Arc::ptr_eq(&before, &settings(&live)));
    assert_eq!(live.generation(), 0, "connections that are open stay");
}

#[test]
fn a_server_that_is_not_accepted_leads_to_a_look_at_the_authority() {
    let files = Files::new();
    let live = files.live();
    let before = settings(&live);
    files.write("ca.crt", &Authority::new().pem());
    live.server_not_accepted();
    assert!(!Arc::ptr_eq(&before, &settings(&live)));
    // Once, and then soon, however often it happens.
    let after = settings(&live);
    files.write("ca.crt", &Authority::new().pem());
    live.server_not_accepted();
    assert!(Arc::ptr_eq(&after, &settings(&live)));
    files.clock.advance(Duration::from_secs(10));
    live.check_if_due();
    assert!(!Arc::ptr_eq(&after, &settings(&live)));
}

#[test]
fn what_a_plugin_gives_is_presented_and_outlives_a_new_authority() {
    let files = Files::new();
    let source = TlsSource {
        identity: None,
        ..files.source()
    };
    let live = LiveTls::new(&server(), source, Arc::clone(&files.clock) as _);
    let live = live.unwrap_or_else(|problem| panic!("{problem}"));
    let identity =
        |(certificate, key): (String, String)| (certificate.into_bytes(), key.into_bytes());
    let first = identity(files.authority.issue(&["me"]));
    for _ in 0..2 {
        assert_eq!(live.present(Some(&first), 0), Ok(true));
        assert_eq!(live.generation(), 1);
    }
    files.write("ca.crt", &Authority::new().pem());
    files.clock.advance(Duration::from_mins(5));
    live.check_if_due();
    assert!(settings(&live).client_auth_cert_resolver.has_certs());
    let broken = (first.0.clone(), b"not PEM".to_vec());
    let problem = live.present(Some(&broken), 0).expect_err("it is bad");
    assert!(problem.contains("client key"), "{problem}");
    assert_eq!(live.generation(), 1);
}

#[test]
fn replacing_changes_all_or_nothing() {
    let files = Files::new();
    let live = files.live();
    let replaced = live.replace(&files.source(), None, 1);
    assert_eq!(replaced, Ok(Vec::new()));
    files.rotate();
    files.write("ca.crt", "not PEM");
    let before = settings(&live);
    assert!(live.replace(&files.source(), None, 1).is_err());
    assert!(Arc::ptr_eq(&before, &settings(&live)));
    files.write("ca.crt", &Authority::new().pem());
    let replaced = live.replace(&files.source(), None, 1);
    assert_eq!(
        replaced,
        Ok(vec!["client certificate", "certificate authority"])
    );
}

#[test]
fn a_key_of_a_kind_that_cannot_be_used_is_named() {
    // Made by: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-521
    let key = include_str!("../tests/p521.key");
    let files = Files::new();
    files.write("me.key", key);
    let live = LiveTls::new(&server(), files.source(), Arc::clone(&files.clock) as _);
    let problem = live.expect_err("it is not known");
    assert!(problem.contains("P-256"), "{problem}");
}
