//! Credentials that change under clients in use: certificates in files, plugins, a reload.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use super::secure::{Authority, base64, kubeconfig};
use super::server::{Received, Reply, Server, chunked, response};
use super::{PATIENCE, carried_by, client, unlimited, write_executable};
use crate::client::{ClientConfig, ClientError, ConfigSource, Environment, Request};
use crate::stdx::stop::Stop;
use crate::stdx::thread::spawn;

/// A folder with a kubeconfig and the files that it names.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("there is room"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file atomically, so that no reader sees a part of it.
    fn write(&self, name: &str, text: &str) {
        write_executable(&self.path("new"), text);
        fs::rename(self.path("new"), self.path(name)).expect("there is room");
    }

    fn load(&self) -> ClientConfig {
        let source = ConfigSource {
            kubeconfig: Some(self.path("config")),
            ..ConfigSource::default()
        };
        let environment = Environment::new([("PATH", "/usr/bin:/bin")], "");
        match ClientConfig::load_from(&source, &environment) {
            Ok(config) => config,
            Err(error) => panic!("{error}"),
        }
    }

    /// Writes a plugin that issues the status in the file `status`. Returns the kubeconfig's user.
    fn plugin(&self, status: &str) -> &'static str {
        self.write("status", status);
        self.write(
            "plugin",
            "#!/bin/sh\necho x >> \"${0%/*}/runs\"\n\
             printf '{\"kind\": \"ExecCredential\", \
             \"apiVersion\": \"client.authentication.k8s.io/v1\", \"status\": '\n\
             cat \"${0%/*}/status\"\necho '}'\n",
        );
        "{apiVersion: client.authentication.k8s.io/v1, command: ./plugin, interactiveMode: Never}"
    }

    fn n_runs(&self) -> usize {
        let runs = fs::read_to_string(self.path("runs"));
        runs.map_or(0, |runs| runs.lines().count())
    }
}

/// Credentials are sent through TLS only.
const CLUSTER: [(&str, &str); 1] = [("insecure-skip-tls-verify", "true")];

