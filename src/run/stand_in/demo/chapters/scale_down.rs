//! A scale-down deletes pods in the order of deletion. The ReplicaSet opts in to protected pods and
//! to emptying nodes, and then to even ones.

use std::collections::BTreeMap;

use serde_json::json;

use super::{PATIENCE, annotate, annotations, collection, replica_set, scale, set_path};
use crate::devserver::behaviour::{FATE, NODE};
use crate::run::stand_in::demo::stage::{ChapterError, ChapterResult, Stage, check};
use crate::run::stand_in::world::{DELETION_COST, PodFacts, SCALE_DOWN, World};

const SET: &str = "picky";

/// Nodes without any other pods.
const EMPTIED: &str = "node-a";
const FULLER: &str = "node-b";

/// Why a pod of the emptied node is deleted.
const EMPTIES: &str = "empties node-a";

/// The annotations of the template, and the number of pods up to which it is used.
const GROWTH: [(&[(&str, &str)], usize); 3] = [
    (&[(FATE, "unscheduled")], 1),
    (&[(FATE, ""), (NODE, EMPTIED)], 3),
    (&[(NODE, FULLER)], 9),
];

/// Number of pods before and after the scale-down.
const REPLICAS: (usize, usize) = (GROWTH[2].1, 4);

const PROTECTION: (&str, &str) = ("replicaset-controller/scale-down-protection", "on");
const ORDER: &str = "replicaset-controller/scale-down-order";

/// Pods that come to the emptied node before the second scale-down.
const N_MORE: usize = 2;

/// The annotations of three pods on the fuller node: one becomes unready, one gets a low deletion
/// cost, and one is protected, although its cost is lower.
const MARKS: [(usize, (&str, &str)); 4] = [
    (0, (FATE, "unready")),
    (1, (DELETION_COST, "-10")),
    (2, (DELETION_COST, "-50")),
    (2, (SCALE_DOWN, "never")),
];

pub(super) fn play(stage: &mut Stage<'_>) -> ChapterResult<String> {
    create(stage)?;
    let pods = mark(stage)?;
    let expected = expected_choice(&pods)?;
    stage.set_notes(describe(&pods, &expected, "to delete", "to keep"));
    stage.pause(1.0)?;

    scale(stage, SET, REPLICAS.1)?;
    let world = stage.until("the scale-down", PATIENCE, |_, world| {
        let left = world.pods_of_name(SET).len();
        left == REPLICAS.1 && world.is_complete(SET)
    })?;
    let left = world.pods_of_name(SET);
    let is_left = |name: &str| left.iter().any(|pod| pod.name == name);
    let went: Vec<&PodFacts> = pods.iter().filter(|pod| !is_left(&pod.name)).collect();
    stage.set_notes(describe(&pods, &expected, "deleted", "kept"));
    for pod in &went {
        check(expected.contains_key(&pod.name), || {
            format!("{} was deleted, but should have been kept", pod.name)
        })?;
    }
    check(went.len() == expected.len(), || {
        format!("{} pods were deleted, not {}", went.len(), expected.len())
    })?;
    stage.pause(1.0)?;
    let n_emptied = expected.values().filter(|why| **why == EMPTIES).count();
    spread(stage)?;
    Ok(format!(
        "deleted: no node, not ready, cost -10, {n_emptied} on {EMPTIED}, now empty; kept: \
         scale-down=never; then spread: two each"
    ))
}

/// Adds pods on the emptied node, and scales down with the preference that evens out the nodes.
fn spread(stage: &mut Stage<'_>) -> ChapterResult<()> {
    annotate(stage, ("rs", SET), ORDER, Some("spread"))?;
    let template = json!({"metadata": {"annotations": annotations(&[(NODE, EMPTIED)])}});
    let n_pods = REPLICAS.1 + N_MORE;
    let patch = json!({"spec": {"replicas": n_pods, "template": template}});
    stage.patch(&set_path("default", SET), &patch)?;
    stage.until("more pods", PATIENCE, |_, world| {
        let pods = world.pods_of_name(SET);
        pods.len() == n_pods && pods.iter().all(|pod| pod.is_ready)
    })?;
    scale(stage, SET, REPLICAS.1)?;
    let world = stage.until("the second scale-down", PATIENCE, |_, world| {
        world.pods_of_name(SET).len() == REPLICAS.1 && world.is_complete(SET)
    })?;
    let left = world.pods_of_name(SET);
    let n_on = |node: &str| left.iter().filter(|pod| pod.node == node).count();
    let (n_emptied, n_fuller) = (n_on(EMPTIED), n_on(FULLER));
    check(n_emptied == n_fuller, || {
        format!("{n_emptied} pods are left on {EMPTIED} and {n_fuller} on {FULLER}")
    })?;
    stage.note(format!(
        "spread: {n_emptied} on {EMPTIED}, {n_fuller} on {FULLER}"
    ));
    stage.pause(0.5).map(drop)
}

/// Creates the ReplicaSet and, step by step, its pods.
fn create(stage: &mut Stage<'_>) -> ChapterResult<()> {
    stage.create(&collection("default"), &replica_set(SET, 0))?;
    annotate(stage, ("rs", SET), PROTECTION.0, Some(PROTECTION.1))?;
    for (template, replicas) in GROWTH {
        let template = json!({"metadata": {"annotations": annotations(template)}});
        let patch = json!({"spec": {"replicas": replicas, "template": template}});
        stage.patch(&set_path("default", SET), &patch)?;
        stage.until("its pods", PATIENCE, |_, world| {
            world.pods_of_name(SET).len() == replicas
        })?;
    }
    annotate(stage, ("rs", SET), ORDER, Some("consolidate"))?;
    until_ready(stage, REPLICAS.0 - 1).map(drop)
}

