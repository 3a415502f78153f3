//! What the report of a ReplicaSet says about its Deployment.

use std::sync::Arc;

use serde_json::json;

use super::{NOW, check, facts, ready};
use crate::api::workload_kind::REPLICA_SET;
use crate::api::{ReplicaSet, WorkloadKind};
use crate::deployment::Rollout;
use crate::explain::inspect::current_of_deployment;
use crate::explain::model::Sources;
use crate::explain::report::report;

fn of_revision(name: &str, revision: i64, replicas: i32, created: &str) -> Arc<ReplicaSet> {
    let kind: &WorkloadKind = &REPLICA_SET;
    let object = json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": name, "creationTimestamp": created,
            "annotations": {"deployment.kubernetes.io/revision": revision.to_string()},
            "ownerReferences":
                [{"kind": "Deployment", "name": "web", "uid": "d", "controller": true}],
        },
        "spec": {"replicas": replicas},
    });
    let rs = ReplicaSet::from_answer(kind, object.to_string().as_bytes());
    Arc::new(rs.expect("a readable ReplicaSet"))
}

#[test]
fn after_a_rollback_the_older_replica_set_is_the_current_one() {
    for (good, bad) in [(1, 3), (0, 0)] {
        let sets = [
            of_revision("good", 3, good, "2025-12-31T23:00:00Z"),
            of_revision("bad", 2, bad, "2025-12-31T23:30:00Z"),
        ];
        let current = current_of_deployment(&sets, "web").expect("two ReplicaSets");
        assert_eq!(&*current.key.name, "good");
    }
}

fn rollout(blocked_by: Option<&str>) -> Rollout {
    Rollout {
        name: "web".to_owned(),
        desired: 1,
        strategy: "RollingUpdate".to_owned(),
        max_pods: 2,
        min_available: 1,
        new: None,
        old: Vec::new(),
        n_idle: 0,
        progress: None,
        progress_deadline: None,
        waits_for: Vec::new(),
        blocked_by: blocked_by.map(str::to_owned),
        next: Vec::new(),
    }
}

#[test]
fn a_blocked_or_unknown_deployment_is_a_problem() {
    let facts = facts(1, &json!([]), vec![ready("web-1")]);
    let with = |rollout| {
        let sources = Sources {
            rollout: Some(rollout),
            ..Sources::default()
        };
        report(&facts, &sources, NOW)
    };
    let message = "the end of a failure: Failed to create new replica set \"web-2\": \
                   replicasets.apps \"web-2\" is forbidden: exceeded quota: q";
    check(
        &with(Ok(rollout(Some(message)))),
        &[
            "- the Deployment waits for the end of a failure: Failed to create",
            "fix: raise the quota, free some of it",
        ],
    );
    let behind = "its controller, which has observed generation 1 of 2";
    check(
        &with(Ok(rollout(Some(behind)))),
        &["fix: check that a Deployment controller runs"],
    );
    check(
        &with(Err("deployments.apps \"web\" is forbidden".to_owned())),
        &[
            "its Deployment is unknown, and so is the rollout: deployments.apps",
            "fix: grant get",
        ],
    );
    check(&with(Ok(rollout(None))), &["Converged: 1 of 1"]);
}
