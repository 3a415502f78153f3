//! The chapters that scale. Several ReplicaSets scale up at once; then one scales to 200, in
//! batches that double as long as all creates succeed. A scale-down deletes pods in the order of
//! deletion: the ReplicaSet opts in to protected pods and to emptying nodes, and then to even ones.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{annotate, annotations, collection, replica_set, scale, set_path, until_complete};
use crate::cli::SAMPLE;
use crate::devserver::behaviour::{FATE, NODE};
use crate::devserver::{Action, Matcher, Recorded, Rule};
use crate::run::local::demo::stage::{ChapterError, ChapterResult, Stage, check};
use crate::run::local::{DELETION_COST, PodFacts, SCALE_DOWN, World};

/// The ReplicaSet of the sample that scales to 200.
const LARGE: &str = "worker";

const LARGE_REPLICAS: usize = 200;

/// Duration of a create, long enough to make batches visible.
const CREATE_TIME: Duration = Duration::from_millis(70);

pub(super) fn scale_up(stage: &mut Stage<'_>) -> ChapterResult<String> {
    let sample: Vec<Value> = serde_saphyr::from_multiple(SAMPLE).map_err(|error| {
        ChapterError::Missed(format!("cannot read the sample ReplicaSets: {error}"))
    })?;
    let before = stage.version();
    stage.command("replicaset-controller sample | kubectl apply -f -");
    stage.look()?;
    for object in &sample {
        stage.create(&collection("default"), object)?;
    }
    // One of them waits longer before its pods count as available.
    stage.until("all ReplicaSets have their pods", |_, world| {
        let mut sets = world.sets.iter();
        world.sets.len() == sample.len() && sets.all(|set| set.ready == set.desired)
    })?;
    let n_small = stage.pods_since(before, "default").added;
    stage.pause(0.7)?;

    let slow = Rule::new(Matcher::verb("create", "pods"), Action::Delay(CREATE_TIME));
    let n_before = stage.requests("create", "pods").len();
    let slow = stage.add_rule(slow);
    let begun = Instant::now();
    scale(stage, LARGE, LARGE_REPLICAS)?;
    let n_more = LARGE_REPLICAS - replicas_of(&sample, LARGE);
    let scaled = stage.until("200 pods", |stage, world| {
        let n_sent = stage.requests("create", "pods").len() - n_before;
        stage.set_notes(vec![progress(n_sent, n_more)]);
        world.pods_of_name(LARGE).len() == LARGE_REPLICAS
    });
    slow.remove();
    scaled?;
    let seconds = begun.elapsed().as_secs_f64();
    for object in &sample {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        until_complete(stage, name)?;
    }

    let requests = stage.requests("create", "pods");
    let requests = &requests[n_before..];
    let n_sent = requests.len();
    check(n_sent == n_more, || {
        format!("{n_sent} creates for {n_more} pods")
    })?;
    stage.set_notes(vec![progress(n_sent, n_more)]);
    let expected = doubling(n_more);
    let found = batches(requests);
    check(is_made_of(&found, &expected), || {
        format!("the batches were {found:?}, not {expected:?}")
    })?;
    let n_pods = stage.pods_since(before, "default").added;
    check(n_pods == n_small + n_more, || {
        format!(
            "{n_pods} pods were created by {} requests",
            n_small + n_more
        )
    })?;
    stage.pause(0.5)?;
    let sizes = join(&expected);
    Ok(format!(
        "created {n_pods} pods, the last {n_more} in batches of {sizes} (slowed to {seconds:.1} s)"
    ))
}

fn replicas_of(sample: &[Value], name: &str) -> usize {
    let mut sets = sample.iter();
    let set = sets.find(|set| set["metadata"]["name"] == name);
    let replicas = set.and_then(|set| set["spec"]["replicas"].as_u64());
    replicas
        .and_then(|count| count.try_into().ok())
        .unwrap_or(0)
}

/// Returns 1, 2, 4 and so on, with the sum `total`.
fn doubling(total: usize) -> Vec<usize> {
    let (mut sizes, mut left, mut next) = (Vec::new(), total, 1);
    while left > 0 {
        sizes.push(next.min(left));
        left -= next.min(left);
        next *= 2;
    }
    sizes
}

/// Returns the sizes of the groups of requests. A group starts when all earlier requests have a
/// response.
fn batches(requests: &[Arc<Recorded>]) -> Vec<usize> {
    let mut times: Vec<(Instant, Option<Instant>)> = requests
        .iter()
        .map(|recorded| (recorded.started, recorded.answered()))
        .collect();
    times.sort();
    groups(&times)
}

fn groups(times: &[(Instant, Option<Instant>)]) -> Vec<usize> {
    let mut sizes: Vec<usize> = Vec::new();
    // Time of the last response to an earlier request; `None` while one is in flight.
    let mut answered: Option<Instant> = None;
    for (index, (started, end)) in times.iter().enumerate() {
        let is_new = index == 0 || answered.is_some_and(|answered| *started >= answered);
        match sizes.last_mut() {
            Some(size) if !is_new => *size += 1,
            _ => sizes.push(1),
        }
        answered = match (answered, end) {
            (Some(answered), Some(end)) => Some(answered.max(*end)),
            (None, Some(end)) if index == 0 => Some(*end),
            _ => None,
        };
    }
    sizes
}

/// True if each expected batch consists of whole groups. A busy machine may send a batch in several
/// groups.
fn is_made_of(groups: &[usize], expected: &[usize]) -> bool {
    let ends = |sizes: &[usize]| {
        let mut end = 0;
        let ends = sizes.iter().map(|size| {
            end += size;
            end
        });
        ends.collect::<Vec<usize>>()
    };
    let group_ends = ends(groups);
    ends(expected).iter().all(|end| group_ends.contains(end))
}

