//! A rare text in every secret field of a kubeconfig: it appears in no error and no debug output.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::Target;
use super::mutate::Form;
use crate::client::{ClientConfig, ConfigSource, Environment};

const CANARY: &str = "qzqzqzqz";

/// Members of a user whose whole value is secret.
const OF_USER: [&str; 3] = ["token", "password", "client-key-data"];

pub(super) fn target() -> Target {
    Target {
        name: "secrets",
        form: Form::Json,
        n_short: 100,
        cpu_factor: 20,
        corpus,
        reader: || {
            let folder = tempfile::tempdir().expect("a folder");
            Box::new(move |input| read(&folder.path().join("config"), input))
        },
    }
}

/// Kubeconfigs in JSON, which is YAML too. `master` and `proxy` become flag and environment.
fn corpus() -> Vec<Vec<u8>> {
    let users = [
        r#"{"token":"x"}"#,
        r#"{"token":"x","as":"y","as-groups":["g"]}"#,
        r#"{"username":"n","password":"x"}"#,
        r#"{"client-certificate-data":"eA==","client-key-data":"x"}"#,
        r#"{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"/bin/true",
"interactiveMode":"Never","env":[{"name":"A","value":"x"}],"args":["a"]}}"#,
        r#"{"auth-provider":{"name":"p","config":{"access-token":"x"}}}"#,
    ];
    let places = [
        r#""server":"https://h:6443","insecure-skip-tls-verify":true"#,
        r#""server":"https://h:6443","proxy-url":"http://u:x@h:1""#,
        r#""server":"http://u:x@h:6443/a""#,
        r#""server":"u:x@h","proxy-url":"socks5://u:x@[::1""#,
        r#""server":"ftp://u:x@h","insecure-skip-tls-verify":true"#,
        r#""server":"https://h","proxy-url":"https://u:x @h@i:99999""#,
    ];
    let around = [
        "",
        "",
        r#""master":"http://u:x y@h","#,
        r#""proxy":"http://u:x@h:3","#,
        r#""proxy":"//u:x@@","#,
        r#""master":"u:x@h:1","#,
    ];
    let parts = users.iter().zip(places).zip(around);
    let texts = parts.map(|((user, place), around)| {
        format!(
            r#"{{{around}"clusters":[{{"name":"c","cluster":{{{place}}}}}],
"users":[{{"name":"u","user":{user}}}],
"contexts":[{{"name":"x","context":{{"cluster":"c","user":"u"}}}}],"current-context":"x"}}"#
        )
    });
    texts.map(String::into_bytes).collect()
}

/// Makes all texts of a value secret.
fn plant(value: &mut Value) {
    match value {
        Value::String(text) => CANARY.clone_into(text),
        Value::Array(list) => list.iter_mut().for_each(plant),
        Value::Object(map) => map.values_mut().for_each(plant),
        _ => {}
    }
}

/// Makes the password of a URL secret.
fn plant_in_url(value: &mut Value) {
    let Some(url) = value.as_str() else {
        return plant(value);
    };
    let (scheme, rest) = match url.split_once("//") {
        Some((scheme, rest)) => (format!("{scheme}//"), rest),
        None => (String::new(), url),
    };
    if let Some((_, host)) = rest.split_once('@') {
        *value = Value::String(format!("{scheme}u:{CANARY}@{host}"));
    }
}

fn entries<'a>(config: &'a mut Value, list: &str, kind: &str) -> Vec<&'a mut Value> {
    let entries = config.get_mut(list).and_then(Value::as_array_mut);
    let entries = entries.into_iter().flatten();
    entries.filter_map(|entry| entry.get_mut(kind)).collect()
}

fn plant_all(config: &mut Value) {
    for user in entries(config, "users", "user") {
        for name in OF_USER {
            user.get_mut(name).map(plant);
        }
        user.pointer_mut("/auth-provider/config").map(plant);
        let env = user.pointer_mut("/exec/env").and_then(Value::as_array_mut);
        for variable in env.into_iter().flatten() {
            variable.get_mut("value").map(plant);
        }
    }
    for cluster in entries(config, "clusters", "cluster") {
        for name in ["server", "proxy-url"] {
            cluster.get_mut(name).map(plant_in_url);
        }
    }
    for name in ["master", "proxy"] {
        config.get_mut(name).map(plant_in_url);
    }
}

fn read(file: &Path, input: &[u8]) -> bool {
    let Ok(mut config) = serde_json::from_slice::<Value>(input) else {
        return false;
    };
    plant_all(&mut config);
    let mut take = |name| {
        let value = config.as_object_mut().and_then(|map| map.remove(name));
        value.and_then(|value| value.as_str().map(str::to_owned))
    };
    let (master, proxy) = (take("master"), take("proxy").unwrap_or_default());
    let source = ConfigSource {
        kubeconfig: Some(file.to_owned()),
        master,
        ..ConfigSource::default()
    };
    let variables = [
        ("PATH", "/bin"),
        ("HTTPS_PROXY", &proxy),
        ("HTTP_PROXY", &proxy),
    ];
    let environment = Environment::new(variables, "/nonexistent");
    let whole = serde_json::to_string_pretty(&config).expect("JSON");
    // What is cut off is an error of the parser, which has seen the secrets before.
    let mut end = input.len() * 7 % (whole.len() + 1);
    while !whole.is_char_boundary(end) {
        end -= 1;
    }
    let damaged = whole.replacen(':', " ", 1 + input.len() % 9);
    let mut accepted = false;
    for text in [config.to_string(), whole[..end].to_owned(), damaged] {
        fs::write(file, text).expect("room on the disk");
        let message = match ClientConfig::load_from(&source, &environment) {
            Ok(config) => {
                accepted = true;
                format!("{config:?} {} {}", config.server(), config.origin())
            }
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!message.contains(CANARY), "{message}");
    }
    accepted
}
