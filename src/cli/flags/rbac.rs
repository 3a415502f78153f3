//! Flags of the command `rbac`.

use std::str::FromStr;

use clap::Args;

use super::RunArgs;
use crate::cli::values::{parse_namespace, parse_object_name};

/// Flags of `rbac`.
#[derive(Args, Clone, Debug)]
pub struct RbacArgs {
    /// ServiceAccount to grant the permissions to; default replicaset-controller in kube-system, or
    /// in --namespace if no permission is needed outside it.
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        help_heading = "Account",
        conflicts_with = "user"
    )]
    pub service_account: Option<ServiceAccount>,

    /// User to grant the permissions to, such as the common name of a client certificate.
    #[arg(long, value_name = "NAME", help_heading = "Account")]
    pub user: Option<String>,

    /// Also grant the optional permission to watch ResourceQuotas: a raised quota is seen at once.
    #[arg(long, help_heading = "Account")]
    pub watch_quotas: bool,

    /// The flags of the daemon.
    #[command(flatten)]
    pub run: RunArgs,
}

/// A ServiceAccount by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
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
    use super::ServiceAccount;

    #[test]
    fn an_account_has_a_namespace() {
        let account: ServiceAccount = "shop/rs".parse().expect("an account");
        assert_eq!((&*account.namespace, &*account.name), ("shop", "rs"));
        for text in ["rs", "shop/", "/rs", "Shop/rs", "shop/r s"] {
            assert!(text.parse::<ServiceAccount>().is_err(), "{text}");
        }
    }
}
