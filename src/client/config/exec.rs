//! `exec` of a kubeconfig's user: checked, and turned into what runs the plugin
//! (client-go `tools/clientcmd/validation.go:validateAuthInfo`).

use super::file::{Cluster, Exec, InteractiveMode};
use super::{Draft, Environment, filled};
use crate::client::exec_plugin::{ClusterInfo, ExecSettings, Interactive, VERSIONS, find};
use crate::client::pem::Pem;

/// The extension of a cluster that is handed to plugins
/// (client-go `tools/clientcmd/client_config.go:clusterExtensionKey`).
const CLUSTER_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// The plugin of a user, if everything is said that must be. `draft` has what `cluster` says, as far as
/// nothing else wins over it.
///
/// # Errors
/// What is wrong and what to mend, for people.
pub(super) fn settings(
    exec: &Exec,
    cluster: &Cluster,
    draft: &Draft,
    environment: &Environment,
) -> Result<ExecSettings, String> {
    let command = filled(exec.command.as_ref()).ok_or("its exec has no command")?;
    let wanted = filled(exec.api_version.as_ref()).map_or("", String::as_str);
    let version = VERSIONS.into_iter().find(|version| *version == wanted);
    let version = version.ok_or_else(|| {
        format!(
            "its exec has the apiVersion {wanted:?}; there are {}",
            VERSIONS.join(" and ")
        )
    })?;
    let interactive = match exec.interactive_mode {
        Some(InteractiveMode::Never) => Interactive::Never,
        Some(InteractiveMode::Always) => Interactive::Always,
        // Optional in v1beta1 only.
        None if version == VERSIONS[0] => {
            return Err(
                "its exec has no interactiveMode, which its apiVersion asks for: Never, \
                 IfAvailable or Always"
                    .to_owned(),
            );
        }
        Some(InteractiveMode::IfAvailable) | None => Interactive::IfAvailable,
    };
    let mut variables = environment.all();
    for entry in exec.env.iter().flatten() {
        let name = filled(entry.get("name")).ok_or("its exec has a variable without a name")?;
        let value = entry.get("value").cloned().unwrap_or_default();
        variables.insert(name.clone(), value);
    }
    let search_path = environment.var("PATH").unwrap_or_default();
    let install_hint = filled(exec.install_hint.as_ref()).cloned();
    find(command, search_path, install_hint.as_deref())?;
    Ok(ExecSettings {
        version,
        command: command.clone(),
        arguments: exec.args.clone().unwrap_or_default(),
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
    let extensions = cluster.extensions.iter().flatten();
    let mut extensions = extensions.filter(|extension| extension.name == CLUSTER_EXTENSION);
    let authority = tls.certificate_authority.as_ref();
    Ok(ClusterInfo {
        server: draft.server.clone(),
        tls_server_name: tls.server_name.clone(),
        insecure: tls.insecure,
        certificate_authority: authority.map(Pem::read).transpose()?,
        proxy_url: filled(cluster.proxy_url.as_ref()).cloned(),
        disable_compression: cluster.disable_compression.unwrap_or(false),
        config: extensions
            .next()
            .map(|extension| extension.extension.clone()),
    })
}
