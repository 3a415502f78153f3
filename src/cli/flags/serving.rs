//! Flags of the HTTP servers: addresses, certificates, authentication and authorization.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::values::{number, parse_bool, parse_url_path};

/// Flags of the HTTP servers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Serving")]
pub struct ServingArgs {
    /// Address of the HTTPS server.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "0.0.0.0",
        hide_short_help = true
    )]
    pub bind_address: IpAddr,

    /// Port of the HTTPS server for health, metrics and debug pages; 0: no HTTPS server.
    #[arg(long, value_name = "PORT", default_value_t = 10257,
        value_parser = number::<u16>(0..=65_535))]
    pub secure_port: u16,

    /// Port of a plain HTTP server on 127.0.0.1 with the same pages, read-only and without
    /// authentication; 0: no HTTP server.
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_short_help = true,
        value_parser = number::<u16>(0..=65_535))]
    pub insecure_port: u16,

    /// Host names that the plain HTTP server accepts besides localhost and 127.0.0.1, as a defence
    /// against DNS rebinding.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub accept_hosts: Vec<String>,

    /// Certificate chain of the HTTPS server; default a self-signed certificate in memory.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub tls_cert_file: Option<PathBuf>,

    /// Private key of --tls-cert-file.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub tls_private_key_file: Option<PathBuf>,

    /// Minimum TLS version of the HTTPS server.
    #[arg(
        long,
        value_name = "VERSION",
        value_enum,
        default_value = "VersionTLS12",
        hide_short_help = true
    )]
    pub tls_min_version: TlsVersion,

    /// Certificate authorities that authenticate client certificates.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub client_ca_file: Option<PathBuf>,

    /// Kubeconfig for TokenReviews; default the cluster of --kubeconfig.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub authentication_kubeconfig: Option<PathBuf>,

    /// Kubeconfig for SubjectAccessReviews; default the cluster of --kubeconfig.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub authorization_kubeconfig: Option<PathBuf>,

    /// Paths that anyone can read without authentication; a trailing * matches any suffix.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez", value_parser = parse_url_path,
        hide_short_help = true)]
    pub authorization_always_allow_paths: Vec<String>,

    /// Serve the pages below /debug/.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = true, default_missing_value = "true", value_parser = parse_bool,
        action = clap::ArgAction::Set, hide_short_help = true)]
    pub profiling: bool,
}

/// A version of TLS. DIFFERS: kube-controller-manager also accepts 1.0 and 1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[value(name = "VersionTLS12")]
    Tls12,
    /// TLS 1.3.
    #[value(name = "VersionTLS13")]
    Tls13,
}
