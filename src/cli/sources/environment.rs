//! The environment: `REPLICASET_CONTROLLER_KUBE_API_QPS` sets `--kube-api-qps`.

use std::ffi::{OsStr, OsString};

use super::{Argument, Layer, Origin, nearest};

pub(in crate::cli) const PREFIX: &str = "REPLICASET_CONTROLLER_";

/// Set while the program is built, to name the commit in `--version`. A shell or a CI job that
/// exports it may also run the program.
const OF_THE_BUILD: &str = "REPLICASET_CONTROLLER_COMMIT";

pub(in crate::cli) fn variable(flag: &str) -> String {
    format!("{PREFIX}{}", ending(flag))
}

fn ending(flag: &str) -> String {
    flag.to_uppercase().replace('-', "_")
}

/// Reads the variables of these flags. Ignores empty variables, [`OF_THE_BUILD`], and those that
/// the kubelet sets in a pod for each Service of the namespace. Any other variable with the prefix
/// and without a flag is a mistake.
pub(in crate::cli) fn read(environment: &[(OsString, OsString)], flags: &[String]) -> Layer {
    let mut layer = Layer::default();
    let mut environment: Vec<_> = environment.iter().collect();
    environment.sort();
    let services: Vec<&str> = environment
        .iter()
        .filter_map(|(name, _)| name.to_str()?.strip_suffix("_SERVICE_HOST"))
        .collect();
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        let is_link = services
            .iter()
            .any(|service| is_service_link(name, service));
        if value.is_empty() || name == OF_THE_BUILD || (is_link && is_url(value)) {
            continue;
        }
        if let Some(flag) = flags.iter().find(|flag| variable(flag) == name) {
            let origin = Origin::Environment(name.to_owned());
            layer.arguments.push(Argument::new(flag, value, origin));
        } else if !is_link {
            // The common prefix would make any two names similar.
            let ends: Vec<String> = flags.iter().map(|flag| ending(flag)).collect();
            let near = nearest(&name[PREFIX.len()..], ends.iter().map(String::as_str));
            let hint =
                near.map_or_else(String::new, |end| format!("; did you mean {PREFIX}{end}?"));
            layer
                .mistakes
                .push(format!("${name}: no flag has this variable{hint}"));
        }
    }
    layer
}

/// True for the names of the variables that the kubelet sets for this Service, given in capitals
/// (kubernetes `pkg/kubelet/envvars/envvars.go:FromServices`).
fn is_service_link(name: &str, service: &str) -> bool {
    let Some(rest) = name.strip_prefix(service) else {
        return false;
    };
    rest == "_SERVICE_HOST"
        || rest == "_SERVICE_PORT"
        || rest.starts_with("_SERVICE_PORT_")
        || rest == "_PORT"
        || rest
            .strip_prefix("_PORT_")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// True for a value of the kubelet's `X_PORT`, such as `tcp://10.0.0.1:443`. Only
/// this variable of a Service can have the name of a flag's variable (`--secure-port`), and no port
/// has this form.
fn is_url(value: &OsStr) -> bool {
    value.to_str().is_some_and(|value| value.contains("://"))
}

#[cfg(test)]
mod tests {
    use super::{Layer, OsString, read};

    fn layer_of(environment: &[(&str, &str)]) -> Layer {
        let environment: Vec<(OsString, OsString)> = environment
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let flags = ["kube-api-qps", "namespace", "secure-port", "v"].map(str::to_owned);
        read(&environment, &flags)
    }

    #[test]
    fn the_variables_of_any_service_are_not_settings() {
        let layer = layer_of(&[
            ("REPLICASET_CONTROLLER_METRICS_SERVICE_HOST", "10.0.0.1"),
            ("REPLICASET_CONTROLLER_METRICS_SERVICE_PORT", "443"),
            ("REPLICASET_CONTROLLER_METRICS_SERVICE_PORT_HTTPS", "443"),
            ("REPLICASET_CONTROLLER_METRICS_PORT", "tcp://10.0.0.1:443"),
            ("REPLICASET_CONTROLLER_METRICS_PORT_443_TCP_PROTO", "tcp"),
            ("REPLICASET_CONTROLLER_SECURE_SERVICE_HOST", "10.0.0.2"),
            ("REPLICASET_CONTROLLER_SECURE_PORT", "tcp://10.0.0.2:443"),
        ]);
        assert_eq!(layer.mistakes, [""; 0]);
        assert!(layer.arguments.is_empty(), "{:?}", layer.arguments);
    }

    #[test]
    fn a_setting_beside_a_service_of_its_name_is_read() {
        let layer = layer_of(&[
            ("REPLICASET_CONTROLLER_SECURE_SERVICE_HOST", "10.0.0.2"),
            ("REPLICASET_CONTROLLER_SECURE_PORT", "10258"),
        ]);
        assert_eq!(layer.arguments[0].word, "--secure-port=10258");
        assert_eq!(layer.mistakes, [""; 0]);
    }

    #[test]
    fn the_variable_of_the_build_is_no_mistake() {
        let layer = layer_of(&[
            ("REPLICASET_CONTROLLER_COMMIT", "0123abc"),
            ("REPLICASET_CONTROLLER_COMMITS", "0123abc"),
        ]);
        assert!(layer.arguments.is_empty(), "{:?}", layer.arguments);
        assert_eq!(
            layer.mistakes,
            ["$REPLICASET_CONTROLLER_COMMITS: no flag has this variable"]
        );
    }

    #[test]
    fn what_looks_like_a_link_of_no_service_is_a_mistake() {
        let layer = layer_of(&[
            ("REPLICASET_CONTROLLER_METRICS_PORT", "tcp://10.0.0.1:443"),
            ("REPLICASET_CONTROLLER_OTHER_SERVICE_HOST", "10.0.0.1"),
        ]);
        assert_eq!(
            layer.mistakes,
            ["$REPLICASET_CONTROLLER_METRICS_PORT: no flag has this variable"]
        );
    }

    #[test]
    fn variables_of_services_are_no_mistakes_and_typos_are() {
        let layer = layer_of(&[
            ("REPLICASET_CONTROLLER_KUBE_API_QPS", "7"),
            ("REPLICASET_CONTROLLER_NAMESPACE", ""),
            ("REPLICASET_CONTROLLER_SERVICE_HOST", "10.0.0.1"),
            ("REPLICASET_CONTROLLER_SERVICE_PORT_HTTPS", "443"),
            ("REPLICASET_CONTROLLER_PORT", "tcp://10.0.0.1:443"),
            ("REPLICASET_CONTROLLER_PORT_443_TCP_ADDR", "10.0.0.1"),
            ("REPLICASET_CONTROLLER_FOO", "7"),
            ("REPLICASET_CONTROLLER_KUBE_API_QSP", "7"),
            ("HOME", "/"),
        ]);
        assert_eq!(layer.arguments.len(), 1);
        assert_eq!(layer.arguments[0].word, "--kube-api-qps=7");
        assert_eq!(
            layer.mistakes,
            [
                "$REPLICASET_CONTROLLER_FOO: no flag has this variable",
                "$REPLICASET_CONTROLLER_KUBE_API_QSP: no flag has this variable; \
                 did you mean REPLICASET_CONTROLLER_KUBE_API_QPS?"
            ]
        );
    }
}
