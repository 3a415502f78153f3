//! Several ReplicaSets scale up at once; then one scales to 200, in batches that double as long as
//! all creates succeed.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{PATIENCE, collection, scale, until_complete};
use crate::cli::SAMPLE;
use crate::devserver::{Action, Matcher, Recorded, Rule};
use crate::run::stand_in::demo::stage::{ChapterError, ChapterResult, Stage, check};

/// The ReplicaSet of the sample that scales to 200.
const LARGE: &str = "worker";

const LARGE_REPLICAS: usize = 200;

/// Duration of a create, long enough to make batches visible.
const CREATE_TIME: Duration = Duration::from_millis(70);

pub(super) fn play(stage: &mut Stage<'_>) -> ChapterResult<String> {
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
    stage.until("all ReplicaSets have their pods", PATIENCE, |_, world| {
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
    let scaled = stage.until("200 pods", PATIENCE, |stage, world| {
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{doubling, groups, is_made_of, progress};

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
}
