//! Flags of `explain`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::LogArgs;
use crate::cli::values::parse_namespace;

/// Flags of `explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// NAMESPACE/NAME of a ReplicaSet, or KIND/NAMESPACE/NAME; with -n, NAME or KIND/NAME. KIND is rs or
    /// rc, or what these are short for.
    #[arg(value_name = "OBJECT")]
    pub object: String,

    /// Namespace of the object, if it is not in front of its name.
    #[arg(short = 'n', long, value_name = "NAME", value_parser = parse_namespace)]
    pub namespace: Option<String>,

    /// Lines for people, or JSON.
    #[arg(
        short = 'o',
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "text"
    )]
    pub output: OutputFormat,

    /// Kubeconfig file; default $KUBECONFIG, then ~/.kube/config, then the pod's own account.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Without a daemon: from the API server"
    )]
    pub kubeconfig: Option<PathBuf>,

    /// Address of the API server; overrides the one in the kubeconfig.
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

    /// Ask the daemon that serves here, instead of the API server: it knows also what it waits for.
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true,
        default_missing_value = "https://127.0.0.1:10257",
        conflicts_with_all = ["kubeconfig", "master", "context"], help_heading = "From a daemon")]
    pub server: Option<String>,

    /// File with the bearer token to show the daemon, as from kubectl create token.
    #[arg(
        long,
        value_name = "FILE",
        requires = "server",
        help_heading = "From a daemon"
    )]
    pub token_file: Option<PathBuf>,

    /// File with the certificate authority that vouches for the daemon; default the system's.
    #[arg(
        long,
        value_name = "FILE",
        requires = "server",
        help_heading = "From a daemon"
    )]
    pub certificate_authority: Option<PathBuf>,

    /// Trust whoever answers at --server, as a daemon that made its own certificate.
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

/// The form of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// What is to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainTarget {
    /// True for a ReplicationController.
    pub is_replication_controller: bool,
    /// Its namespace; that of the kubeconfig's context if `None`.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl ExplainArgs {
    /// What is to be explained.
    ///
    /// # Errors
    /// What is wrong with the argument, for people.
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
                "{:?} is no object: expected NAMESPACE/NAME, rs/NAMESPACE/NAME or \
                 rc/NAMESPACE/NAME, or with -n NAMESPACE a NAME or rc/NAME",
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
