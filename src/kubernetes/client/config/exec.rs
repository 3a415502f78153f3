//! Validates `exec` of a kubeconfig's user and turns it into the plugin's settings (client-go
//! `tools/clientcmd/validation.go:validateAuthInfo`).

use super::file::{Cluster, Exec, Variable};
use super::{Draft, Environment, non_empty};
use crate::client::exec_plugin::{ClusterInfo, ExecSettings, Interactive, VERSIONS, find};
use crate::client::pem::Pem;

/// The cluster extension that plugins receive (client-go
/// `tools/clientcmd/client_config.go:clusterExtensionKey`).
const CLUSTER_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// Returns the plugin settings of a user if `exec` is complete. `draft` holds the settings of
/// `cluster`, with `--master` applied.
///
/// # Errors
/// What is wrong and how to fix it, as text.
pub(super) fn settings(
    exec: &Exec,
    cluster: &Cluster,
    draft: &Draft,
    environment: &Environment,
) -> Result<ExecSettings, String> {
    let command = non_empty(exec.command.as_ref()).ok_or("its exec has no command")?;
    let api_version = non_empty(exec.api_version.as_ref()).map_or("", String::as_str);
    let version = VERSIONS.into_iter().find(|version| *version == api_version);
    let version = version.ok_or_else(|| {
        format!(
            "its exec has the apiVersion {api_version:?}; there are {}",
            VERSIONS.join(" and ")
        )
    })?;
    let interactive = match non_empty(exec.interactive_mode.as_ref()).map(String::as_str) {
        Some("Never") => Interactive::Never,
        Some("Always") => Interactive::Always,
        Some("IfAvailable") => Interactive::IfAvailable,
        // Optional in v1beta1 only.
        None if version != VERSIONS[0] => Interactive::IfAvailable,
        other => {
            return Err(format!(
                "its exec has the interactiveMode {:?}; there are Never, IfAvailable and Always",
                other.unwrap_or_default()
            ));
        }
    };
    let mut variables = environment.all();
    for Variable { name, value } in &exec.env {
        let name = non_empty(name.as_ref()).ok_or("its exec has a variable without a name")?;
        variables.insert(name.clone(), value.clone().unwrap_or_default());
    }
    let search_path = environment.var("PATH").unwrap_or_default();
    let install_hint = non_empty(exec.install_hint.as_ref()).cloned();
    find(command, search_path, install_hint.as_deref())?;
    Ok(ExecSettings {
        version,
        command: command.clone(),
        arguments: exec.args.clone(),
        environment: variables.into_iter().collect(),
        install_hint,
        interactive,
        cluster: if exec.provide_cluster_info {
            Some(cluster_info(cluster, draft)?)
        } else {
            None
        },
    })
}

fn cluster_info(cluster: &Cluster, draft: &Draft) -> Result<ClusterInfo, String> {
    let tls = &draft.tls;
    let extensions = cluster.extensions.iter();
    let mut extensions = extensions.filter(|extension| extension.name == CLUSTER_EXTENSION);
    let authority = tls.certificate_authority.as_ref();
    Ok(ClusterInfo {
        server: draft.server.clone(),
        tls_server_name: tls.server_name.clone(),
        insecure: tls.insecure,
        certificate_authority: authority.map(Pem::read).transpose()?,
        proxy_url: non_empty(cluster.proxy_url.as_ref()).cloned(),
        disable_compression: cluster.disable_compression.unwrap_or(false),
        config: extensions
            .next()
            .map(|extension| extension.extension.clone()),
    })
}
