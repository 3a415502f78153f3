//! Flags of the API server, the namespace, and the requests.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::values::{number, parse_namespace, parse_qps};

/// Flags of the API server and the namespace.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "API server")]
pub struct ApiArgs {
    /// Kubeconfig file; default $KUBECONFIG, then ~/.kube/config, then the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Address of the API server; overrides the server of the kubeconfig.
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub master: Option<String>,

    /// Context of the kubeconfig; default its current context.
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub context: Option<String>,

    /// Control this namespace only; with --secure-port=0 needs no cluster-wide permission. Default
    /// all namespaces.
    #[arg(long, value_name = "NAME", value_parser = parse_namespace)]
    pub namespace: Option<String>,
}

/// Flags of rate limit and encoding of requests.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "API server")]
pub struct ClientArgs {
    /// Maximum requests per second to the API server, events counted separately; 0 or less: no
    /// limit.
    #[arg(long, value_name = "N", default_value_t = 20.0, allow_negative_numbers = true,
        value_parser = parse_qps)]
    pub kube_api_qps: f32,

    /// Maximum burst of requests before --kube-api-qps applies.
    #[arg(long, value_name = "N", default_value_t = 30, hide_short_help = true,
        value_parser = number::<u32>(0..=u32::MAX.into()))]
    pub kube_api_burst: u32,

    /// Content type of lists, watches, new pods and statuses.
    #[arg(
        long,
        value_name = "TYPE",
        value_enum,
        default_value = "application/vnd.kubernetes.protobuf",
        hide_short_help = true
    )]
    pub kube_api_content_type: ContentType,
}

/// Content type of objects on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ContentType {
    /// JSON.
    #[value(name = "application/json")]
    Json,
    /// Protobuf in the envelope of Kubernetes.
    #[value(name = "application/vnd.kubernetes.protobuf")]
    Protobuf,
}
