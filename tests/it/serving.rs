//! The daemon's HTTP pages: authentication, authorization, certificates, failures, and systemd
//! notifications.

/// The page `/` in a real browser.
mod browser;
/// Clients that cost the pages much, and the monitor beside them.
mod clients;
/// The pages of the binary, and its flags for them.
mod daemon;
/// Floods of connections, beside which probes are answered.
mod flood;
/// Limits on what hostile clients can make the binary use.
mod hostile;
/// Odd requests, and the codes of the responses.
mod odd_requests;
/// Both ports of a daemon, and connections to them.
mod ports;
/// Notifications of systemd.
mod systemd;

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use replicaset_controller::client::{
    Client, ClientConfig, ClientError, ClientOptions, ConfigSource, Request,
};
use replicaset_controller::devserver::{Action, ApiRequest, Matcher, Response, Rule};
use replicaset_controller::serving::{
    AllowedPaths, CertificateFiles, Pages, Serving, ServingOptions, ZPages,
};
use replicaset_controller::stdx::stop::Stop;
use replicaset_controller::telemetry::{Health, Probe};
use serde_json::{Value, json};

use crate::manifests::manifests;
use crate::support::{DaemonProcess, Kind, PlainPort, TestCluster, admin_config, name};

const REVIEWS: [&str; 2] = [
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
];

/// A running HTTPS server with the daemon's pages.
struct Front {
    serving: Serving,
    address: SocketAddr,
    health: Arc<Health>,
    stop: Stop,
}

impl Front {
    fn start(reviews: &ClientConfig, certificates: CertificateFiles) -> Self {
        let port = PlainPort::free();
        let address = port.address();
        let options = ServingOptions {
            bind_address: address.ip(),
            secure_port: address.port(),
            insecure_port: 0,
            accept_hosts: Vec::new(),
            certificates,
            tls13_only: false,
            authentication: reviews.clone(),
            authorization: reviews.clone(),
            allowed_paths: AllowedPaths::of(&["/healthz", "/readyz", "/livez"]),
            debug: true,
        };
        let zpages = ZPages {
            flags: [("kube-api-qps".to_owned(), "20".to_owned())].into(),
            config: json!({"section": {"kind": "Test"}}),
        };
        let health = Arc::new(Health::default());
        health.add("replicaset-controller", &[Probe::Healthz], || Ok(()));
        let (pages, stop) = (Arc::new(Pages::default()), Stop::new());
        let serving = Serving::start(&options, &pages, &health, zpages, &stop);
        Self {
            serving: serving.expect("a free port"),
            address,
            health,
            stop,
        }
    }

    /// Gets a page with this `user` section of a kubeconfig, and returns status code and body.
    #[track_caller]
    fn get(&self, user: &Value, path: &str) -> (u16, String) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut request = Request::get(path).accept("*/*").once();
        if !query.is_empty() {
            request = request.query(query, "");
        }
        self.send(user, &request)
    }

    /// [`get`](Self::get) for any request.
    #[track_caller]
    fn send(&self, user: &Value, request: &Request) -> (u16, String) {
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {
                "server": format!("https://{}", self.address),
                "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "a", "user": user}],
        });
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(kubeconfig.to_string().as_bytes())
            .expect("the file is writable");
        let config = ClientConfig::load(&ConfigSource {
            kubeconfig: Some(file.path().to_owned()),
            ..ConfigSource::default()
        });
        let config = config.expect("the kubeconfig is valid");
        let client = Client::new(&config, &ClientOptions::default(), &self.stop);
        match client.send(request) {
            Ok(response) => {
                let body = String::from_utf8(response.body).expect("UTF-8");
                (response.code, body)
            }
            Err(ClientError::Status(status)) => {
                let message = status.object().message.clone();
                (status.code(), message.unwrap_or_default())
            }
            Err(error) => panic!("{request:?}: {error}"),
        }
    }
}

/// The API server that reviews tokens, and two users with their tokens: `allowed` may get
/// `/metrics`, `denied` may not.
pub(crate) struct Users {
    config: ClientConfig,
    pub(crate) allowed: (String, String),
    denied: (String, String),
}

