//! A running daemon that has a secret of each kind: its log at all levels of all libraries, its
//! pages, its threads, and the commands on the same kubeconfig.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::Signal;
use rcgen::DnType;
use replicaset_controller::client::{
    Client, ClientConfig, ClientError, ClientOptions, ConfigSource, Request,
};
use replicaset_controller::stdx::stop::Stop;
use serde_json::json;

use super::canary::{CANARY, leaks};
use crate::credentials::Home;
use crate::serving::Authority;
use crate::support::{
    DaemonProcess, PlainPort, Reply, ScriptedServer, TestCluster, UNVERIFIED, Waiting,
    new_replica_set, over_tls,
};

/// A kind of secret, and how a daemon gets one.
struct Kind {
    name: &'static str,
    /// The API server; empty for that of the test.
    server: &'static str,
    /// More members of the kubeconfig's cluster, after a comma. `PROXY` stands for a proxy that
    /// rejects every client.
    cluster: &'static str,
    /// Members of the kubeconfig's user.
    user: &'static str,
    /// An environment variable; `PROXY` as above.
    environment: (&'static str, &'static str),
    /// Writes what the kubeconfig refers to.
    files: fn(&Home),
    /// Whether the daemon sends the secret, to the API server or to the proxy.
    is_sent: bool,
}

const fn kind(name: &'static str, user: &'static str) -> Kind {
    Kind {
        name,
        server: "",
        cluster: "",
        user,
        environment: ("UNUSED", ""),
        files: |_| {},
        is_sent: true,
    }
}

const PLUGIN: &str = "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, \
    interactiveMode: Never, env: [{name: SECRET, value: qzqz-canary-of-the-test-qzqz}]}";

const KINDS: &[Kind] = &[
    kind("token", "token: qzqz-canary-of-the-test-qzqz"),
    Kind {
        files: |home| home.write("token", CANARY),
        ..kind("token file", "tokenFile: token")
    },
    kind(
        "password",
        "username: name, password: qzqz-canary-of-the-test-qzqz",
    ),
    Kind {
        files: |home| {
            home.write("token", CANARY);
            home.plugin(3600);
        },
        ..kind("token and environment of a plugin", PLUGIN)
    },
    Kind {
        files: |home| home.write("plugin", &format!("#!/bin/sh\necho {CANARY}\n")),
        is_sent: false,
        ..kind("output of a plugin that is no JSON", PLUGIN)
    },
    Kind {
        files: |home| {
            home.write(
                "plugin",
                &format!("#!/bin/sh\necho '{{\"x\": \"{CANARY}\"}}'\nexit 3\n"),
            );
        },
        is_sent: false,
        ..kind("output of a plugin that fails", PLUGIN)
    },
    Kind {
        files: |home| {
            let (certificate, key) = Authority::new().issue(&[(DnType::CommonName, "me")]);
            home.write("me.crt", &certificate);
            // Text around the PEM is no part of the key.
            home.write("me.key", &format!("{CANARY}\n{key}"));
        },
        is_sent: false,
        ..kind("key", "client-certificate: me.crt, client-key: me.key")
    },
    Kind {
        cluster: ", proxy-url: 'http://name:qzqz-canary-of-the-test-qzqz@PROXY'",
        ..kind("password of the proxy", "")
    },
    Kind {
        // The environment's proxy is not for this machine.
        server: "http://api.invalid",
        environment: (
            "HTTP_PROXY",
            "http://name:qzqz-canary-of-the-test-qzqz@PROXY",
        ),
        ..kind("password of the environment's proxy", "")
    },
];

/// Sends a request with a token by the daemon's own client. The response does not matter.
fn send_token(cluster: &TestCluster, home: &Home, url: &str) {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {
            "server": url, "insecure-skip-tls-verify": true,
        }}],
        "users": [{"name": "it", "user": {"token": CANARY}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    });
    home.write("caller", &config.to_string());
    let config = ClientConfig::load(&ConfigSource {
        kubeconfig: Some(home.path("caller")),
        ..ConfigSource::default()
    });
    let config = config.expect("the kubeconfig is valid");
    let client = Client::new(&config, &ClientOptions::default(), cluster.stop());
    match client.send(&Request::get("/metrics").accept("*/*").once()) {
        Ok(_) | Err(ClientError::Status(_)) => {}
        Err(error) => panic!("no response: {error}"),
    }
}

/// Sends what callers of the pages keep secret to the plain port.
fn send_cookies(port: &PlainPort) {
    let head = format!(
        "GET /metrics?token={CANARY} HTTP/1.1\r\nHost: localhost\r\nCookie: session={CANARY}\r\n\
         Authorization: Basic {CANARY}\r\nX-Api-Key: {CANARY}\r\nConnection: close\r\n\r\n"
    );
    let mut client = TcpStream::connect(port.address()).expect("the daemon listens");
    client.write_all(head.as_bytes()).expect("the daemon reads");
    let mut response = Vec::new();
    client.read_to_end(&mut response).expect("a response");
}