/// Renders the finished batches and the progress of the current one.
fn progress(n_sent: usize, total: usize) -> String {
    let (mut left, mut parts) = (n_sent, Vec::new());
    for size in doubling(total) {
        if left == 0 {
            break;
        }
        parts.push(match size.cmp(&left) {
            Ordering::Greater => format!("{left} of {size}"),
            _ => size.to_string(),
        });
        left -= size.min(left);
    }
    format!("creates in batches: {}", parts.join(", "))
}

fn join(sizes: &[usize]) -> String {
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    sizes.join(", ")
}

const PICKY: &str = "picky";

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

pub(super) fn scale_down(stage: &mut Stage<'_>) -> ChapterResult<String> {
    create_picky(stage)?;
    let pods = mark(stage)?;
    let expected = expected_choice(&pods)?;
    stage.set_notes(describe(&pods, &expected, "to delete", "to keep"));
    stage.pause(1.0)?;

    scale(stage, PICKY, REPLICAS.1)?;
    let world = stage.until("the scale-down", |_, world| {
        let left = world.pods_of_name(PICKY).len();
        left == REPLICAS.1 && world.is_complete(PICKY)
    })?;
    let left = world.pods_of_name(PICKY);
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
    annotate(stage, ("rs", PICKY), ORDER, Some("spread"))?;
    let template = json!({"metadata": {"annotations": annotations(&[(NODE, EMPTIED)])}});
    let n_pods = REPLICAS.1 + N_MORE;
    let patch = json!({"spec": {"replicas": n_pods, "template": template}});
    stage.patch(&set_path("default", PICKY), &patch)?;
    stage.until("more pods", |_, world| {
        let pods = world.pods_of_name(PICKY);
        pods.len() == n_pods && pods.iter().all(|pod| pod.is_ready)
    })?;
    scale(stage, PICKY, REPLICAS.1)?;
    let world = stage.until("the second scale-down", |_, world| {
        world.pods_of_name(PICKY).len() == REPLICAS.1 && world.is_complete(PICKY)
    })?;
    let left = world.pods_of_name(PICKY);
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
fn create_picky(stage: &mut Stage<'_>) -> ChapterResult<()> {
    stage.create(&collection("default"), &replica_set(PICKY, 0))?;
    annotate(stage, ("rs", PICKY), PROTECTION.0, Some(PROTECTION.1))?;
    for (template, replicas) in GROWTH {
        let template = json!({"metadata": {"annotations": annotations(template)}});
        let patch = json!({"spec": {"replicas": replicas, "template": template}});
        stage.patch(&set_path("default", PICKY), &patch)?;
        stage.until("its pods", |_, world| {
            world.pods_of_name(PICKY).len() == replicas
        })?;
    }
    annotate(stage, ("rs", PICKY), ORDER, Some("consolidate"))?;
    until_ready(stage, REPLICAS.0 - 1).map(drop)
}

/// Annotates pods. Returns all of them, those to delete first.
fn mark(stage: &mut Stage<'_>) -> ChapterResult<Vec<PodFacts>> {
    let world = stage.look()?;
    let pods = world.pods_of_name(PICKY).into_iter();
    let fuller: Vec<&PodFacts> = pods.filter(|pod| pod.node == FULLER).collect();
    for (index, (annotation, value)) in MARKS {
        let pod = ("pod", fuller[index].name.as_str());
        annotate(stage, pod, annotation, Some(value))?;
        stage.pause(0.25)?;
    }
    let world = until_ready(stage, REPLICAS.0 - 2)?;
    let pods = world.pods_of_name(PICKY).into_iter();
    let mut pods: Vec<PodFacts> = pods.cloned().collect();
    pods.sort_by_key(|pod| (weakness(pod).map_or(usize::MAX, |(rank, _)| rank), pod.cost));
    Ok(pods)
}

/// Waits until the ReplicaSet has all its pods, so many of them Ready.
fn until_ready(stage: &mut Stage<'_>, n_ready: usize) -> ChapterResult<World> {
    stage.until("the pods and their states", |_, world| {
        let pods = world.pods_of_name(PICKY);
        let counts = world.set(PICKY).map(|set| (set.current, set.ready));
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
                "{:12} {stays}: scale-down=never, despite deletion cost {cost}",
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
    use std::time::{Duration, Instant};

    use super::{
        EMPTIED, FULLER, PodFacts, describe, doubling, expected_choice, groups, is_made_of,
        progress, weakness,
    };

    #[test]
    fn batches_double_until_all_is_done() {
        assert_eq!(doubling(160), [1, 2, 4, 8, 16, 32, 64, 33]);
        assert_eq!(doubling(0), [0_usize; 0]);
        let text = progress(40, 160);
        assert_eq!(text, "creates in batches: 1, 2, 4, 8, 16, 9 of 32");
    }

    #[test]
    fn a_request_after_all_answers_begins_a_group() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let done = |from: u64, to: u64| (at(from), Some(at(to)));
        let times = [
            done(0, 5),
            done(6, 20),
            done(7, 9),
            (at(21), None),
            done(30, 31),
        ];
        assert_eq!(groups(&times), [1, 2, 2]);
    }

    #[test]
    fn groups_may_be_finer_than_batches_but_not_cross_them() {
        assert!(is_made_of(&[1, 2, 1, 3], &[1, 2, 4]));
        assert!(!is_made_of(&[3, 4], &[1, 2, 4]));
    }

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
                "g            kept: scale-down=never, despite deletion cost -50",
            ]
        );
        assert!(expected_choice(&pods[..2]).is_err());
        assert_eq!(weakness(&pods[0]), None);
    }
}