/// Sets up [`Users`]. On the real control plane they are service accounts, and RBAC grants one of
/// them `/metrics`. On the dev server, which has neither, [`review`] invents them.
pub(crate) fn users(cluster: &TestCluster) -> Users {
    if !TestCluster::is_real() {
        cluster.faults().add(Rule::new(
            Matcher::new(|request| REVIEWS.contains(&request.path.as_str())),
            Action::answer(review),
        ));
        return Users {
            config: ClientConfig::plain(&cluster.url()),
            allowed: ("monitor".to_owned(), "token-of-monitor".to_owned()),
            denied: ("visitor".to_owned(), "token-of-visitor".to_owned()),
        };
    }
    let account = |account: &str| {
        let object = json!({"metadata": {"name": account}});
        cluster.api().create(Kind::ServiceAccounts, &object);
        let path = format!(
            "{}/token",
            cluster.api().path(Kind::ServiceAccounts, account)
        );
        let body =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let request = Request::post(path).body("application/json", body.to_string());
        let issued = cluster.api().send(&request).expect("a token is issued");
        let token = issued["status"]["token"].as_str().expect("a token");
        let namespace = cluster.api().namespace();
        let user = format!("system:serviceaccount:{namespace}:{account}");
        (user, token.to_owned())
    };
    let (allowed, denied) = (account("monitor"), account("visitor"));
    let role = format!("metrics-{}", cluster.api().namespace());
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let objects = [
        (
            "clusterroles",
            json!({"metadata": {"name": role}, "rules": metrics_role()["rules"]}),
        ),
        (
            "clusterrolebindings",
            json!({
                "metadata": {"name": role},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
                },
                "subjects": [{
                    "kind": "ServiceAccount",
                    "name": "monitor",
                    "namespace": cluster.api().namespace(),
                }],
            }),
        ),
    ];
    for (resource, object) in objects {
        let request = Request::post(format!("{rbac}/{resource}"));
        let request = request.body("application/json", object.to_string());
        let created = cluster.api().send(&request).expect("the object is created");
        assert_eq!(name(&created), role);
    }
    Users {
        config: admin_config(),
        allowed,
        denied,
    }
}

/// The ClusterRole for a monitor.
fn metrics_role() -> Value {
    let manifests = manifests("monitoring/clusterrole.yaml");
    let role = manifests.into_iter().find(|it| it["kind"] == "ClusterRole");
    role.expect("a ClusterRole")
}

/// Responds to token and access reviews as an API server with the two users does.
fn review(request: &ApiRequest) -> Response {
    let mut review: Value = serde_json::from_slice(&request.body).expect("a review");
    review["status"] = if request.path == REVIEWS[0] {
        match review["spec"]["token"].as_str() {
            Some("token-of-monitor") => {
                json!({"authenticated": true, "user": {"username": "monitor"}})
            }
            Some("token-of-visitor") => {
                json!({"authenticated": true, "user": {"username": "visitor"}})
            }
            _ => json!({"authenticated": false, "error": "invalid bearer token"}),
        }
    } else {
        let spec = &review["spec"];
        let rule = &metrics_role()["rules"][0];
        let wanted = &spec["nonResourceAttributes"];
        let holds =
            |list: &Value, item: &Value| list.as_array().is_some_and(|items| items.contains(item));
        let is_granted = holds(&rule["nonResourceURLs"], &wanted["path"])
            && holds(&rule["verbs"], &wanted["verb"]);
        json!({"allowed": spec["user"] == "monitor" && is_granted})
    };
    Response::object(201, &review)
}

fn token(token: &str) -> Value {
    json!({"token": token})
}

