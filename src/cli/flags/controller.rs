//! Flags of the controllers: which of them run, their limits, feature gates, leader election, and
//! opt-ins; each flag is the default for the annotation of the same name.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::api::compact_timestamp::parse_duration;
use crate::api::policy::{
    FailedPodBackoff, ScaleDownOrder, or_off, parse_kept, parse_min_age, parse_on_off,
    parse_timeout,
};
use crate::api::workload_kind::ALL;
use crate::api::{Policy, RetryBackoff, WorkloadKind};
use crate::cli::{number, parse_bool, parse_namespace, parse_object_name};

/// Flags of the controllers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Controllers")]
pub struct ControllerArgs {
    /// Controllers to run: replicaset-controller, replicationcontroller-controller, or * for both;
    /// -NAME disables one; deployment-controller (for test API servers) runs only if named.
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
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<u16>(1..=1000))]
    pub concurrent_rc_syncs: u16,

    /// Maximum pods created or deleted per sync.
    #[arg(long, value_name = "N", default_value_t = 500,
        value_parser = number::<usize>(1..=1_000_000))]
    pub burst_replicas: usize,

    /// Maximum pods created or deleted concurrently. Half of it is for syncs of 32 pods or more,
    /// half for smaller ones; a namespace uses at most half of either.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = number::<u16>(1..=1000))]
    pub batch_parallelism: u16,

    /// Resync every object at a random interval between this value and twice this value.
    #[arg(long, value_name = "DURATION", default_value = "12h", value_parser = parse_duration)]
    pub min_resync_period: Duration,

    /// Maximum delay of a status update that only reports progress towards spec.replicas; 0: no
    /// delay.
    // DIFFERS: kube-controller-manager writes a status in every sync in which a count has changed.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub status_update_interval: Duration,

    /// Retry delay after rejected creates: by-reason (ends early when the cause may be
    /// gone), or kcm (from 5 ms, doubled with each failure up to 1000 s).
    // DIFFERS: kube-controller-manager has the latter only.
    #[arg(long, value_name = "BACKOFF", default_value = "by-reason")]
    pub retry_backoff: RetryBackoff,
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

/// A controller that can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerName {
    /// The controller of a kind that owns pods: ReplicaSet or ReplicationController.
    Of(&'static WorkloadKind),
    /// The controller of Deployments. Not part of `*` outside `dev`, because clusters already run
    /// one.
    Deployments,
    /// A simulated controller of `dev`.
    Simulated(&'static str),
}

impl FromStr for ControllerItem {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, &[])
    }
}

impl ControllerItem {
    /// Parses an item that may also name one of `simulated`.
    pub(super) fn parse(text: &str, simulated: &[&'static str]) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Every);
        }
        let item = match text.strip_prefix('-') {
            Some(name) => find(name, simulated).map(Self::Off),
            None => find(text, simulated).map(Self::On),
        };
        item.ok_or_else(|| {
            let known = ALL.iter().map(|kind| kind.controller);
            let known: Vec<_> = known
                .chain([DEPLOYMENTS])
                .chain(simulated.iter().copied())
                .collect();
            let known = known.join(", ");
            format!("expected *, NAME or -NAME, where NAME is one of {known}")
        })
    }
}

/// Name of the Deployment controller.
const DEPLOYMENTS: &str = "deployment-controller";

/// The controller of this name, or of its older name without the suffix
/// (kubernetes `cmd/kube-controller-manager/app/core.go`, `WithAliases` of the descriptors).
fn find(text: &str, simulated: &[&'static str]) -> Option<ControllerName> {
    let is = |name: &str| text == name || Some(text) == name.strip_suffix("-controller");
    if is(DEPLOYMENTS) {
        return Some(ControllerName::Deployments);
    }
    let of_kind = ALL.into_iter().find(|kind| is(kind.controller));
    let simulated = simulated.iter().find(|name| is(name));
    of_kind
        .map(ControllerName::Of)
        .or_else(|| simulated.map(|name| ControllerName::Simulated(name)))
}

impl ControllerArgs {
    /// True if the controller is enabled: the first item with its name decides, otherwise `*`
    /// (kubernetes `controller-manager/app/helper.go:IsControllerEnabled`). With `dev`, where no
    /// other controller runs, `*` means that of Deployments and the simulated ones too.
    pub fn is_enabled(&self, name: ControllerName) -> bool {
        self.explicitly_enabled(name)
            .unwrap_or_else(|| self.controllers.contains(&ControllerItem::Every))
    }

    fn explicitly_enabled(&self, name: ControllerName) -> Option<bool> {
        self.controllers.iter().find_map(|item| match item {
            ControllerItem::On(on) if *on == name => Some(true),
            ControllerItem::Off(off) if *off == name => Some(false),
            _ => None,
        })
    }

    /// True if the Deployment controller is enabled outside `dev`.
    pub fn runs_deployments(&self) -> bool {
        self.explicitly_enabled(ControllerName::Deployments) == Some(true)
    }

    /// The kinds whose controllers are enabled.
    pub fn enabled(&self) -> Vec<&'static WorkloadKind> {
        let all = ALL.into_iter();
        all.filter(|kind| self.is_enabled(ControllerName::Of(kind)))
            .collect()
    }
}

