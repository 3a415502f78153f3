//! What is served over HTTP: where, with which certificate, to whom.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::values::{parse_bool, parse_url_path};

/// Flags of the HTTP server.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Serving")]
pub struct ServingArgs {
    /// Address to serve HTTPS at.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,

    /// Port to serve HTTPS at; 0 serves none.
    #[arg(long, value_name = "PORT", default_value_t = 10257)]
    pub secure_port: u16,

    /// Port to serve plain HTTP at, to anyone on this machine: at 127.0.0.1 only, without
    /// authentication; 0 serves none.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub insecure_port: u16,

    /// Host names that --insecure-port accepts beside localhost and 127.0.0.1. Others are refused:
    /// a web page can make its own name resolve to this machine.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub accept_hosts: Vec<String>,

    /// Certificate to serve with, and what signed it; default a self-signed one, in memory.
    #[arg(long, value_name = "FILE")]
    pub tls_cert_file: Option<PathBuf>,

    /// Key of --tls-cert-file.
    #[arg(long, value_name = "FILE")]
    pub tls_private_key_file: Option<PathBuf>,

    /// Oldest version of TLS to talk.
    #[arg(
        long,
        value_name = "VERSION",
        value_enum,
        default_value = "VersionTLS12"
    )]
    pub tls_min_version: TlsVersion,

    /// Authorities whose client certificates are believed.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// Kubeconfig of the cluster that is asked who a caller is; default the one that is controlled.
    #[arg(long, value_name = "FILE")]
    pub authentication_kubeconfig: Option<PathBuf>,

    /// Kubeconfig of the cluster that is asked what a caller may; default the one that is controlled.
    #[arg(long, value_name = "FILE")]
    pub authorization_kubeconfig: Option<PathBuf>,

    /// Paths that anyone may read; a * at the end stands for all below.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
        default_value = "/healthz,/readyz,/livez", value_parser = parse_url_path)]
    pub authorization_always_allow_paths: Vec<String>,

    /// Serve what /debug/ shows.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = true, default_missing_value = "true", value_parser = parse_bool,
        action = clap::ArgAction::Set)]
    pub profiling: bool,
}

/// A version of TLS. The older ones that kube-controller-manager takes, 1.0 and 1.1, are not offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[value(name = "VersionTLS12")]
    Tls12,
    /// TLS 1.3.
    #[value(name = "VersionTLS13")]
    Tls13,
}
