//! Flags of `explain`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::LogArgs;
use crate::cli::values::parse_namespace;

/// Flags of `explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// ReplicaSet as NAMESPACE/NAME or, with -n, as NAME; a prefix rs/ or rc/ names the kind.
    #[arg(value_name = "OBJECT")]
    pub object: String,

    /// Namespace of the object; default the namespace of the kubeconfig's context.
    #[arg(short = 'n', long, value_name = "NAME", value_parser = parse_namespace)]
    pub namespace: Option<String>,

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
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Without a daemon: from the API server"
    )]
    pub kubeconfig: Option<PathBuf>,

    /// Address of the API server; overrides the server of the kubeconfig.
    #[arg(
        long,
        value_name = "URL",
        help_heading = "Without a daemon: from the API server"
    )]
    pub master: Option<String>,

    /// Context of the kubeconfig; default its current context.
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Without a daemon: from the API server"
    )]
    pub context: Option<String>,

    /// Read the report from a running daemon, which adds its own state;
    /// without a URL from https://127.0.0.1:10257.
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true,
        default_missing_value = "https://127.0.0.1:10257",
        conflicts_with_all = ["kubeconfig", "master", "context"], help_heading = "From a daemon")]
    pub server: Option<String>,

    /// File with a bearer token for the daemon, as printed by kubectl create token.
    #[arg(
        long,
        value_name = "FILE",
        requires = "server",
        help_heading = "From a daemon"
    )]
    pub token_file: Option<PathBuf>,

    /// Certificate authority of the daemon's certificate; default the system's authorities.
    #[arg(
        long,
        value_name = "FILE",
        requires = "server",
        help_heading = "From a daemon"
    )]
    pub certificate_authority: Option<PathBuf>,

    /// Do not verify the daemon's certificate, for a daemon with a self-signed one.
    #[arg(
        long,
        requires = "server",
        conflicts_with = "certificate_authority",
        help_heading = "From a daemon"
    )]
    pub insecure_skip_tls_verify: bool,

    /// The log.
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

/// The object to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainTarget {
    /// True for a ReplicationController.
    pub is_replication_controller: bool,
    /// Its namespace; `None` for the namespace of the kubeconfig's context.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl ExplainArgs {
    /// Parses the argument `OBJECT`.
    ///
    /// # Errors
    /// A message that names the accepted forms.
    pub fn target(&self) -> Result<ExplainTarget, String> {
        let parts: Vec<&str> = self.object.split('/').collect();
        let (kind, namespace, name) = match (&*parts, &self.namespace) {
            ([name], namespace) => ("rs", namespace.as_deref(), *name),
            ([kind, name], Some(namespace)) => (*kind, Some(&**namespace), *name),
            ([namespace, name], None) => ("rs", Some(*namespace), *name),
            ([kind, namespace, name], None) => (*kind, Some(*namespace), *name),
            _ => ("", None, ""),
        };
        let is_replication_controller = match kind {
            "rs" | "replicaset" | "replicasets" | "replicasets.apps" => Some(false),
            "rc" | "replicationcontroller" | "replicationcontrollers" => Some(true),
            _ => None,
        };
        match is_replication_controller {
            Some(is_replication_controller) if !name.is_empty() && namespace != Some("") => {
                Ok(ExplainTarget {
                    is_replication_controller,
                    namespace: namespace.map(str::to_owned),
                    name: name.to_owned(),
                })
            }
            _ => Err(format!(
                "{:?} names no object: expected NAMESPACE/NAME, rs/NAMESPACE/NAME or \
                 rc/NAMESPACE/NAME; or with -n NAMESPACE, expected NAME or rc/NAME",
                self.object
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{ExplainArgs, ExplainTarget};

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

    #[track_caller]
    fn check(arguments: &[&str], is_rc: bool, namespace: Option<&str>) {
        let expected = ExplainTarget {
            is_replication_controller: is_rc,
            namespace: namespace.map(str::to_owned),
            name: "web".to_owned(),
        };
        assert_eq!(target(arguments), Ok(expected));
    }

    #[test]
    fn objects_are_named_as_with_kubectl_or_as_in_the_log() {
        check(&["web"], false, None);
        check(&["shop/web"], false, Some("shop"));
        check(&["rc/shop/web"], true, Some("shop"));
        check(&["-n", "shop", "web"], false, Some("shop"));
        check(&["-n", "shop", "rc/web"], true, Some("shop"));
        for wrong in ["/web", "shop/", "pod/shop/web", "a/b/c/d"] {
            assert!(target(&[wrong]).is_err(), "{wrong}");
        }
    }
}
