//! Which API server, how much of it, and how requests are sent there.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::values::{parse_namespace, parse_qps};

/// Which cluster, and how much of it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "API server")]
pub struct ApiArgs {
    /// Kubeconfig file; default $KUBECONFIG, then ~/.kube/config, then the pod's own account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Address of the API server; overrides the one in the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,

    /// Context of the kubeconfig; default its current context.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Control only this namespace, which needs no cluster-wide rights; default all.
    #[arg(long, value_name = "NAME", value_parser = parse_namespace)]
    pub namespace: Option<String>,
}

/// How requests are sent.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "API server")]
pub struct ClientArgs {
    /// Requests per second to the API server, events counted apart; 0 or less means no limit.
    #[arg(long, value_name = "N", default_value_t = 20.0, allow_negative_numbers = true,
        value_parser = parse_qps)]
    pub kube_api_qps: f32,

    /// Requests that may go out at once before --kube-api-qps holds them back.
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub kube_api_burst: u32,

    /// Encoding that lists and watches are asked for, and in which then new pods and statuses are
    /// written; JSON is read in any case.
    #[arg(
        long,
        value_name = "TYPE",
        value_enum,
        default_value = "application/vnd.kubernetes.protobuf"
    )]
    pub kube_api_content_type: ContentType,
}

/// Encoding of objects between the API server and this daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ContentType {
    /// JSON.
    #[value(name = "application/json")]
    Json,
    /// Protobuf in Kubernetes' envelope.
    #[value(name = "application/vnd.kubernetes.protobuf")]
    Protobuf,
}
