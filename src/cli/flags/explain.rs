//! Flags of the commands `explain` and `rbac`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};

use super::{LogArgs, RunArgs};
use crate::api::WorkloadKind;
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::cli::{parse_namespace, parse_object_name};

/// The end of `explain --help`.
pub(super) const FORMS: &str = "In A/B, A is a kind if kubectl knows it as one (rs, rc, deploy, \
                                ...), otherwise a namespace. For a
namespace called rs, write \
                                rs/rs/web or -n rs web.";

const FROM_API: &str = "From the API server (default)";
const FROM_DAEMON: &str = "From a daemon";
const ACCOUNT: &str = "Account";

/// The headings of flags that all help shows.
pub(super) const HEADINGS: [&str; 3] = [FROM_API, FROM_DAEMON, ACCOUNT];

/// Flags of `explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// Object as NAME, rs/NAME, deploy/NAME, rc/NAME or NAMESPACE/NAME, or kind and name; without a
    /// name, list every object that has not converged.
    #[arg(value_name = "OBJECT", num_args = 0..=2)]
    pub object: Vec<String>,

    /// Namespace of the objects; default the namespace of the kubeconfig's context, or all
    /// namespaces for a list with --server.
    #[arg(short = 'n', long, value_name = "NAME", value_parser = parse_namespace)]
    pub namespace: Option<String>,

    /// Look at all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,

    /// Format of the report.
    #[arg(
        short = 'o',
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "text"
    )]
    pub output: OutputFormat,

    /// Kubeconfig file; default $KUBECONFIG, then ~/.kube/config, then the pod's service account.
    #[arg(long, value_name = "FILE", help_heading = FROM_API)]
    pub kubeconfig: Option<PathBuf>,

    /// Address of the API server; overrides the server of the kubeconfig.
    #[arg(long, value_name = "URL", help_heading = FROM_API)]
    pub master: Option<String>,

    /// Context of the kubeconfig; default its current context.
    #[arg(long, value_name = "NAME", help_heading = FROM_API)]
    pub context: Option<String>,

    /// Read the report from a running daemon, which adds its own state;
    /// without a URL from https://127.0.0.1:10257.
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true,
        default_missing_value = "https://127.0.0.1:10257",
        conflicts_with_all = ["kubeconfig", "master", "context"], help_heading = FROM_DAEMON)]
    pub server: Option<String>,

    /// File with a bearer token for the daemon, as printed by kubectl create token.
    #[arg(long, value_name = "FILE", requires = "server", help_heading = FROM_DAEMON)]
    pub token_file: Option<PathBuf>,

    /// Certificate authority of the daemon's certificate; default the system's authorities.
    #[arg(long, value_name = "FILE", requires = "server", help_heading = FROM_DAEMON)]
    pub certificate_authority: Option<PathBuf>,

    /// Do not verify the daemon's certificate, for a daemon with a self-signed one.
    #[arg(long, requires = "server", conflicts_with = "certificate_authority",
        help_heading = FROM_DAEMON)]
    pub insecure_skip_tls_verify: bool,

    #[command(flatten)]
    pub log: LogArgs,
}

/// Format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text for people.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// What to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExplainTarget {
    Object {
        kind: &'static WorkloadKind,
        /// `None` for the default.
        namespace: Option<String>,
        name: String,
    },
    /// All objects of one kind, or of both with `None`.
    All(Option<&'static WorkloadKind>),
}

/// The kind that kubectl calls by this word.
fn kind_of(word: &str) -> Option<&'static WorkloadKind> {
    match &*word.to_ascii_lowercase() {
        "rs"
        | "replicaset"
        | "replicasets"
        | "replicaset.apps"
        | "replicasets.apps"
        | "replicaset.v1.apps"
        | "replicasets.v1.apps"
        // The current ReplicaSet of the Deployment, unless a ReplicaSet has that name.
        | "deploy"
        | "deployment"
        | "deployments"
        | "deployment.apps"
        | "deployments.apps"
        | "deployment.v1.apps"
        | "deployments.v1.apps" => Some(&REPLICA_SET),
        "rc" | "replicationcontroller" | "replicationcontrollers" => Some(&REPLICATION_CONTROLLER),
        _ => None,
    }
}

impl ExplainArgs {
    /// Parses the words of `OBJECT`.
    ///
    /// # Errors
    /// A message that names the accepted forms.
    pub fn target(&self) -> Result<ExplainTarget, String> {
        let words = self.object.join(" ");
        let unknown = || {
            format!(
                "cannot parse {words:?} as an object: expected NAME, rs/NAME, deploy/NAME, \
                 rc/NAME, NAMESPACE/NAME or rs/NAMESPACE/NAME"
            )
        };
        let (kind, object) = match &*self.object {
            [] => return Ok(ExplainTarget::All(None)),
            [word] => match kind_of(word) {
                Some(kind) => return Ok(ExplainTarget::All(Some(kind))),
                None => (None, word),
            },
            [word, object] => (Some(kind_of(word).ok_or_else(unknown)?), object),
            _ => return Err(unknown()),
        };
        let (kind, object) = match object.split_once('/') {
            Some((first, rest)) if kind.is_none() && kind_of(first).is_some() => {
                (kind_of(first), rest)
            }
            _ => (kind, &**object),
        };
        let (namespace, name) = match object.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, object),
        };
        if name.is_empty() || name.contains('/') || namespace == Some("") {
            return Err(unknown());
        }
        if self.all_namespaces {
            return Err(format!(
                "-A lists all objects that have not converged, but {words:?} names one object: \
                 use -n NAMESPACE"
            ));
        }
        if let (Some(named), Some(_)) = (namespace, &self.namespace) {
            return Err(format!(
                "{words:?} already names the namespace {named}, which is no kind that explain knows: \
                 leave out -n"
            ));
        }
        let namespace = namespace.or(self.namespace.as_deref());
        Ok(ExplainTarget::Object {
            kind: kind.unwrap_or(&REPLICA_SET),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        })
    }
}

