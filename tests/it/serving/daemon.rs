//! The pages of the shipped binary, as its flags make them.

use std::io::{Read, Write};
use std::net::TcpStream;

use nix::sys::signal::Signal;
use replicaset_controller::client::{Client, ClientConfig, ClientOptions, ConfigSource, Request};
use serde_json::{Value, json};

use super::{Authority, DnType, write};
use crate::support::{PlainPort, TestCluster, new_replica_set};

#[test]
fn flagz_and_configz_show_what_all_sources_come_to() {
    let cluster = TestCluster::start();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(
        b"apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\n\
          kind: KubeControllerManagerConfiguration\n\
          generic: {clientConnection: {burst: 41}, minResyncPeriod: 3h}\n",
    )
    .expect("room for it");
    let port = PlainPort::free();
    let config = format!("--config={}", file.path().display());
    let arguments = [
        &config,
        &port.argument(),
        "--burst-replicas=12",
        "--leader-elect=false",
        "--namespace=shop",
        "-vv",
    ];
    let environment = [
        ("REPLICASET_CONTROLLER_CONCURRENT_REPLICASET_SYNCS", "7"),
        ("REPLICASET_CONTROLLER_MIN_RESYNC_PERIOD", "2h"),
    ];
    let _process = cluster.start_process_with(&arguments, &environment);
    cluster.eventually("it serves", || port.get("/livez").0 == 200);
    let (_, flags) = port.get("/flagz");
    for line in [
        "kube-api-burst: 41",
        "concurrent-replicaset-syncs: 7",
        "min-resync-period: 2h",
        "burst-replicas: 12",
        "concurrent-rc-syncs: 5",
        "leader-elect-resource-namespace: shop",
        "v: 8",
    ] {
        assert!(flags.lines().any(|it| it == line), "no {line} in\n{flags}");
    }
    let (_, configuration) = port.get("/configz");
    let configuration: Value = serde_json::from_str(&configuration).expect("JSON");
    let section = &configuration["kubecontrollermanager.config.k8s.io"];
    let generic = &section["Generic"];
    assert_eq!(generic["ClientConnection"]["burst"], 41, "{section}");
    assert_eq!(generic["MinResyncPeriod"], "2h0m0s", "{section}");
    let syncs = &section["ReplicaSetController"]["ConcurrentRSSyncs"];
    assert_eq!(*syncs, 7, "{section}");
}

#[test]
fn metrics_say_in_which_format_they_are() {
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let _process = cluster.start_process(&[&port.argument()]);
    cluster.eventually("it serves", || port.get("/livez").0 == 200);
    for path in ["/metrics", "/metrics/slis"] {
        let answer = ureq::get(format!("{}{path}", port.url())).call();
        let answer = answer.expect("it serves");
        assert_eq!(
            answer.headers()["content-type"],
            "text/plain; version=0.0.4; charset=utf-8",
            "{path}"
        );
    }
}

/// The first line of the answer to a request with these headers.
fn answer_to(port: &PlainPort, headers: &str) -> String {
    let address = port.url().replace("http://", "");
    let mut client = TcpStream::connect(address).expect("the daemon listens");
    let request = format!("GET /livez HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
    client.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("it answers");
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn the_plain_port_refuses_foreign_names_and_web_pages() {
    let cluster = TestCluster::start();
    let own = "Host: localhost\r\n";
    let foreign_name = "Host: evil.example\r\n";
    let foreign_page = "Host: localhost\r\nOrigin: http://evil.example\r\n";
    let known_name = "Host: monitor.shop.svc:80\r\n";
    let page_of_known = "Host: monitor.shop.svc\r\nOrigin: http://monitor.shop.svc\r\n";
    for (flags, accepted, refused) in [
        (
            &[][..],
            &[own][..],
            &[foreign_name, foreign_page, known_name, page_of_known][..],
        ),
        (
            &["--accept-hosts=monitor.shop.svc"],
            &[own, known_name, page_of_known],
            &[foreign_name, foreign_page],
        ),
    ] {
        let port = PlainPort::free();
        let argument = port.argument();
        let _process = cluster.start_process(&[&[argument.as_str()], flags].concat());
        cluster.eventually("it serves", || port.get("/livez").0 == 200);
        for (headers, code) in [(accepted, "200"), (refused, "403")] {
            for headers in headers {
                let answer = answer_to(&port, headers);
                assert!(
                    answer.starts_with(&format!("HTTP/1.1 {code} ")),
                    "{flags:?} {headers}: {answer}"
                );
            }
        }
    }
}

/// Over HTTPS only, by who may; until SIGHUP, which reads the flags again.
#[test]
fn the_verbosity_is_raised_and_lowered_while_it_runs() {
    let cluster = TestCluster::start();
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    let client_ca = write(folder.path(), "ca.crt", &authority.0.pem());
    let (certificate, key) = authority.issue(&[
        (DnType::CommonName, "alice"),
        (DnType::OrganizationName, "system:masters"),
    ]);
    let (plain, secure) = (PlainPort::free(), PlainPort::free());
    let process = cluster.start_process(&[
        &plain.argument(),
        "--bind-address=127.0.0.1",
        &secure.argument().replace("insecure", "secure"),
        &format!("--client-ca-file={}", client_ca.display()),
    ]);
    cluster.eventually("it serves", || plain.get("/readyz").0 == 200);
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {
            "server": secure.url().replace("http", "https"),
            "insecure-skip-tls-verify": true,
        }}],
        "users": [{"name": "a", "user": {
            "client-certificate": write(folder.path(), "alice.crt", &certificate),
            "client-key": write(folder.path(), "alice.key", &key),
        }}],
    });
    let config = ClientConfig::load(&ConfigSource {
        kubeconfig: Some(write(folder.path(), "config", &kubeconfig.to_string())),
        ..ConfigSource::default()
    });
    let config = config.expect("the kubeconfig is good");
    let client = Client::new(&config, &ClientOptions::default(), cluster.stop());
    let client = client.expect("the options are good");
    let set = |verbosity: &str| {
        let request = Request::put("/debug/flags/v").body("text/plain", verbosity);
        let answer = client.send(&request.accept("*/*").once());
        let body = answer.expect("alice may do that").body;
        String::from_utf8(body).expect("text")
    };
    let n_debug = || process.log().matches(" DEBUG ").count();

    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    assert_eq!(n_debug(), 0, "{}", process.log());
    let done = "successfully set klog.logging.verbosity to 5";
    assert_eq!(set("5"), done);
    cluster.scale("a", 2);
    cluster.stable("a");
    cluster.eventually("it says more", || n_debug() > 0);
    set("2");
    let n_said = n_debug();
    cluster.scale("a", 3);
    cluster.stable("a");
    assert_eq!(n_debug(), n_said, "{}", process.log());
    set("5");
    process.signal(Signal::SIGHUP);
    cluster.eventually("SIGHUP is told", || {
        process.log().contains("SIGHUP: re-read ")
    });
    let n_said = n_debug();
    cluster.scale("a", 4);
    cluster.stable("a");
    assert_eq!(n_debug(), n_said, "{}", process.log());
}
