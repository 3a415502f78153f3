//! The properties of a round's workloads at rest.

use std::collections::BTreeSet;

use serde_json::Value;

use super::judge::{has_failed, is_active, is_ready, length};
use super::opt_ins::{Mark, N_KEPT, OptIns};
use crate::support::{controller_uid, name, number_at, owner_references, text_at, uid};

/// What is wrong with the objects at rest; empty if nothing is.
///
/// PROPERTY P31: Within 90 s after the last fault every ReplicaSet has `spec.replicas` active pods,
/// or as many as are protected, and a status that counts all, ready, available and labelled pods
/// and has its generation, no active pod is without an owner, and a pod of another controller with
/// the same labels is there. A condition reports a block while there is one, and no more Failed
/// pods are left than a ReplicaSet keeps that opts in to that.
pub(super) fn at_rest(sets: &[Value], pods: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    for set in sets {
        let of_set = uid(set);
        let all = pods
            .iter()
            .filter(|pod| controller_uid(pod).is_some_and(|owner| owner == of_set));
        let all: Vec<&Value> = all.collect();
        let owned = || all.iter().filter(|pod| is_active(pod));
        let n_owned = length(owned().count());
        let n_ready = length(owned().filter(|pod| is_ready(pod)).count());
        let number = |pointer| number_at(set, pointer);
        let wanted = number("/spec/replicas");
        let (kept, mistakes) = with_opt_ins(set, wanted, &all);
        wrong.extend(mistakes);
        for (what, found, wanted) in [
            ("pods", n_owned, kept),
            ("status.replicas", number("/status/replicas"), n_owned),
            (
                "status.readyReplicas",
                number("/status/readyReplicas"),
                n_ready,
            ),
            (
                "status.availableReplicas",
                number("/status/availableReplicas"),
                n_ready,
            ),
            (
                "status.fullyLabeledReplicas",
                number("/status/fullyLabeledReplicas"),
                n_owned,
            ),
            (
                "status.observedGeneration",
                number("/status/observedGeneration"),
                number("/metadata/generation"),
            ),
        ] {
            if found != wanted {
                wrong.push(format!("{}: {what} {found}, not {wanted}", name(set)));
            }
        }
    }
    let sets: BTreeSet<String> = sets.iter().map(uid).collect();
    // A pod whose delete was broken off half-way ends with its kubelet, which no round has.
    for pod in pods.iter().filter(|pod| is_active(pod)) {
        let is_stray = match controller_uid(pod) {
            Some(owner) => !sets.contains(&owner) && text_at(pod, "/metadata/name") != FOREIGN,
            None => owner_references(pod).is_empty(),
        };
        if is_stray {
            wrong.push(format!("{}: nobody owns it", name(pod)));
        }
    }
    if !pods.iter().any(|pod| name(pod) == FOREIGN) {
        wrong.push(format!(
            "{FOREIGN}: it is gone, but is another controller's"
        ));
    }
    wrong
}

/// A pod in every round that has the ReplicaSets' labels and another controller.
pub(super) const FOREIGN: &str = "foreign";

/// How many pods a ReplicaSet with this `spec.replicas` has at rest, and what is wrong with its
/// opt-ins.
fn with_opt_ins(set: &Value, wanted: i64, pods: &[&Value]) -> (i64, Vec<String>) {
    let (opt_ins, mut wrong) = (OptIns::of(set), Vec::new());
    let is_protected =
        |pod: &&&Value| opt_ins.protects && is_active(pod) && Mark::of(pod) == Mark::Never;
    let kept = wanted.max(length(pods.iter().filter(is_protected).count()));
    let conditions = set["status"]["conditions"].as_array();
    let is_blocked = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "ScaleDownBlocked" && condition["status"] == "True");
    if is_blocked != (kept > wanted) {
        wrong.push(format!("{}: ScaleDownBlocked is {is_blocked}", name(set)));
    }
    let n_failed = pods.iter().filter(|pod| has_failed(pod)).count();
    if opt_ins.keeps_few && n_failed > N_KEPT {
        wrong.push(format!("{}: {n_failed} Failed pods are left", name(set)));
    }
    (kept, wrong)
}
