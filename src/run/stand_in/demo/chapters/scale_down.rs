//! A scale-down deletes pods in the order of deletion.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{PATIENCE, collection, pod_path, replica_set, scale, set_path, until_complete};
use crate::devserver::behaviour::FATE;
use crate::run::stand_in::demo::stage::{ChapterError, ChapterResult, Stage, check};
use crate::run::stand_in::world::{DELETION_COST, PodFacts};

pub(super) const SET: &str = "picky";

/// Number of pods before and after the scale-down.
const REPLICAS: (usize, usize) = (7, 4);

/// An annotation for a pod, and its description.
struct Mark {
    annotation: (&'static str, &'static str),
    why: &'static str,
}

/// One pod becomes unready, one gets a low deletion cost, one a high deletion cost.
const MARKS: [Mark; 3] = [
    Mark {
        annotation: (FATE, "unready"),
        why: "not ready",
    },
    Mark {
        annotation: (DELETION_COST, "-10"),
        why: "deletion cost -10",
    },
    Mark {
        annotation: (DELETION_COST, "50"),
        why: "deletion cost 50",
    },
];

pub(super) fn play(stage: &mut Stage<'_>) -> ChapterResult<String> {
    stage.command(format!("kubectl create -f {SET}.yaml"));
    let n_first = REPLICAS.0 - 1;
    stage.create(&collection("default"), &replica_set(SET, n_first))?;
    until_complete(stage, SET)?;
    let world = stage.look()?;
    let names: Vec<String> = world
        .pods_of_name(SET)
        .iter()
        .map(|pod| pod.name.clone())
        .collect();
    for (name, mark) in names.iter().zip(&MARKS) {
        let (annotation, value) = mark.annotation;
        stage.command(format!("kubectl annotate pod {name} {annotation}={value}"));
        stage.patch(&pod_path(name), &annotated(annotation, value))?;
        stage.pause(0.4)?;
    }
    // New pods get no node.
    let template = json!({"spec": {"template": annotated(FATE, "unscheduled")}});
    stage.patch(&set_path("default", SET), &template)?;
    scale(stage, SET, REPLICAS.0)?;
    let world = stage.until("one more pod, without a node", PATIENCE, |_, world| {
        let pods = world.pods_of_name(SET);
        let n_ready = pods.iter().filter(|pod| pod.is_ready).count();
        let counts = world
            .set(SET)
            .map_or((0, 0), |set| (set.current, set.ready));
        pods.len() == REPLICAS.0 && n_ready == n_first - 1 && counts == (REPLICAS.0, n_ready)
    })?;
    let mut pods: Vec<PodFacts> = world.pods_of_name(SET).into_iter().cloned().collect();
    // In the order of deletion.
    pods.sort_by_key(|pod| (!pod.node.is_empty(), pod.is_ready, pod.cost));
    let expected = expected_choice(&pods)?;
    stage.set_notes(describe(&pods, &expected, "to delete", "to keep"));
    stage.pause(1.4)?;

    scale(stage, SET, REPLICAS.1)?;
    stage.until("the scale-down", PATIENCE, |_, world| {
        let left = world.pods_of_name(SET).len();
        left == REPLICAS.1 && world.is_complete(SET)
    })?;
    let world = stage.look()?;
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
    stage.pause(1.4)?;
    let reasons: Vec<String> = pods
        .iter()
        .filter_map(|pod| {
            expected
                .get(&pod.name)
                .map(|why| format!("{} ({why})", pod.name))
        })
        .collect();
    Ok(format!("deleted {}", reasons.join(", ")))
}

fn annotated(annotation: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {annotation: value}}})
}

/// Returns the pods that must be deleted, by name, with the reason, from the pods themselves.
fn expected_choice(pods: &[PodFacts]) -> ChapterResult<BTreeMap<String, String>> {
    let mut chosen = BTreeMap::new();
    for pod in pods {
        if let Some(why) = weakness(pod) {
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

fn weakness(pod: &PodFacts) -> Option<String> {
    if pod.node.is_empty() {
        Some("no node".to_owned())
    } else if !pod.is_ready {
        Some(MARKS[0].why.to_owned())
    } else if pod.cost < 0 {
        Some(MARKS[1].why.to_owned())
    } else {
        None
    }
}

/// Returns a line per pod, deleted pods first.
fn describe(
    pods: &[PodFacts],
    chosen: &BTreeMap<String, String>,
    goes: &str,
    stays: &str,
) -> Vec<String> {
    let line = |pod: &PodFacts| match chosen.get(&pod.name) {
        Some(why) => format!("{:12} {goes}: {why}", pod.name),
        None if pod.cost > 0 => format!("{:12} {stays}: {}", pod.name, MARKS[2].why),
        None => format!("{:12} {stays}: ready, deletion cost 0", pod.name),
    };
    let is_chosen = |pod: &&PodFacts| chosen.contains_key(&pod.name);
    let going = pods.iter().filter(is_chosen);
    let staying = pods.iter().filter(|pod| !is_chosen(pod));
    going.chain(staying).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{PodFacts, describe, expected_choice, weakness};

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
    fn the_weak_go_and_each_has_its_reason() {
        let pods = [
            pod("a", "n", true, 0),
            pod("b", "", false, 0),
            pod("c", "n", false, 0),
            pod("d", "n", true, -10),
            pod("e", "n", true, 50),
        ];
        let chosen = expected_choice(&pods).expect("three of them");
        let lines = describe(&pods, &chosen, "deleted", "kept");
        assert_eq!(
            lines,
            [
                "b            deleted: no node",
                "c            deleted: not ready",
                "d            deleted: deletion cost -10",
                "a            kept: ready, deletion cost 0",
                "e            kept: deletion cost 50",
            ]
        );
        assert!(expected_choice(&pods[..2]).is_err());
        assert_eq!(weakness(&pods[0]), None);
    }
}
