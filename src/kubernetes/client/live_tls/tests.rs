//! Certificate files that change while their settings are in use, on a fake clock.

use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use std::{fs, thread};

use ureq::http::Uri;

use super::{LiveTls, TlsSource};
use crate::client::live_tls::Pem;
use crate::client::tests::Authority;
use crate::stdx::testing::FakeClock;

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

/// The settings of new connections. They are pointer-equal if nothing has changed.
fn settings(live: &LiveTls) -> Arc<rustls::ClientConfig> {
    Arc::clone(&live.current.load().server)
}

#[test]
fn a_new_certificate_is_used_after_5_minutes() {
    let files = Files::new();
    let live = files.live();
    files.rotate();
    files.clock.advance(Duration::from_secs(299));
    live.check_if_due();
    assert_eq!(live.generation(), 0);
    files.clock.advance(Duration::from_secs(1));
    live.check_if_due();
    assert_eq!(live.generation(), 1);
}

#[test]
fn a_new_connection_uses_the_new_certificate() {
    let files = Files::new();
    let live = files.live();
    let (_, _, before) = live.settings_for(&server()).expect("the files are good");
    files.rotate();
    let (_, _, after) = live.settings_for(&server()).expect("the files are good");
    assert_eq!((before, after), (0, 1));
}

#[test]
fn concurrent_connections_never_use_an_old_certificate() {
    let files = Files::new();
    let live = files.live();
    for round in 1..=20 {
        files.rotate();
        let barrier = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    let (_, _, generation) =
                        live.settings_for(&server()).expect("the files are good");
                    assert_eq!(generation, round);
                });
            }
        });
    }
}

#[test]
fn the_old_certificate_stays_until_the_new_key_is_valid() {
    let files = Files::new();
    let live = files.live();
    let before = settings(&live);
    let (certificate, key) = files.authority.issue(&["me"]);
    files.write("me.crt", &certificate);
    files.clock.advance(Duration::from_mins(5));
    live.check_if_due();
    for bad in ["", "not PEM"] {
        files.write("me.key", bad);
        drop(live.settings_for(&server()).expect("the old ones are good"));
    }
    fs::remove_file(files.path("me.key")).expect("it is there");
    drop(live.settings_for(&server()).expect("the old ones are good"));
    assert!(Arc::ptr_eq(&before, &settings(&live)));
    files.write("me.key", &key);
    files.clock.advance(Duration::from_secs(10));
    live.check_if_due();
    assert_eq!(live.generation(), 1);
}

#[test]
fn new_connections_use_a_new_authority_unless_it_is_invalid() {
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
fn a_rejected_server_certificate_triggers_a_check() {
    let files = Files::new();
    let live = files.live();
    let before = settings(&live);
    files.write("ca.crt", &Authority::new().pem());
    live.server_certificate_rejected();
    assert!(!Arc::ptr_eq(&before, &settings(&live)));
    // The next check follows 10 s later, however often handshakes fail.
    let after = settings(&live);
    files.write("ca.crt", &Authority::new().pem());
    live.server_certificate_rejected();
    assert!(Arc::ptr_eq(&after, &settings(&live)));
    files.clock.advance(Duration::from_secs(10));
    live.check_if_due();
    assert!(!Arc::ptr_eq(&after, &settings(&live)));
}

#[test]
fn a_broken_identity_does_not_postpone_a_new_authority() {
    let files = Files::new();
    let live = files.live();
    let before = settings(&live);
    files.write("me.key", "not PEM");
    for _ in 0..3 {
        // Each new connection reads the identity.
        live.settings_for(&server()).expect("the old one stays");
        files.write("ca.crt", &Authority::new().pem());
        files.clock.advance(Duration::from_secs(4));
        live.check_if_due();
    }
    assert!(!Arc::ptr_eq(&before, &settings(&live)));
}

#[test]
fn a_plugins_identity_survives_a_new_authority() {
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
        assert_eq!(live.present(Some(&first)), Ok(()));
        assert_eq!(live.generation(), 1);
    }
    files.write("ca.crt", &Authority::new().pem());
    files.clock.advance(Duration::from_mins(5));
    live.check_if_due();
    assert!(settings(&live).client_auth_cert_resolver.has_certs());
    let broken = (first.0.clone(), b"not PEM".to_vec());
    let problem = live.present(Some(&broken)).expect_err("it is bad");
    assert!(problem.contains("client key"), "{problem}");
    assert_eq!(live.generation(), 1);
}

#[test]
fn replacing_changes_all_or_nothing() {
    let files = Files::new();
    let live = files.live();
    let replaced = live.replace(&files.source(), None);
    assert_eq!(replaced, Ok(Vec::new()));
    files.rotate();
    files.write("ca.crt", "not PEM");
    let before = settings(&live);
    assert!(live.replace(&files.source(), None).is_err());
    assert!(Arc::ptr_eq(&before, &settings(&live)));
    files.write("ca.crt", &Authority::new().pem());
    let replaced = live.replace(&files.source(), None);
    assert_eq!(
        replaced,
        Ok(vec!["client certificate", "certificate authority"])
    );
}

#[test]
fn a_problem_that_went_away_is_logged_again() {
    let files = Files::new();
    let live = files.live();
    let problems_with = |authority: Option<&str>| {
        match authority {
            Some(pem) => files.write("ca.crt", pem),
            None => fs::remove_file(files.path("ca.crt")).expect("it is there"),
        }
        files.clock.advance(Duration::from_mins(5));
        live.check_if_due();
        live.state.lock().problems.len()
    };
    let same = files.authority.pem();
    assert_eq!([None, Some(&*same), None].map(problems_with), [1, 0, 1]);
}
