//! Turns the flags of `run` into the options of the HTTP servers and into the pages that show the
//! configuration.

use nix::sys::resource::{Resource, getrlimit};
use serde_json::{Value, json};

use super::RunError;
use super::logs::set_verbosity;
use crate::cli::flags::TlsVersion;
use crate::cli::{RunArgs, effective_file};
use crate::client::{ClientConfig, ConfigSource};
use crate::serving::{AllowedPaths, CertificateFiles, ServingOptions, ZPages};
use crate::telemetry::logging;

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
            master: None,
            context: None,
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
    let file = effective_file(&args.in_effect);
    let config: Value = serde_saphyr::from_str(&file).unwrap_or_default();
    ZPages {
        flags: args.in_effect.clone(),
        config: json!({"kubecontrollermanager.config.k8s.io": config}),
        levels: || logging::levels().map_or_else(String::new, |levels| levels.to_string()),
        set_verbosity,
    }
}
