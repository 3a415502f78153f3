//! Files and flags with a secret that are not valid: the error names them, and shows no secret.

use super::canary::{CANARY, leaks};
use crate::credentials::Home;
use crate::support::DaemonProcess;

/// A start that fails.
struct Start {
    name: &'static str,
    /// The kubeconfig's user, within braces, or the whole file if it begins with `apiVersion`.
    user: &'static str,
    /// More members of the kubeconfig's cluster, after a comma.
    cluster: &'static str,
    argument: &'static str,
    /// A part of the error.
    error: &'static str,
}

const fn user(name: &'static str, user: &'static str, error: &'static str) -> Start {
    Start {
        name,
        user,
        cluster: "",
        argument: "",
        error,
    }
}

const fn flag(name: &'static str, argument: &'static str, error: &'static str) -> Start {
    Start {
        argument,
        ..user(name, "", error)
    }
}

const fn cluster(name: &'static str, cluster: &'static str, error: &'static str) -> Start {
    Start {
        cluster,
        ..user(name, "", error)
    }
}

/// `SECRET` stands for the secret, `HOME` for the folder of the kubeconfig.
const STARTS: &[Start] = &[
    user(
        "a token that is a list",
        "token: [SECRET]",
        "this must be a string",
    ),
    user(
        "a token that is a map",
        "token: {a: SECRET}",
        "this must be a string",
    ),
    user(
        "a token that has no end",
        "token: 'SECRET",
        "unclosed quote",
    ),
    user(
        "a token after a tab",
        "token:\t\tSECRET: x: y",
        "it is not valid",
    ),
    user(
        "a password that is a map",
        "username: a, password: {b: SECRET}",
        "this must be a string",
    ),
    user(
        "a file that ends in a token",
        "apiVersion: v1\nusers:\n- user:\n  token: SECRET\n - {",
        "it is not valid",
    ),
    user(
        "a key that is no base64",
        "client-certificate-data: eA==, client-key-data: 'SECRET!'",
        "client-key-data is not valid base64",
    ),
    user(
        "a key that is no PEM",
        "client-certificate: secret.txt, client-key: secret.txt",
        "contains no PEM certificate",
    ),
    user(
        "a token file that is a folder",
        "tokenFile: /proc",
        "token file /proc cannot be read",
    ),
    user(
        "a plugin's environment that is no list",
        "exec: {command: x, env: SECRET}",
        "it is not valid",
    ),
    user(
        "a plugin of no version",
        "exec: {command: x, env: [{name: a, value: SECRET}]}",
        "its exec has the apiVersion",
    ),
    user(
        "a provider",
        "auth-provider: {name: x, config: {access-token: SECRET}}",
        "auth-provider \"x\"",
    ),
    cluster(
        "a proxy of no port",
        ", proxy-url: 'http://u:SECRET@h:99999'",
        "has the port \"99999\"",
    ),
    cluster(
        "a proxy of an unknown kind",
        ", proxy-url: 'gopher://u:SECRET@h'",
        "has a scheme other than",
    ),
    cluster(
        "a proxy with a space",
        ", proxy-url: 'http://u:SECRET @h'",
        "is not a proxy's URL",
    ),
    cluster(
        "authorities that are no base64",
        ", certificate-authority-data: 'SECRET!'",
        "certificate-authority-data is not valid base64",
    ),
    flag(
        "a server with a password",
        "--master=http://u:SECRET@127.0.0.1:1",
        "user and password do not belong",
    ),
    flag(
        "a server of an unknown kind",
        "--master=ftp://u:SECRET@h",
        "user and password do not belong",
    ),
    flag(
        "a server with a space",
        "--master=http://u:SECRET @h x",
        "user and password do not belong",
    ),
    flag(
        "a serving key that is no PEM",
        "--tls-private-key-file=HOME/secret.txt",
        "--tls-cert-file",
    ),
    flag(
        "a configuration that is none",
        "--config=HOME/secret.txt",
        "apiVersion is missing",
    ),
];

fn run(start: &Start) -> Vec<String> {
    let home = Home::new();
    home.write("secret.txt", &format!("SECRET: {CANARY}\n"));
    let folder = home.path("").display().to_string();
    let filled = |text: &str| text.replace("SECRET", CANARY).replace("HOME/", &folder);
    let server = "https://127.0.0.1:1";
    if start.user.starts_with("apiVersion") {
        home.write("config", &filled(start.user));
    } else {
        home.kubeconfig(server, &filled(start.cluster), &filled(start.user));
    }
    let config = home.path("config").display().to_string();
    let argument = filled(start.argument);
    let mut arguments = vec!["run", "--kubeconfig", &config, "--v=10"];
    if start.argument.starts_with("--tls") {
        arguments.push("--tls-cert-file=/dev/null");
        arguments.push("--secure-port=1");
    }
    arguments.extend((!argument.is_empty()).then_some(argument.as_str()));
    let environment = [("RUST_LOG", "trace,replicaset_controller=trace")];
    let mut process = DaemonProcess::start_with(&arguments, &environment);
    let status = process.exit();
    let log = process.log();
    let mut wrong = leaks("error", &(process.output() + &log));
    if status.code() != Some(2) || !log.contains(start.error) {
        wrong.push(format!("{status}: {log}"));
    }
    wrong
}

#[test]
fn an_invalid_file_or_flag_is_named_without_its_secret() {
    let wrong: Vec<String> = STARTS
        .iter()
        .flat_map(|start| {
            let wrong = run(start);
            wrong.into_iter().map(|it| format!("{}: {it}", start.name))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
