//! Rotated credentials of a running daemon: plugins, certificates, SIGHUP.

#[path = "../../src/kubernetes/client/tests/executable.rs"]
mod executable;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nix::sys::signal::Signal;
use replicaset_controller::api::Status;
use replicaset_controller::client::Request;
use replicaset_controller::devserver::{Action, Matcher, Rule};
use serde_json::json;

use self::executable::write_executable;
use crate::support::{
    DaemonProcess, Kind, PlainPort, TestCluster, UNVERIFIED, new_replica_set, over_tls, text_at,
};

/// A directory with a kubeconfig and the files that it references.
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Replaces a file atomically, so that no reader sees a part of it.
    pub(crate) fn write(&self, name: &str, text: &str) {
        write_executable(&self.path("new"), text);
        fs::rename(self.path("new"), self.path(name)).expect("the file is renamed");
    }

    /// Writes a kubeconfig for the server at `url`.
    pub(crate) fn kubeconfig(&self, url: &str, cluster: &str, user: &str) {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
             contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n\
             clusters: [{{name: it, cluster: {{server: '{url}'{cluster}}}}}]\n\
             users: [{{name: it, user: {{{user}}}}}]\n"
        );
        self.write("config", &text);
    }

    /// Writes a credential plugin that returns the token in the file `token`, valid for `seconds`.
    /// Returns the plugin's section for the kubeconfig.
    pub(crate) fn plugin(&self, seconds: u32) -> &'static str {
        self.write(
            "plugin",
            &format!(
                "#!/bin/sh\nhere=${{0%/*}}\necho x >> \"$here/runs\"\n\
                 printf '{{\"kind\": \"ExecCredential\", \
                 \"apiVersion\": \"client.authentication.k8s.io/v1\", \
                 \"status\": {{\"token\": \"%s\", \"expirationTimestamp\": \"%s\"}}}}' \
                 \"$(cat \"$here/token\")\" \
                 \"$(date -u -d '+{seconds} seconds' +%Y-%m-%dT%H:%M:%SZ)\"\n"
            ),
        );
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, \
         interactiveMode: Never}"
    }

    fn n_runs(&self) -> usize {
        let runs = fs::read_to_string(self.path("runs"));
        runs.map_or(0, |runs| runs.lines().count())
    }

    fn daemon(&self, cluster: &TestCluster, arguments: &[&str]) -> DaemonProcess {
        let config = self.path("config").display().to_string();
        let own = [
            "run",
            "--kube-api-qps=0",
            "--namespace",
            cluster.namespace(),
            "--kubeconfig",
            &config,
        ];
        DaemonProcess::start(&[&own, arguments].concat())
    }
}

/// Sends SIGHUP, and waits for the log line with the result.
#[track_caller]
fn reload(cluster: &TestCluster, process: &DaemonProcess) -> String {
    let lines = |log: &str| -> Vec<String> {
        let lines = log.lines().filter(|line| line.contains("SIGHUP: "));
        lines.map(str::to_owned).collect()
    };
    let before = lines(&process.log()).len();
    process.signal(Signal::SIGHUP);
    cluster.eventually("the reload is logged", || {
        lines(&process.log()).len() > before
    });
    let line = lines(&process.log()).pop();
    line.expect("a log line")
}

fn check_stops(process: &mut DaemonProcess) {
    process.signal(Signal::SIGTERM);
    let status = process.exit();
    assert_eq!(status.code(), Some(0), "{}", process.log());
}

fn children(process: &DaemonProcess) -> String {
    let id = process.id();
    fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default()
}

#[test]
fn no_secret_is_sent_to_a_server_without_tls() {
    let cluster = TestCluster::start();
    let home = Home::new();
    home.write("token", "some-secret");
    for user in [
        "token: some-secret",
        "tokenFile: token",
        "username: some, password: secret",
        home.plugin(3600),
    ] {
        home.kubeconfig(&cluster.url(), "", user);
        let config = home.path("config").display().to_string();
        let all = ["explain", "-A", "--kubeconfig", &config];
        let mut process = DaemonProcess::start(&all);
        let code = process.exit().code();
        let log = process.log();
        assert_eq!(code, Some(0), "{log}");
        let warnings = log.lines().filter(|line| line.contains("are not sent"));
        let of_user = warnings.filter(|line| line.contains("WARN") && line.contains("user \"it\""));
        assert_eq!(of_user.count(), 1, "{log}");
    }
    let sent = cluster.faults().recorder().requests();
    let headers = sent.iter().map(|it| it.request.header("authorization"));
    assert!(!sent.is_empty() && headers.into_iter().all(str::is_empty));
    assert_eq!(home.n_runs(), 0);
}

