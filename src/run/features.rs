//! Turns the flags of feature gates into the controllers' options.

use crate::cli::flags::{
    FeatureArgs, POD_DELETION_COST, STALE_CONTROLLER_CONSISTENCY, TERMINATING_REPLICAS,
};
use crate::controller::FeatureGates;

/// Returns the gates that are on.
pub(super) fn feature_gates(args: &FeatureArgs) -> FeatureGates {
    FeatureGates {
        pod_deletion_cost: args.is_enabled(&POD_DELETION_COST),
        terminating_replicas: args.is_enabled(&TERMINATING_REPLICAS),
        stale_controller_consistency: args.is_enabled(&STALE_CONTROLLER_CONSISTENCY),
    }
}

#[cfg(test)]
mod tests {
    use super::{FeatureArgs, FeatureGates, feature_gates};

    #[test]
    fn each_flag_switches_its_own_gate() {
        let all = FeatureGates::default();
        let of = |name: &str| {
            let setting = format!("{name}=false").parse().expect("it can be switched");
            let feature_gates = vec![setting];
            super::feature_gates(&FeatureArgs { feature_gates })
        };
        let feature_args = FeatureArgs {
            feature_gates: Vec::new(),
        };
        assert_eq!(feature_gates(&feature_args), all);
        let pod_deletion_cost = false;
        assert_eq!(
            of("PodDeletionCost"),
            FeatureGates {
                pod_deletion_cost,
                ..all
            }
        );
        let terminating_replicas = false;
        assert_eq!(
            of("DeploymentReplicaSetTerminatingReplicas"),
            FeatureGates {
                terminating_replicas,
                ..all
            }
        );
        let stale_controller_consistency = false;
        assert_eq!(
            of("StaleControllerConsistencyReplicaSet"),
            FeatureGates {
                stale_controller_consistency,
                ..all
            }
        );
    }
}
