//! Feature gates of Kubernetes that concern this daemon.

use std::str::FromStr;

use clap::Args;

use crate::cli::values::parse_bool;

/// Flags of feature gates.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Features")]
pub struct FeatureArgs {
    /// Feature gates as NAME=BOOL,...; flags.md of the manual lists the gates of this daemon.
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        hide_short_help = true
    )]
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

/// A gate that concerns this daemon. Any other gate is a mistake, so that no setting is silently
/// without effect.
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

#[cfg(test)]
mod tests {
    use super::{FeatureArgs, GATES, Gate, Setting};

    fn parsed(text: &str) -> Result<FeatureArgs, String> {
        let feature_gates = text.split(',').map(str::parse::<Setting>);
        let feature_gates = feature_gates.collect::<Result<_, _>>()?;
        Ok(FeatureArgs { feature_gates })
    }

    #[test]
    fn gates_that_upstream_locks_or_we_lack_keep_their_value() {
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
    fn of_one_gate_the_last_value_counts() {
        let args = parsed("PodDeletionCost=false,PodDeletionCost=true,PodDeletionCost=false");
        let args = args.expect("a gate that can be switched");
        assert!(!args.is_enabled(&super::POD_DELETION_COST));
        assert!(args.is_enabled(&super::TERMINATING_REPLICAS));
    }
}
