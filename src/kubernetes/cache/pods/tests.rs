//! The tallies against a count of all pods, with few and with many label sets.

use std::collections::BTreeMap;

use fastrand::Rng;
use jiff::Timestamp;

use super::PodTally;
use crate::api::{Labels, Pod, PodPhase};

fn labels(number: usize) -> Labels {
    let pairs = [("app", "web".to_owned()), ("index", number.to_string())];
    pairs.into_iter().collect()
}

fn pod(labels: &Labels, rng: &mut Rng) -> Pod {
    let phases = [PodPhase::Running, PodPhase::Pending, PodPhase::Failed];
    Pod {
        labels: labels.clone(),
        phase: phases[rng.usize(..phases.len())],
        is_ready: rng.bool(),
        deletion: (rng.u8(..) < 64).then(|| Timestamp::UNIX_EPOCH.into()),
        ..Pod::default()
    }
}

/// Numbers of all, active, Ready and terminating pods by their labels.
type Numbers = BTreeMap<String, [u32; 4]>;

fn recount(pods: &[Pod]) -> Numbers {
    let mut numbers = Numbers::new();
    for pod in pods {
        let is_active = pod.is_active();
        let counts = [
            true,
            is_active,
            is_active && pod.is_ready,
            pod.is_terminating() && !pod.phase.is_terminal(),
        ];
        let numbers = numbers.entry(pod.labels.to_string()).or_default();
        for (number, is_counted) in numbers.iter_mut().zip(counts) {
            *number += u32::from(is_counted);
        }
    }
    numbers
}

#[track_caller]
fn check(tally: &PodTally, pods: &[Pod]) {
    let mut numbers = Numbers::new();
    for (labels, it) in tally.iter() {
        let found = [it.n_pods, it.n_active, it.n_ready, it.n_terminating];
        let earlier = numbers.insert(labels.to_string(), found);
        assert_eq!(earlier, None, "{labels} stand there twice");
    }
    assert_eq!(numbers, recount(pods));
    let n_active = pods.iter().filter(|pod| pod.is_active()).count();
    assert_eq!(tally.n_active(), n_active);
}

#[test]
fn the_counts_are_right_with_few_and_with_many_label_sets() {
    for n_sets in [1, 8, 16, 17, 60] {
        let mut rng = Rng::with_seed(n_sets as u64);
        let sets: Vec<Labels> = (0..n_sets).map(labels).collect();
        let (mut tally, mut pods) = (PodTally::default(), Vec::<Pod>::new());
        // Grow and shrink, so that sets come and go.
        for round in 0..6 {
            for _ in 0..200 {
                if pods.is_empty() || rng.usize(..4) > 2 * (round % 2) {
                    let pod = pod(&sets[rng.usize(..n_sets)], &mut rng);
                    tally.add(&pod);
                    pods.push(pod);
                } else {
                    tally.remove(&pods.swap_remove(rng.usize(..pods.len())));
                }
                check(&tally, &pods);
            }
        }
        for pod in pods {
            tally.remove(&pod);
        }
        check(&tally, &[]);
    }
}

/// Takes minutes if every pod needs a linear search.
#[test]
fn twenty_thousand_orphans_with_their_own_labels_are_counted() {
    let mut rng = Rng::with_seed(7);
    let mut tally = PodTally::default();
    let sets = (0..20_000).map(labels);
    let mut pods: Vec<Pod> = sets.map(|labels| pod(&labels, &mut rng)).collect();
    for pod in &pods {
        tally.add(pod);
    }
    check(&tally, &pods);
    for _ in 0..10 {
        for old in &mut pods {
            let new = pod(&old.labels, &mut rng);
            tally.remove(old);
            tally.add(&new);
            *old = new;
        }
    }
    check(&tally, &pods);
    rng.shuffle(&mut pods);
    for pod in pods.drain(20..) {
        tally.remove(&pod);
    }
    check(&tally, &pods);
    let tallies = tally.others.as_deref().expect("pods remain");
    assert!(tallies.capacity() <= 80, "memory is released");
}

#[test]
fn equal_label_sets_are_counted_together() {
    let mut rng = Rng::with_seed(1);
    let mut tally = PodTally::default();
    let pods = [labels(1), labels(1)].map(|labels| pod(&labels, &mut rng));
    for pod in &pods {
        tally.add(pod);
    }
    check(&tally, &pods);
    tally.remove(&pods[0]);
    check(&tally, &pods[1..]);
}