/// An expired token: one line for the operator, not one for each event.
#[test]
fn a_rejected_token_is_named_once_with_the_remedy() {
    let cluster = TestCluster::start();
    let (home, server) = (Home::new(), over_tls(&cluster));
    let payload = json!({"exp": 1_767_225_600, "sub": "system:serviceaccount:kube-system:rs"});
    let payload = URL_SAFE_NO_PAD.encode(payload.to_string());
    let user = format!("token: e30.{payload}.c2ln");
    home.kubeconfig(&server.url(), UNVERIFIED, &user);
    let mut process = home.daemon(&cluster, &[]);
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    let unauthorized = Action::reject(Status::new(401, "Unauthorized", "Unauthorized"));
    let rules = ["events", "pods"].map(|resource| {
        let rule = Rule::new(Matcher::verb("create", resource), unauthorized.clone());
        cluster.faults().add(rule)
    });
    // Each pod of the first batch is rejected, and then its event.
    cluster.scale("a", 2);
    cluster.eventually("both are rejected", || {
        rules.iter().all(|rule| rule.hits() > 2)
    });
    let log = process.log();
    let errors = log.lines().filter(|line| line.contains(" ERROR "));
    let errors: Vec<&str> = errors.collect();
    let [error] = errors[..] else {
        panic!("{log}");
    };
    for part in [
        &server.url()[8..],
        "(401 Unauthorized)",
        "the token of user \"it\"",
        "it expired at 2026-01-01T00:00:00Z",
        "kubectl -n kube-system create token rs",
    ] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    assert!(!log.contains("was rejected"), "{log}");
    check_stops(&mut process);
}

#[test]
fn sighup_rereads_the_kubeconfigs_of_the_reviews_too() {
    let cluster = TestCluster::start();
    let [home, reviews] = [Home::new(), Home::new()];
    home.kubeconfig(&cluster.url(), "", "");
    reviews.kubeconfig("https://127.0.0.1:9", UNVERIFIED, "token: one");
    let path = reviews.path("config").display().to_string();
    let flags = ["--authentication-kubeconfig", "--authorization-kubeconfig"];
    let arguments = flags.map(|flag| format!("{flag}={path}"));
    let mut process = home.daemon(&cluster, &arguments.each_ref().map(String::as_str));
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    reviews.kubeconfig("https://127.0.0.1:9", UNVERIFIED, "token: two");
    let line = reload(&cluster, &process);
    for flag in flags {
        let (_, of_flag) = line.split_once(flag).expect(&line);
        let of_flag = of_flag.split(';').next().unwrap_or_default();
        assert!(of_flag.contains("changed: token"), "{line}");
    }
    reviews.kubeconfig("https://127.0.0.1:10", UNVERIFIED, "token: three");
    let line = reload(&cluster, &process);
    assert!(
        line.contains("ERROR") && line.contains("after a restart"),
        "{line}"
    );
    check_stops(&mut process);
}

#[test]
fn a_plugin_runs_again_after_a_401_and_at_sighup() {
    let cluster = TestCluster::start();
    let (home, server) = (Home::new(), over_tls(&cluster));
    home.write("token", "first-secret");
    home.kubeconfig(&server.url(), UNVERIFIED, home.plugin(3600));
    let port = PlainPort::free();
    let mut process = home.daemon(&cluster, &[&port.argument()]);
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    assert_eq!(home.n_runs(), 1, "all threads share one run");
    let token_of_last = || {
        let creates = cluster.recorded("create", "pods");
        let last = creates
            .last()
            .map(|create| create.request.header("authorization").to_owned());
        last.unwrap_or_default()
    };
    assert_eq!(token_of_last(), "Bearer first-secret");

    home.write("token", "second-secret");
    // The daemon runs a plugin at most once per second.
    cluster.waiting().pause(Duration::from_millis(1100));
    let unauthorized = Action::reject(Status::new(401, "Unauthorized", "Unauthorized"));
    let rule = Rule::new(Matcher::verb("create", "pods"), unauthorized).times(1);
    let rule = cluster.faults().add(rule);
    cluster.scale("a", 2);
    cluster.stable("a");
    assert_eq!(rule.hits(), 1);
    assert_eq!(token_of_last(), "Bearer second-secret");
    assert_eq!(home.n_runs(), 2);

    home.write("token", "third-secret");
    let line = reload(&cluster, &process);
    assert!(
        line.contains("changed: the credential plugin's token"),
        "{line}"
    );
    cluster.scale("a", 3);
    cluster.stable("a");
    assert_eq!(token_of_last(), "Bearer third-secret");

    home.write("plugin", "#!/bin/sh\necho fourth-secret\nexit 3\n");
    let line = reload(&cluster, &process);
    assert!(
        line.contains("ERROR") && line.contains("exit code 3"),
        "{line}"
    );
    cluster.scale("a", 4);
    cluster.stable("a");
    assert_eq!(token_of_last(), "Bearer third-secret");
    assert_eq!(
        children(&process),
        "",
        "no child process remains, not even a zombie"
    );
    let (_, metrics) = port.get("/metrics");
    let calls = "rest_client_exec_plugin_call_total";
    for sample in [
        format!("{calls}{{call_status=\"no_error\",code=\"0\"}} 3"),
        format!("{calls}{{call_status=\"plugin_execution_error\",code=\"3\"}} "),
        "rest_client_exec_plugin_ttl_seconds inf".to_owned(),
    ] {
        let found = metrics.lines().any(|line| line.starts_with(&sample));
        assert!(found, "no {sample} in\n{metrics}");
    }
    check_stops(&mut process);
    assert!(!process.log().contains("-secret"), "{}", process.log());
}

