//! Makes a failing history smaller, and reports it.

use super::plan::Plan;
use super::{Outcome, run};

/// Histories that may be run to make one smaller, unless `SIMULATION_SHRINK_RUNS` says otherwise.
const RUNS_MAX: usize = 120;

/// Runs smaller and smaller versions of `plan`, and reports the smallest that fails.
pub(super) fn print_the_smallest(plan: &Plan) -> String {
    let (plan, outcome) = smallest(plan);
    let tail = outcome.lines.len().saturating_sub(6_000);
    let lines = outcome.lines[tail..].join("\n");
    format!("{lines}\n{plan}{:?}", outcome.wrong)
}

fn smallest(plan: &Plan) -> (Plan, Outcome) {
    let (mut best, mut outcome) = (plan.clone(), run(plan));
    let runs_max = std::env::var("SIMULATION_SHRINK_RUNS").ok();
    let runs_max = runs_max.and_then(|it| it.parse().ok()).unwrap_or(RUNS_MAX);
    let mut n_runs = 0;
    let mut size = best.actions.len().div_ceil(2);
    let mut attempt = |smaller: Plan, best: &mut Plan, outcome: &mut Outcome| {
        n_runs += 1;
        if n_runs > runs_max {
            return false;
        }
        let found = run(&smaller);
        let fails = !found.wrong.is_empty();
        if fails {
            (*best, *outcome) = (smaller, found);
        }
        fails
    };
    for simpler in simpler_settings(&best) {
        attempt(simpler(&best), &mut best, &mut outcome);
    }
    while size > 0 {
        let mut at = 0;
        while at < best.actions.len() {
            let mut smaller = best.clone();
            let end = (at + size).min(smaller.actions.len());
            drop(smaller.actions.drain(at..end));
            if !attempt(smaller, &mut best, &mut outcome) {
                at += size;
            }
        }
        size /= 2;
    }
    (best, outcome)
}

type Simpler = Box<dyn Fn(&Plan) -> Plan>;

fn simpler_settings(plan: &Plan) -> Vec<Simpler> {
    let mut all: Vec<Simpler> = vec![
        Box::new(|plan| Plan {
            slowness: None,
            ..plan.clone()
        }),
        Box::new(|plan| Plan {
            opt_ins: vec![&[]; plan.opt_ins.len()],
            ..plan.clone()
        }),
        Box::new(|plan| Plan {
            has_dry_run: false,
            ..plan.clone()
        }),
        Box::new(|plan| Plan {
            crash_rate: None,
            ..plan.clone()
        }),
        Box::new(|plan| Plan {
            fault_rate: 0,
            ..plan.clone()
        }),
    ];
    for bit in 0..u32::BITS {
        if plan.fault_kinds & (1 << bit) != 0 {
            all.push(Box::new(move |plan| Plan {
                fault_kinds: plan.fault_kinds & !(1 << bit),
                ..plan.clone()
            }));
        }
    }
    all
}