#[test]
fn pages_require_authentication_and_authorization() {
    let cluster = TestCluster::start();
    let users = users(&cluster);
    let front = Front::start(&users.config, CertificateFiles::default());
    let nobody = json!({});

    // The always-allowed paths need no rights, but they withhold the reasons of failures.
    assert_eq!(front.get(&nobody, "/healthz"), (200, "ok".to_owned()));
    let verbose = "[+]replicaset-controller ok\nhealthz check passed\n";
    assert_eq!(
        front.get(&nobody, "/healthz?verbose"),
        (200, verbose.to_owned())
    );
    assert_eq!(front.get(&token("wrong"), "/livez"), (200, "ok".to_owned()));
    front
        .health
        .add("stuck", &[Probe::Livez], || Err("since noon".to_owned()));
    let (code, body) = front.get(&nobody, "/livez");
    assert_eq!(
        (code, body.as_str()),
        (
            500,
            "[-]stuck failed: reason withheld (log in, or see the log)\nlivez check failed"
        )
    );

    let forbidden = |user: &str, path: &str| {
        (
            403,
            format!("forbidden: User \"{user}\" cannot get path \"{path}\""),
        )
    };
    let anonymous = "system:anonymous";
    assert_eq!(
        front.get(&nobody, "/metrics"),
        forbidden(anonymous, "/metrics")
    );
    assert_eq!(
        front.get(&nobody, "/livez/stuck"),
        forbidden(anonymous, "/livez/stuck")
    );
    // An always-allowed path is open to reads only.
    let write = Request::put("/healthz").body("text/plain", "").once();
    assert_eq!(
        front.send(&nobody, &write),
        (
            403,
            "forbidden: User \"system:anonymous\" cannot put path \"/healthz\"".to_owned()
        )
    );
    assert_eq!(
        front.get(&token("wrong"), "/metrics"),
        (401, "Unauthorized".to_owned())
    );
    let (user, bearer) = &users.denied;
    assert_eq!(
        front.get(&token(bearer), "/metrics"),
        forbidden(user, "/metrics")
    );

    let (user, bearer) = &users.allowed;
    // The API server's authorizer sees new bindings with a short delay.
    cluster.eventually("the monitor gets the metrics", || {
        let (code, body) = front.get(&token(bearer), "/metrics");
        code == 200 && body.contains("process_start_time_seconds")
    });
    assert_eq!(
        front.get(&token(bearer), "/configz"),
        forbidden(user, "/configz")
    );
}

#[test]
fn health_is_served_without_the_api_server() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("it listens");
    // A server that accepts connections and never responds.
    let front = Front::start(
        &ClientConfig::plain(&format!("http://{address}")),
        CertificateFiles::default(),
    );
    assert_eq!(front.get(&json!({}), "/healthz"), (200, "ok".to_owned()));
    drop(silent);
    let (code, body) = front.get(&json!({}), "/metrics");
    assert_eq!(code, 500, "{body}");
    assert!(
        body.starts_with("Internal Server Error: \"/metrics\": "),
        "{body}"
    );
    assert_eq!(
        front.get(&token("any"), "/metrics"),
        (401, "Unauthorized".to_owned())
    );
    assert_eq!(front.get(&token("any"), "/healthz"), (200, "ok".to_owned()));
}

/// A certificate authority for clients or servers.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name = names(&[(DnType::CommonName, "test authority")]);
        let key = KeyPair::generate().expect("a key pair");
        Self(CertifiedIssuer::self_signed(params, key).expect("valid parameters"))
    }

    /// A certificate and its key, in PEM.
    pub(crate) fn issue(&self, subject: &[(DnType, &str)]) -> (String, String) {
        let mut params =
            CertificateParams::new(vec!["localhost".to_owned()]).expect("a valid name");
        params.distinguished_name = names(subject);
        let key = KeyPair::generate().expect("a key pair");
        let certificate = params.signed_by(&key, &self.0).expect("valid parameters");
        (certificate.pem(), key.serialize_pem())
    }
}

fn names(parts: &[(DnType, &str)]) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    for (part, value) in parts {
        names.push(part.clone(), *value);
    }
    names
}

fn write(folder: &Path, file: &str, text: &str) -> std::path::PathBuf {
    let path = folder.join(file);
    std::fs::write(&path, text).expect("the file can be written");
    path
}