/// Flags of `rbac`.
#[derive(Args, Clone, Debug)]
pub struct RbacArgs {
    /// ServiceAccount to grant the permissions to; default replicaset-controller in kube-system, or
    /// in --namespace if no permission is needed outside it.
    #[arg(long, value_name = "NAMESPACE/NAME", help_heading = ACCOUNT, conflicts_with = "user")]
    pub service_account: Option<ServiceAccount>,

    /// User to grant the permissions to, such as the common name of a client certificate.
    #[arg(long, value_name = "NAME", help_heading = ACCOUNT)]
    pub user: Option<String>,

    /// Also grant the optional permission to watch ResourceQuotas, so that a raised quota is used
    /// at once.
    #[arg(long, help_heading = ACCOUNT)]
    pub watch_quotas: bool,

    #[command(flatten)]
    pub run: RunArgs,
}

/// A ServiceAccount by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    pub namespace: String,
    pub name: String,
}

impl FromStr for ServiceAccount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, name) = text
            .split_once('/')
            .ok_or("expected NAMESPACE/NAME, such as kube-system/replicaset-controller")?;
        Ok(Self {
            namespace: parse_namespace(namespace)?,
            name: parse_object_name(name)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{
        ExplainArgs, ExplainTarget, REPLICA_SET, REPLICATION_CONTROLLER, ServiceAccount,
        WorkloadKind,
    };

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ExplainArgs,
    }

    fn target(arguments: &[&str]) -> Result<ExplainTarget, String> {
        let line = ["explain"].iter().chain(arguments);
        Line::try_parse_from(line)
            .expect("valid flags")
            .args
            .target()
    }

    const RS: &WorkloadKind = &REPLICA_SET;
    const RC: &WorkloadKind = &REPLICATION_CONTROLLER;

    #[track_caller]
    fn check(arguments: &[&str], kind: &'static WorkloadKind, namespace: Option<&str>) {
        let expected = ExplainTarget::Object {
            kind,
            namespace: namespace.map(str::to_owned),
            name: "web".to_owned(),
        };
        assert_eq!(target(arguments), Ok(expected), "{arguments:?}");
    }

    #[test]
    fn objects_are_named_as_with_kubectl_or_as_in_the_log() {
        check(&["web"], RS, None);
        check(&["shop/web"], RS, Some("shop"));
        check(&["rs/shop/web"], RS, Some("shop"));
        check(&["rc/shop/web"], RC, Some("shop"));
        check(&["-n", "shop", "web"], RS, Some("shop"));
        check(&["-n", "shop", "rc/web"], RC, Some("shop"));
        let words = ["rs", "replicaset", "replicasets", "replicasets.apps"];
        for word in words
            .into_iter()
            .chain(["ReplicaSet", "deploy", "deployment"])
        {
            check(&[&format!("{word}/web")], RS, None);
            check(&[word, "web"], RS, None);
            check(&["-n", "shop", word, "web"], RS, Some("shop"));
        }
        check(&["rc", "web"], RC, None);
        check(&["rc", "shop/web"], RC, Some("shop"));
        // A namespace with the name of a kind.
        check(&["rs/rs/web"], RS, Some("rs"));
        check(&["-n", "rs", "web"], RS, Some("rs"));
    }

    #[test]
    fn without_a_name_all_objects_are_meant() {
        for (arguments, kind) in [
            (&[][..], None),
            (&["-A"], None),
            (&["-n", "shop"], None),
            (&["rs"], Some(RS)),
            (&["replicationcontrollers", "-A"], Some(RC)),
        ] {
            assert_eq!(target(arguments), Ok(ExplainTarget::All(kind)));
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_accepted_forms() {
        let forms = "expected NAME, rs/NAME";
        for (arguments, expected) in [
            (&["/web"][..], forms),
            (&["shop/"], forms),
            (&["rs/"], forms),
            (&["pod/shop/web"], forms),
            (&["a/b/c/d"], forms),
            (&["shop", "web"], forms),
            (&["web", "-A"], "use -n NAMESPACE"),
            (&["shop/web", "-n", "shop"], "leave out -n"),
            (&["rs/shop/web", "-n", "shop"], "leave out -n"),
        ] {
            let error = target(arguments).expect_err("no object");
            assert!(error.contains(expected), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn an_account_has_a_namespace() {
        let account: ServiceAccount = "shop/rs".parse().expect("an account");
        assert_eq!((&*account.namespace, &*account.name), ("shop", "rs"));
        for text in ["rs", "shop/", "/rs", "Shop/rs", "shop/r s"] {
            assert!(text.parse::<ServiceAccount>().is_err(), "{text}");
        }
    }
}
