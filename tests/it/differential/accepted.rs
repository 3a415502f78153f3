//! The differences between the two servers that are meant to be, each with its reason. Pure.

use super::compare::{Difference, Rule};
use super::step::Step;

/// All of them. With the usual seed each has to be met, so that none outlives its reason.
pub(super) const ACCEPTED: &[Rule] = &[
    // Admission plugins give every pod an account, a priority and two tolerations. The dev server has
    // no such plugins, and no controller or kubelet of its reads what they add.
    Rule {
        name: "admission defaults",
        accepts: |_, difference| {
            const ADDED: [&str; 5] = [
                "serviceAccount",
                "serviceAccountName",
                "priority",
                "preemptionPolicy",
                "tolerations",
            ];
            let added = |name: &&str| difference.ends_with(&["spec", name]);
            difference.dev.is_none() && ADDED.iter().any(added)
        },
    },
    // kube-apiserver shows what has changed as a dump of Go structures, over many lines.
    Rule {
        name: "dump of a forbidden change",
        accepts: |_, difference| {
            difference.texts().is_some_and(|(real, dev)| {
                let head = real.split('\n').next().unwrap_or_default();
                head.contains("pod updates may not change fields") && dev == head
            })
        },
    },
];