#[test]
fn a_client_certificate_authenticates_its_user() {
    let cluster = TestCluster::start();
    let users = users(&cluster);
    let folder = tempfile::tempdir().expect("a folder");
    let (known, unknown) = (Authority::new(), Authority::new());
    let files = CertificateFiles {
        serving: None,
        client_ca: Some(write(folder.path(), "ca.crt", &known.0.pem())),
    };
    let front = Front::start(&users.config, files);
    let credentials = |authority: &Authority, file: &str, subject: &[(DnType, &str)]| {
        let (certificate, key) = authority.issue(subject);
        json!({
            "client-certificate": write(folder.path(), &format!("{file}.crt"), &certificate),
            "client-key": write(folder.path(), &format!("{file}.key"), &key),
        })
    };
    let admin = credentials(
        &known,
        "admin",
        &[
            (DnType::CommonName, "alice"),
            (DnType::OrganizationName, "system:masters"),
        ],
    );
    let (code, body) = front.get(&admin, "/statusz");
    assert_eq!(code, 200, "{body}");
    for line in [
        "\nreplicaset-controller statusz\n",
        "Paths: /configz /debug /flagz /healthz",
    ] {
        assert!(body.contains(line), "{body}");
    }
    assert!(
        front
            .get(&admin, "/flagz")
            .1
            .ends_with("\nkube-api-qps: 20\n")
    );
    let configuration = front.get(&admin, "/configz");
    assert_eq!(
        configuration,
        (200, r#"{"section":{"kind":"Test"}}"#.to_owned())
    );
    assert_eq!(
        front.get(&admin, "/nowhere"),
        (404, "404 page not found".to_owned())
    );

    let (code, index) = front.get(&admin, "/");
    assert_eq!(code, 200, "{index}");
    assert!(index.contains("\n/healthz/CHECK "), "{index}");

    let nobody = credentials(&known, "nobody", &[(DnType::CommonName, "bob")]);
    let message = "forbidden: User \"bob\" cannot get path \"/statusz\"";
    assert_eq!(front.get(&nobody, "/statusz"), (403, message.to_owned()));
    let message = message.replace("/statusz", "/");
    assert_eq!(front.get(&nobody, "/"), (403, message));
    let forged = credentials(
        &unknown,
        "forged",
        &[
            (DnType::CommonName, "alice"),
            (DnType::OrganizationName, "system:masters"),
        ],
    );
    assert_eq!(
        front.get(&forged, "/statusz"),
        (401, "Unauthorized".to_owned())
    );
}

#[test]
fn renewed_certificates_are_loaded_and_invalid_ones_are_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let (old, new) = (Authority::new(), Authority::new());
    let client_ca = write(folder.path(), "ca.crt", &old.0.pem());
    let files = CertificateFiles {
        serving: None,
        client_ca: Some(client_ca.clone()),
    };
    let front = Front::start(&ClientConfig::plain("http://127.0.0.1:1"), files);
    let (certificate, key) = new.issue(&[
        (DnType::CommonName, "alice"),
        (DnType::OrganizationName, "system:masters"),
    ]);
    let user = json!({
        "client-certificate": write(folder.path(), "alice.crt", &certificate),
        "client-key": write(folder.path(), "alice.key", &key),
    });
    assert_eq!(front.get(&user, "/flagz").0, 401);
    let reload = front.serving.reloader().expect("HTTPS is served");
    std::fs::write(&client_ca, "nothing in PEM").expect("the file can be written");
    let error = reload().expect_err("no certificate");
    assert!(
        error.starts_with("--client-ca-file ") && error.contains("ca.crt"),
        "{error}"
    );
    assert_eq!(front.get(&user, "/flagz").0, 401);
    std::fs::write(&client_ca, new.0.pem()).expect("the file can be written");
    reload().expect("the file is valid");
    assert_eq!(front.get(&user, "/flagz").0, 200);
}

#[test]
fn a_port_in_use_is_reported_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it listens").port();
    let mut process = DaemonProcess::start(&[
        "run",
        "--master=http://127.0.0.1:1",
        "--bind-address=127.0.0.1",
        &format!("--secure-port={port}"),
    ]);
    let status = process.exit();
    assert_eq!(status.code(), Some(1));
    let log = process.log();
    for part in [
        &format!("127.0.0.1:{port} is in use"),
        "kube-controller-manager",
        "--secure-port",
    ] {
        assert!(log.contains(part), "{log}");
    }
}
