//! The sources of flags: command line, environment and configuration file. Each source becomes a
//! list of [`Argument`]s, so that clap checks all of them by the same definition.

pub(super) mod file;

use std::ffi::{OsStr, OsString};
use std::fmt;

use super::kcm;

#[derive(Debug, Default)]
pub(super) struct Layer {
    pub(super) arguments: Vec<Argument>,
    /// Mistakes other than invalid values.
    pub(super) mistakes: Vec<String>,
    /// Fields of other controllers.
    pub(super) foreign: Vec<String>,
}

/// Returns the candidate that resembles `word` most, if it is near enough.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    /// Minimum Jaro-Winkler similarity of a tip.
    const NEAR: f64 = 0.8;
    let near = candidates
        .into_iter()
        .map(|candidate| {
            let alike = strsim::jaro_winkler(&word.to_lowercase(), &candidate.to_lowercase());
            (alike, candidate)
        })
        .filter(|(alike, _)| *alike >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    near.map(|(_, candidate)| candidate)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Origin {
    CommandLine,
    Environment(String),
    /// A line of the configuration file.
    File {
        path: String,
        /// Line number, from 1.
        line: u64,
    },
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommandLine => f.write_str("flag"),
            Self::Environment(name) => write!(f, "${name}"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A word of a command line: `--flag=value`, `--flag`, or a word that is not a flag.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Argument {
    pub(in crate::cli) word: OsString,
    pub(in crate::cli) origin: Origin,
}

impl Argument {
    /// Creates `--name=value`.
    pub(in crate::cli) fn new(name: &str, value: &OsStr, origin: Origin) -> Self {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        Self { word, origin }
    }

    /// The flag's name without dashes; `None` if the word is not a flag.
    pub(in crate::cli) fn name(&self) -> Option<String> {
        let word = self.word.to_string_lossy();
        let name = word.strip_prefix("--")?.split('=').next()?;
        (!name.is_empty()).then(|| name.to_owned())
    }

    pub(in crate::cli) fn value(&self) -> Option<String> {
        let word = self.word.to_string_lossy();
        word.split_once('=').map(|(_, value)| value.to_owned())
    }

    pub(in crate::cli) fn is(&self, name: &str) -> bool {
        self.name().as_deref() == Some(name)
    }
}

/// Splits a command line of `command` into arguments: joins each flag with a value that is a
/// separate word, turns `-v`, `-vv`, `-v4` and `-v 4` into `--v=N`, and replaces underscores in
/// names by dashes, as kube-controller-manager does
/// (component-base `cli/flag/flags.go:WordSepNormalizeFunc`).
pub(in crate::cli) fn join(command: &clap::Command, words: &[OsString]) -> Vec<Argument> {
    let mut joined = Vec::new();
    let mut words = words.iter().cloned().peekable();
    while let Some(word) = words.next() {
        let Some(text) = word.to_str() else {
            joined.push(word);
            continue;
        };
        if text == "--" {
            joined.push(word);
            joined.extend(words);
            break;
        }
        let next = words.peek().map(|next| next.to_string_lossy().into_owned());
        if let Some((value, took_next)) = verbosity(text, next.as_deref()) {
            if took_next {
                words.next();
            }
            joined.push(format!("--v={value}").into());
            continue;
        }
        let Some(flag) = text.strip_prefix("--") else {
            joined.push(word);
            continue;
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name.replace('_', "-"), Some(value.into())),
            None => (flag.replace('_', "-"), None),
        };
        let is_apart = value.is_none() && has_value_apart(command, &name, next.as_deref());
        let value = if is_apart { words.next() } else { value };
        joined.push(match (&*name, &value) {
            ("version", Some(form)) if form == "raw" || form == "true" => "--version".into(),
            (_, Some(value)) => Argument::new(&name, value, Origin::CommandLine).word,
            (_, None) => format!("--{name}").into(),
        });
    }
    let argument = |word| Argument {
        word,
        origin: Origin::CommandLine,
    };
    joined.into_iter().map(argument).collect()
}

/// A word after an unknown flag counts as its value, so that both are one mistake.
fn has_value_apart(command: &clap::Command, name: &str, next: Option<&str>) -> bool {
    let mut own = command.get_arguments();
    if let Some(arg) = own.find(|arg| arg.get_long() == Some(name)) {
        return arg.get_action().takes_values() && !arg.is_require_equals_set();
    }
    let is_word = next.is_some_and(|next| !next.starts_with('-'));
    kcm::takes_value(name).unwrap_or(is_word)
}

/// Parses `-v` in all its forms, and a bare `--v`, which only a number can follow as its value.
/// Returns the value, and whether `next` is it.
fn verbosity(word: &str, next: Option<&str>) -> Option<(String, bool)> {
    /// Verbosity of one bare `-v`: each event.
    const STEP: usize = 4;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if word == "-v" || word == "--v" {
        return match next {
            Some(next) if is_number(next) => Some((next.to_owned(), true)),
            _ => Some((STEP.to_string(), false)),
        };
    }
    let rest = word.strip_prefix("-v")?;
    if rest.bytes().all(|b| b == b'v') {
        return Some(((STEP * (1 + rest.len())).min(255).to_string(), false));
    }
    let value = rest.strip_prefix('=').unwrap_or(rest);
    (rest.starts_with('=') || is_number(rest)).then(|| (value.to_owned(), false))
}

// The fields of the configuration file and their flags. Fields of upstream's
// KubeControllerManagerConfiguration are at their position there (kubernetes
// `staging/src/k8s.io/kube-controller-manager/config/v1alpha1/types.go`); the daemon's own fields
// are beside them.

pub(in crate::cli) const API_VERSION: &str = "kubecontrollermanager.config.k8s.io/v1alpha1";

pub(in crate::cli) const KIND: &str = "KubeControllerManagerConfiguration";

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Shape {
    /// Text, which may look like a number.
    Text,
    /// A number, a bool or a duration.
    Plain,
    List,
    /// A map from a gate to a bool.
    Gates,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Field {
    /// The keys on the way to the field, joined by dots.
    pub(in crate::cli) path: &'static str,
    /// The flag's name without dashes.
    pub(in crate::cli) flag: &'static str,
    pub(in crate::cli) shape: Shape,
}

/// All fields, in the order of `config`; fields of one group are adjacent.
#[rustfmt::skip]
pub(in crate::cli) const FIELDS: &[Field] = &[
    text("generic.clientConnection.kubeconfig", "kubeconfig"),
    text("generic.clientConnection.master", "master"),
    text("generic.clientConnection.context", "context"),
    text("generic.clientConnection.contentType", "kube-api-content-type"),
    plain("generic.clientConnection.qps", "kube-api-qps"),
    plain("generic.clientConnection.burst", "kube-api-burst"),
    text("generic.namespace", "namespace"),
    list("generic.controllers", "controllers"),
    plain("generic.minResyncPeriod", "min-resync-period"),
    plain("generic.leaderElection.leaderElect", "leader-elect"),
    plain("generic.leaderElection.leaseDuration", "leader-elect-lease-duration"),
    plain("generic.leaderElection.renewDeadline", "leader-elect-renew-deadline"),
    plain("generic.leaderElection.retryPeriod", "leader-elect-retry-period"),
    text("generic.leaderElection.resourceLock", "leader-elect-resource-lock"),
    text("generic.leaderElection.resourceName", "leader-elect-resource-name"),
    text("generic.leaderElection.resourceNamespace", "leader-elect-resource-namespace"),
    plain("generic.leaderMigrationEnabled", "enable-leader-migration"),
    text("generic.leaderMigrationConfig", "leader-migration-config"),
    plain("generic.debugging.enableProfiling", "profiling"),
    plain("replicaSetController.concurrentRSSyncs", "concurrent-replicaset-syncs"),
    plain("replicationController.concurrentRCSyncs", "concurrent-rc-syncs"),
    plain("pods.burstReplicas", "burst-replicas"),
    plain("pods.batchParallelism", "batch-parallelism"),
    plain("pods.statusUpdateInterval", "status-update-interval"),
    text("pods.retryBackoff", "retry-backoff"),
    plain("pods.dryRun", "dry-run"),
    text("optIn.failedPodBackoff", "failed-pod-backoff"),
    text("optIn.failedPodsKept", "failed-pods-kept"),
    plain("optIn.failedPodsMinAge", "failed-pods-min-age"),
    text("optIn.scaleDownOrder", "scale-down-order"),
    text("optIn.scaleDownProtection", "scale-down-protection"),
    text("optIn.protectedTimeout", "protected-timeout"),
    text("serving.bindAddress", "bind-address"),
    plain("serving.securePort", "secure-port"),
    plain("serving.insecurePort", "insecure-port"),
    list("serving.acceptHosts", "accept-hosts"),
    text("serving.tlsCertFile", "tls-cert-file"),
    text("serving.tlsPrivateKeyFile", "tls-private-key-file"),
    text("serving.tlsMinVersion", "tls-min-version"),
    text("serving.clientCAFile", "client-ca-file"),
    text("serving.authenticationKubeconfig", "authentication-kubeconfig"),
    text("serving.authorizationKubeconfig", "authorization-kubeconfig"),
    list("serving.authorizationAlwaysAllowPaths", "authorization-always-allow-paths"),
    field("featureGates", "feature-gates", Shape::Gates),
    text("logging.format", "logging-format"),
    plain("logging.verbosity", "v"),
];

const fn field(path: &'static str, flag: &'static str, shape: Shape) -> Field {
    Field { path, flag, shape }
}

const fn text(path: &'static str, flag: &'static str) -> Field {
    field(path, flag, Shape::Text)
}

const fn plain(path: &'static str, flag: &'static str) -> Field {
    field(path, flag, Shape::Plain)
}

const fn list(path: &'static str, flag: &'static str) -> Field {
    field(path, flag, Shape::List)
}

/// Fields of kube-controller-manager's configuration for other controllers, or for what this
/// daemon handles differently.
pub(in crate::cli) const FOREIGN: &str = include_str!("kcm/fields.txt");

/// Prefix of the variables: `REPLICASET_CONTROLLER_KUBE_API_QPS` sets `--kube-api-qps`.
const PREFIX: &str = "REPLICASET_CONTROLLER_";

/// Set while the program is built, to name the commit in `--version`. A shell or a CI job that
/// exports it may also run the program.
const OF_THE_BUILD: &str = "REPLICASET_CONTROLLER_COMMIT";

fn variable(flag: &str) -> String {
    format!("{PREFIX}{}", ending(flag))
}

fn ending(flag: &str) -> String {
    flag.to_uppercase().replace('-', "_")
}

/// Reads the variables of these flags. Ignores empty variables, [`OF_THE_BUILD`], and those that
/// the kubelet sets in a pod for each Service of the namespace. Any other variable with the prefix
/// and without a flag is an error.
pub(super) fn read_environment(environment: &[(OsString, OsString)], flags: &[String]) -> Layer {
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
            layer.mistakes.push(format!("${name}: no such flag{hint}"));
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
    use super::{Layer, OsString, read_environment};

    fn layer_of(environment: &[(&str, &str)]) -> Layer {
        let environment: Vec<(OsString, OsString)> = environment
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        let flags = ["kube-api-qps", "namespace", "secure-port", "v"].map(str::to_owned);
        read_environment(&environment, &flags)
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
            ["$REPLICASET_CONTROLLER_COMMITS: no such flag"]
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
            ["$REPLICASET_CONTROLLER_METRICS_PORT: no such flag"]
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
                "$REPLICASET_CONTROLLER_FOO: no such flag",
                "$REPLICASET_CONTROLLER_KUBE_API_QSP: no such flag; did you mean \
                 REPLICASET_CONTROLLER_KUBE_API_QPS?"
            ]
        );
    }
}
