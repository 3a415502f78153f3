//! What the controllers do, and which of them run.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::cli::duration::parse_duration;

/// Flags of the controllers themselves.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Controllers")]
pub struct ControllerArgs {
    /// Controllers to run: replicaset-controller, replicationcontroller-controller, * for both,
    /// -NAME for all but this one.
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

    /// ReplicaSets that are synced at the same time. At most half of these workers do syncs with 32
    /// pods or more to create or delete, so that smaller ones never wait until such a sync ends. A
    /// single worker does all syncs, the smaller ones first.
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub concurrent_replicaset_syncs: u16,

    /// ReplicationControllers that are synced at the same time.
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub concurrent_rc_syncs: u16,

    /// Pods that one sync creates or deletes at most.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = parse_burst_replicas)]
    pub burst_replicas: usize,

    /// Pods created or deleted at the same time; syncs with 32 pods or more use at most a quarter.
    #[arg(long, value_name = "N", default_value_t = 32,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub batch_parallelism: u16,

    /// Every object is looked at again after this long to twice as long, even if nothing changed.
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = parse_duration)]
    pub min_resync_period: Duration,

    /// A status that only says that more pods are there, are Ready or have gone, but not all yet,
    /// is written 1 ms for each pod after the last one, and at most this long; 0 holds back none.
    /// A loss, the last step and a condition are never held back, a generation up to 25 ms.
    // DIFFERS: kube-controller-manager writes a status in every sync in which a count has changed.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub status_update_interval: Duration,
}

fn parse_burst_replicas(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(pods) if (1..=1_000_000).contains(&pods) => Ok(pods),
        _ => Err("expected a number of pods, 1 to 1000000".to_owned()),
    }
}

/// A controller that this daemon has
/// (kubernetes `cmd/kube-controller-manager/names/controller_names.go`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerName {
    /// ReplicaSets.
    ReplicaSet,
    /// ReplicationControllers.
    ReplicationController,
}

impl ControllerName {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::ReplicaSet, Self::ReplicationController];

    /// The name that stands in flags and files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReplicaSet => "replicaset-controller",
            Self::ReplicationController => "replicationcontroller-controller",
        }
    }

    /// The older name that is taken as well
    /// (kubernetes `cmd/kube-controller-manager/app/core.go`, `WithAliases` of the descriptors).
    fn alias(self) -> &'static str {
        match self {
            Self::ReplicaSet => "replicaset",
            Self::ReplicationController => "replicationcontroller",
        }
    }

    fn find(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|name| text == name.as_str() || text == name.alias())
    }
}

/// One item of `--controllers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerItem {
    /// `*`.
    Every,
    /// `name`.
    On(ControllerName),
    /// `-name`.
    Off(ControllerName),
}

impl FromStr for ControllerItem {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Every);
        }
        let item = match text.strip_prefix('-') {
            Some(name) => ControllerName::find(name).map(Self::Off),
            None => ControllerName::find(text).map(Self::On),
        };
        item.ok_or_else(|| {
            let known = ControllerName::ALL.map(ControllerName::as_str).join(", ");
            format!("this daemon has the controllers {known}")
        })
    }
}

impl ControllerArgs {
    /// True if this controller is to run: the first item that names it decides, else `*` does
    /// (kubernetes `controller-manager/app/helper.go:IsControllerEnabled`).
    pub fn is_enabled(&self, name: ControllerName) -> bool {
        let named = self.controllers.iter().find_map(|item| match item {
            ControllerItem::On(on) if *on == name => Some(true),
            ControllerItem::Off(off) if *off == name => Some(false),
            _ => None,
        });
        named.unwrap_or_else(|| self.controllers.contains(&ControllerItem::Every))
    }

    /// The controllers that are to run.
    pub fn enabled(&self) -> Vec<ControllerName> {
        let all = ControllerName::ALL.into_iter();
        all.filter(|name| self.is_enabled(*name)).collect()
    }
}
