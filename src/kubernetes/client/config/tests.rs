//! Configurations from kubeconfig files and from a pod's service account.

use std::fs;
use std::path::{Path, PathBuf};

use super::kubeconfig::data_or_file;
use super::{ClientConfig, ConfigError, ConfigSource, DirectSource, Environment};
use crate::client::live_tls::Pem;
use crate::stdx::stop::Stop;

/// A directory with files, and the environment that points to it.
struct Home {
    directory: tempfile::TempDir,
    vars: Vec<(String, String)>,
}

impl Home {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("there is room"),
            vars: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(self, name: &str, text: &str) -> Self {
        let path = self.path(name);
        let parent = path.parent().expect("it is in the directory");
        fs::create_dir_all(parent).expect("there is room");
        fs::write(path, text).expect("there is room");
        self
    }

    fn var(mut self, name: &str, value: &str) -> Self {
        self.vars.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets `$KUBECONFIG` to these files.
    fn kubeconfig(self, names: &[&str]) -> Self {
        let paths = names.iter().map(|name| match *name {
            "" => PathBuf::new(),
            name => self.path(name),
        });
        let list = std::env::join_paths(paths).expect("no path has a colon");
        self.var("KUBECONFIG", list.to_str().expect("it is text"))
    }

    fn load(&self, source: &ConfigSource) -> Result<ClientConfig, ConfigError> {
        let vars = self
            .vars
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        ClientConfig::load_from(source, &Environment::new(vars, self.path("serviceaccount")))
    }

    #[track_caller]
    fn good(&self, source: &ConfigSource) -> ClientConfig {
        match self.load(source) {
            Ok(config) => config,
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn check_error(&self, source: &ConfigSource, parts: &[&str]) {
        let error = self
            .load(source)
            .expect_err("something is wrong")
            .to_string();
        for part in parts {
            assert!(error.contains(part), "{part:?} is missing in: {error}");
        }
    }
}

fn flags(kubeconfig: Option<&Path>, master: Option<&str>, context: Option<&str>) -> ConfigSource {
    ConfigSource {
        kubeconfig: kubeconfig.map(Path::to_owned),
        master: master.map(str::to_owned),
        context: context.map(str::to_owned),
    }
}

fn no_flags() -> ConfigSource {
    ConfigSource::default()
}

fn headers(config: &ClientConfig) -> Vec<(String, String)> {
    let mut headers = ureq::http::HeaderMap::new();
    let used = config.access.authorize(&mut headers, &Stop::new());
    drop(used.expect("there are credentials"));
    let pairs = headers.iter().map(|(name, value)| {
        let value = value.to_str().expect("it is text");
        (name.to_string(), value.to_owned())
    });
    pairs.collect()
}

#[track_caller]
fn check_token(config: &ClientConfig, token: &str) {
    let expected = ("authorization".to_owned(), format!("Bearer {token}"));
    assert_eq!(headers(config), [expected]);
}

const TWO_CONTEXTS: &str = "
apiVersion: v1
kind: Config
current-context: dev
contexts:
- {name: dev, context: {cluster: dev, user: dev}}
- {name: prod, context: {cluster: prod, user: prod, namespace: shop}}
clusters:
- {name: dev, cluster: {server: 'https://dev.example:8080'}}
- {name: prod, cluster: {server: 'https://prod.example/path/'}}
users:
- {name: dev, user: {token: dev-token}}
- {name: prod, user: {tokenFile: prod.token, token: not-this}}
";

#[test]
fn the_current_context_is_used_unless_another_is_given() {
    let home = Home::new().file(".kube/config", TWO_CONTEXTS);
    let home = home.file(".kube/prod.token", "prod-token\n");
    let path = home
        .directory
        .path()
        .to_str()
        .expect("it is text")
        .to_owned();
    let home = home.var("HOME", &path);
    let config = home.good(&no_flags());
    assert_eq!(config.server(), "https://dev.example:8080");
    assert_eq!(config.namespace(), "default");
    assert!(
        config.origin().contains(".kube/config, context \"dev\""),
        "{}",
        config.origin()
    );
    check_token(&config, "dev-token");

    let config = home.good(&flags(None, None, Some("prod")));
    assert_eq!((config.namespace(), &*config.prefix), ("shop", "/path"));
    check_token(&config, "prod-token");
    check_token(&home.good(&flags(None, None, Some(""))), "dev-token");

    home.check_error(&flags(None, None, Some("test")), &["\"test\"", "dev, prod"]);
}

#[test]
fn the_flag_wins_over_the_variable_and_the_variable_over_home() {
    let at = |server: &str| TWO_CONTEXTS.replace("dev.example", server);
    let home = Home::new()
        .file("flag", &at("flag.example"))
        .file("variable", &at("variable.example"))
        .file(".kube/config", &at("home.example"))
        .kubeconfig(&["variable"]);
    let path = home
        .directory
        .path()
        .to_str()
        .expect("it is text")
        .to_owned();
    let home = home.var("HOME", &path);
    assert_eq!(
        home.good(&no_flags()).server(),
        "https://variable.example:8080"
    );
    let flag = flags(Some(&home.path("flag")), None, None);
    assert_eq!(home.good(&flag).server(), "https://flag.example:8080");
    let missing = flags(Some(&home.path("missing")), None, None);
    home.check_error(&missing, &["missing: there is no such file"]);
}

#[test]
fn files_are_merged_as_kubectl_merges() {
    // The first file has a user, which the others cannot change, and no current context.
    let first = "
current-context: ''
users:
- {name: dev, user: {tokenFile: dev.token}}
";
    let second = "
current-context: prod
contexts:
- {name: prod, context: {cluster: prod, user: dev}}
clusters:
- {name: prod, cluster: {server: 'https://second.example'}}
users:
- {name: dev, user: {token: second-token, as: somebody}}
";
    let home = Home::new()
        .file("a/first", first)
        .file("a/dev.token", "first-token")
        .file("b/second", second)
        .file("b/dev.token", "not-this")
        .file("c/third", TWO_CONTEXTS)
        .kubeconfig(&["missing", "a/first", "", "b/second", "c/third"]);
    let config = home.good(&no_flags());
    assert_eq!(config.server(), "https://second.example");
    check_token(&config, "first-token");
    // An entry that only a later file has is found too.
    let config = home.good(&flags(None, None, Some("dev")));
    assert_eq!(config.server(), "https://dev.example:8080");
    check_token(&config, "first-token");
}

#[test]
fn certificates_are_found_next_to_their_file() {
    let authority = crate::client::tests::Authority::new();
    let (certificate, key) = authority.issue(&["me"]);
    let text = "
current-context: it
contexts: [{name: it, context: {cluster: it, user: it}}]
clusters:
- {name: it, cluster: {server: 'https://it.example', certificate-authority: no/../pki/ca.crt}}
users: [{name: it, user: {client-certificate: ./pki/me.crt, client-key: pki/me.key}}]
";
    let home = Home::new()
        .file("sub/config", text)
        .file("sub/pki/ca.crt", &authority.pem())
        .file("sub/pki/me.crt", &certificate)
        .file("sub/pki/me.key", &key);
    let flag = flags(Some(&home.path("sub/config")), None, None);
    assert!(home.good(&flag).access.tls.as_ref().is_some());
    let home = home.file("sub/pki/ca.crt", "not PEM");
    home.check_error(
        &flag,
        &["sub/config", "certificate authority", "no PEM certificate"],
    );
    fs::remove_file(home.path("sub/pki/ca.crt")).expect("it is there");
    home.check_error(&flag, &["cluster \"it\"", "pki/ca.crt cannot be read"]);
}

#[test]
fn master_replaces_the_server_and_works_alone() {
    let home = Home::new()
        .file("config", TWO_CONTEXTS)
        .kubeconfig(&["config"]);
    let with_file = flags(
        Some(&home.path("config")),
        Some("https://other.example"),
        None,
    );
    let config = home.good(&with_file);
    assert_eq!(config.server(), "https://other.example");
    check_token(&config, "dev-token");

    // Credentials in $KUBECONFIG are never sent to a server that they are not for.
    let config = home.good(&flags(None, Some("127.0.0.1:8080"), None));
    assert_eq!(config.server(), "http://127.0.0.1:8080");
    assert_eq!(headers(&config), []);
    let with_context = flags(None, Some("https://other.example"), Some("dev"));
    check_token(&home.good(&with_context), "dev-token");

    // Nor is a context ignored because there is no kubeconfig to have it.
    let nowhere = Home::new();
    for master in [None, Some("https://other.example")] {
        let of_context = flags(None, master, Some("staging"));
        nowhere.check_error(&of_context, &["\"staging\"", "--context", ".kube/config"]);
    }

    let bad = flags(None, Some("ftp://other.example"), None);
    home.check_error(&bad, &["--master \"ftp://other.example\"", "https://"]);
    for (server, port) in [
        ("http://[::1]:99999", "\"99999\""),
        ("https://h:6443x", "\"6443x\""),
        ("h:0", "\"0\""),
    ] {
        let bad = flags(None, Some(server), None);
        home.check_error(&bad, &["--master", server, port]);
    }
    let config = home.good(&flags(None, Some("http://h:"), None));
    assert_eq!(config.server(), "http://h:");
}

#[test]
fn no_secret_is_sent_without_tls() {
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, \
                command: 'false'}";
    for user in [
        "token: secret",
        "tokenFile: gone",
        "username: some, password: secret",
        exec,
    ] {
        let text = TWO_CONTEXTS
            .replace("token: dev-token", user)
            .replace("https://dev.example", "HTTP://dev.example");
        let home = Home::new()
            .file("config", &text)
            .var("PATH", "/usr/bin:/bin");
        let flag = flags(Some(&home.path("config")), None, None);
        assert_eq!(headers(&home.good(&flag)), [], "{user}");
        // Without a scheme it is http, as upstream, unless there are settings for TLS.
        for master in ["http://other.example", "other.example:6443"] {
            let flag = flags(Some(&home.path("config")), Some(master), Some("dev"));
            assert_eq!(headers(&home.good(&flag)), [], "{user} at {master}");
        }
    }
    let text = TWO_CONTEXTS.replace("dev-token", "secret, as: jane");
    let home = Home::new().file("config", &text);
    let config = home.good(&flags(
        Some(&home.path("config")),
        Some("http://other.example"),
        None,
    ));
    let expected = ("impersonate-user".to_owned(), "jane".to_owned());
    assert_eq!(headers(&config), [expected]);
}

#[test]
fn a_server_without_a_scheme_gets_a_token_through_tls() {
    let home = Home::new().file("token", "secret");
    let token_file = Some(home.path("token"));
    for (url, token_file, server) in [
        ("h:10257", token_file.clone(), "https://h:10257"),
        ("h:10257", None, "http://h:10257"),
        ("http://h:10258", token_file, "http://h:10258"),
    ] {
        let config = ClientConfig::direct(&DirectSource {
            url: url.to_owned(),
            token_file,
            ..DirectSource::default()
        });
        let config = config.expect("it is good");
        assert_eq!(config.server(), server);
        assert_eq!(
            headers(&config).len(),
            usize::from(server.contains("https"))
        );
    }
    let config = ClientConfig::direct(&DirectSource {
        url: "h:0".to_owned(),
        ..DirectSource::default()
    });
    let error = config.expect_err("it has no port").to_string();
    assert!(error.starts_with("--server \"h:0\": "), "{error}");
}

#[test]
fn a_plugin_receives_the_effective_server() {
    let text = r#"
current-context: it
contexts: [{name: it, context: {cluster: it, user: me}}]
clusters: [{name: it, cluster: {server: 'https://it.example'}}]
users:
- name: me
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      interactiveMode: Never
      provideClusterInfo: true
      command: sh
      args:
      - -c
      - |
        server=$(printf %s "$KUBERNETES_EXEC_INFO" | sed 's/.*"server":"\([^"]*\)".*/\1/')
        printf '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1",
          "status": {"token": "%s"}}' "$server"
"#;
    let home = Home::new()
        .file("config", text)
        .var("PATH", "/usr/bin:/bin");
    for (master, server) in [
        (None, "https://it.example"),
        (Some("https://other.example"), "https://other.example"),
    ] {
        let config = home.good(&flags(Some(&home.path("config")), master, None));
        check_token(&config, server);
    }
}

#[test]
fn a_pod_finds_its_service_account() {
    let authority = crate::client::tests::Authority::new();
    let home = Home::new()
        .var("KUBERNETES_SERVICE_HOST", "fd00::1")
        .var("KUBERNETES_SERVICE_PORT", "443");
    home.check_error(&no_flags(), &["in-cluster", "token cannot be read"]);
    let home = home.file("serviceaccount/token", "pod-token\n");
    // Without its authority the system's count, as upstream.
    assert_eq!(home.good(&no_flags()).namespace(), "default");
    let home = home.file("serviceaccount/ca.crt", "no PEM");
    home.check_error(&no_flags(), &["in-cluster", "certificate authority"]);
    let home = home.file("serviceaccount/ca.crt", &authority.pem());
    let home = home.file("serviceaccount/namespace", "kube-system");
    let config = home.good(&no_flags());
    assert_eq!(config.server(), "https://[fd00::1]:443");
    assert_eq!(config.namespace(), "kube-system");
    check_token(&config, "pod-token");
    let home = home
        .var("HTTPS_PROXY", "http://proxy")
        .var("NO_PROXY", "fd00::/8");
    assert!(home.good(&no_flags()).proxy.is_none());
}

#[test]
fn without_a_configuration_the_error_lists_the_sources() {
    let home = Home::new().var("HOME", "/nowhere");
    let error = home.load(&no_flags()).expect_err("there is nothing");
    assert_eq!(
        error.to_string(),
        "no configuration for an API server was found; looked at
  --kubeconfig: not given
  $KUBECONFIG: not set
  /nowhere/.kube/config: no such file
  the pod's environment ($KUBERNETES_SERVICE_HOST, $KUBERNETES_SERVICE_PORT): \
   not set, so this is not a pod"
    );
    let home = Home::new()
        .file("empty", "")
        .kubeconfig(&["missing", "empty"]);
    home.check_error(&no_flags(), &["$KUBECONFIG=", "missing:", "empty: empty"]);
}

#[track_caller]
fn check_entry(cluster: &str, user: &str, parts: &[&str]) {
    let text = format!(
        "
current-context: it
contexts: [{{name: it, context: {{cluster: it, user: me}}}}]
clusters: [{{name: it, cluster: {cluster}}}]
users: [{{name: me, user: {user}}}]
"
    );
    let home = Home::new().file("config", &text);
    home.check_error(&flags(Some(&home.path("config")), None, None), parts);
}

#[test]
fn errors_name_the_entry_and_how_to_fix_it() {
    let server = "{server: 'https://it.example', insecure-skip-tls-verify: true}";
    for (cluster, user, parts) in [
        ("{}", "{}", &["cluster \"it\"", "no server"][..]),
        ("null", "{}", &["cluster \"it\"", "no server"]),
        (
            "{server: 'it is here'}",
            "{}",
            &["context \"it\"", "is not a URL"],
        ),
        ("{server: 'https://a:b@it'}", "{}", &["user and password"]),
        (
            "{server: it, insecure-skip-tls-verify: true, certificate-authority-data: Q0E=}",
            "{}",
            &["exclude each other"],
        ),
        (
            "{server: it, certificate-authority-data: '%'}",
            "{}",
            &["not valid base64"],
        ),
        (
            server,
            "{exec: {command: aws}}",
            &[
                "user \"me\"",
                "apiVersion \"\"",
                "authentication.k8s.io/v1beta1",
            ],
        ),
        (
            server,
            "{exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}}",
            &["user \"me\"", "interactiveMode \"\"", "IfAvailable"],
        ),
        (
            server,
            "{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, \
              interactiveMode: WhenAsked}}",
            &[
                "user \"me\"",
                "interactiveMode \"WhenAsked\"",
                "IfAvailable",
            ],
        ),
        (
            server,
            "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: sh, \
              env: [{value: a}]}}",
            &["user \"me\"", "a variable without a name"],
        ),
        (
            server,
            "{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}",
            &["user \"me\"", "no command"],
        ),
        (
            server,
            "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: no-such-plugin, \
              installHint: get it from the shop}}",
            &["\"no-such-plugin\" (exec) does not exist; get it from the shop"],
        ),
        (
            server,
            "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: sub/plugin}}",
            &["/sub/plugin\" (exec) does not exist"],
        ),
        (
            server,
            "{auth-provider: {name: gcp}}",
            &["user \"me\"", "\"gcp\"", "tokenFile"],
        ),
        (
            server,
            "{client-certificate-data: Q0E=}",
            &["user \"me\"", "no client-key"],
        ),
        (
            server,
            "{client-key-data: Q0E=}",
            &["user \"me\"", "no client-certificate"],
        ),
        (
            server,
            "{token: a, username: b}",
            &["user \"me\"", "exclude each other"],
        ),
        (server, "{tokenFile: gone}", &["gone cannot be read"]),
        (server, "{as-groups: [a]}", &["as-groups"]),
        (
            "[]",
            "{}",
            &["config: it is not valid: line 4 column 32: this must be a map"],
        ),
    ] {
        check_entry(cluster, user, parts);
    }
}

#[test]
fn errors_name_missing_contexts_clusters_and_users() {
    let check = |text: &str, parts: &[&str]| {
        let home = Home::new().file("config", text);
        home.check_error(&flags(Some(&home.path("config")), None, None), parts);
    };
    let context = "contexts: [{name: it, context: {cluster: c, user: u}}]\n";
    check(context, &["no current-context", "--context; contexts: it"]);
    let context = format!("current-context: it\n{context}");
    check(
        &context,
        &["context \"it\"", "cluster \"c\" does not exist"],
    );
    let cluster = format!("{context}clusters: [{{name: c, cluster: {{server: a}}}}]\n");
    check(&cluster, &["context \"it\"", "user \"u\" does not exist"]);
    check(
        "current-context: gone",
        &["context \"gone\" not found", "has no contexts"],
    );
    check("a: b: c", &["config: it is not valid: line 1"]);
}

#[test]
fn empty_fields_count_as_missing() {
    let text = "
current-context: it
contexts: [{name: it, context: {cluster: it, user: me, namespace: ''}}]
clusters:
- name: it
  cluster: {server: https://it.example, certificate-authority: '', certificate-authority-data: '',
    proxy-url: '', tls-server-name: ''}
users:
- name: me
  user: {token: t, tokenFile: '', username: '', password: '', client-certificate: '',
    client-key: '', as: '', client-certificate-data: '', client-key-data: ''}
";
    let home = Home::new().file("config", text);
    let config = home.good(&flags(Some(&home.path("config")), None, None));
    assert_eq!(config.server(), "https://it.example");
    assert_eq!(config.namespace(), "default");
    check_token(&config, "t");
}

#[test]
fn the_path_of_a_server_is_cleaned_as_in_go() {
    for (path, expected) in [
        ("", ""),
        ("//", ""),
        ("/k8s/clusters/c-1", "/k8s/clusters/c-1"),
        ("/a//b/./", "/a/b"),
        ("/a/../b", "/b"),
        ("/a b/%20/ü", "/a%20b/%20/%C3%BC"),
        ("/a?b=c#d", "/a"),
    ] {
        let config = ClientConfig::plain(&format!("http://it.example{path}"));
        assert_eq!(&*config.prefix, expected, "{path}");
    }
}

/// As client-go: null is a zero value, the last of duplicate members counts, and only what is used
/// is checked.
#[test]
fn a_kubeconfig_is_read_as_kubectl_reads_it() {
    let text = "
kind: Config
kind: Config
preferences: [1, {a: null}]
extensions: null
unknown: {any: thing}
current-context: it
contexts:
-
- {name: null, context: null}
- {context: {cluster: it}}
- {name: other, context: {cluster: nobody, user: nobody, extensions: 1}}
- {name: it, context: {cluster: it, user: me, namespace: null, extensions: [{name: null}]}}
clusters:
- {name: bad-ca, cluster: {server: 'https://h', certificate-authority-data: '%'}}
- {name: bad-url, cluster: {server: 'no server', certificate-authority: gone}}
- {cluster: {server: null}}
- name: it
  cluster:
    server: http://wrong.example
    server: https://it.example
    insecure-skip-tls-verify: null
    disable-compression: null
    proxy-url: null
    extensions: [null, {extension: {a: 1}}, {name: x, extension: null}]
users:
- {user: {token: other}}
- {name: empty}
- {name: null, user: null}
- name: future
  user:
    exec: {apiVersion: client.authentication.k8s.io/v2, command: x, interactiveMode: WhenAsked,
      env: null, args: [null], installHint: null, provideClusterInfo: null, more: [1]}
- {name: old, user: {auth-provider: {name: null, config: null}}}
- {name: both, user: {token: a, username: b, client-certificate: gone}}
- name: me
  user: {token: wrong, token: t, client-key-data: '%', client-key: gone, username: null,
    password: null, tokenFile: null, as: null, as-groups: null, as-user-extra: null,
    auth-provider: null, exec: {command: null, env: [{name: null, value: null}]}}
";
    let home = Home::new().file("config", text);
    let config = home.good(&flags(Some(&home.path("config")), None, None));
    assert_eq!(config.server(), "https://it.example");
    assert_eq!(config.namespace(), "default");
    check_token(&config, "t");

    let text = text.replace("user: me", "user: empty");
    let home = Home::new().file("config", &text);
    assert_eq!(
        headers(&home.good(&flags(Some(&home.path("config")), None, None))),
        []
    );
}

#[test]
fn base64_is_decoded_as_go_decodes_it() {
    for data in ["U1RSQU5HRQ==", "U1RS\n QU5H\r\n\tRQ==", "U1RSQU5HRR=="] {
        let decoded = data_or_file("a", Some(data), None).expect("it is base64");
        let Some(Pem::Data(bytes)) = decoded else {
            panic!("{data:?} is data");
        };
        assert_eq!(bytes, b"STRANGE", "{data:?}");
    }
    for data in ["U1RSQU5HRQ", "U1RSQU5HRQ=", "U1R-QU5HRQ==", "%"] {
        let error = data_or_file("a", Some(data), None).err();
        assert_eq!(
            error.as_deref(),
            Some("a-data is not valid base64"),
            "{data:?}"
        );
    }
}

#[test]
fn two_entries_of_one_name_are_an_error_where_they_are_used() {
    for (twice, parts) in [
        ("contexts:", ["context \"dev\"", "there are two"]),
        ("clusters:", ["cluster \"dev\"", "there are two"]),
        ("users:", ["user \"dev\"", "there are two"]),
    ] {
        let more = format!("{twice}\n- {{name: prod}}\n- {{name: dev}}");
        let home = Home::new().file("config", &TWO_CONTEXTS.replace(twice, &more));
        home.check_error(&flags(Some(&home.path("config")), None, None), &parts);
    }
}

#[test]
fn a_static_credential_wins_over_a_plugin() {
    let text = TWO_CONTEXTS.replace("{token: dev-token}", "{token: t, exec: {command: aws}}");
    let home = Home::new().file("config", &text);
    check_token(
        &home.good(&flags(Some(&home.path("config")), None, None)),
        "t",
    );
}

#[test]
fn impersonation_and_debug_output() {
    let text = TWO_CONTEXTS.replace(
        "{token: dev-token}",
        "{token: hunter2, as: jane, as-uid: '1', as-groups: [a, b], as-user-extra: {k: [v, w]}}",
    );
    let home = Home::new().file("config", &text);
    let config = home.good(&flags(Some(&home.path("config")), None, None));
    let names: Vec<_> = headers(&config).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 7, "{names:?}");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn invalid_utf_16_is_an_error() {
    let home = Home::new();
    let write = |bytes: &[u8]| fs::write(home.path("config"), bytes).expect("there is room");
    let flag = flags(Some(&home.path("config")), None, None);
    for bytes in [
        &b"\xfe\xff\xff"[..],
        b"\xff\xfea",
        b"\xff\xff",
        b"\xff\xfe\x00\xd8",
    ] {
        write(bytes);
        home.check_error(
            &flag,
            &["config: it is not valid: not text in UTF-8 or UTF-16"],
        );
    }
    let text: Vec<u8> = TWO_CONTEXTS
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    write(&[&b"\xff\xfe"[..], &text].concat());
    check_token(&home.good(&flag), "dev-token");
    write(&vec![b'#'; 5 * 1024 * 1024]);
    home.check_error(
        &flag,
        &["config: it cannot be read: it is longer than 4 MiB"],
    );
}

#[test]
fn no_error_repeats_a_password() {
    let check = |text: &str, master: Option<&str>| {
        let home = Home::new().file("config", text);
        let file = home.path("config");
        let source = flags((!text.is_empty()).then_some(&*file), master, None);
        let error = home.load(&source).expect_err("something is wrong");
        assert!(!error.to_string().contains("SECRET"), "{error}");
    };
    for url in [
        "http://u:SECRET@h",
        "ftp://u:SECRET@h",
        "http://u:SE SECRET@h",
        "u:SECRET@h",
        "http://u:SECRET@",
    ] {
        check("", Some(url));
        check(TWO_CONTEXTS, Some(url));
        check(&TWO_CONTEXTS.replace("https://dev.example:8080", url), None);
    }
    for user in [
        "SECRET",
        "[SECRET]",
        "{token: [SECRET]}",
        "{token: {a: SECRET}}",
        "{token: a, exec: SECRET}",
        "{token: SECRET, token: [SECRET]}",
        "{token: SECRET",
        "{token: SECRET, exec: {args: SECRET}}",
        "{tokenFile: [SECRET], token: 'SECRET}",
    ] {
        check(&TWO_CONTEXTS.replace("{token: dev-token}", user), None);
    }
}
