//! What was built and what is switched on, as constant series
//! (component-base `metrics/version.go` and `metrics/prometheus/feature/metrics.go`).

use std::env::consts::{ARCH, OS};

use prometheus::IntGaugeVec;

use super::registry::Registry;

/// Families of constants.
#[derive(Debug)]
pub struct BuildMetrics {
    feature_enabled: IntGaugeVec,
}

impl BuildMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let build_info = registry.gauges(
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
        let version = concat!("v", env!("CARGO_PKG_VERSION"));
        let platform = format!("{OS}/{ARCH}");
        let values = [
            env!("CARGO_PKG_VERSION_MAJOR"),
            env!("CARGO_PKG_VERSION_MINOR"),
            version,
            "",
            "",
            "",
            "",
            "rustc",
            &platform,
        ];
        build_info.with_label_values(&values).set(1);
        Self {
            feature_enabled: registry.gauges(
                "kubernetes_feature_enabled",
                "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
                &["name", "stage"],
            ),
        }
    }

    /// Says whether the feature gate `name` is on; `stage` is `ALPHA`, `BETA`, `DEPRECATED`, or empty
    /// for one that is generally available.
    pub fn set_feature_enabled(&self, name: &str, stage: &str, is_enabled: bool) {
        let gauge = self.feature_enabled.with_label_values(&[name, stage]);
        gauge.set(i64::from(is_enabled));
    }
}