/// A value that `off` switches off. An alias, so that clap's derive does not treat the field as an
/// optional flag.
type OrOff<T> = std::option::Option<T>;

/// Flags for behaviour beyond upstream's.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Opt-ins (not in kube-controller-manager)")]
pub struct OptInArgs {
    /// Delay replacements of Failed pods with exponential back-off: off, or a range such as
    /// 10s..5m.
    #[arg(long, value_name = "FIRST..LONGEST", default_value = "off",
        value_parser = or_off::<FailedPodBackoff>)]
    pub failed_pod_backoff: OrOff<FailedPodBackoff>,

    /// Number of Failed pods kept per ReplicaSet; older ones are deleted: off, or a number.
    #[arg(long, value_name = "N", default_value = "off", value_parser = parse_kept)]
    pub failed_pods_kept: OrOff<u32>,

    /// Minimum age of a Failed pod before --failed-pods-kept deletes it.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_min_age)]
    pub failed_pods_min_age: Duration,

    /// Which pods a scale-down prefers to delete among pods in the same state: off, spread,
    /// consolidate, or both.
    #[arg(long, value_name = "ORDER", default_value = "off")]
    pub scale_down_order: ScaleDownOrder,

    /// Scale-downs respect the annotation replicaset-controller/scale-down of pods.
    #[arg(long, value_name = "on|off", default_value = "off", value_parser = parse_on_off,
        action = clap::ArgAction::Set)]
    pub scale_down_protection: bool,

    /// Maximum time that protected pods block a scale-down: off (no limit), or a duration.
    #[arg(long, value_name = "DURATION", default_value = "off", value_parser = parse_timeout)]
    pub protected_timeout: OrOff<Duration>,
}

impl OptInArgs {
    /// The default of all ReplicaSets.
    pub fn policy(&self) -> Policy {
        Policy {
            failed_pod_backoff: self.failed_pod_backoff,
            failed_pods_kept: self.failed_pods_kept,
            failed_pods_min_age: self.failed_pods_min_age,
            scale_down_order: self.scale_down_order,
            scale_down_protection: self.scale_down_protection,
            protected_timeout: self.protected_timeout,
        }
    }
}

/// Flags of feature gates.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Features")]
pub struct FeatureArgs {
    /// Feature gates as NAME=BOOL,...: DeploymentReplicaSetTerminatingReplicas, PodDeletionCost,
    /// StaleControllerConsistencyReplicaSet, WatchListClient.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub feature_gates: Vec<Setting>,
}

impl FeatureArgs {
    /// True if the gate is on. The last setting of a gate wins.
    pub fn is_enabled(&self, gate: &Gate) -> bool {
        let settings = self.feature_gates.iter().rev();
        let mut settings = settings.filter(|setting| setting.gate.name == gate.name);
        settings
            .next()
            .map_or(gate.default, |setting| setting.is_enabled)
    }
}

/// A gate that concerns this daemon. Any other gate is rejected, so that no setting is silently
/// ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Name in Kubernetes.
    pub name: &'static str,
    /// Stage in Kubernetes 1.37: `ALPHA`, `BETA`, or empty for general availability; `None` if only
    /// older versions have the gate.
    pub stage: Option<&'static str>,
    /// Default value.
    pub default: bool,
    /// True if the value cannot be changed.
    pub is_locked: bool,
}

/// A gate and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    gate: Gate,
    is_enabled: bool,
}

/// Scale-downs respect the pod deletion cost.
pub const POD_DELETION_COST: Gate = switchable("PodDeletionCost");

/// The status of a ReplicaSet counts terminating pods.
pub const TERMINATING_REPLICAS: Gate = switchable("DeploymentReplicaSetTerminatingReplicas");

/// A sync waits until the cache shows the daemon's own writes.
pub const STALE_CONTROLLER_CONSISTENCY: Gate = switchable("StaleControllerConsistencyReplicaSet");

/// Lists are streamed at the beginning of a watch (client-go `features/known_features.go`).
pub const WATCH_LIST_CLIENT: Gate = switchable("WatchListClient");

/// The gates of this daemon, switchable or locked, by their upstream names
/// (kubernetes `pkg/features/kube_features.go`,
/// `controller-manager/pkg/features/kube_features.go`).
pub const GATES: [Gate; 7] = [
    locked(
        "ControllerManagerReleaseLeaderElectionLockOnExit",
        Some("ALPHA"),
        true,
    ),
    locked("CoordinatedLeaderElection", Some("BETA"), false),
    TERMINATING_REPLICAS,
    POD_DELETION_COST,
    locked("LogarithmicScaleDown", None, true),
    STALE_CONTROLLER_CONSISTENCY,
    WATCH_LIST_CLIENT,
];

