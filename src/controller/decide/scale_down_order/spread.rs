//! `spread`: takes from the domain with most pods, and counts anew after each.
//!
//! This leaves the smallest skew that any choice of as many candidates leaves: no other choice has
//! a lower maximum or a higher minimum.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::{Because, Candidate, Chosen};
use crate::api::policy::Preference;
use crate::stdx::hash::HashMap;

/// Candidates of one domain that go together, by ascending index.
#[derive(Debug)]
pub(super) struct Lot {
    pub(super) pods: Vec<usize>,
    pub(super) domain: usize,
}

/// Chooses `count` candidates.
pub(super) fn choose(candidates: &[Candidate], count: usize, in_domain: &[usize]) -> Vec<Chosen> {
    let lots = candidates.iter().enumerate().map(|(at, candidate)| Lot {
        pods: vec![at],
        domain: candidate.domain,
    });
    let taken = take(lots.collect(), count, &mut in_domain.to_vec());
    let because = |in_domain| Because {
        preference: Preference::Spread,
        in_domain: Some(in_domain),
        on_node: None,
    };
    taken.into_iter().map(|(at, n)| (at, because(n))).collect()
}

/// Takes lots until there are `count` candidates, of the last lot as many as are missing. The next
/// lot is of the domain with most pods; among equal domains and in one domain, it is the one with
/// the lowest index. Returns each candidate with the number of pods that its domain had, and
/// subtracts those taken from `in_domain`.
pub(super) fn take(
    mut lots: Vec<Lot>,
    count: usize,
    in_domain: &mut [usize],
) -> Vec<(usize, usize)> {
    lots.sort_by_key(|lot| lot.pods.first().copied());
    let mut queues: HashMap<usize, VecDeque<Vec<usize>>> = HashMap::default();
    for lot in lots {
        queues.entry(lot.domain).or_default().push_back(lot.pods);
    }
    let next = |queue: &VecDeque<Vec<usize>>| queue.front().and_then(|it| it.first().copied());
    let entry = |(domain, queue): (&usize, &_)| {
        // No two candidates have one index, so the heap's order does not depend on the map's.
        Some((in_domain[*domain], Reverse(next(queue)?), *domain))
    };
    let mut heap: BinaryHeap<_> = queues.iter().filter_map(entry).collect();
    let mut taken = Vec::with_capacity(count);
    while taken.len() < count
        && let Some((_, _, domain)) = heap.pop()
        && let Some(queue) = queues.get_mut(&domain)
    {
        let lot = queue.pop_front().unwrap_or_default();
        for pod in lot.into_iter().take(count - taken.len()) {
            taken.push((pod, in_domain[domain]));
            in_domain[domain] = in_domain[domain].saturating_sub(1);
        }
        if let Some(first) = next(queue) {
            heap.push((in_domain[domain], Reverse(first), domain));
        }
    }
    taken
}
