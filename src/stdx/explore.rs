//! An explorer of small models: it visits every state that the steps of a model reach.
//!
//! Why none of the three known explorers is used (looked at in November 2026):
//!
//! - `loom` 0.7.3 (November 2026) and `shuttle` 0.9.10 are well kept. They explore the schedules of
//!   code that uses *their* locks, atomics and threads. The queue uses crossbeam channels with
//!   `select!`, which neither has; neither has time, which decides the election; and both run a
//!   history again for each schedule, without merging histories that reach the same state.
//! - `stateright` 0.31.0 explores state machines and merges equal states. Its last commit is of
//!   July 2025. It brings 13 crates more, an HTTP server among them.
//!
//! The shipped steps here are methods, so what remains is a breadth-first search.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// What an exploration has visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Explored {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    pub(crate) depth: usize,
}

/// A node of the search: how a state was reached first.
struct Reached<A> {
    from: Option<(usize, A)>,
}

/// Visits every state within `depth` steps of `initial`, nearest first, and checks each of them.
/// States with the same identity count as one, so it must contain all that decides about later
/// steps.
///
/// # Panics
/// With a shortest path, if `check` rejects a state.
#[track_caller]
pub(crate) fn explore<S, A: Debug, I: Eq + Hash>(
    initial: S,
    depth: usize,
    identity: impl Fn(&S) -> I,
    steps: impl Fn(&S) -> Vec<(A, S)>,
    check: impl Fn(&S) -> Result<(), String>,
) -> Explored {
    let mut seen = HashSet::from([identity(&initial)]);
    let mut reached = vec![Reached { from: None }];
    let mut level = vec![(0, initial)];
    let mut explored = Explored {
        states: 1,
        steps: 0,
        depth: 0,
    };
    while explored.depth < depth {
        let mut next = Vec::new();
        for (from, state) in level {
            for (action, after) in steps(&state) {
                explored.steps += 1;
                if !seen.insert(identity(&after)) {
                    continue;
                }
                let index = reached.len();
                reached.push(Reached {
                    from: Some((from, action)),
                });
                if let Err(wrong) = check(&after) {
                    panic!("{wrong} after {:#?}", path(&reached, index));
                }
                next.push((index, after));
            }
        }
        if next.is_empty() {
            break;
        }
        explored.states += next.len();
        explored.depth += 1;
        level = next;
    }
    explored
}

fn path<A>(reached: &[Reached<A>], mut index: usize) -> Vec<&A> {
    let mut path = Vec::new();
    while let Some((from, action)) = &reached[index].from {
        path.push(action);
        index = *from;
    }
    path.reverse();
    path
}
