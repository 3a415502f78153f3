//! Flags of the controllers: which of them run, and their limits.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::api::duration::parse_duration;
use crate::api::workload_kind::ALL;
use crate::api::{RetryBackoff, WorkloadKind};
use crate::cli::values::number;

/// Flags of the controllers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Controllers")]
pub struct ControllerArgs {
    /// Controllers to run: replicaset-controller, replicationcontroller-controller, or * for both;
    /// -NAME disables one.
    // DIFFERS: kube-controller-manager's default is `*`. A cluster that has given up only its
    // ReplicaSet controller to this daemon must not get a second writer of ReplicationControllers.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        allow_hyphen_values = true,
        default_value = "replicaset-controller"
    )]
    pub controllers: Vec<ControllerItem>,

    /// Number of ReplicaSets synced concurrently.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<u16>(1..=1000))]
    pub concurrent_replicaset_syncs: u16,

    /// Number of ReplicationControllers synced concurrently.
    #[arg(long, value_name = "N", default_value_t = 5, hide_short_help = true,
        value_parser = number::<u16>(1..=1000))]
    pub concurrent_rc_syncs: u16,

    /// Maximum pods created or deleted per sync.
    #[arg(long, value_name = "N", default_value_t = 500, hide_short_help = true,
        value_parser = number::<usize>(1..=1_000_000))]
    pub burst_replicas: usize,

    /// Maximum pods created or deleted concurrently; syncs of 32 pods or more share half of it,
    /// and so do the others; one namespace has at most half of either.
    #[arg(long, value_name = "N", default_value_t = 32, hide_short_help = true,
        value_parser = number::<u16>(1..=1000))]
    pub batch_parallelism: u16,

    /// Every object is synced again after this time to twice this time, even if nothing changed.
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = parse_duration,
        hide_short_help = true)]
    pub min_resync_period: Duration,

    /// Maximum delay of a status update that only reports progress towards the target; 0: no delay.
    // DIFFERS: kube-controller-manager writes a status in every sync in which a count has changed.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration,
        hide_short_help = true)]
    pub status_update_interval: Duration,

    /// Waits after refused creates: by-refusal (by the kind of refusal, ended by what cures it), or
    /// kcm (from 5 ms, doubled with each failure up to 1000 s).
    // DIFFERS: kube-controller-manager has the latter only.
    #[arg(
        long,
        value_name = "BACKOFF",
        default_value = "by-refusal",
        hide_short_help = true
    )]
    pub retry_backoff: RetryBackoff,
}

/// One item of `--controllers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerItem {
    /// `*`.
    Every,
    /// `name`.
    On(&'static WorkloadKind),
    /// `-name`.
    Off(&'static WorkloadKind),
}

impl FromStr for ControllerItem {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Every);
        }
        let item = match text.strip_prefix('-') {
            Some(name) => find(name).map(Self::Off),
            None => find(text).map(Self::On),
        };
        item.ok_or_else(|| {
            let known = ALL.map(|kind| kind.controller).join(", ");
            format!("expected *, or a name of {known}, or -NAME to disable it")
        })
    }
}

/// The kind whose controller has this name. The older name is that of the kind
/// (kubernetes `cmd/kube-controller-manager/app/core.go`, `WithAliases` of the descriptors).
fn find(text: &str) -> Option<&'static WorkloadKind> {
    ALL.into_iter()
        .find(|kind| text == kind.controller || text == kind.singular)
}

impl ControllerArgs {
    /// True if the controller is enabled: the first item with its name decides, otherwise `*`
    /// (kubernetes `controller-manager/app/helper.go:IsControllerEnabled`).
    pub fn is_enabled(&self, kind: &WorkloadKind) -> bool {
        let named = self.controllers.iter().find_map(|item| match item {
            ControllerItem::On(on) if *on == kind => Some(true),
            ControllerItem::Off(off) if *off == kind => Some(false),
            _ => None,
        });
        named.unwrap_or_else(|| self.controllers.contains(&ControllerItem::Every))
    }

    /// The kinds whose controllers are enabled.
    pub fn enabled(&self) -> Vec<&'static WorkloadKind> {
        let all = ALL.into_iter();
        all.filter(|kind| self.is_enabled(kind)).collect()
    }
}
