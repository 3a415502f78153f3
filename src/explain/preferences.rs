//! Explains the pods that a preference of `scale-down-order` chose.

use std::sync::Arc;

use super::model::Deletion;
use crate::api::{Pod, Uid};
use crate::controller::decide::deletion_order::{DeletionContext, RankedPod};
use crate::controller::decide::optional::order::{Because, NodePods, Places, prefer};
use crate::stdx::hash::HashMap;

/// Why preferences chose pods among `chosen`. `order` is upstream's order of the `active` pods.
pub(super) fn preferred(
    chosen: &[Arc<Pod>],
    active: &[Arc<Pod>],
    order: &[RankedPod],
    context: &DeletionContext<'_>,
) -> HashMap<Uid, Because> {
    let is_unresolved = |pod: &Pod| context.unresolved.contains(&pod.uid);
    let gone: Vec<_> = {
        let gone = chosen.iter().filter(|pod| is_unresolved(pod));
        gone.cloned().collect()
    };
    let rest = order.iter().filter(|it| !is_unresolved(&it.pod));
    let more = chosen.len() - gone.len();
    let preferred = prefer(rest.cloned().collect(), more, (active, &gone), context);
    let because = preferred.into_iter().take(more);
    because
        .filter_map(|it| Some((it.ranked.pod.uid.clone(), it.because?)))
        .collect()
}

/// The line about a pod that a preference chose.
pub(super) fn by_preference(pod: &Pod, because: &Because, places: &Places) -> Deletion {
    let node = pod.node.as_deref().unwrap_or_default();
    let on_node = because.on_node.map(|on_node| match on_node {
        NodePods::Emptied(1) => format!("it is the last pod on {node}"),
        NodePods::Emptied(n) => format!("it is one of the last {n} pods on {node}, which all go"),
        NodePods::Active(n) => format!("{node} has {n} active pods, and fuller nodes go later"),
    });
    let in_domain = because.in_domain.map(|n| {
        let domain = match places.label() {
            Some(key) => match pod.labels.get(key) {
                Some(value) => format!("{key}={value}"),
                None => format!("no {key}"),
            },
            None => format!("node {node}"),
        };
        let pods_are = if n == 1 { "pod is" } else { "pods are" };
        format!("{n} {pods_are} in {domain}, no other has more to give")
    });
    let both = [in_domain, on_node].into_iter().flatten();
    Deletion {
        pod: pod.key.name.to_string(),
        rule: Some(because.preference.name()),
        because: both.collect::<Vec<_>>().join("; "),
        ties_with: None,
    }
}
