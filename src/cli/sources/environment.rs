//! The environment: `REPLICASET_CONTROLLER_KUBE_API_QPS` is `--kube-api-qps`.

use std::ffi::OsString;

use super::{Argument, Layer, Origin, did_you_mean};

/// What the names of all variables begin with.
pub(in crate::cli) const PREFIX: &str = "REPLICASET_CONTROLLER_";

/// The variable that stands for a flag.
pub(in crate::cli) fn variable(flag: &str) -> String {
    format!("{PREFIX}{}", flag.to_uppercase().replace('-', "_"))
}

/// Reads the variables of these flags. An empty one counts as not there. One that has the prefix and
/// belongs to no flag is a mistake, but for those that Kubernetes itself makes for a Service that
/// happens to be called replicaset-controller.
pub(in crate::cli) fn read(environment: &[(OsString, OsString)], flags: &[String]) -> Layer {
    let mut layer = Layer::default();
    let mut environment: Vec<_> = environment.iter().collect();
    environment.sort();
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        if value.is_empty() {
            continue;
        }
        if let Some(flag) = flags.iter().find(|flag| variable(flag) == name) {
            let origin = Origin::Environment(name.to_owned());
            layer.arguments.push(Argument::new(flag, value, origin));
        } else if !is_service_link(name) {
            let variables: Vec<String> = flags.iter().map(|flag| variable(flag)).collect();
            let hint = did_you_mean(name, variables.iter().map(String::as_str));
            layer
                .mistakes
                .push(format!("${name}: no flag has this variable{hint}"));
        }
    }
    layer
}

/// kubernetes `pkg/kubelet/envvars/envvars.go:FromServices`.
fn is_service_link(name: &str) -> bool {
    let rest = &name[PREFIX.len()..];
    rest == "SERVICE_HOST"
        || rest == "PORT"
        || rest.starts_with("SERVICE_PORT")
        || rest
            .strip_prefix("PORT_")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{OsString, read};

    #[test]
    fn variables_of_services_are_no_mistakes_and_typos_are() {
        let environment: Vec<(OsString, OsString)> = [
            ("REPLICASET_CONTROLLER_KUBE_API_QPS", "7"),
            ("REPLICASET_CONTROLLER_NAMESPACE", ""),
            ("REPLICASET_CONTROLLER_SERVICE_HOST", "10.0.0.1"),
            ("REPLICASET_CONTROLLER_SERVICE_PORT_HTTPS", "443"),
            ("REPLICASET_CONTROLLER_PORT", "tcp://10.0.0.1:443"),
            ("REPLICASET_CONTROLLER_PORT_443_TCP_ADDR", "10.0.0.1"),
            ("REPLICASET_CONTROLLER_KUBE_API_QSP", "7"),
            ("HOME", "/"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec();
        let flags = ["kube-api-qps".to_owned(), "namespace".to_owned()];
        let layer = read(&environment, &flags);
        assert_eq!(layer.arguments.len(), 1);
        assert_eq!(layer.arguments[0].word, "--kube-api-qps=7");
        assert_eq!(
            layer.mistakes,
            [
                "$REPLICASET_CONTROLLER_KUBE_API_QSP: no flag has this variable; \
                 did you mean REPLICASET_CONTROLLER_KUBE_API_QPS?"
            ]
        );
    }
}
