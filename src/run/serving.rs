//! Turns the flags of `run` into the options of the HTTP servers and into the pages that show the
//! configuration.

use nix::sys::resource::{Resource, getrlimit};
use serde_json::{Value, json};

use super::RunError;
use crate::cli::flags::TlsVersion;
use crate::cli::{RunArgs, effective_file};
use crate::client::{ClientConfig, ConfigSource};
use crate::serving::{AllowedPaths, CertificateFiles, ServingOptions, ZPages};

/// Maximum open descriptors of the daemon, rounded up: 100 connections of clients to each of its
/// two ports, some 60 connections of its own for each controlled kind, and files.
const DESCRIPTORS_WANTED: u64 = 400;

pub(super) fn serving_options(
    args: &RunArgs,
    config: &ClientConfig,
) -> Result<ServingOptions, RunError> {
    let flags = &args.serving;
    // The checks of the flags reject one of the two without the other.
    let chain_and_key = flags
        .tls_cert_file
        .clone()
        .zip(flags.tls_private_key_file.clone());
    let cluster = |kubeconfig: &Option<std::path::PathBuf>| match kubeconfig {
        None => Ok(config.clone()),
        Some(_) => ClientConfig::load(&ConfigSource {
            kubeconfig: kubeconfig.clone(),
            ..ConfigSource::default()
        }),
    };
    Ok(ServingOptions {
        bind_address: flags.bind_address,
        secure_port: flags.secure_port,
        insecure_port: flags.insecure_port,
        accept_hosts: flags.accept_hosts.clone(),
        certificates: CertificateFiles {
            serving: chain_and_key,
            client_ca: flags.client_ca_file.clone(),
        },
        tls13_only: flags.tls_min_version == TlsVersion::Tls13,
        authentication: cluster(&flags.authentication_kubeconfig)?,
        authorization: cluster(&flags.authorization_kubeconfig)?,
        allowed_paths: AllowedPaths::of(&flags.authorization_always_allow_paths),
        debug: flags.profiling,
    })
}

/// The configurations of the servers that are not that of the controlled cluster, each with the
/// flag that names it.
pub(super) fn own_configs<'a>(
    args: &RunArgs,
    options: &'a ServingOptions,
) -> impl Iterator<Item = (&'static str, &'a ClientConfig)> + use<'a> {
    let flags = &args.serving;
    let authentication = flags.authentication_kubeconfig.as_ref();
    let authorization = flags.authorization_kubeconfig.as_ref();
    let of = [
        authentication.map(|_| ("--authentication-kubeconfig", &options.authentication)),
        authorization.map(|_| ("--authorization-kubeconfig", &options.authorization)),
    ];
    of.into_iter().flatten()
}

/// Warns if the limit of file descriptors is below what the process can need. Without a descriptor
/// the daemon could not connect to the API server.
pub(super) fn check_descriptors() {
    if let Ok((most, _)) = getrlimit(Resource::RLIMIT_NOFILE)
        && most < DESCRIPTORS_WANTED
    {
        log::warn!(
            "the limit of file descriptors is {most}, and clients of the HTTP pages can use all of \
             them; raise it (ulimit -n, LimitNOFILE=) to {DESCRIPTORS_WANTED} or more"
        );
    }
}

/// Returns the pages that show the configuration.
pub(super) fn zpages(args: &RunArgs) -> ZPages {
    ZPages {
        flags: args.in_effect.clone(),
        config: configuration(args),
    }
}

/// The configuration in upstream's format, with the fields that concern this daemon
/// (kube-controller-manager `config/v1alpha1/types.go`).
fn configuration(args: &RunArgs) -> Value {
    let flag = |name: &str| args.in_effect.get(name).cloned().unwrap_or_default();
    let election = &args.leader_election;
    let go = |duration: std::time::Duration| go_duration(duration);
    // The file in effect, of which upstream's part is below under upstream's names.
    let mut own: Value =
        serde_saphyr::from_str(&effective_file(&args.in_effect)).unwrap_or_default();
    if let Some(sections) = own.as_object_mut() {
        let own = ["pods", "optIn", "serving", "featureGates", "logging"];
        sections.retain(|section, _| own.contains(&section.as_str()));
    }
    json!({"replicaset-controller": own, "kubecontrollermanager.config.k8s.io": {
        "kind": "KubeControllerManagerConfiguration",
        "apiVersion": "kubecontrollermanager.config.k8s.io/v1alpha1",
        "Generic": {
            "Port": args.serving.secure_port,
            "Address": args.serving.bind_address.to_string(),
            "MinResyncPeriod": go(args.controller.min_resync_period),
            "ClientConnection": {
                "kubeconfig": flag("kubeconfig"),
                "acceptContentTypes": "",
                "contentType": flag("kube-api-content-type"),
                "qps": args.client.kube_api_qps,
                "burst": args.client.kube_api_burst,
            },
            "ControllerStartInterval": "0s",
            "LeaderElection": {
                "leaderElect": election.leader_elect,
                "leaseDuration": go(election.leader_elect_lease_duration),
                "renewDeadline": go(election.leader_elect_renew_deadline),
                "retryPeriod": go(election.leader_elect_retry_period),
                "resourceLock": flag("leader-elect-resource-lock"),
                "resourceName": election.leader_elect_resource_name,
                "resourceNamespace": election.resource_namespace(args.api.namespace.as_deref()),
            },
            "Controllers": flag("controllers").split(',').collect::<Vec<_>>(),
            "Debugging": {
                "enableProfiling": args.serving.profiling,
                "enableContentionProfiling": false,
            },
            "LeaderMigrationEnabled": false,
        },
        "ReplicaSetController": {
            "ConcurrentRSSyncs": args.controller.concurrent_replicaset_syncs,
        },
        "ReplicationController": {
            "ConcurrentRCSyncs": args.controller.concurrent_rc_syncs,
        },
    }})
}

/// Formats a duration as Go does in JSON: `12h0m0s`, `1m30s`, `500ms`.
fn go_duration(duration: std::time::Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    if seconds == 0 && millis > 0 {
        return format!("{millis}ms");
    }
    let fraction = if millis == 0 {
        String::new()
    } else {
        format!(".{millis:03}").trim_end_matches('0').to_owned()
    };
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}{fraction}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}{fraction}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::go_duration;

    #[test]
    fn durations_as_go_writes_them() {
        for (ms, expected) in [
            (0, "0s"),
            (500, "500ms"),
            (15_000, "15s"),
            (90_000, "1m30s"),
            (1_500, "1.5s"),
            (43_200_000, "12h0m0s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(ms)), expected);
        }
    }
}