const fn switchable(name: &'static str) -> Gate {
    Gate {
        name,
        stage: Some("BETA"),
        default: true,
        is_locked: false,
    }
}

const fn locked(name: &'static str, stage: Option<&'static str>, value: bool) -> Gate {
    Gate {
        name,
        stage,
        default: value,
        is_locked: true,
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err("expected NAME=BOOL".to_owned());
        };
        let is_enabled = parse_bool(value)?;
        match GATES.into_iter().find(|gate| gate.name == name) {
            Some(gate) if !gate.is_locked || gate.default == is_enabled => {
                Ok(Self { gate, is_enabled })
            }
            Some(gate) if gate.default => Err(format!("{name} is always on in this daemon")),
            Some(_) => Err(format!("{name} is always off in this daemon")),
            None => {
                let known = GATES.map(|gate| gate.name).join(", ");
                Err(format!("expected a gate of this daemon: {known}"))
            }
        }
    }
}

/// Default namespace of the Lease without `--leader-elect-resource-namespace` and `--namespace`
/// (kubernetes `pkg/controller/apis/config/v1alpha1/defaults.go`).
pub const LEASE_NAMESPACE: &str = "kube-system";

/// Flags of leader election.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderElectionArgs {
    /// Write only while holding the Lease, so that several daemons can run and one leads.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = true, default_missing_value = "true", value_parser = parse_bool,
        action = clap::ArgAction::Set)]
    pub leader_elect: bool,

    /// Another daemon can take the Lease if the leader has not renewed it for this time.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    pub leader_elect_lease_duration: Duration,

    /// The leader stops writing and exits if it could not renew the Lease for this time.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub leader_elect_renew_deadline: Duration,

    /// Delay between two attempts to acquire or renew the Lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub leader_elect_retry_period: Duration,

    /// Resource that serves as the lock.
    #[arg(long, value_name = "KIND", value_parser = ["leases"], default_value = "leases")]
    pub leader_elect_resource_lock: String,

    /// Name of the Lease.
    // DIFFERS: upstream's default is `kube-controller-manager`. With that Lease this daemon would
    // put a whole kube-controller-manager on standby.
    #[arg(long, value_name = "NAME", default_value = "replicaset-controller",
        value_parser = parse_object_name)]
    pub leader_elect_resource_name: String,

    /// Namespace of the Lease; default --namespace, else kube-system.
    #[arg(long, value_name = "NAME", value_parser = parse_namespace)]
    pub leader_elect_resource_namespace: Option<String>,

    /// Not supported. --leader-elect-resource-name names a Lease shared with
    /// kube-controller-manager.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_value_t = false, default_missing_value = "true", value_parser = parse_bool,
        action = clap::ArgAction::Set, hide = true)]
    pub enable_leader_migration: bool,

    /// Not supported. --leader-elect-resource-name names a Lease shared with
    /// kube-controller-manager.
    #[arg(long, value_name = "FILE", hide = true)]
    pub leader_migration_config: Option<PathBuf>,
}

impl LeaderElectionArgs {
    /// The namespace of the Lease of a daemon that controls `namespace` (`None` for all).
    pub fn resource_namespace<'a>(&'a self, namespace: Option<&'a str>) -> &'a str {
        let given = self.leader_elect_resource_namespace.as_deref();
        given.or(namespace).unwrap_or(LEASE_NAMESPACE)
    }
}

#[cfg(test)]
mod tests {
    use super::{FeatureArgs, GATES, Gate, Setting};

    fn parsed(text: &str) -> Result<FeatureArgs, String> {
        let feature_gates = text.split(',').map(str::parse::<Setting>);
        let feature_gates = feature_gates.collect::<Result<_, _>>()?;
        Ok(FeatureArgs { feature_gates })
    }

    #[test]
    fn locked_gates_cannot_be_changed() {
        for gate in GATES {
            let Gate {
                name,
                default,
                is_locked,
                ..
            } = gate;
            let args = parsed(&format!("{name}={default}")).expect("its own value");
            assert_eq!(args.is_enabled(&gate), default, "{name}");
            let other = parsed(&format!("{name}={}", !default));
            assert_eq!(other.is_err(), is_locked, "{name}");
            if let Ok(args) = other {
                assert_eq!(args.is_enabled(&gate), !default, "{name}");
            }
        }
        let error = parsed("LogarithmicScaleDown=false").expect_err("locked");
        assert_eq!(error, "LogarithmicScaleDown is always on in this daemon");
    }

    #[test]
    fn the_last_value_of_a_gate_wins() {
        let args = parsed("PodDeletionCost=false,PodDeletionCost=true,PodDeletionCost=false");
        let args = args.expect("a gate that can be switched");
        assert!(!args.is_enabled(&super::POD_DELETION_COST));
        assert!(args.is_enabled(&super::TERMINATING_REPLICAS));
    }
}