fn secure(reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Server {
    Server::tls(Authority::new().server(&["127.0.0.1"], None), reply)
}

const FILES: [(&str, &str); 2] = [("client-certificate", "me.crt"), ("client-key", "me.key")];

#[test]
fn a_new_certificate_needs_new_connections_and_ends_watches() {
    let authority = Authority::new();
    let reply = |received: &Received| {
        if received.first_line.contains("watch") {
            Reply::WriteAndHold(chunked(&["{}\n"]))
        } else {
            Reply::Write(response(200, "", "ok"))
        }
    };
    let server = Server::tls(authority.server(&["127.0.0.1"], Some(&authority)), reply);
    let home = Home::new();
    let rotate = || {
        let (certificate, key) = authority.issue(&["me"]);
        home.write("me.crt", &certificate);
        home.write("me.key", &key);
    };
    rotate();
    let ca = base64(&authority.pem());
    let cluster = [("certificate-authority-data", ca.as_str())];
    home.write("config", &kubeconfig(&server.url(), &cluster, &FILES));
    let config = home.load();
    let (client, stop) = client(&config, &unlimited());
    let get = || {
        client
            .send(&Request::get("/a"))
            .expect("the server knows us");
        server.next().connection
    };
    let streams = client.stream_client();
    let watch = || {
        let stream = streams.open_watch(&Request::get("/watch"));
        stream.expect("the server knows us")
    };
    let mut watched = watch();
    let watching = server.next().connection;
    let first = get();
    assert_eq!(get(), first, "a connection is used again");

    assert!(
        config
            .reload(&stop)
            .expect("nothing is wrong")
            .contains("nothing has changed")
    );
    assert_eq!(get(), first);

    rotate();
    let changes = config.reload(&stop).expect("nothing is wrong");
    assert!(changes.contains("changed: client certificate"), "{changes}");
    assert_ne!(get(), first);
    let mut line = String::new();
    let cut = std::io::Read::read_to_string(&mut watched, &mut line);
    let cut = carried_by(cut.expect_err("it was cut"));
    assert!(cut.is_closed(), "{cut}");
    drop(watch());
    assert_ne!(server.next().connection, watching);

    home.write("me.key", "not PEM");
    let wrong = config.reload(&stop).expect_err("the key is bad");
    assert!(
        wrong.contains("context \"it\"") && wrong.contains("client key"),
        "{wrong}"
    );
    get();
}

#[test]
fn a_server_that_was_not_verified_is_verified_after_a_reload() {
    let server = secure(|_| Reply::Write(response(200, "", "ok")));
    let home = Home::new();
    home.write("config", &kubeconfig(&server.url(), &CLUSTER, &[]));
    let config = home.load();
    let (client, stop) = client(&config, &unlimited());
    client
        .send(&Request::get("/a"))
        .expect("it is not verified");
    let other = base64(&Authority::new().pem());
    let cluster = [("certificate-authority-data", other.as_str())];
    home.write("config", &kubeconfig(&server.url(), &cluster, &[]));
    config.reload(&stop).expect("nothing is wrong");
    let sent = client.send(&Request::get("/b"));
    sent.expect_err("another authority has signed its certificate");
}

#[test]
fn a_reload_applies_the_kubeconfig_unless_it_is_invalid() {
    let server = secure(|_| Reply::Write(response(200, "", "ok")));
    let home = Home::new();
    let write = |token: &str| {
        home.write(
            "config",
            &kubeconfig(&server.url(), &CLUSTER, &[("token", token)]),
        );
    };
    write("one");
    let config = home.load();
    let (client, stop) = client(&config, &unlimited());
    let check = |token: &str| {
        client
            .send(&Request::get("/a"))
            .expect("there is a response");
        assert_eq!(
            server.next().all("authorization"),
            [format!("Bearer {token}")]
        );
    };
    check("one");
    write("two");
    let changes = config.reload(&stop).expect("it is good");
    assert!(
        changes.contains("changed: token") && !changes.contains("two"),
        "{changes}"
    );
    check("two");
    home.write("config", "hunter2: [");
    let wrong = config.reload(&stop).expect_err("it is broken");
    assert!(
        wrong.contains("not valid") && !wrong.contains("hunter2"),
        "{wrong}"
    );
    check("two");
    home.write(
        "config",
        &kubeconfig("https://elsewhere.invalid", &CLUSTER, &[("token", "three")]),
    );
    let moved = config
        .reload(&stop)
        .expect_err("the token is for another server");
    assert!(moved.contains("after a restart"), "{moved}");
    check("two");
}

/// No URL is printed with what may be a password. Both are printed the same.
#[test]
fn another_server_is_known_whatever_its_path() {
    let home = Home::new();
    let write = |url| home.write("config", &kubeconfig(url, &CLUSTER, &[("token", "t")]));
    write("https://one.invalid/me@cluster");
    let config = home.load();
    config.reload(&Stop::new()).expect("it is the same");
    write("https://two.invalid/you@cluster");
    let moved = config.reload(&Stop::new());
    assert!(moved.is_err_and(|moved| moved.contains("after a restart")));
}

#[test]
fn a_plugin_runs_again_after_the_server_rejected_its_token() {
    let is_new = |received: &Received| received.all("authorization") == ["Bearer new"];
    let server = secure(move |received| {
        let code = if is_new(received) { 200 } else { 401 };
        Reply::Write(response(code, "", "{}"))
    });
    let home = Home::new();
    let exec = home.plugin(r#"{"token": "old"}"#);
    home.write(
        "config",
        &kubeconfig(&server.url(), &CLUSTER, &[("exec", exec)]),
    );
    let config = home.load();
    assert!(!format!("{config:?}").contains("old"));
    let (client, stop) = client(&config, &unlimited());
    let post = Request::post("/a").body("application/json", "{}");
    let error = client.send(&post).expect_err("it is rejected");
    assert_eq!(error.status().map(crate::api::Status::code), Some(401));
    home.write("status", r#"{"token": "new"}"#);
    // The plugin does not run again within a second of its last run.
    assert!(!stop.wait_timeout(std::time::Duration::from_millis(1100)));
    client.send(&post).expect("the plugin was run again");
    client.send(&post).expect("what it gave is kept");
    assert_eq!(home.n_runs(), 2);

    let changes = config.reload(&stop).expect("the plugin works");
    assert!(changes.contains("nothing has changed"), "{changes}");
    assert_eq!(home.n_runs(), 3, "a reload runs it");
    home.write("status", "hunter2");
    let wrong = config.reload(&stop).expect_err("the plugin is broken");
    assert!(
        wrong.contains("credential plugin") && !wrong.contains("hunter2"),
        "{wrong}"
    );
    client.send(&post).expect("what it gave before is kept");
}

#[test]
fn a_plugin_that_fails_sends_nothing() {
    let server = secure(|_| Reply::Write(response(200, "", "ok")));
    let home = Home::new();
    let exec = home.plugin("hunter2");
    home.write(
        "config",
        &kubeconfig(&server.url(), &CLUSTER, &[("exec", exec)]),
    );
    let (client, _) = client(&home.load(), &unlimited());
    let error = client.send(&Request::get("/a")).expect_err("no token");
    assert!(error.is_unsent() && matches!(error, ClientError::Credentials(_)));
    assert!(!error.to_string().contains("hunter2"), "{error}");
    assert_eq!(server.remaining().len(), 0);
}

#[test]
fn a_plugins_new_certificate_needs_new_connections() {
    let authority = Authority::new();
    let reply = |_: &Received| Reply::Write(response(200, "", "ok"));
    let server = Server::tls(authority.server(&["127.0.0.1"], Some(&authority)), reply);
    let home = Home::new();
    let status = |expires: &str| {
        let (certificate, key) = authority.issue(&["me"]);
        serde_json::json!({
            "clientCertificateData": certificate,
            "clientKeyData": key,
            "expirationTimestamp": expires,
        })
        .to_string()
    };
    let exec = home.plugin(&status("2020-01-01T00:00:00Z"));
    let ca = base64(&authority.pem());
    let cluster = [("certificate-authority-data", ca.as_str())];
    home.write(
        "config",
        &kubeconfig(&server.url(), &cluster, &[("exec", exec)]),
    );
    let (client, stop) = client(&home.load(), &unlimited());
    let get = || {
        client
            .send(&Request::get("/a"))
            .expect("the server knows us");
        server.next().connection
    };
    let first = get();
    assert_eq!(get(), first);
    home.write("status", &status("2999-01-01T00:00:00Z"));
    assert!(!stop.wait_timeout(std::time::Duration::from_millis(1100)));
    let second = get();
    assert_ne!(second, first, "it has expired, and the plugin gave another");
    assert_eq!(get(), second);
}

#[test]
fn a_users_token_and_certificate_win_over_the_plugin() {
    let server = secure(|_| Reply::Write(response(200, "", "ok")));
    let home = Home::new();
    let exec = home.plugin(r#"{"token": "plugin"}"#);
    let user = [("exec", exec), ("token", "own")];
    home.write("config", &kubeconfig(&server.url(), &CLUSTER, &user));
    let (client, _) = client(&home.load(), &unlimited());
    client
        .send(&Request::get("/a"))
        .expect("there is a response");
    assert_eq!(server.next().all("authorization"), ["Bearer own"]);
    assert_eq!(home.n_runs(), 0);
}

#[test]
fn a_plugin_replaced_during_its_run_presents_no_certificate() {
    let authority = Authority::new();
    let reply = |_: &Received| Reply::Write(response(200, "", "ok"));
    let server = Server::tls(authority.server(&["127.0.0.1"], None), reply);
    let home = Home::new();
    let (certificate, key) = authority.issue(&["me"]);
    let status = serde_json::json!({"clientCertificateData": certificate, "clientKeyData": key});
    let exec = home.plugin(&status.to_string());
    let plugin = fs::read_to_string(home.path("plugin")).expect("it is there");
    let waits = "while [ ! -e \"${0%/*}/go\" ]; do sleep 0.02; done\n";
    home.write(
        "plugin",
        &plugin.replace("printf '{", &format!("{waits}printf '{{")),
    );
    let ca = base64(&authority.pem());
    let cluster = [("certificate-authority-data", ca.as_str())];
    let write = |user| home.write("config", &kubeconfig(&server.url(), &cluster, &[user]));
    write(("exec", exec));
    let config = home.load();
    let (client, stop) = client(&config, &unlimited());
    let sending = spawn("t-sends", &Stop::new(), move || {
        client
            .send(&Request::get("/a"))
            .expect("there is a response");
    });
    let deadline = Instant::now() + PATIENCE;
    while home.n_runs() == 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    write(("token", "new"));
    let changes = config.reload(&stop).expect("it is good");
    assert!(changes.contains("kind of credentials"), "{changes}");
    home.write("go", "");
    assert_eq!(server.next().all("authorization"), ["Bearer new"]);
    sending.join().expect("it was sent");
    let tls = config.access.tls.as_ref().expect("it is reached by TLS");
    assert_eq!(tls.generation(), 0, "no certificate was ever presented");
}

/// A kubeconfig's user whose file has a token beside it.
#[test]
fn a_rejected_credential_is_sent_all_the_same() {
    let server = secure(|_| Reply::Write(response(401, "", "{}")));
    let home = Home::new();
    let user = [("tokenFile", "gone"), ("token", "static")];
    home.write("config", &kubeconfig(&server.url(), &CLUSTER, &user));
    let (client, _) = client(&home.load(), &unlimited());
    for _ in 0..2 {
        client
            .send(&Request::get("/a"))
            .expect_err("it is rejected");
        assert_eq!(server.next().all("authorization"), ["Bearer static"]);
    }
}
