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
use std::fs;
use std::hash::Hash;
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::thread_time;

/// What `make simulate` keeps of each scope, a line for each.
const RECORD: &str = "../../tests/records/scopes.jsonl";

/// What an exploration has visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Steps from them, repeated ones included.
    pub steps: usize,
    /// Steps of the longest history.
    pub depth: usize,
    wall_time: Duration,
    cpu_time: Duration,
}

impl Explored {
    /// Writes the figures into the scope's line of the record, in long runs only.
    pub fn keep(&self, scope: &str) {
        static WRITING: Mutex<()> = Mutex::new(());
        if std::env::var_os("SIMULATION_MINUTES").is_none() {
            return;
        }
        let _writing = WRITING.lock();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORD);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines();
        let lines = lines.map(|line| serde_json::from_str(line).expect("a line of figures"));
        let mut lines: Vec<Line> = lines.filter(|line: &Line| line.scope != scope).collect();
        lines.push(Line {
            scope: scope.to_owned(),
            date: jiff::Timestamp::now().strftime("%F").to_string(),
            n_states: self.states,
            n_steps: self.steps,
            depth: self.depth,
            wall_seconds: self.wall_time.as_secs_f64(),
            cpu_seconds: self.cpu_time.as_secs_f64(),
        });
        lines.sort_by(|one, other| one.scope.cmp(&other.scope));
        let lines = lines.iter().map(serde_json::to_string);
        let lines = lines.map(|line| line.expect("numbers") + "\n");
        fs::write(&file, lines.collect::<String>()).expect("room on the disk");
    }
}

/// A scope's line of the record.
#[derive(Serialize, Deserialize)]
struct Line {
    scope: String,
    date: String,
    n_states: usize,
    n_steps: usize,
    depth: usize,
    wall_seconds: f64,
    cpu_seconds: f64,
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
pub fn explore<S, A: Debug, I: Eq + Hash>(
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
        wall_time: Duration::ZERO,
        cpu_time: Duration::ZERO,
    };
    let (began, cpu_before) = (Instant::now(), thread_time());
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
    explored.wall_time = began.elapsed();
    explored.cpu_time = thread_time().saturating_sub(cpu_before);
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
