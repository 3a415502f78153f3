//! The pages of the binary, and the flags that affect them.

use std::io::{Read, Write};
use std::net::TcpStream;

use nix::sys::signal::Signal;
use replicaset_controller::client::{Client, ClientConfig, ClientOptions, ConfigSource, Request};
use serde_json::{Value, json};

use super::{Authority, DnType, write};
use crate::support::{PlainPort, TestCluster, new_replica_set};

#[test]
fn flagz_and_configz_show_the_merged_configuration() {
    let cluster = TestCluster::start();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(
        b"apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\n\
          kind: KubeControllerManagerConfiguration\n\
          generic: {clientConnection: {burst: 41}, minResyncPeriod: 3h}\n",
    )
    .expect("the file is writable");
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
    cluster.eventually("the daemon serves", || port.get("/livez").0 == 200);
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
    let own = &configuration["replicaset-controller"];
    assert_eq!(own["pods"]["burstReplicas"], 12, "{own}");
    assert_eq!(own["optIn"]["failedPodBackoff"], "off", "{own}");
    assert_eq!(
        own["serving"]["insecurePort"],
        port.address().port(),
        "{own}"
    );
    assert_eq!(own["logging"]["format"], "text", "{own}");
    let section = &configuration["kubecontrollermanager.config.k8s.io"];
    let generic = &section["Generic"];
    assert_eq!(generic["ClientConnection"]["burst"], 41, "{section}");
    assert_eq!(generic["MinResyncPeriod"], "2h0m0s", "{section}");
    let syncs = &section["ReplicaSetController"]["ConcurrentRSSyncs"];
    assert_eq!(*syncs, 7, "{section}");
}

#[test]
fn metrics_have_a_content_type_with_the_format_version() {
    let cluster = TestCluster::start();
    let port = PlainPort::free();
    let _process = cluster.start_process(&[&port.argument()]);
    cluster.eventually("the daemon serves", || port.get("/livez").0 == 200);
    for path in ["/metrics", "/metrics/slis"] {
        let response = ureq::get(format!("{}{path}", port.url())).call();
        let response = response.expect("the daemon serves");
        assert_eq!(
            response.headers()["content-type"],
            "text/plain; version=0.0.4; charset=utf-8",
            "{path}"
        );
    }
}

/// The status line of the response to a request with these headers.
fn status_line(port: &PlainPort, headers: &str) -> String {
    let address = port.url().replace("http://", "");
    let mut client = TcpStream::connect(address).expect("the daemon listens");
    let request = format!("GET /livez HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
    client
        .write_all(request.as_bytes())
        .expect("the daemon reads");
    let mut response = String::new();
    client
        .read_to_string(&mut response)
        .expect("the daemon responds");
    response.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn the_plain_port_rejects_foreign_hosts_and_origins() {
    let cluster = TestCluster::start();
    let own = "Host: localhost\r\n";
    let foreign_host = "Host: evil.example\r\n";
    let foreign_origin = "Host: localhost\r\nOrigin: http://evil.example\r\n";
    let known_host = "Host: monitor.shop.svc:80\r\n";
    let known_origin = "Host: monitor.shop.svc\r\nOrigin: http://monitor.shop.svc\r\n";
    for (flags, accepted, rejected) in [
        (
            &[][..],
            &[own][..],
            &[foreign_host, foreign_origin, known_host, known_origin][..],
        ),
        (
            &["--accept-hosts=monitor.shop.svc"],
            &[own, known_host, known_origin],
            &[foreign_host, foreign_origin],
        ),
    ] {
        let port = PlainPort::free();
        let argument = port.argument();
        let _process = cluster.start_process(&[&[argument.as_str()], flags].concat());
        cluster.eventually("the daemon serves", || port.get("/livez").0 == 200);
        for (headers, code) in [(accepted, "200"), (rejected, "403")] {
            for headers in headers {
                let status = status_line(&port, headers);
                assert!(
                    status.starts_with(&format!("HTTP/1.1 {code} ")),
                    "{flags:?} {headers}: {status}"
                );
            }
        }
    }
}

/// An authorized client sets the verbosity over HTTPS. SIGHUP resets it to the flags.
#[test]
fn the_verbosity_changes_at_run_time_until_sighup() {
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
    cluster.eventually("the daemon serves", || plain.get("/readyz").0 == 200);
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
    let config = config.expect("the kubeconfig is valid");
    let client = Client::new(&config, &ClientOptions::default(), cluster.stop());
    let set = |verbosity: &str| {
        let request = Request::put("/debug/flags/v").body("text/plain", verbosity);
        let response = client.send(&request.accept("*/*").once());
        let body = response.expect("alice may set the verbosity").body;
        String::from_utf8(body).expect("UTF-8")
    };
    let n_debug = || process.log().matches(" DEBUG ").count();

    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    assert_eq!(n_debug(), 0, "{}", process.log());
    let done = "successfully set klog.logging.verbosity to 5";
    assert_eq!(set("5"), done);
    cluster.scale("a", 2);
    cluster.stable("a");
    cluster.eventually("debug lines are logged", || n_debug() > 0);
    set("2");
    assert_eq!(plain.get("/debug/flags/v"), (200, "INFO\n".to_owned()));
    let audit = "PUT /debug/flags/v by user \"alice\" from 127.0.0.1";
    assert!(process.log().contains(audit), "{}", process.log());
    for path in ["/", "/statusz"] {
        let (_, page) = plain.get(path);
        for part in [
            "\nAPI server: http://",
            "\nReplicaSets: 1, of which ",
            "\nLast warning: ",
        ] {
            assert!(page.contains(part), "{page}");
        }
        assert!(page.contains("Role: "), "{page}");
    }
    let n_before = n_debug();
    cluster.scale("a", 3);
    cluster.stable("a");
    assert_eq!(n_debug(), n_before, "{}", process.log());
    set("5");
    process.signal(Signal::SIGHUP);
    cluster.eventually("the reload is logged", || {
        process.log().contains("SIGHUP: re-read ")
    });
    let n_before = n_debug();
    cluster.scale("a", 4);
    cluster.stable("a");
    assert_eq!(n_debug(), n_before, "{}", process.log());
}
