//! Whose version this daemon stands for, what was built, and what is switched on, as constant
//! series (component-base `metrics/version.go` and `metrics/prometheus/feature/metrics.go`).

use prometheus::IntGaugeVec;

use super::registry::Registry;
use crate::stdx::build;

/// Families of constants.
#[derive(Debug)]
pub struct BuildMetrics {
    kubernetes: IntGaugeVec,
    feature_enabled: IntGaugeVec,
}

/// A version of Kubernetes, as an API server tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubernetesVersion {
    /// `1`.
    pub major: String,
    /// `36`.
    pub minor: String,
    /// `v1.36.3`.
    pub git_version: String,
}

impl BuildMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let kubernetes = registry.gauges(
            "kubernetes_build_info",
            "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git \
             commit, git tree state, build date, Go version, and compiler from which Kubernetes was \
             built, and platform on which it is running.",
            &[
                "major",
                "minor",
                "git_version",
                "git_commit",
                "git_tree_state",
                "build_date",
                "go_version",
                "compiler",
                "platform",
            ],
        );
        let own = registry.gauges(
            "replicaset_controller_build_info",
            "A constant 1, labeled by the version and the commit of this daemon.",
            &["version", "commit"],
        );
        let commit = build::COMMIT.unwrap_or_default();
        own.with_label_values(&[build::VERSION, commit]).set(1);
        Self {
            kubernetes,
            feature_enabled: registry.gauges(
                "kubernetes_feature_enabled",
                "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
                &["name", "stage"],
            ),
        }
    }

    /// Shows this as the version of Kubernetes, in place of the one shown before. Until the first
    /// call none is shown.
    ///
    /// DIFFERS: upstream shows its own, which is the API server's but for upgrades. This daemon's
    /// own would be one version too many for alerts that compare those of all components.
    pub fn set_kubernetes_version(&self, version: &KubernetesVersion) {
        let KubernetesVersion {
            major,
            minor,
            git_version,
        } = version;
        let platform = build::platform();
        let values = [
            major,
            minor,
            git_version,
            "",
            "",
            "",
            "",
            "rustc",
            &platform,
        ];
        self.kubernetes.reset();
        self.kubernetes.with_label_values(&values).set(1);
    }

    /// Says whether the feature gate `name` is on; `stage` is `ALPHA`, `BETA`, `DEPRECATED`, or empty
    /// for one that is generally available.
    pub fn set_feature_enabled(&self, name: &str, stage: &str, is_enabled: bool) {
        let gauge = self.feature_enabled.with_label_values(&[name, stage]);
        gauge.set(i64::from(is_enabled));
    }
}