#[test]
fn a_broken_kubeconfig_at_sighup_changes_nothing() {
    let cluster = TestCluster::start();
    let (home, server) = (Home::new(), over_tls(&cluster));
    home.kubeconfig(&server.url(), UNVERIFIED, "token: some-secret");
    let mut process = home.daemon(&cluster, &[]);
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    home.write("config", "{{");
    let line = reload(&cluster, &process);
    assert!(
        line.contains("ERROR") && line.contains("not valid"),
        "{line}"
    );
    cluster.scale("a", 2);
    cluster.stable("a");
    home.kubeconfig(&server.url(), UNVERIFIED, "token: other-secret");
    let line = reload(&cluster, &process);
    assert!(line.contains("changed: token"), "{line}");
    cluster.scale("a", 3);
    cluster.stable("a");
    let creates = cluster.recorded("create", "pods");
    let last = creates.last().expect("pods were created");
    assert_eq!(last.request.header("authorization"), "Bearer other-secret");
    check_stops(&mut process);
}

/// A variable that `run.sh` of the real control plane sets; `None` on the dev server, which has
/// neither TLS nor accounts.
fn control_plane(name: &str) -> Option<String> {
    env::var(format!("CONTROL_PLANE_{name}")).ok()
}

/// Issues a new client certificate and key for the user `replicaset-controller`.
fn issue(directory: &Path, home: &Home) {
    let (key, request) = (home.path("me.key.next"), home.path("me.csr"));
    let certificate = home.path("me.crt.next");
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).output();
        let output = output.expect("openssl, which run.sh needs too");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let text = |path: &Path| path.display().to_string();
    let (key_file, request_file) = (text(&key), text(&request));
    let curve = "ec_paramgen_curve:P-256";
    openssl(&[
        "genpkey",
        "-algorithm",
        "EC",
        "-pkeyopt",
        curve,
        "-out",
        &key_file,
    ]);
    let subject = ["-subj", "/CN=replicaset-controller"];
    openssl(
        &[
            &["req", "-new", "-key", &key_file, "-out", &request_file],
            &subject[..],
        ]
        .concat(),
    );
    // With an extension openssl issues an X.509 version 3 certificate. rustls rejects version 1.
    home.write("me.ext", "extendedKeyUsage=clientAuth\n");
    let (ca, ca_key) = (
        text(&directory.join("ca.crt")),
        text(&directory.join("ca.key")),
    );
    openssl(&[
        "x509",
        "-req",
        "-days",
        "1",
        "-in",
        &request_file,
        "-CA",
        &ca,
        "-CAkey",
        &ca_key,
        "-extfile",
        &text(&home.path("me.ext")),
        "-out",
        &text(&certificate),
    ]);
    fs::rename(certificate, home.path("me.crt")).expect("the certificate exists");
    fs::rename(key, home.path("me.key")).expect("the key exists");
}

