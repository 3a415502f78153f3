//! Pods that fail as fast as the controller replaces them: a node rejects them, or a container
//! cannot start. As upstream, the controller replaces each one at once
//! (kubernetes/kubernetes#72593), so thousands of failed pods may pile up. The log warns once a
//! minute per ReplicaSet. With a back-off, replacements wait
//! ([`failed_pods`](crate::controller::decide::optional::failed_pods)), and an event and a log line
//! report each of its steps.

use std::time::Duration;

use crate::api::{ObjectKey, Pod, ReplicaSet, WorkloadKind};
use crate::controller::act::Writer;
use crate::controller::decide::optional::failed_pods::FAILED_POD_BACKOFF;

impl Writer {
    /// Reports a new step of the back-off of `rs`.
    pub(in crate::controller) fn report_failing_pods(&self, rs: &ReplicaSet, message: String) {
        log::warn!(object:% = self.kind.named(&rs.key); "{message}");
        self.pod_control.warn(rs, FAILED_POD_BACKOFF, message);
    }
}

/// Warns that `count` pods of `rs` have failed within this time, `pod` among them.
pub(in crate::controller) fn warn_of_failures(
    kind: &WorkloadKind,
    rs: &ReplicaSet,
    pod: &Pod,
    (count, within): (usize, Duration),
) {
    log::warn!(
        object:% = kind.named(&rs.key);
        "{count} pods have failed within {:.0} s, and each is replaced at once: kubectl -n {} \
         describe pod {}; to slow the replacements down: {}",
        within.as_secs_f64().max(1.0),
        pod.key.namespace,
        pod.key.name,
        back_off_command(rs, kind.singular)
    );
}

/// The command that switches the back-off of `rs` on.
pub fn back_off_command(rs: &ReplicaSet, resource: &str) -> String {
    let ObjectKey { namespace, name } = &rs.key;
    format!(
        "kubectl -n {namespace} annotate {resource} {name} \
         replicaset-controller/failed-pod-backoff=10s..5m"
    )
}

#[cfg(test)]
mod tests {
    use crate::api::{Pod, PodPhase};
    use crate::controller::testing::{Fixture, owned_pod, replica_set};

    /// A pod of one ReplicaSet fails, and the watch shows it twice.
    fn one_fails(fixture: &Fixture) {
        let rs = replica_set("web", 1);
        fixture.deliver_replica_set(rs.clone());
        fixture.deliver_pod(owned_pod("a", &rs));
        for version in ["2", "3"] {
            fixture.deliver_pod(Pod {
                resource_version: version.into(),
                phase: PodPhase::Failed,
                restarts: i32::from(version == "3"),
                ..owned_pod("a", &rs)
            });
        }
    }

    #[test]
    fn each_pod_that_fails_is_counted_once() {
        let fixture = Fixture::new();
        one_fails(&fixture);
        assert_eq!(fixture.metrics.pods_failed.get(), 1);
    }

    #[test]
    fn a_standby_counts_no_pods_that_fail() {
        let fixture = Fixture::new();
        fixture.controller.stand_by();
        one_fails(&fixture);
        assert_eq!(fixture.metrics.pods_failed.get(), 0);
    }
}
