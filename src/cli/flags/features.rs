//! Feature gates: which of Kubernetes' concern this daemon, and which value each may have here.

use std::str::FromStr;

use clap::Args;

use crate::cli::values::parse_bool;

/// Flags of feature gates.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Features")]
pub struct FeatureArgs {
    /// Feature gates as NAME=BOOL,...; those that concern this daemon, at the value that it works by:
    /// see the README.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub feature_gates: Vec<Gate>,
}

/// A gate that concerns this daemon, at the value that it works by. Others are mistakes, so that
/// nobody believes to have switched something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Kubernetes' name.
    pub name: &'static str,
    /// On or off.
    pub value: bool,
    /// `ALPHA`, `BETA`, or empty for one that is generally available, as of Kubernetes 1.36.
    pub stage: &'static str,
}

/// What this daemon does always or never, by the names of the gates that say so upstream
/// (kubernetes `pkg/features/kube_features.go`, `controller-manager/pkg/features/kube_features.go`).
pub const GATES: [Gate; 6] = [
    gate(
        "ControllerManagerReleaseLeaderElectionLockOnExit",
        "ALPHA",
        true,
    ),
    gate("CoordinatedLeaderElection", "BETA", false),
    gate("DeploymentReplicaSetTerminatingReplicas", "BETA", true),
    gate("PodDeletionCost", "BETA", true),
    gate("LogarithmicScaleDown", "", true),
    gate("StaleControllerConsistencyReplicaSet", "BETA", true),
];

const fn gate(name: &'static str, stage: &'static str, value: bool) -> Gate {
    Gate { name, value, stage }
}

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err("expected NAME=BOOL".to_owned());
        };
        let value = parse_bool(value)?;
        match GATES.into_iter().find(|gate| gate.name == name) {
            Some(gate) if gate.value == value => Ok(gate),
            Some(gate) if gate.value => Err("this daemon always does that".to_owned()),
            Some(_) => Err("this daemon does not do that".to_owned()),
            None => {
                let known = GATES.map(|gate| gate.name).join(", ");
                Err(format!("this daemon knows the gates {known}"))
            }
        }
    }
}
