//! What the user's files, credential plugins and command lines say.

use std::fs;

use super::mutate::Form;
use super::{Target, text_of};
use crate::cli::{ParseOutcome, Sources, parse};
use crate::client::{ClientConfig, ConfigSource, Environment, read_credential};

const YAML: &[&str] = &[
    "&a ",
    "*a",
    "<<: *a",
    "- ",
    ": ",
    "\n",
    "\n  ",
    "!!binary ",
    "|\n",
    ">-\n",
    "---\n",
    "...\n",
    "'",
    "#",
    "%YAML 1.2\n",
    "? ",
    "~",
    ".inf",
    ".nan",
    "token: x",
    "proxy-url: http://u:p@h:1",
    "server: http://",
    "99999999999h",
    "\u{feff}",
];

const FLAGS: &[&str] = &[
    "--",
    "=",
    "\n",
    "rs/",
    "rc/",
    "/",
    "1h",
    "1h1m1s",
    "-1s",
    "9223372036854775807s",
    "*",
    "-",
    "--feature-gates=",
    "AllAlpha=true",
    "--controllers=",
    "--namespace=",
    "a=b",
    "--kube-api-qps=",
    "NaN",
    "1e39",
    "--leader-elect-lease-duration=",
    "explain",
    "\u{b5}s",
];

pub(super) fn targets() -> Vec<Target> {
    let target = |name, form, n_short, cpu_factor, corpus, reader| Target {
        name,
        form,
        n_short,
        cpu_factor,
        corpus,
        reader,
    };
    vec![
        target("kubeconfig", Form::Text(YAML), 100, 10, kubeconfigs, || {
            let folder = tempfile::tempdir().expect("a folder");
            Box::new(move |input| kubeconfig(&folder.path().join("config"), input))
        }),
        // clap builds its whole table of flags for each.
        target(
            "configuration",
            Form::Text(YAML),
            15,
            20,
            configurations,
            || Box::new(configuration),
        ),
        // The command line is parsed again after each mistake, so that all are reported together.
        target("flags", Form::Text(FLAGS), 15, 100, flag_lists, || {
            Box::new(flags)
        }),
        target("credential", Form::Json, 300, 1, credentials, || {
            Box::new(credential)
        }),
    ]
}

fn kubeconfigs() -> Vec<Vec<u8>> {
    text_of(&[
        "apiVersion: v1
kind: Config
clusters:
- name: c
  cluster: {server: 'https://h:6443', insecure-skip-tls-verify: true, proxy-url: 'http://u:p@h:1'}
users:
- name: u
  user: {token: abc, as: x, as-groups: [g], as-user-extra: {a: [b]}}
contexts:
- name: x
  context: {cluster: c, user: u, namespace: n}
current-context: x
",
        "clusters: [{name: c, cluster: {server: 'http://h'}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true,
  interactiveMode: Never, env: [{name: A, value: B}], args: [a]}}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
",
    ])
}

fn kubeconfig(file: &std::path::Path, input: &[u8]) -> bool {
    fs::write(file, input).expect("room on the disk");
    let source = ConfigSource {
        kubeconfig: Some(file.to_owned()),
        ..ConfigSource::default()
    };
    let environment = Environment::new([("PATH", "/bin")], "/nonexistent");
    match ClientConfig::load_from(&source, &environment) {
        Ok(_) => true,
        Err(error) => {
            let message = error.to_string();
            assert!(
                message.len() <= 4 * input.len() + 8192,
                "{} bytes of message",
                message.len()
            );
            false
        }
    }
}

fn configurations() -> Vec<Vec<u8>> {
    let sample = super::root().join("config/config.yaml");
    vec![fs::read(sample).expect("the sample")]
}

fn configuration(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input).into_owned();
    let words = ["replicaset-controller", "run", "--config", "file"];
    let sources = Sources {
        arguments: words.map(Into::into).to_vec(),
        environment: Vec::new(),
        read_file: &move |_| Ok(text.clone()),
    };
    matches!(parse(&sources), ParseOutcome::Run(_))
}

fn flag_lists() -> Vec<Vec<u8>> {
    text_of(&[
        "explain\nrs/web\n--namespace=a",
        "explain\nrc\nweb\n-o\njson",
        "explain\na/web\n--server",
        "run\n--feature-gates=AllAlpha=true\n--logging-format=json\n--controllers=*,-rc",
        "run\n--leader-elect-lease-duration=1h1m\n--kube-api-qps=20\n--v=4",
        "rbac\n--namespace=a\n--service-account=a:b",
        "dev\n--pod-ready-after=1.5s\n--nodes=3",
    ])
}

/// Each line is an argument.
fn flags(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let words = std::iter::once("replicaset-controller").chain(text.split('\n'));
    let arguments: Vec<std::ffi::OsString> = words.take(30).map(Into::into).collect();
    let outcome = parse(&Sources {
        arguments,
        environment: Vec::new(),
        read_file: &|_| Ok(String::new()),
    });
    match outcome {
        ParseOutcome::Run(_) => true,
        ParseOutcome::Show(_) => false,
        ParseOutcome::Usage(lines) => {
            assert!(!lines.is_empty(), "a rejection without a reason");
            false
        }
    }
}

fn credentials() -> Vec<Vec<u8>> {
    text_of(&[
        r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",
"status":{"token":"qzqzqzqz","expirationTimestamp":"2026-11-24T10:00:00Z"}}"#,
        r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",
"status":{"clientCertificateData":"qzqzqzqz","clientKeyData":"qzqzqzqz"}}"#,
    ])
}

/// No error quotes a secret.
fn credential(input: &[u8]) -> bool {
    match read_credential(input) {
        Ok(()) => true,
        Err(error) => {
            assert!(!error.contains("qzqzqzqz"), "{error}");
            false
        }
    }
}