#[test]
fn certificate_and_ca_are_rotated_under_load() {
    let (Some(url), Some(directory)) = (control_plane("URL"), control_plane("DIR")) else {
        return;
    };
    let directory = Path::new(&directory);
    let cluster = TestCluster::start();
    let home = Home::new();
    let authority = fs::read_to_string(directory.join("ca.crt")).expect("a CA certificate");
    home.write("ca.crt", &authority);
    issue(directory, &home);
    let user = "client-certificate: me.crt, client-key: me.key";
    home.kubeconfig(&url, ", certificate-authority: ca.crt", user);
    let port = PlainPort::free();
    let mut process = home.daemon(&cluster, &[&port.argument()]);
    // SIGHUP would kill a daemon that has not installed its handler yet.
    cluster.create_replica_set(&new_replica_set("first", 1));
    cluster.stable("first");
    let names: Vec<String> = (0..4).map(|n| format!("load-{n}")).collect();
    for name in &names {
        cluster.create_replica_set(&new_replica_set(name, 60));
        issue(directory, &home);
        // The authority beside another one, as during a rotation.
        let other = rcgen::generate_simple_self_signed(vec!["other".to_owned()]);
        let other = other.expect("a certificate").cert.pem();
        home.write("ca.crt", &format!("{other}{authority}"));
        let line = reload(&cluster, &process);
        assert!(line.contains("certificate authority"), "{line}");
        cluster.stable(name);
    }
    home.write("ca.crt", "");
    let line = reload(&cluster, &process);
    assert!(
        line.contains("ERROR") && line.contains("certificate authority"),
        "{line}"
    );
    // A new connection loads a new certificate without SIGHUP. The client reuses idle connections
    // for up to 15 s.
    issue(directory, &home);
    cluster.waiting().pause(Duration::from_secs(16));
    cluster.scale(&names[0], 61);
    cluster.stable(&names[0]);
    let log = process.log();
    let found = "the client certificate has changed";
    assert!(log.contains(found), "{log}");
    let (_, metrics) = port.get("/metrics");
    for sample in [
        "rest_client_transport_ca_reload_total{reason=\"updated\",result=\"success\"} ",
        "rest_client_transport_ca_reload_total{reason=\"empty\",result=\"failure\"} ",
    ] {
        let line = metrics.lines().find(|line| line.starts_with(sample));
        let line = line.unwrap_or_else(|| panic!("no {sample} in\n{metrics}"));
        assert!(!line.ends_with(" 0"), "{line}");
    }
    check_stops(&mut process);
    for name in &names {
        let events = cluster.events_of(name);
        let failed = |event: &serde_json::Value| text_at(event, "/type") != "Normal";
        assert!(!events.iter().any(failed), "{events:?}");
    }
    let log = process.log();
    assert!(!log.contains("PRIVATE KEY"), "{log}");
    let failed = log
        .lines()
        .filter(|line| line.contains("WARN") || line.contains("ERROR"));
    // Harmless: a certificate whose key is not written yet, an empty authority, a watch that ends
    // at once.
    let harmless = ["in use", "watch of "];
    let failed = failed.filter(|line| !harmless.iter().any(|part| line.contains(part)));
    let failed: Vec<&str> = failed.collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn a_plugin_renews_an_expired_or_revoked_token() {
    let Some(url) = control_plane("URL") else {
        return;
    };
    let cluster = TestCluster::start();
    let account = json!({"metadata": {"name": "daemon"}});
    let namespace = cluster.namespace();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "daemon"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:controller:replicaset-controller",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "daemon", "namespace": namespace}],
    });
    let bindings =
        format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    let post = |path: &str, body: &serde_json::Value| {
        let request = Request::post(path).body("application/json", body.to_string());
        cluster
            .api()
            .send(&request)
            .expect("the administrator may create it")
    };
    cluster.create(Kind::ServiceAccounts, &account);
    post(&bindings, &binding);
    let home = Home::new();
    let renew = || {
        let path = format!("{}/token", cluster.path(Kind::ServiceAccounts, "daemon"));
        let token = post(&path, &json!({"spec": {"expirationSeconds": 600}}));
        home.write("token", &text_at(&token, "/status/token"));
    };
    renew();
    let ca = control_plane("CA").expect("run.sh sets it");
    home.kubeconfig(
        &url,
        &format!(", certificate-authority: '{ca}'"),
        home.plugin(3),
    );
    let mut process = home.daemon(&cluster, &[]);
    cluster.create_replica_set(&new_replica_set("a", 1));
    cluster.stable("a");
    renew();
    // The plugin's token is valid for 3 s.
    let mut n_pods = 1;
    for n_runs in 2..=3 {
        let waiting = cluster.waiting();
        waiting.pause(Duration::from_secs(4));
        n_pods += 1;
        cluster.scale("a", n_pods);
        cluster.stable("a");
        assert!(home.n_runs() >= n_runs, "{}", home.n_runs());
    }
    // Recreating the service account revokes its tokens.
    home.kubeconfig(
        &url,
        &format!(", certificate-authority: '{ca}'"),
        home.plugin(3600),
    );
    reload(&cluster, &process);
    let n_runs = home.n_runs();
    cluster.delete(Kind::ServiceAccounts, "daemon");
    cluster.create(Kind::ServiceAccounts, &account);
    renew();
    // The API server caches a token's review for 10 s.
    cluster.waiting().pause(Duration::from_secs(11));
    cluster.scale("a", n_pods + 1);
    cluster.stable("a");
    assert!(
        home.n_runs() > n_runs,
        "the plugin runs again before its token expires"
    );
    check_stops(&mut process);
}
