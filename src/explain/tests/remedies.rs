//! What an operator does about a daemon that does not act, may not act, or is not alone.

use std::sync::Arc;

use serde_json::json;

use super::{NOW, check, facts, memory, ready, running};
use crate::api::workload_kind::REPLICA_SET;
use crate::controller::other_writers::{OTHER_WRITER, remedy};
use crate::explain::inspect::{RecordFacts, ReplicaSetFacts};
use crate::explain::model::{EventLine, Sources};
use crate::explain::report::report;
use crate::workqueue::KeyState;

/// Desired 3, of which `n` pods exist, and the status reports one pod for the last generation.
fn unseen(n: usize) -> ReplicaSetFacts {
    let pods = (0..n).map(|n| ready(&format!("web-{n}"))).collect();
    let mut facts = facts(3, &json!([]), pods);
    let rs = Arc::make_mut(&mut facts.replica_set);
    (rs.generation, rs.status.replicas) = (2, 1);
    facts
}

#[test]
fn pods_that_follow_show_that_only_the_status_is_late() {
    let text = report(&unseen(1), &Sources::default(), NOW);
    check(
        &text,
        &[
            "generation 2 has not been synced yet: status.observedGeneration is 1",
            "read the controller's log (journalctl -u replicaset-controller -n 20): no daemon leads",
        ],
    );
    // A pod that was lost is no sign of a daemon.
    check(
        &report(&unseen(0), &Sources::default(), NOW),
        &["generation 2 has not been synced yet"],
    );
    for n in [2, 3] {
        let late = format!("the pods follow generation 2 ({n} are active), but its status is not");
        let expected = [
            &*late,
            "status.replicas is 1",
            "replicasets/status",
            "--kube-api-qps",
        ];
        check(&report(&unseen(n), &Sources::default(), NOW), &expected);
    }
}

#[test]
fn a_standby_says_so_beside_the_problem() {
    let mut facts = unseen(1);
    facts.memory = Some(memory());
    let leader = report(&facts, &Sources::default(), NOW);
    assert!(leader.findings.is_empty(), "{leader}");
    let standby = Sources {
        is_standby: true,
        ..Sources::default()
    };
    let expected = [
        "this daemon is a standby: only the holder of the Lease creates",
        "generation 2 has not been synced yet",
    ];
    check(&report(&facts, &standby, NOW), &expected);
    let rs = Arc::make_mut(&mut facts.replica_set);
    (rs.generation, rs.replicas) = (1, 1);
    let report = report(&facts, &standby, NOW);
    assert!(report.has_converged(), "{report}");
}

#[test]
fn a_missing_permission_is_granted_to_the_refused_account() {
    for (user, flag) in [
        ("replicaset-controller", "--user=replicaset-controller |"),
        ("o'neil", "--user='o'\\''neil' |"),
        ("system:serviceaccount:ops:rs", "--service-account=ops/rs |"),
        (
            "system:serviceaccount:ops:x; y",
            "--service-account='ops/x; y' |",
        ),
    ] {
        for verb in ["create", "delete", "patch"] {
            let message = format!(
                "pods is forbidden: User \"{user}\" cannot {verb} resource \"pods\" in API group \
                 \"\" in the namespace \"shop\""
            );
            let failure = json!([
                {"type": "ReplicaFailure", "status": "True", "message": message},
            ]);
            let command = format!("fix: grant the permission: replicaset-controller rbac {flag}");
            let role = "kubectl get clusterrole system:controller:replicaset-controller";
            let report = report(&facts(1, &failure, vec![]), &Sources::default(), NOW);
            check(&report, &[&command, role]);
        }
    }
}

#[test]
fn no_retry_is_advised_where_a_permission_is_missing() {
    let of = |message: &str| {
        let mut facts = facts(2, &json!([]), vec![]);
        let mut memory = RecordFacts {
            queue: KeyState {
                due_in: Some(std::time::Duration::from_secs(4)),
                n_failures: 3,
                ..KeyState::default()
            },
            ..memory()
        };
        let mut history = crate::controller::memory::history::History::default();
        history.note_permanent_error(message.to_owned(), NOW);
        memory.last_error = history.last_error;
        facts.memory = Some(memory);
        report(&facts, &Sources::default(), NOW).to_string()
    };
    assert!(of("500 etcd is away").contains("to retry now"));
    let denied = of("pods is forbidden: User \"a\" cannot patch resource \"pods\"");
    assert!(denied.contains("in back-off after 3 failures"), "{denied}");
    assert!(!denied.contains("to retry now"), "{denied}");
}

#[test]
fn a_limit_range_and_a_failing_webhook_have_remedies() {
    for (message, fix) in [
        (
            "pods \"a\" is forbidden: maximum cpu usage per Container is 500m, but limit is 800m",
            "fix: change the template's resources, or the LimitRange: kubectl -n shop describe \
             limitrange",
        ),
        (
            "failed calling webhook \"a.b\": internal error: nil map",
            "fix: the webhook does not respond or fails",
        ),
    ] {
        let failure = json!([{"type": "ReplicaFailure", "status": "True", "message": message}]);
        let report = report(&facts(1, &failure, vec![]), &Sources::default(), NOW);
        check(&report, &[fix]);
    }
}

#[test]
fn another_controller_is_read_from_a_recent_event() {
    let message = "kcm created pod web-1 of a ReplicaSet that this daemon controls";
    let facts = facts(1, &json!([]), vec![ready("web-1")]);
    let with_event = |age: i64| {
        let event = EventLine {
            last_seen: Some(NOW - jiff::SignedDuration::from_secs(age)),
            count: 1,
            type_: "Warning".to_owned(),
            reason: OTHER_WRITER.to_owned(),
            message: format!("{message}; {}", remedy(&REPLICA_SET)),
            component: String::new(),
        };
        let sources = Sources {
            events: Some(vec![event]),
            ..Sources::default()
        };
        report(&facts, &sources, NOW)
    };
    let recent = with_event(60);
    assert_eq!(recent.findings[0].what, message);
    assert_eq!(recent.findings[0].fix, Some(remedy(&REPLICA_SET)));
    assert!(with_event(300).has_converged());
}

#[test]
fn what_the_api_does_not_show_is_in_the_log() {
    let report = report(
        &facts(2, &json!([]), vec![running("web-1")]),
        &Sources::default(),
        NOW,
    );
    check(
        &report,
        &[
            "nothing in the API explains the delay",
            "read the controller's log",
        ],
    );
}