/// Annotates pods. Returns all of them, those to delete first.
fn mark(stage: &mut Stage<'_>) -> ChapterResult<Vec<PodFacts>> {
    let world = stage.look()?;
    let pods = world.pods_of_name(SET).into_iter();
    let fuller: Vec<&PodFacts> = pods.filter(|pod| pod.node == FULLER).collect();
    for (index, (annotation, value)) in MARKS {
        let pod = ("pod", fuller[index].name.as_str());
        annotate(stage, pod, annotation, Some(value))?;
        stage.pause(0.25)?;
    }
    let world = until_ready(stage, REPLICAS.0 - 2)?;
    let pods = world.pods_of_name(SET).into_iter();
    let mut pods: Vec<PodFacts> = pods.cloned().collect();
    pods.sort_by_key(|pod| (weakness(pod).map_or(usize::MAX, |(rank, _)| rank), pod.cost));
    Ok(pods)
}

/// Waits until the ReplicaSet has all its pods, so many of them Ready.
fn until_ready(stage: &mut Stage<'_>, n_ready: usize) -> ChapterResult<World> {
    stage.until("the pods and their states", PATIENCE, |_, world| {
        let pods = world.pods_of_name(SET);
        let counts = world.set(SET).map(|set| (set.current, set.ready));
        pods.iter().filter(|pod| pod.is_ready).count() == n_ready
            && counts == Some((REPLICAS.0, n_ready))
    })
}

/// Returns the pods that must be deleted, by name, with the reason, from the pods themselves.
fn expected_choice(pods: &[PodFacts]) -> ChapterResult<BTreeMap<String, &'static str>> {
    let mut chosen = BTreeMap::new();
    for pod in pods {
        if let Some((_, why)) = weakness(pod) {
            chosen.insert(pod.name.clone(), why);
        }
    }
    let n_wanted = REPLICAS.0 - REPLICAS.1;
    if chosen.len() == n_wanted {
        Ok(chosen)
    } else {
        let why = format!("{} pods are marked, not {n_wanted}", chosen.len());
        Err(ChapterError::Missed(why))
    }
}

/// Why a pod is deleted, and its place in the order of deletion.
fn weakness(pod: &PodFacts) -> Option<(usize, &'static str)> {
    if pod.is_protected {
        None
    } else if pod.node.is_empty() {
        Some((0, "no node"))
    } else if !pod.is_ready {
        Some((1, "not ready"))
    } else if pod.cost < 0 {
        Some((2, "deletion cost -10"))
    } else if pod.node == EMPTIED {
        Some((3, EMPTIES))
    } else {
        None
    }
}

/// Returns a line per pod, deleted pods first.
fn describe(
    pods: &[PodFacts],
    chosen: &BTreeMap<String, &'static str>,
    goes: &str,
    stays: &str,
) -> Vec<String> {
    let line = |pod: &PodFacts| match chosen.get(&pod.name) {
        Some(why) => format!("{:12} {goes}: {why}", pod.name),
        None if pod.is_protected => {
            let cost = pod.cost;
            format!(
                "{:12} {stays}: scale-down=never, in spite of deletion cost {cost}",
                pod.name
            )
        }
        None => format!("{:12} {stays}: {} stays in use", pod.name, pod.node),
    };
    let is_chosen = |pod: &&PodFacts| chosen.contains_key(&pod.name);
    let going = pods.iter().filter(is_chosen);
    let staying = pods.iter().filter(|pod| !is_chosen(pod));
    going.chain(staying).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{EMPTIED, FULLER, PodFacts, describe, expected_choice, weakness};

    fn pod(name: &str, node: &str, is_ready: bool, cost: i64) -> PodFacts {
        PodFacts {
            name: name.to_owned(),
            node: node.to_owned(),
            is_ready,
            cost,
            ..PodFacts::default()
        }
    }

    #[test]
    fn weak_pods_go_and_those_of_one_node_and_each_has_its_reason() {
        let protected = PodFacts {
            is_protected: true,
            ..pod("g", FULLER, true, -50)
        };
        let pods = [
            pod("a", FULLER, true, 0),
            pod("b", "", false, 0),
            pod("c", FULLER, false, 0),
            pod("d", FULLER, true, -10),
            pod("e", EMPTIED, true, 0),
            pod("f", EMPTIED, true, 0),
            protected,
        ];
        let chosen = expected_choice(&pods).expect("five of them");
        let lines = describe(&pods, &chosen, "deleted", "kept");
        assert_eq!(
            lines,
            [
                "b            deleted: no node",
                "c            deleted: not ready",
                "d            deleted: deletion cost -10",
                "e            deleted: empties node-a",
                "f            deleted: empties node-a",
                "a            kept: node-b stays in use",
                "g            kept: scale-down=never, in spite of deletion cost -50",
            ]
        );
        assert!(expected_choice(&pods[..2]).is_err());
        assert_eq!(weakness(&pods[0]), None);
    }
}