/// All pages of the index, with their text.
fn pages(port: &PlainPort, namespace: &str) -> Vec<(String, String)> {
    let (_, index) = port.get("/");
    let paths = index.lines().filter_map(|line| line.split(' ').next());
    let paths = paths.map(|path| {
        let path = path.replace("NAMESPACE", namespace).replace("NAME", "web");
        path.replace("/CHECK", "?verbose")
    });
    let pages: Vec<(String, String)> = paths
        .map(|path| (path.clone(), port.get(&path).1))
        .collect();
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

/// Runs a daemon with a secret of this kind, and returns where it shows.
fn run(kind: &'static Kind, format: &str) -> Vec<String> {
    let cluster = TestCluster::start();
    let proxy = ScriptedServer::start(|_| {
        Some(Reply::whole("407 Proxy Authentication Required", "", "no"))
    });
    let proxied = |text: &str| text.replace("PROXY", &proxy.url().replace("http://", ""));
    let home = Home::new();
    (kind.files)(&home);
    let server = over_tls(&cluster);
    let (url, unverified) = match kind.server {
        "" => (server.url(), UNVERIFIED),
        server => (server.to_owned(), ""),
    };
    home.kubeconfig(&url, &(proxied(kind.cluster) + unverified), kind.user);
    let mut object = new_replica_set("web", 1);
    object["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "SECRET", "value": CANARY}]);
    cluster.create_replica_set(&object);
    let (plain, secure) = (PlainPort::free(), PlainPort::free());
    let config = home.path("config").display().to_string();
    let arguments = [
        "run",
        "--kubeconfig",
        &config,
        "--namespace",
        cluster.namespace(),
        &plain.argument(),
        "--bind-address=127.0.0.1",
        &secure.argument().replace("insecure", "secure"),
        "--v=10",
        &format!("--logging-format={format}"),
    ];
    let (variable, value) = (kind.environment.0, proxied(kind.environment.1));
    let environment = [
        ("RUST_LOG", "trace,replicaset_controller=trace"),
        (variable, value.as_str()),
    ];
    let mut process = DaemonProcess::start_with(&arguments, &environment);
    cluster.eventually("the daemon serves", || plain.get("/livez").0 == 200);
    send_token(&cluster, &home, &secure.url().replace("http", "https"));
    send_cookies(&plain);
    cluster.eventually("requests are traced", || {
        let log = process.log();
        // With a plugin that fails nothing is sent.
        log.contains(": code ") || log.contains("cannot list or watch")
    });
    process.signal(Signal::SIGUSR1);
    process.signal(Signal::SIGHUP);
    cluster.eventually("the reload is logged", || {
        process.log().contains("SIGHUP: ")
    });
    let recorded = cluster.faults().recorder().requests();
    let sent = recorded
        .iter()
        .map(|it| it.request.header("authorization").to_owned());
    let sent: Vec<String> = sent
        .chain(proxy.asked().into_iter().map(|it| it.headers))
        .collect();
    let mut found = Vec::new();
    if leaks("sent", &sent.join("\n")).is_empty() == kind.is_sent {
        found.push(format!("sent: {sent:?}"));
    }
    for (path, text) in pages(&plain, cluster.namespace()) {
        found.extend(leaks(&path, &text));
    }
    found.extend(leaks("threads", &process.thread_names().join("\n")));
    process.signal(Signal::SIGTERM);
    process.exit();
    found.extend(leaks("log", &process.log()));
    found.extend(leaks("output", &process.output()));
    let web = format!("{}/web", cluster.namespace());
    for command in [
        &["explain", &web][..],
        &["explain", &web, "-o", "json"],
        &["config"],
    ] {
        let arguments = [command, &["--kubeconfig", &config, "--v=10"]].concat();
        let mut process = DaemonProcess::start_with(&arguments, &environment);
        process.exit();
        let shown = process.output() + &process.log();
        assert!(!shown.is_empty(), "{command:?}");
        found.extend(leaks(command[0], &shown));
    }
    found
}

#[test]
fn no_log_level_and_no_page_shows_a_secret() {
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for kind in KINDS {
            let failed = &failed;
            scope.spawn(move || {
                for format in ["text", "json"] {
                    let found = run(kind, format);
                    let found = found.iter().map(|it| format!("{}: {it}", kind.name));
                    failed.lock().expect("no panic").extend(found);
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no run panicked");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn the_dev_server_shows_no_secret_that_it_stores() {
    let home = Home::new();
    let object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a", "namespace": "default"},
        "stringData": {"password": CANARY},
        "data": {"token": STANDARD.encode(CANARY)},
    });
    home.write("secret.json", &object.to_string());
    let file = home.path("secret.json").display().to_string();
    let arguments = ["dev", "--port=0", "--data", &file, "-vv"];
    let environment = [("RUST_LOG", "trace,replicaset_controller=trace")];
    let mut process = DaemonProcess::start_with(&arguments, &environment);
    let waiting = Waiting::new(&Stop::new());
    waiting.eventually("it serves", || process.log().contains(" TRACE ["));
    process.signal(Signal::SIGTERM);
    let status = process.exit();
    let shown = process.output() + &process.log();
    assert_eq!(status.code(), Some(0), "{shown}");
    assert_eq!(leaks("shown", &shown), [""; 0]);
}
